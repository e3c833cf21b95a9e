#ifndef ATTENTION_CORE_CPU_SCORING_UNIFORM_H_
#define ATTENTION_CORE_CPU_SCORING_UNIFORM_H_

#include "core/cpu/scoring/scoring.h"

namespace attention::cpu {

/// The same score for every key: for rows that average all values
/// (EmptyRows::kUniform). It reads neither queries nor keys.
class UniformScoring final : public Scoring {
 public:
  void SetQueries(const BlockRows& /*rows*/,
                  const KeyRange& /*attended*/) override {}

  void SetKeys(const RowSource& keys, int64_t /*count*/,
               TileArgs& args) override {
    args.operands = Operands::kPacked;
    args.epilogue.factor = 1.0F;
    args.epilogue.row_addend = nullptr;
    args.epilogue.softcap = 0.0F;
    args.packed.score = Score::kDot;
    args.packed.width = 0;
    args.packed.key_addend = nullptr;
    args.packed.partial = nullptr;
    // Of no width, but somewhere in memory.
    args.packed.keys = args.packed.queries = args.scores;
    args.in_place.queries = args.scores;
    args.in_place.query_stride = 0;
    args.in_place.keys = keys.data;
    args.in_place.key_stride = keys.row_stride;
    args.in_place.key_width = 0;
    args.in_place.type = keys.type;
  }

  void SetKeyRows(const RowSource& keys, int64_t count, bool widen,
                  TileArgs& args) override {
    SetKeys(keys, count, args);
    args.operands = Operands::kInPlace;
    if (widen) args.in_place.type = Element::kFloat32;  // as values are then
  }
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_SCORING_UNIFORM_H_
