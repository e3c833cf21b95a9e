#include "core/cpu/rows/kept_weights.h"

#include <algorithm>
#include <cmath>

#include "core/cpu/rows/result_memory.h"
#include "hwy/cache_control.h"

namespace attention::cpu {

KeptWeights::KeptWeights(const ValidatedProblem& problem, const Plan& plan,
                         const Kernels& kernels, int64_t rows, Scratch& scratch)
    : problem_(problem), plan_(plan), kernels_(kernels), rows_(rows) {
  if (!plan.keeps_weights) return;
  weights_ = scratch.Take<float>(plan.row_block * plan.kept_stride);
  max_ = scratch.Take<float>(plan.row_block * plan.kept_tiles);
  tiles_ = scratch.Take<KeyRange>(plan.kept_tiles);
}

void KeptWeights::BeginTile(const KeyTile& tile) {
  tiles_[count_++] = {tile.first_key, tile.first_key + tile.count};
}

void KeptWeights::Keep(const TileWeights& weights, const float* max) {
  const KeyRange& keys = tiles_[count_ - 1];
  for (int64_t n = 0; n < weights.rows; ++n) {
    const int64_t row = weights.first_row + n;
    const float* const from = weights.weights + n * kScoreStride;
    float* const to = RowOf(row, keys);
    std::fill(to, to + weights.begin, 0.0F);
    std::copy(from + weights.begin, from + weights.end, to + weights.begin);
    std::fill(to + weights.end, to + keys.end - keys.begin, 0.0F);
    max_[(count_ - 1) * rows_ + row] = max[row];
  }
}

// Each tile's weights are relative to the maximum that was known then.
void KeptWeights::Store(int64_t row, const TileWeights& weights, float max,
                        double sum, float exponent, float* to) const {
  int64_t done = 0;
  const auto store = [&](const float* from, const KeyRange& keys,
                         double factor) {
    StoreZeros(to + done, keys.begin - done);
    kernels_.scale_row(from, keys.end - keys.begin, factor, to + keys.begin);
    done = keys.end;
  };
  const double inverse = sum == 0 ? 0 : 1 / sum;
  for (int64_t t = 0; t + 1 < count_; ++t) {
    const double rise = static_cast<double>(max_[t * rows_ + row]) - max;
    store(RowOf(row, tiles_[t]), tiles_[t],
          sum == 0 ? 0 : std::exp2(rise * exponent) * inverse);
  }
  const int64_t last = tiles_[count_ - 1].begin;
  store(weights.weights + (row - weights.first_row) * kScoreStride +
            weights.begin,
        {last + weights.begin, last + weights.end}, inverse);
  StoreZeros(to + done, problem_.key_length - done);
}

// Stores past the caches are seen by other threads only after this.
void KeptWeights::FlushStores() { hwy::FlushStream(); }

}  // namespace attention::cpu
