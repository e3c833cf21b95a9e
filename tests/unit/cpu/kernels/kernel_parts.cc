#include "tests/unit/cpu/kernels/kernel_parts.h"

#include <cstring>

// The same instruction sets as core/cpu/kernels/kernels.cc has.
#if defined(__x86_64__)
#define HWY_DISABLED_TARGETS HWY_SSSE3
#elif defined(__aarch64__)
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/unit/cpu/kernels/kernel_parts.cc"
// clang-format off
#include "hwy/foreach_target.h"  // must come before all that follow
// clang-format on
#include "core/cpu/kernels/convert-inl.h"
#include "core/cpu/kernels/epilogue-inl.h"
#include "core/cpu/kernels/in_place-inl.h"
#include "core/cpu/kernels/math-inl.h"
#include "core/cpu/kernels/pack-inl.h"
#include "core/cpu/kernels/pv-inl.h"
#include "core/cpu/kernels/qk-inl.h"
#include "core/cpu/kernels/softmax-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attention::cpu::HWY_NAMESPACE {
namespace {

Columns Of(const TileColumns& columns) {
  return {columns.first, columns.last, columns.begin, columns.end};
}

void Exp2All(const float* from, int64_t count, float* to) {
  const F d;
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(hn::Lanes(d))) {
    hn::StoreU(Exp2(Clamped(hn::LoadU(d, from + i))), d, to + i);
  }
}

void Exp2FourAll(const float* from, int64_t count, float* to) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < count; i += 4 * lanes) {
    VF x[4];
    for (int64_t n = 0; n < 4; ++n) {
      x[n] = Clamped(hn::LoadU(d, from + i + n * lanes));
    }
    Exp2Four(x[0], x[1], x[2], x[3]);
    for (int64_t n = 0; n < 4; ++n) hn::StoreU(x[n], d, to + i + n * lanes);
  }
}

void TanhAll(const float* from, int64_t count, float* to) {
  const F d;
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(hn::Lanes(d))) {
    hn::StoreU(Tanh(hn::LoadU(d, from + i)), d, to + i);
  }
}

void ScaleByPowerAll(const float* m, const float* n, int64_t count, float* to) {
  const F d;
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(hn::Lanes(d))) {
    hn::StoreU(ScaleByPower(hn::LoadU(d, m + i), hn::LoadU(d, n + i)), d,
               to + i);
  }
}

void LoadPartOf(Element type, const unsigned char* row, int64_t index,
                int64_t count, float* to) {
  switch (type) {
    case Element::kFloat32:
      return hn::StoreU(LoadPart<Element::kFloat32>(row, index, count), F(),
                        to);
    case Element::kFloat16:
      return hn::StoreU(LoadPart<Element::kFloat16>(row, index, count), F(),
                        to);
    case Element::kBFloat16:
      return hn::StoreU(LoadPart<Element::kBFloat16>(row, index, count), F(),
                        to);
    case Element::kInt8:
      return hn::StoreU(LoadPart<Element::kInt8>(row, index, count), F(), to);
    case Element::kFloat8:
      return hn::StoreU(LoadPart<Element::kFloat8>(row, index, count), F(), to);
  }
}

TileColumns ColumnsOf(const Epilogue& epilogue, int64_t rows, int64_t panel,
                      int64_t vector) {
  const Columns columns = ColumnsOfRows(epilogue, 0, rows, panel, vector);
  return {columns.first, columns.last, columns.begin, columns.end};
}

// A micro-tile's scores, to where all rows' scores are gathered.
void Gather(const TileArgs& args, const Columns& columns, int64_t first_row,
            int64_t rows, float* to) {
  for (int64_t r = 0; r < rows; ++r) {
    memcpy(to + (first_row + r) * kScoreStride + columns.first,
           args.scores + r * kScoreStride + columns.first,
           static_cast<size_t>(columns.last - columns.first) * sizeof(float));
  }
}

struct ScorePackedMicroRows {
  const TileArgs& args;
  Columns columns;
  float* to;

  template <int kRows>
  HWY_NOINLINE void Rows(int64_t first_row) const {
    ScorePackedRows<kRows>(args, first_row, columns);
    Gather(args, columns, first_row, kRows, to);
  }
};

void ScorePacked(const TileArgs& args, const TileColumns& columns, float* to) {
  ForEachMicroTile(args.rows, ScorePackedMicroRows{args, Of(columns), to});
}

template <Element kType>
struct ScoreDecodeRows {
  const TileArgs& args;
  Columns columns;
  float* to;

  template <int kRows>
  HWY_NOINLINE void Rows(int64_t first_row) const {
    ScoreInPlace<kRows, kType>(args.in_place, first_row, columns, args.scores);
    Gather(args, columns, first_row, kRows, to);
  }
};

template <Element kType>
struct AddDecodeRows {
  const TileArgs& args;
  Columns columns;
  float* weights;
  const float* factors;

  template <int kRows>
  HWY_NOINLINE void Rows(int64_t first_row) const {
    AddValuesInPlace<kRows, kType>(args, first_row, columns,
                                   weights + first_row * kScoreStride,
                                   factors + first_row);
  }
};

// Does `Work` of the type in which keys and values lie.
template <template <Element> class Work, class... Args>
void InPlace(const TileArgs& args, const TileColumns& columns, Args... more) {
  switch (args.in_place.type) {
    case Element::kFloat32:
      return ForEachDecodeRows(
          args.rows, Work<Element::kFloat32>{args, Of(columns), more...});
    case Element::kFloat16:
      return ForEachDecodeRows(
          args.rows, Work<Element::kFloat16>{args, Of(columns), more...});
    case Element::kBFloat16:
      return ForEachDecodeRows(
          args.rows, Work<Element::kBFloat16>{args, Of(columns), more...});
    case Element::kInt8:
      return ForEachDecodeRows(
          args.rows, Work<Element::kInt8>{args, Of(columns), more...});
    case Element::kFloat8:
      return ForEachDecodeRows(
          args.rows, Work<Element::kFloat8>{args, Of(columns), more...});
  }
}

void ScoreKeysInPlace(const TileArgs& args, const TileColumns& columns,
                      float* to) {
  InPlace<ScoreDecodeRows>(args, columns, to);
}

void AddAllValuesInPlace(const TileArgs& args, const TileColumns& columns,
                         float* weights, const float* factors) {
  InPlace<AddDecodeRows>(args, columns, weights, factors);
}

void FinishAllScores(const TileArgs& args, const TileColumns& columns) {
  FinishScoresOfRows(args, 0, args.rows, Of(columns));
}

void Softmax(const TileArgs& args, const TileColumns& columns, float* weights,
             float* factors) {
  SoftmaxOfRows(
      args, 0, args.rows, Of(columns), AnyRowIsFresh(args.states, 0, args.rows),
      [weights](int64_t row)
          HWY_ATTR { return FloatWeights{weights + row * kScoreStride}; },
      factors);
}

void SoftmaxPaired(const TileArgs& args, const TileColumns& columns,
                   float* weights, float* factors) {
  SoftmaxOfRows(
      args, 0, args.rows, Of(columns), AnyRowIsFresh(args.states, 0, args.rows),
      [&args, &columns, weights](int64_t row) HWY_ATTR {
        return PairedWeights{
            args.bf16.weights + row * kBf16WeightStride, args.bf16.terms == 2,
            columns.first, nullptr,
            weights == nullptr ? nullptr : weights + row * kScoreStride};
      },
      factors);
}

struct AddMicroRows {
  const TileArgs& args;
  Columns columns;
  const float* weights;
  const float* factors;

  template <int kRows>
  HWY_NOINLINE void Rows(int64_t first_row) const {
    AddPackedValues<kRows>(args, first_row, columns,
                           weights + first_row * kScoreStride,
                           factors + first_row);
  }
};

void AddAllPackedValues(const TileArgs& args, const TileColumns& columns,
                        const float* weights, const float* factors) {
  ForEachMicroTile(args.rows,
                   AddMicroRows{args, Of(columns), weights, factors});
}

}  // namespace

const KernelParts* GetKernelParts() {
  static const KernelParts kParts = {
      .fuses = HWY_NATIVE_FMA != 0,
      .exp2 = Exp2All,
      .exp2_four = Exp2FourAll,
      .tanh = TanhAll,
      .scale_by_power = ScaleByPowerAll,
      .load_part = LoadPartOf,
      .columns_of_rows = ColumnsOf,
      .score_packed = ScorePacked,
      .score_in_place = ScoreKeysInPlace,
      .finish_scores = FinishAllScores,
      .softmax = Softmax,
      .softmax_paired = SoftmaxPaired,
      .add_packed_values = AddAllPackedValues,
      .add_values_in_place = AddAllValuesInPlace,
  };
  return &kParts;
}

}  // namespace attention::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attention::cpu {

HWY_EXPORT(GetKernelParts);

const KernelParts& KernelPartsOf(int64_t target) {
#if (HWY_TARGETS & (HWY_TARGETS - 1)) == 0
  static_cast<void>(target);
  return *HWY_STATIC_DISPATCH(GetKernelParts)();
#else
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  return *HWY_DISPATCH_TABLE(GetKernelParts)[chosen.GetIndex()]();
#endif
}

}  // namespace attention::cpu
#endif  // HWY_ONCE
