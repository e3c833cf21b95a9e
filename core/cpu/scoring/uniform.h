#ifndef ATTENTION_CORE_CPU_SCORING_UNIFORM_H_
#define ATTENTION_CORE_CPU_SCORING_UNIFORM_H_

#include "core/cpu/scoring/scoring.h"

namespace attention::cpu {

/// The same score for every key: for rows that average all values
/// (EmptyRows::kUniform). It reads neither queries nor keys.
class UniformScoring final : public Scoring {
 public:
  void SetQueries(const BlockRows& /*rows*/) override {}

  void SetKeys(const RowSource& keys, int64_t /*count*/,
               TileArgs& args) override {
    args.epilogue = {};
    args.epilogue.factor = 1.0F;
    args.score = Score::kDot;
    args.score_width = 0;
    args.partial = nullptr;
    // Of no width, but somewhere in memory.
    args.packed_keys = args.queries = args.scores;
    args.key_rows = keys.data;
    args.key_row_stride = keys.row_stride;
    args.key_row_width = 0;
    args.row_type = keys.type;
  }

  void SetKeyRows(const RowSource& keys, int64_t count, bool widen,
                  TileArgs& args) override {
    SetKeys(keys, count, args);
    if (widen) args.row_type = Element::kFloat32;  // which the values are then
  }
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_SCORING_UNIFORM_H_
