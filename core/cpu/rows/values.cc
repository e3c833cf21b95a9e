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

void Values::SetBf16(const TileRows& values, TileArgs& args) {
  const int64_t panels = CeilDivide(problem_.value_width, kBf16Panel);
  const int64_t pairs = panels * kBf16Panel / 2;
  args.bf16.value_panels = terms_ * panels;
  args.bf16.values = bf16_values_;
  args.bf16.value_rows = bf16_places_;
  args.bf16.value_width = problem_.value_width;
  args.bf16.weights = bf16_weights_;
  if (panels == 0) return;
  values.ForEachPiece([&](RowSource some, int64_t at, int64_t count) {
    if (some.column_stride != 2) {  // of FP16, too: copied, not split
      kernels_.copy_bf16(some, count, count, problem_.value_width,
                         bf16_rows_ + at * pairs, pairs);
      some.data =
          reinterpret_cast<const unsigned char*>(bf16_rows_ + at * pairs);
      some.row_stride = pairs * kFloat;
    }
    PointTo(some, count, bf16_places_ + at);
  });
  const auto pack =
      terms_ == 2 ? kernels_.pack_fp16_values : kernels_.pack_bf16_values;
  if (!pack(bf16_places_, values.count(), problem_.value_width, panels,
            bf16_values_)) {
    met_non_finite_ = true;
  }
}

}  // namespace attention::cpu
