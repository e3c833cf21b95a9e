#ifndef ATTENTION_CORE_CPU_ROWS_SCORE_RESULTS_H_
#define ATTENTION_CORE_CPU_ROWS_SCORE_RESULTS_H_

#include "core/cpu/block_rows.h"
#include "core/cpu/kernels/kernels.h"
#include "core/cpu/plan.h"
#include "core/cpu/rows/key_tile.h"
#include "core/cpu/scoring/scoring.h"
#include "core/cpu/scratch.h"
#include "core/result_places.h"
#include "core/validate.h"

namespace attention::cpu {

/// The scores of a block's rows on their way to the caller
/// (WantedOutputs::scores), in a pass of their own: Pass::kScores. RowMasks
/// leaves out what comes after the stage that is asked for.
class ScoreResults {
 public:
  /// Takes its memory from `scratch`, none in other passes; the others outlive
  /// it.
  ScoreResults(const ValidatedProblem& problem, const Plan& plan,
               const Kernels& kernels, const BlockRows& rows,
               const ResultPlaces& places, Pass pass, Scratch& scratch);

  /// Before the first tile; `scoring` has its queries.
  void Begin(const Scoring& scoring);
  /// Scores and stores a tile that `args` is set for.
  void StoreTile(const KeyTile& tile, TileArgs& args);

 private:
  const ValidatedProblem& problem_;
  const Kernels& kernels_;
  const BlockRows& rows_;
  const ResultPlaces& places_;
  // Of each row: where its scores go, from the first key and from the tile's.
  float** to_;
  float** to_in_tile_;
  float* addends_;  // what the scores still lack, natural
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_ROWS_SCORE_RESULTS_H_
