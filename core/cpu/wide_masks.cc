#include "core/cpu/wide_masks.h"

#include <algorithm>
#include <limits>

#include "core/cpu/prepare.h"

namespace attention::cpu {

WideMasks::WideMasks(const ValidatedProblem& problem, const Kernels& kernels,
                     Scratch& scratch)
    : problem_(problem),
      kernels_(kernels),
      dropout_(problem.dropout.p, problem.dropout.seed),
      addends_(scratch.Take<double>(kWideRows * kWideStride)),
      kept_(scratch.Take<double>(kWideRows * kWideStride)),
      narrow_(scratch.Take<float>(kWideStride)) {}

void WideMasks::SetAddends(int64_t batch, absl::Span<const RowId> rows,
                           const KeyTile& tile, WideArgs& args) {
  args.addends = nullptr;
  if (!problem_.bias && !problem_.attend_mask) return;
  args.addends = addends_;
  std::fill_n(addends_, kWideRows * kWideStride, 0.0);
  for (size_t n = 0; n < rows.size(); ++n) {
    if (args.begin[n] >= args.end[n]) continue;
    double* const to = addends_ + static_cast<int64_t>(n) * kWideStride;
    if (problem_.bias) SetBias(batch, rows[n], tile, to);
    if (problem_.attend_mask) SetMask(batch, rows[n], tile, to);
  }
}

void WideMasks::SetBias(int64_t batch, RowId row, const KeyTile& tile,
                        double* to) {
  const TensorView& bias = *problem_.bias;
  const auto* from = reinterpret_cast<const unsigned char*>(
      bias.At(batch, row.head, row.query, tile.first_key));
  const int64_t padded =
      (tile.count + kernels_.lanes - 1) / kernels_.lanes * kernels_.lanes;
  kernels_.widen_rows({from, 0, bias.strides[3], ElementOf(bias.type)}, 1,
                      tile.count, narrow_, kWideStride, padded);
  for (int64_t j = 0; j < tile.count; ++j) to[j] = narrow_[j];
}

void WideMasks::SetMask(int64_t batch, RowId row, const KeyTile& tile,
                        double* to) const {
  const TensorView& mask = *problem_.attend_mask;
  const std::byte* from = mask.At(batch, row.head, row.query, tile.first_key);
  for (int64_t j = 0; j < tile.count; ++j) {
    if (from[j * mask.strides[3]] == std::byte{0}) {
      to[j] = -std::numeric_limits<double>::infinity();
    }
  }
}

double WideMasks::DropoutFactor(int64_t batch, RowId row, int64_t key) const {
  if (!dropout_.active()) return 1;
  return dropout_.Drops(batch, row.head, row.query, key) ? 0 : dropout_.scale();
}

void WideMasks::SetDropout(int64_t batch, absl::Span<const RowId> rows,
                           const KeyTile& tile, WideArgs& args) {
  args.dropout = nullptr;
  if (!dropout_.active()) return;
  args.dropout = kept_;
  std::fill_n(kept_, kWideRows * kWideStride, 1.0);
  for (size_t n = 0; n < rows.size(); ++n) {
    double* const to = kept_ + static_cast<int64_t>(n) * kWideStride;
    for (int64_t j = args.begin[n]; j < args.end[n]; ++j) {
      to[j] = DropoutFactor(batch, rows[n], tile.first_key + j);
    }
  }
}

}  // namespace attention::cpu
