#include "core/cpu/rows/score_results.h"

#include <limits>

#include "core/cpu/rows/result_memory.h"

namespace attention::cpu {

ScoreResults::ScoreResults(const ValidatedProblem& problem, const Plan& plan,
                           const Kernels& kernels, const BlockRows& rows,
                           const ResultPlaces& places, Pass pass,
                           Scratch& scratch)
    : problem_(problem),
      kernels_(kernels),
      rows_(rows),
      places_(places),
      to_(scratch.Take<float*>(pass == Pass::kScores ? plan.row_block : 0)),
      to_in_tile_(
          scratch.Take<float*>(pass == Pass::kScores ? plan.row_block : 0)),
      addends_(
          scratch.Take<float>(pass == Pass::kScores ? plan.row_block : 0)) {}

// Tiles leave out the keys beyond every row's range, if masks count.
void ScoreResults::Begin(const Scoring& scoring) {
  constexpr float kAbsent = -std::numeric_limits<float>::infinity();
  rows_.ForEach([&](int64_t r, int64_t head, int64_t query) {
    to_[r] =
        reinterpret_cast<float*>(places_.Scores(rows_.batch(), head, query));
    addends_[r] = static_cast<float>(scoring.LogSumExpShift(r));
    if (problem_.wanted.scores != ScoreStage::kMasked) return;
    StoreFloats(kAbsent, problem_.key_length, to_[r]);
  });
}

void ScoreResults::StoreTile(const KeyTile& tile, TileArgs& args) {
  for (int64_t r = 0; r < rows_.count(); ++r) {
    to_in_tile_[r] = to_[r] + tile.first_key;
  }
  if (problem_.wanted.scores == ScoreStage::kScaled) {
    args.epilogue.softcap = 0.0F;
  }
  // A constant of the row cancels in the softmax and is left out for it.
  if (args.epilogue.row_addend == nullptr) {
    args.epilogue.row_addend = addends_;
  }
  kernels_.store_scores(args, {.scores = to_in_tile_});
}

}  // namespace attention::cpu
