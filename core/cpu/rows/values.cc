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
      terms_(pass == Pass::kAttend ? plan.bf16_terms : 0),
      stride_(plan.padded_value_width +
              (plan.padded_value_width % kPageFloats == 0 ? kMaxLanes : 0)) {
  if (plan.decode) return;
  const int64_t most = std::min(plan.key_tile, problem.key_length);
  if (terms_ == 0) {
    values_ = scratch.Take<float>(most * stride_);
    places_ = scratch.Take<const float*>(most);
    return;
  }
  const int64_t keys = RoundUp(most, kBf16Panel);
  const int64_t pairs = RoundUp(problem.value_width, kBf16Panel) / 2;
  bf16_rows_ = scratch.Take<float>(keys * pairs);
  bf16_places_ = scratch.Take<const unsigned char*>(keys);
  bf16_values_ = scratch.Take<float>(terms_ * keys * pairs);
  if (IsScaledType(problem.key_type) && pairs > 0) {
    scales_ = scratch.Take<float>(keys);
  }
  bf16_weights_ = scratch.Take<float>(terms_ * kBf16WeightTerm);
}

void Values::SetPacked(const BlockRows& rows, const KeyTile& tile,
                       TileArgs& args) {
  const int64_t width = problem_.value_width;
  const TileRows values = tile.Values(problem_, rows);
  if (terms_ > 0) return SetBf16(values, args);
  if (width == 0) return;
  args.packed.values = places_;
  values.ForEachPiece([&](const RowSource& some, int64_t at, int64_t count) {
    FloatRows floats = InPlace(some);
    const bool readable = floats.data != nullptr &&
                          width == plan_.padded_value_width &&
                          (some.row_stride == width * kFloat ||
                           std::abs(some.row_stride) < kFarApart);
    if (!readable) {
      kernels_.widen_rows(some, count, width, values_ + at * stride_, stride_,
                          plan_.padded_value_width);
      floats = {values_ + at * stride_, stride_};
    }
    for (int64_t n = 0; n < count; ++n) {
      places_[at + n] = floats.data + n * floats.stride;
    }
  });
}

// Values `first` ... of a tile, each row's elements of two bytes side by side.
RowSource Values::SideBySide(const RowSource& from, int64_t first,
                             int64_t count) {
  const bool bytes = scales_ != nullptr;
  if (!bytes && from.column_stride == 2) return from;
  const int64_t width = problem_.value_width;
  const int64_t pairs = RoundUp(width, kBf16Panel) / 2;
  float* const to = bf16_rows_ + first * pairs;
  if (bytes) {
    kernels_.copy_bytes_as_bf16(from, count, width, to, pairs, scales_ + first);
  } else {  // FP16, too: copied, not split
    kernels_.copy_bf16(from, count, count, width, to, pairs);
  }
  return {.data = reinterpret_cast<const unsigned char*>(to),
          .row_stride = pairs * kFloat,
          .column_stride = 2,
          .type = from.type};
}

void Values::SetBf16(const TileRows& values, TileArgs& args) {
  const int64_t panels = CeilDivide(problem_.value_width, kBf16Panel);
  args.bf16.value_panels = terms_ * panels;
  args.bf16.values = bf16_values_;
  args.bf16.value_rows = bf16_places_;
  args.bf16.value_width = problem_.value_width;
  args.bf16.weights = bf16_weights_;
  args.bf16.value_scales = scales_;
  if (panels == 0) return;
  values.ForEachPiece([&](const RowSource& some, int64_t at, int64_t count) {
    PointTo(SideBySide(some, at, count), count, bf16_places_ + at);
  });
  if (scales_ != nullptr) {
    const int64_t last = values.count();
    std::fill(scales_ + last, scales_ + RoundUp(last, kBf16Panel), 0.0F);
  }
  const auto pack =
      terms_ == 2 ? kernels_.pack_fp16_values : kernels_.pack_bf16_values;
  if (!pack(bf16_places_, values.count(), problem_.value_width, panels,
            bf16_values_)) {
    met_non_finite_ = true;
  }
}

}  // namespace attention::cpu
