#include "core/cpu/rows/values.h"

#include <algorithm>
#include <cstdlib>

#include "core/cpu/kernels/bf16/products.h"

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
              (plan.padded_value_width % kPageFloats == 0 ? kMaxLanes : 0)),
      non_finite_keys_(scratch.Take<int32_t>(plan.key_tile)),
      line_(scratch.Take<float>(plan.padded_value_width)) {
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
      ValuesOf(*tile.block, rows.batch(), rows.kv_head(), tile.first);
  if (bf16_) return SetBf16(values, tile.count, args);
  if (width == 0) return;
  const FloatRows in_place = InPlace(values);
  const bool readable = in_place.data != nullptr &&
                        width == plan_.padded_value_width &&
                        (values.row_stride == width * kFloat ||
                         std::abs(values.row_stride) < kFarApart);
  args.met_non_finite = &met_non_finite_;
  if (readable) {
    args.packed.values = in_place.data;
    args.packed.value_stride = in_place.stride;
    return;
  }
  kernels_.widen_rows(values, tile.count, width, values_, stride_,
                      plan_.padded_value_width);
  args.packed.values = values_;
  args.packed.value_stride = stride_;
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
  return rows.scales == nullptr &&
         (rows.type != Element::kFloat16 || kernels_.reads_half) &&
         (rows.column_stride == size || width <= 1) &&
         rows.row_stride % size == 0 &&
         reinterpret_cast<intptr_t>(rows.data) % size == 0;
}

void Values::SetRows(const RowSource& values, int64_t count, bool widen,
                     TileArgs& args) {
  args.met_non_finite = &met_non_finite_;
  args.in_place.value_width = problem_.value_width;
  if (!widen) {
    args.in_place.values = values.data;
    args.in_place.value_stride = values.row_stride;
    return;
  }
  kernels_.widen_rows(values, count, problem_.value_width, values_, stride_,
                      plan_.padded_value_width);
  args.in_place.values = reinterpret_cast<const unsigned char*>(values_);
  args.in_place.value_stride = stride_ * kFloat;
}

NonFiniteArgs Values::FindNonFinite(const BlockRows& rows,
                                    const KeyTile& tile) {
  const int64_t width = problem_.value_width;
  const RowSource values =
      ValuesOf(*tile.block, rows.batch(), rows.kv_head(), tile.first);
  const auto next = [&](int64_t first) {
    return kernels_.next_non_finite(values, first, tile.count, width);
  };
  int64_t count = 0;
  for (int64_t key = next(0); key < tile.count; key = next(key + 1)) {
    non_finite_keys_[count++] = static_cast<int32_t>(key);
  }
  return {.keys = non_finite_keys_,
          .count = count,
          .values = values,
          .width = width,
          .line = line_};
}

}  // namespace attention::cpu
