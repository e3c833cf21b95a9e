// QK and PV of a few rows and of keys and values that are read once, as they
// lie in memory: what one step of decoding is. Included once per instruction
// set.
#if defined(ATTENTION_CORE_CPU_KERNELS_IN_PLACE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CORE_CPU_KERNELS_IN_PLACE_INL_H_
#undef ATTENTION_CORE_CPU_KERNELS_IN_PLACE_INL_H_
#else
#define ATTENTION_CORE_CPU_KERNELS_IN_PLACE_INL_H_
#endif

#include "core/cpu/kernels/convert-inl.h"
#include "core/cpu/kernels/epilogue-inl.h"
#include "core/cpu/kernels/math-inl.h"
#include "core/cpu/kernels/prefetch-inl.h"
#include "core/cpu/kernels/pv-inl.h"
#include "core/cpu/kernels/softmax-inl.h"
#include "hwy/highway.h"

// Compiled once per instruction set, into a namespace of its own each time.
// NOLINTBEGIN(misc-definitions-in-headers)
HWY_BEFORE_NAMESPACE();
namespace attention::cpu::HWY_NAMESPACE {

// Rows that share one read of a key, as the registers allow.
inline constexpr int kDecodeRows = kMicroRows > 8 ? 4 : 2;
// Keys whose sums are reduced together.
inline constexpr int kKeysAtOnce = 4;

// Asks for a part of kKeysAtOnce rows while vector number `step` of their like
// is multiplied: few lines at a time, for a processor that has asked for as
// many lines as it can waits.
template <Element kType>
HWY_INLINE void PrefetchStep(const unsigned char* const* rows, int64_t step) {
  constexpr auto kVector =
      static_cast<int64_t>(hn::MaxLanes(F())) * SizeOf(kType);
  constexpr int64_t kSteps = HWY_MAX(1, kLine / kVector);      // to a line
  constexpr int64_t kRows = HWY_MAX(1, kKeysAtOnce / kSteps);  // of a step
  const int64_t row = step % kSteps * kRows;
  if (row >= kKeysAtOnce) return;
  ATTENTION_UNROLL
  for (int64_t n = 0; n < kRows; ++n) {
    PrefetchAhead(rows[row + n] + step / kSteps * kLine);
  }
}

// One step of kRows dot products with some keys: elements i ... of each; kPart:
// less than a vector of them is left.
template <int kRows, Element kType, bool kPart>
HWY_INLINE void AddProducts(const InPlaceOperands& operands,
                            const float* queries,
                            const unsigned char* const* keys, int64_t i,
                            VF (*HWY_RESTRICT sums)[kKeysAtOnce]) {
  VF key[kKeysAtOnce];
  ATTENTION_UNROLL
  for (int n = 0; n < kKeysAtOnce; ++n) {
    if constexpr (kPart) {
      key[n] = LoadPart<kType>(keys[n], i, operands.key_width - i);
    } else {
      key[n] = LoadWide<kType>(keys[n], i);
    }
  }
  ATTENTION_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const VF query = hn::Load(F(), queries + r * operands.query_stride + i);
    ATTENTION_UNROLL
    for (int n = 0; n < kKeysAtOnce; ++n) {
      sums[r][n] = hn::MulAdd(query, key[n], sums[r][n]);
    }
  }
}

// The scores of kRows rows, kScoreStride floats apart.
template <int kRows, Element kType>
HWY_INLINE void ScoreInPlace(const InPlaceOperands& operands, int64_t first_row,
                             const Columns& columns, float* scores) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t width = operands.key_width;
  const bool short_rows = width * SizeOf(kType) < kLine;
  const float* queries = operands.queries + first_row * operands.query_stride;
  for (int64_t j = columns.first; j < columns.end; j += kKeysAtOnce) {
    const unsigned char* keys[kKeysAtOnce];
    const unsigned char* ahead[kKeysAtOnce];
    for (int n = 0; n < kKeysAtOnce; ++n) {
      // Past the last key: the last once more; its score is not used.
      const int64_t key = HWY_MIN(j + n, columns.end - 1);
      keys[n] = operands.keys[key];
      ahead[n] = operands.keys[key + operands.ahead];
      if (short_rows) PrefetchAhead(ahead[n]);
    }
    VF sums[kRows][kKeysAtOnce];
    ATTENTION_UNROLL
    for (int r = 0; r < kRows; ++r) {
      ATTENTION_UNROLL
      for (int n = 0; n < kKeysAtOnce; ++n) sums[r][n] = hn::Zero(d);
    }
    int64_t i = 0;
    for (; i + lanes <= width; i += lanes) {
      if (!short_rows) PrefetchStep<kType>(ahead, i / lanes);
      AddProducts<kRows, kType, false>(operands, queries, keys, i, sums);
    }
    if (i < width) {
      AddProducts<kRows, kType, true>(operands, queries, keys, i, sums);
    }
    ATTENTION_UNROLL
    for (int r = 0; r < kRows; ++r) {
      ReduceLanes(sums[r], AddOp(), scores + r * kScoreStride + j);
    }
  }
  if constexpr (HasScale<kType>()) {
    MultiplyByScales(kRows, columns, operands.key_scales, 1.0F, scores);
  }
}

// kPart: less than a vector is left of the values' rows.
template <int kRows, int kVectors, Element kType, bool kPart>
HWY_INLINE void AddColumnsInPlace(const TileArgs& args, const Columns& columns,
                                  int64_t column, const float* factors,
                                  const float* weights, float* output) {
  const InPlaceOperands& operands = args.in_place;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F()));
  constexpr auto kVector =
      static_cast<int64_t>(hn::MaxLanes(F())) * SizeOf(kType);
  const unsigned char* const* const values = operands.values + columns.begin;
  const unsigned char* const* const ahead = values + operands.ahead;
  const int64_t left = operands.value_width - column;
  AddValues<kRows, kVectors>(
      args, weights + columns.begin, columns.end - columns.begin,
      [=](int64_t j, int v) HWY_ATTR {
        if (v * kVector % kLine == 0) {
          PrefetchAhead(ahead[j] + column * SizeOf(kType) + v * kVector);
        }
        if constexpr (kPart) {
          return LoadPart<kType>(values[j], column, left);
        } else {
          return LoadWide<kType>(values[j], column + v * lanes);
        }
      },
      HasScale<kType>() ? kScaledWeightUnit : 1.0F, factors, output + column);
}

// Weights are multiplied by their keys' scales, where elements have some.
template <int kRows, Element kType>
HWY_INLINE void AddValuesInPlace(const TileArgs& args, int64_t first_row,
                                 const Columns& columns, float* weights,
                                 const float* factors) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F()));
  if constexpr (HasScale<kType>()) {
    MultiplyByScales(kRows, columns, args.in_place.value_scales,
                     1.0F / kScaledWeightUnit, weights);
  }
  const int64_t width = args.in_place.value_width;
  float* const output = args.states.output + first_row * args.states.width;
  int64_t c = 0;
  for (; c + 4 * lanes <= width; c += 4 * lanes) {
    AddColumnsInPlace<kRows, 4, kType, false>(args, columns, c, factors,
                                              weights, output);
  }
  for (; c + lanes <= width; c += lanes) {
    AddColumnsInPlace<kRows, 1, kType, false>(args, columns, c, factors,
                                              weights, output);
  }
  if (c < width) {
    AddColumnsInPlace<kRows, 1, kType, true>(args, columns, c, factors, weights,
                                             output);
  }
}

// AddNonFiniteValues() of values as they lie.
template <Element kType>
HWY_INLINE void AddNonFiniteInPlace(const TileArgs& args, int64_t first_row,
                                    int64_t rows, const Columns& columns) {
  const InPlaceOperands& operands = args.in_place;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F()));
  AddNonFiniteValues(
      args, first_row, rows, columns, [&](int64_t j, int64_t column) HWY_ATTR {
        const int64_t left = operands.value_width - column;
        if (left <= 0) return hn::Zero(F());  // of the states' padding
        const VF value =
            left >= lanes ? LoadWide<kType>(operands.values[j], column)
                          : LoadPart<kType>(operands.values[j], column, left);
        if constexpr (!HasScale<kType>()) return value;
        return hn::Mul(value, hn::Set(F(), operands.value_scales[j]));
      });
}

// Calls visit.template Rows<count>(first row) for all rows, some at a time.
template <class Visit>
HWY_INLINE void ForEachDecodeRows(int64_t rows, const Visit& visit) {
  int64_t r = 0;
  if constexpr (kDecodeRows >= 4) {
    for (; rows - r >= 4; r += 4) visit.template Rows<4>(r);
  }
  for (; rows - r >= 2; r += 2) visit.template Rows<2>(r);
  if (r < rows) visit.template Rows<1>(r);
}

}  // namespace attention::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(misc-definitions-in-headers)

#endif  // include guard
