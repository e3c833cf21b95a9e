#include "core/cpu/rows/weight_results.h"

#include <algorithm>
#include <cmath>

#include "core/cpu/rows/offer_tile.h"
#include "core/cpu/rows/result_memory.h"

namespace attention::cpu {

WeightResults::WeightResults(const ValidatedProblem& problem, const Plan& plan,
                             const Kernels& kernels, const BlockRows& rows,
                             const StoredRows& stored,
                             const ResultPlaces& places, double* key_sums,
                             Scratch& scratch)
    : problem_(problem),
      plan_(plan),
      kernels_(kernels),
      rows_(rows),
      stored_(stored),
      places_(places),
      kept_(problem, plan, kernels, rows.count(), scratch),
      finished_(scratch.Take<uint8_t>(plan.row_block)),
      swept_(scratch.Take<uint8_t>(plan.row_block)),
      to_(scratch.Take<float*>(plan.row_block)),
      to_in_tile_(scratch.Take<float*>(plan.row_block)),
      inverse_sum_(scratch.Take<float>(plan.row_block)),
      top_k_(scratch.Take<TopK>(problem.wanted.top_k ? plan.row_block : 0)),
      key_sums_(key_sums) {}

void WeightResults::BeginTile(const KeyTile& tile, bool last) {
  kept_.BeginTile(tile);
  last_tile_ = last;
}

// Whether a second sweep has to compute the row. Weights that were kept are
// stored by now, and good but for rows that are NaN, in which those of keys
// that take no part have to be told from the others, and for rows without a
// tile.
bool WeightResults::BeginSweep(int64_t row, double sum) {
  if (problem_.wanted.top_k) {
    const int64_t head = rows_.HeadOf(row);
    const int64_t query = rows_.QueryOf(row);
    top_k_[row] = TopK(*problem_.wanted.top_k,
                       places_.TopKIndices(rows_.batch(), head, query),
                       places_.TopKWeights(rows_.batch(), head, query));
  }
  if (plan_.keeps_weights && last_tile_ && !std::isnan(sum)) return false;
  to_[row] = problem_.wanted.weights ? RowOf(row) : nullptr;
  if (to_[row] != nullptr) StoreZeros(to_[row], problem_.key_length);
  if (sum == 0) return false;
  inverse_sum_[row] = static_cast<float>(1 / sum);
  swept_[row] = 1;
  return true;
}

void WeightResults::StoreTile(const KeyTile& tile, const TileArgs& args) {
  for (int64_t r = 0; r < rows_.count(); ++r) {
    const bool stores = swept_[r] != 0 && to_[r] != nullptr;
    to_in_tile_[r] = stores ? to_[r] + tile.first_key : nullptr;
  }
  first_key_ = tile.first_key;
  WeightArgs out = {.rows = swept_,
                    .inverse_sum = inverse_sum_,
                    .weights = to_in_tile_,
                    .after_dropout = problem_.wanted.weights_after_dropout,
                    .take = nullptr,
                    .context = this};
  if (problem_.wanted.top_k || problem_.wanted.key_weights) {
    out.take = [](void* context, const RowWeights& weights) {
      static_cast<WeightResults*>(context)->Take(weights);
    };
  }
  kernels_.store_weights(args, out);
}

void WeightResults::Take(const RowWeights& weights) {
  if (problem_.wanted.top_k) {
    OfferTile(weights, first_key_, top_k_[weights.row]);
  }
  if (!problem_.wanted.key_weights) return;
  double* const sums = key_sums_ + first_key_;
  for (int64_t j = weights.begin; j < weights.end; ++j) {
    sums[j] += weights.weights[j];
  }
}

void WeightResults::Finish() {
  if (!problem_.wanted.top_k) return;
  for (int64_t r = 0; r < rows_.count(); ++r) {
    if (finished_[r] != 0) top_k_[r].Finish();
  }
}

}  // namespace attention::cpu
