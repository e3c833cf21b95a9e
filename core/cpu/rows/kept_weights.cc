#include "core/cpu/rows/kept_weights.h"

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

void KeptWeights::Keep(const KeyTile& tile, TileArgs& args) {
  args.kept = weights_ + tile.first_key;
  args.kept_stride = plan_.kept_stride;
  args.keep_after_dropout = problem_.wanted.weights_after_dropout;
  args.tile_max = max_ + count_ * rows_;
  tiles_[count_++] = {tile.first_key, tile.first_key + tile.count};
}

// Each tile's weights are relative to the maximum that was known then.
void KeptWeights::Store(int64_t row, float max, double sum, float* to) const {
  int64_t done = 0;
  for (int64_t t = 0; t < count_; ++t) {
    const KeyRange& keys = tiles_[t];
    StoreZeros(to + done, keys.begin - done);
    const double rise = static_cast<double>(max_[t * rows_ + row]) - max;
    kernels_.scale_row(weights_ + row * plan_.kept_stride + keys.begin,
                       keys.end - keys.begin,
                       sum == 0 ? 0 : std::exp2(rise) / sum, to + keys.begin);
    done = keys.end;
  }
  StoreZeros(to + done, problem_.key_length - done);
}

// Stores past the caches are seen by other threads only after this.
void KeptWeights::FlushStores() { hwy::FlushStream(); }

}  // namespace attention::cpu
