#include "core/cpu/rows/weight_results.h"

#include <algorithm>
#include <cmath>

#include "core/cpu/rows/result_memory.h"

namespace attention::cpu {

WeightResults::WeightResults(const ValidatedProblem& problem, const Plan& plan,
                             const Kernels& kernels, const BlockRows& rows,
                             const StoredRows& stored,
                             const ResultPlaces& places, Scratch& scratch)
    : problem_(problem),
      plan_(plan),
      kernels_(kernels),
      rows_(rows),
      stored_(stored),
      places_(places),
      kept_(problem, plan, kernels, rows.count(), scratch),
      to_(scratch.Take<float*>(plan.row_block)),
      to_in_tile_(scratch.Take<float*>(plan.row_block)),
      inverse_sum_(scratch.Take<float>(plan.row_block)) {}

void WeightResults::BeginTile(const KeyTile& tile, bool last) {
  kept_.BeginTile(tile);
  last_tile_ = last;
}

// Weights that were kept are stored by now, and good but for rows that are NaN,
// in which those of keys that take no part have to be told from the others, and
// for rows without a tile.
bool WeightResults::NeedsSweep(const double* sum) {
  if (!problem_.wanted.weights) return false;
  if (plan_.keeps_weights) KeptWeights::FlushStores();
  bool needs = false;
  for (int64_t r = 0; r < rows_.count(); ++r) {
    const bool kept = plan_.keeps_weights && last_tile_ && !std::isnan(sum[r]);
    to_[r] = nullptr;
    if (kept || !stored_.Has(r)) continue;
    StoreZeros(RowOf(r), problem_.key_length);
    if (sum[r] == 0) continue;
    to_[r] = RowOf(r);
    inverse_sum_[r] = static_cast<float>(1 / sum[r]);
    needs = true;
  }
  return needs;
}

void WeightResults::StoreTile(const KeyTile& tile, const TileArgs& args) {
  std::transform(to_, to_ + rows_.count(), to_in_tile_, [&tile](float* row) {
    return row == nullptr ? nullptr : row + tile.first_key;
  });
  kernels_.store_weights(
      args, {.inverse_sum = inverse_sum_,
             .weights = to_in_tile_,
             .after_dropout = problem_.wanted.weights_after_dropout});
}

}  // namespace attention::cpu
