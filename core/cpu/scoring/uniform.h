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

  void SetKeys(const TileRows& /*keys*/, TileArgs& args) override {
    args.operands = Operands::kPacked;
    FillConstant(args.epilogue);
    args.packed.score = Score::kDot;
    args.packed.width = 0;
    args.packed.key_addend = nullptr;
    args.packed.partial = nullptr;
    // Of no width, but somewhere in memory.
    args.packed.keys = args.packed.queries = args.scores;
  }

  void SetInPlace(TileArgs& args) override {
    args.operands = Operands::kInPlace;
    FillConstant(args.epilogue);
    args.in_place.queries = args.scores;
    args.in_place.query_stride = 0;
    args.in_place.key_width = 0;
  }

 private:
  static void FillConstant(Epilogue& epilogue) {
    epilogue.factor = 1.0F;
    epilogue.row_addend = nullptr;
    epilogue.softcap = 0.0F;
  }
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_SCORING_UNIFORM_H_
