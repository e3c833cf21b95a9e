#include "core/cpu/rows/block_states.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attention::cpu {
namespace {

// What is not finite stays, also where the factor is 0.
float Rescaled(float gathered, float factor) {
  return std::isfinite(gathered) ? gathered * factor : gathered;
}

}  // namespace

BlockStates::BlockStates(const Plan& plan, int64_t padded_rows,
                         const ScoreUnit& unit, Scratch& scratch)
    : plan_(plan),
      padded_rows_(padded_rows),
      unit_(unit),
      max_(scratch.Take<float>(plan.row_block)),
      sum_(scratch.Take<double>(plan.row_block)),
      output_(scratch.Take<float>(padded_rows * plan.padded_value_width)) {}

void BlockStates::Clear(int64_t rows) {
  std::fill_n(max_, rows, -std::numeric_limits<float>::infinity());
  std::fill_n(sum_, rows, 0.0);
  std::fill_n(output_, padded_rows_ * plan_.padded_value_width, 0.0F);
}

RowStates BlockStates::ForKernels() const {
  return {.exponent = exponent(),
          .max = max_,
          .sum = sum_,
          .output = output_,
          .width = plan_.padded_value_width};
}

void BlockStates::StoreSplit(int64_t rows, float* to) const {
  const int64_t width = plan_.padded_value_width;
  for (int64_t r = 0; r < rows; ++r) {
    to[0] = max_[r];
    to[1] = static_cast<float>(sum_[r]);
    std::copy_n(output_ + r * width, width, to + 2);
    to += plan_.partial_floats();
  }
}

void BlockStates::MergeSplits(int64_t rows, int64_t splits, const float* from) {
  const int64_t width = plan_.padded_value_width;
  for (int64_t split = 0; split < splits; ++split) {
    for (int64_t r = 0; r < rows; ++r) {
      SoftmaxState<double> state = Natural(r);
      const auto factors = state.Merge({unit_.Natural(from[0]), from[1]});
      const auto mine = static_cast<float>(factors.mine);
      const auto other = static_cast<float>(factors.other);
      float* const output = output_ + r * width;
      for (int64_t i = 0; i < width; ++i) {
        output[i] = Rescaled(output[i], mine) + Rescaled(from[2 + i], other);
      }
      // One of the two, as the kernels count it.
      if (state.max != unit_.Natural(max_[r])) max_[r] = from[0];
      sum_[r] = state.sum;
      from += plan_.partial_floats();
    }
  }
}

}  // namespace attention::cpu
