#include "core/cpu/rows/values.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "core/cpu/bf16/products.h"

namespace attention::cpu {
namespace {

constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
// Values may be read where they lie, unless their rows are so far apart that
// every one takes a page of its own.
constexpr int64_t kFarApart = 2048;
// Rows of scratch at such a distance, in floats, share cache sets.
constexpr int64_t kPageFloats = 1024;

}  // namespace

Values::Values(const ValidatedProblem& problem, const Plan& plan,
               const Kernels& kernels, Pass pass, Scratch& scratch)
    : problem_(problem),
      plan_(plan),
      kernels_(kernels),
      bf16_(plan.bf16 && pass == Pass::kAttend),
      stride_(plan.padded_value_width +
              (plan.padded_value_width % kPageFloats == 0 ? kMaxLanes : 0)) {
  if (!bf16_) {
    const int64_t keys = std::min(plan.key_tile, problem.key_length);
    values_ = scratch.Take<float>(keys * stride_);
    return;
  }
  const int64_t keys = RoundUp(plan.key_tile, kBf16Panel);
  const int64_t pairs = RoundUp(problem.value_width, kBf16Panel) / 2;
  bf16_rows_ = scratch.Take<float>(keys * pairs);
  bf16_values_ = scratch.Take<float>(keys * pairs);
  bf16_weights_ = scratch.Take<float>(kMaxMicroRows * kBf16WeightStride);
}

void Values::SetPacked(const BlockRows& rows, const KeyTile& tile,
                       TileArgs& args) {
  const int64_t width = problem_.value_width;
  const RowSource values =
      RowsOf(tile.block->value, rows.batch(), rows.kv_head(), tile.first);
  if (bf16_) return SetBf16(values, tile.count, args);
  if (width == 0) return;
  const FloatRows in_place = InPlace(values);
  const bool readable = in_place.data != nullptr &&
                        width == plan_.padded_value_width &&
                        (values.row_stride == width * kFloat ||
                         std::abs(values.row_stride) < kFarApart);
  args.met_non_finite = &met_non_finite_;
  if (readable) {
    args.values = in_place.data;
    args.value_stride = in_place.stride;
    return;
  }
  kernels_.widen_rows(values, tile.count, width, values_, stride_,
                      plan_.padded_value_width);
  args.values = values_;
  args.value_stride = stride_;
}

void Values::SetBf16(const RowSource& values, int64_t count, TileArgs& args) {
  const int64_t panels = CeilDivide(problem_.value_width, kBf16Panel);
  args.bf16.value_panels = panels;
  args.bf16.values = bf16_values_;
  args.bf16.weights = bf16_weights_;
  if (panels == 0) return;
  const int64_t padded = RoundUp(count, kBf16Panel);
  if (!kernels_.copy_finite_bf16(values, count, padded, problem_.value_width,
                                 bf16_rows_, panels * kBf16Panel / 2)) {
    met_non_finite_ = true;
  }
  kernels_.pack_bf16_values(bf16_rows_, padded, panels, bf16_values_);
}

bool Values::IsReadable(const RowSource& rows, int64_t width) const {
  const int64_t size = SizeOf(rows.type);
  return (rows.type != Element::kFloat16 || kernels_.reads_half) &&
         (rows.column_stride == size || width <= 1) &&
         rows.row_stride % size == 0 &&
         reinterpret_cast<intptr_t>(rows.data) % size == 0;
}

void Values::SetRows(const RowSource& values, int64_t count, bool widen,
                     TileArgs& args) {
  args.met_non_finite = &met_non_finite_;
  args.value_row_width = problem_.value_width;
  if (!widen) {
    args.value_rows = values.data;
    args.value_row_stride = values.row_stride;
    return;
  }
  kernels_.widen_rows(values, count, problem_.value_width, values_, stride_,
                      plan_.padded_value_width);
  args.value_rows = reinterpret_cast<const unsigned char*>(values_);
  args.value_row_stride = stride_ * kFloat;
}

// A weight is positive, however small, unless dropout took it.
void Values::AddNonFinite(const BlockRows& rows, const RowMasks& masks,
                          float* output) const {
  if (!met_non_finite_) return;
  const int64_t width = problem_.value_width;
  const int64_t stride = plan_.padded_value_width;
  std::vector<float> value(static_cast<size_t>(stride));
  for (const ValidatedProblem::Block& block : problem_.key_value) {
    const RowSource values =
        RowsOf(block.value, rows.batch(), rows.kv_head(), 0);
    const auto next = [&](int64_t first) {
      return kernels_.next_non_finite(values, first, block.key_count, width);
    };
    for (int64_t j = next(0); j < block.key_count; j = next(j + 1)) {
      RowSource row = values;
      row.data += j * values.row_stride;
      kernels_.widen_rows(row, 1, width, value.data(), stride, stride);
      for (float& v : value) v = v - v == 0 ? 0 : v;
      for (int64_t r = 0; r < rows.count(); ++r) {
        if (!masks.Weighs(r, block.first_key + j)) continue;
        float* const to = output + r * stride;
        for (int64_t i = 0; i < stride; ++i) {
          to[i] += value[static_cast<size_t>(i)];
        }
      }
    }
  }
}

}  // namespace attention::cpu
