// PV: the weights of a micro-tile times a tile's values. Included once per
// instruction set.
#if defined(ATTENTION_CORE_CPU_KERNELS_PV_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CORE_CPU_KERNELS_PV_INL_H_
#undef ATTENTION_CORE_CPU_KERNELS_PV_INL_H_
#else
#define ATTENTION_CORE_CPU_KERNELS_PV_INL_H_
#endif

#include <type_traits>

#include "core/cpu/kernels/epilogue-inl.h"
#include "core/cpu/kernels/math-inl.h"
#include "core/cpu/kernels/pack-inl.h"
#include "core/cpu/kernels/tile_args.h"
#include "hwy/highway.h"

// Compiled once per instruction set, into a namespace of its own each time.
// NOLINTBEGIN(misc-definitions-in-headers)
HWY_BEFORE_NAMESPACE();
namespace attention::cpu::HWY_NAMESPACE {

// sums[r] = sum_j p[r][j] v[j], kVectors vectors wide; load(j, v) gives a
// vector of a key's values.
template <int kRows, int kVectors, class Load>
HWY_INLINE void SumValues(const float* HWY_RESTRICT p, int64_t keys,
                          const Load& load, VF (*HWY_RESTRICT sums)[kVectors]) {
  const F d;
  VF total[kRows][kVectors];
  ATTENTION_UNROLL
  for (int r = 0; r < kRows; ++r) {
    ATTENTION_UNROLL
    for (int v = 0; v < kVectors; ++v) total[r][v] = hn::Zero(d);
  }
  for (int64_t j = 0; j < keys; ++j) {
    VF value[kVectors];
    ATTENTION_UNROLL
    for (int v = 0; v < kVectors; ++v) value[v] = load(j, v);
    ATTENTION_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const VF weight = hn::Set(d, p[r * kScoreStride + j]);
      ATTENTION_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        total[r][v] = hn::MulAdd(weight, value[v], total[r][v]);
      }
    }
  }
  ATTENTION_UNROLL
  for (int r = 0; r < kRows; ++r) {
    ATTENTION_UNROLL
    for (int v = 0; v < kVectors; ++v) sums[r][v] = total[r][v];
  }
}

// The same with 0 for what is not finite among the values.
template <int kRows, int kVectors, class Load>
HWY_NOINLINE void SumFiniteValues(const float* p, int64_t keys,
                                  const Load& load, VF (*sums)[kVectors]) {
  SumValues<kRows, kVectors>(
      p, keys,
      [&load](int64_t j, int v) HWY_ATTR {
        const VF value = load(j, v);
        return hn::IfThenElseZero(hn::IsFinite(value), value);
      },
      sums);
}

// output[r] = output[r] * factor[r] + unit * sums[r]. kKeeps: what is not
// finite of the output stays, also where the factor is 0.
template <int kRows, int kVectors, bool kKeeps>
HWY_INLINE void AddSums(const VF (*sums)[kVectors], float unit,
                        const float* HWY_RESTRICT factors, int64_t width,
                        float* HWY_RESTRICT output) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  ATTENTION_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const VF factor = hn::Set(d, factors[r]);
    ATTENTION_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      float* to = output + r * width + v * lanes;
      const VF gathered = hn::LoadU(d, to);
      VF sum = sums[r][v];
      if (unit != 1.0F) sum = hn::Mul(sum, hn::Set(d, unit));
      VF all = hn::MulAdd(gathered, factor, sum);
      if constexpr (kKeeps) {
        all =
            hn::IfThenElse(hn::IsFinite(gathered), all, hn::Add(gathered, sum));
      }
      hn::StoreU(all, d, to);
    }
  }
}

// output[r] = output[r] * factor[r] + unit * sum_j p[r][j] v[j]. Where a value
// is not finite, which the sums tell, it is left out and met_non_finite told.
template <int kRows, int kVectors, class Load>
HWY_INLINE void AddValues(const TileArgs& args, const float* p, int64_t keys,
                          const Load& load, float unit,
                          const float* HWY_RESTRICT factors,
                          float* HWY_RESTRICT output) {
  const F d;
  const int64_t width = args.states.width;
  VF sums[kRows][kVectors];
  if (HWY_LIKELY(!*args.met_non_finite)) {
    SumValues<kRows, kVectors>(p, keys, load, sums);
    VF all = hn::Zero(d);  // NaN where a sum is not finite
    ATTENTION_UNROLL
    for (int r = 0; r < kRows; ++r) {
      ATTENTION_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        all = hn::MulAdd(sums[r][v], hn::Zero(d), all);
      }
    }
    *args.met_non_finite = !hn::AllTrue(d, hn::Eq(all, all));
  }
  // Once one was met there are probably more.
  if (HWY_UNLIKELY(*args.met_non_finite)) {
    SumFiniteValues<kRows, kVectors>(p, keys, load, sums);
    return AddSums<kRows, kVectors, true>(sums, unit, factors, width, output);
  }
  AddSums<kRows, kVectors, false>(sums, unit, factors, width, output);
}

// output[r] += the sum of what is not finite among values, as load(j, column)
// gives them, of the keys that take part in row r, whose scores are not -inf.
template <int kRows, int kVectors, class Load>
HWY_INLINE void AddNonFiniteColumns(const float* scores, const Columns& columns,
                                    int64_t column, const Load& load,
                                    int64_t width, float* output) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  VF sums[kRows][kVectors];
  ATTENTION_UNROLL
  for (int r = 0; r < kRows; ++r) {
    ATTENTION_UNROLL
    for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(d);
  }
  for (int64_t j = columns.begin; j < columns.end; ++j) {
    VF values[kVectors];
    VF any = hn::Zero(d);
    ATTENTION_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const VF value = load(j, column + v * lanes);
      values[v] = hn::IfThenZeroElse(hn::IsFinite(value), value);
      any = hn::Or(any, values[v]);
    }
    if (hn::AllTrue(d, hn::Eq(any, hn::Zero(d)))) continue;
    ATTENTION_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const VF score = hn::Set(d, scores[r * kScoreStride + j]);
      const auto absent = hn::Eq(score, MinusInfinity());
      ATTENTION_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] =
            hn::IfThenElse(absent, sums[r][v], hn::Add(sums[r][v], values[v]));
      }
    }
  }
  ATTENTION_UNROLL
  for (int r = 0; r < kRows; ++r) {
    ATTENTION_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      float* const to = output + r * width + column + v * lanes;
      hn::StoreU(hn::Add(hn::LoadU(d, to), sums[r][v]), d, to);
    }
  }
}

// The same of all rows of a micro-tile and all columns.
template <class Load>
HWY_NOINLINE void AddNonFiniteValues(const TileArgs& args, int64_t first_row,
                                     int64_t rows, const Columns& columns,
                                     const Load& load) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F()));
  const int64_t width = args.states.width;
  float* const output = args.states.output + first_row * width;
  const auto add = [&](auto vectors, int64_t c) HWY_ATTR {
    constexpr int kVectors = decltype(vectors)::value;
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
      AddNonFiniteColumns<4, kVectors>(args.scores + r * kScoreStride, columns,
                                       c, load, width, output + r * width);
    }
    for (; r < rows; ++r) {
      AddNonFiniteColumns<1, kVectors>(args.scores + r * kScoreStride, columns,
                                       c, load, width, output + r * width);
    }
  };
  int64_t c = 0;
  for (; c + 4 * lanes <= width; c += 4 * lanes) {
    add(std::integral_constant<int, 4>(), c);
  }
  for (; c < width; c += lanes) add(std::integral_constant<int, 1>(), c);
}

template <int kRows, int kVectors>
HWY_INLINE void AddPackedColumns(const TileArgs& args, const float* p,
                                 int64_t keys, const float* const* values,
                                 int64_t column, const float* factors,
                                 float* output) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F()));
  AddValues<kRows, kVectors>(
      args, p, keys,
      [=](int64_t j, int v)
          HWY_ATTR { return hn::LoadU(F(), values[j] + column + v * lanes); },
      1.0F, factors, output + column);
}

template <int kRows>
HWY_INLINE void AddPackedValues(const TileArgs& args, int64_t first_row,
                                const Columns& columns, const float* weights,
                                const float* factors) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F()));
  const int64_t width = args.states.width;
  const float* p = weights + columns.begin;
  const float* const* values = args.packed.values + columns.begin;
  float* output = args.states.output + first_row * width;
  const int64_t keys = columns.end - columns.begin;
  int64_t c = 0;
  // Half the rows and twice as wide where there are registers for it: fewer
  // loads to a product, and values are read line after line.
  if constexpr (kMicroRows > 8 && kRows % 2 == 0) {
    constexpr int kHalf = kRows / 2;
    for (; c + 4 * lanes <= width; c += 4 * lanes) {
      for (int r = 0; r < kRows; r += kHalf) {
        AddPackedColumns<kHalf, 4>(args, p + r * kScoreStride, keys, values, c,
                                   factors + r, output + r * width);
      }
    }
  }
  for (; c + 2 * lanes <= width; c += 2 * lanes) {
    AddPackedColumns<kRows, 2>(args, p, keys, values, c, factors, output);
  }
  if (c < width) {
    AddPackedColumns<kRows, 1>(args, p, keys, values, c, factors, output);
  }
}

}  // namespace attention::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(misc-definitions-in-headers)

#endif  // include guard
