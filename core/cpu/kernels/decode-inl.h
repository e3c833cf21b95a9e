// A few rows against keys and values that are read once, as they lie in memory:
// what one step of decoding is. Included once per instruction set.
#if defined(ATTENTION_CORE_CPU_KERNELS_DECODE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CORE_CPU_KERNELS_DECODE_INL_H_
#undef ATTENTION_CORE_CPU_KERNELS_DECODE_INL_H_
#else
#define ATTENTION_CORE_CPU_KERNELS_DECODE_INL_H_
#endif

#include "core/cpu/kernels/convert-inl.h"
#include "core/cpu/kernels/epilogue-inl.h"
#include "core/cpu/kernels/math-inl.h"
#include "core/cpu/kernels/pv-inl.h"
#include "core/cpu/kernels/softmax-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

// Compiled once per instruction set, into a namespace of its own each time.
// NOLINTBEGIN(misc-definitions-in-headers)
HWY_BEFORE_NAMESPACE();
namespace attention::cpu::HWY_NAMESPACE {

// Rows that share one read of a key, as the registers allow.
inline constexpr int kDecodeRows = kMicroRows > 8 ? 4 : 2;
// Keys whose sums are reduced together.
inline constexpr int kKeysAtOnce = 4;

// Asks for all of a row that will be read soon.
HWY_INLINE void PrefetchRow(const unsigned char* row, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) hwy::Prefetch(row + i);
}

// One step of kRows dot products with some keys: elements i ... of each; kPart:
// less than a vector of them is left.
template <int kRows, Element kType, bool kPart>
HWY_INLINE void AddProducts(const TileArgs& args, const float* queries,
                            const unsigned char* const* keys, int64_t i,
                            VF (*HWY_RESTRICT sums)[kKeysAtOnce]) {
  VF key[kKeysAtOnce];
  ATTENTION_UNROLL
  for (int n = 0; n < kKeysAtOnce; ++n) {
    if constexpr (kPart) {
      key[n] = LoadPart<kType>(keys[n], i, args.key_row_width - i);
    } else {
      key[n] = LoadWide<kType>(keys[n], i);
    }
  }
  ATTENTION_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const VF query = hn::Load(F(), queries + r * args.score_width + i);
    ATTENTION_UNROLL
    for (int n = 0; n < kKeysAtOnce; ++n) {
      sums[r][n] = hn::MulAdd(query, key[n], sums[r][n]);
    }
  }
}

template <int kRows, Element kType>
HWY_INLINE void ScoreKeyRows(const TileArgs& args, int64_t first_row,
                             const Columns& columns) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t width = args.key_row_width;
  const int64_t value_bytes = args.value_row_width * SizeOf(kType);
  const float* queries = args.queries + first_row * args.score_width;
  for (int64_t j = columns.first; j < columns.end; j += kKeysAtOnce) {
    const unsigned char* keys[kKeysAtOnce];
    for (int n = 0; n < kKeysAtOnce; ++n) {
      // Past the last key: the last once more; its score is not used.
      const int64_t key = HWY_MIN(j + n, columns.end - 1);
      keys[n] = args.key_rows + key * args.key_row_stride;
      PrefetchRow(args.value_rows + key * args.value_row_stride, value_bytes);
    }
    VF sums[kRows][kKeysAtOnce];
    ATTENTION_UNROLL
    for (int r = 0; r < kRows; ++r) {
      ATTENTION_UNROLL
      for (int n = 0; n < kKeysAtOnce; ++n) sums[r][n] = hn::Zero(d);
    }
    int64_t i = 0;
    for (; i + lanes <= width; i += lanes) {
      AddProducts<kRows, kType, false>(args, queries, keys, i, sums);
    }
    if (i < width) {
      AddProducts<kRows, kType, true>(args, queries, keys, i, sums);
    }
    ATTENTION_UNROLL
    for (int r = 0; r < kRows; ++r) {
      ReduceLanes<kKeysAtOnce>(sums[r], AddOp(),
                               args.scores + r * kScoreStride + j);
    }
  }
}

// kPart: less than a vector is left of the values' rows.
template <int kRows, int kVectors, Element kType, bool kPart>
HWY_INLINE void AddValueRows(const TileArgs& args, const Columns& columns,
                             int64_t column, const float* factors,
                             float* output) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F()));
  const int64_t key_bytes = args.key_row_width * SizeOf(kType);
  const unsigned char* const keys =
      args.key_rows + (columns.begin + args.keys) * args.key_row_stride;
  const unsigned char* const values =
      args.value_rows + columns.begin * args.value_row_stride;
  AddValues<kRows, kVectors>(
      args, args.scores + columns.begin, columns.end - columns.begin,
      [=, &args](int64_t j, int v) HWY_ATTR {
        // With the first of a key's values, a key of the next tile.
        if (v == 0 && column == 0) {
          PrefetchRow(keys + j * args.key_row_stride, key_bytes);
        }
        const unsigned char* const row = values + j * args.value_row_stride;
        if constexpr (kPart) {
          return LoadPart<kType>(row, column, args.value_row_width - column);
        } else {
          return LoadWide<kType>(row, column + v * lanes);
        }
      },
      factors, output + column);
}

struct DecodeRows {
  const TileArgs& args;

  template <int kRows>
  HWY_NOINLINE void Rows(int64_t first_row) const {
    switch (args.row_type) {
      case Element::kFloat32:
        return Typed<kRows, Element::kFloat32>(first_row);
      case Element::kFloat16:
        return Typed<kRows, Element::kFloat16>(first_row);
      case Element::kBFloat16:
        return Typed<kRows, Element::kBFloat16>(first_row);
    }
  }

  template <int kRows, Element kType>
  HWY_INLINE void Typed(int64_t first_row) const {
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(F()));
    const Columns columns = ColumnsOfRows(args, first_row, kRows);
    if (columns.end == 0) return;
    ScoreKeyRows<kRows, kType>(args, first_row, columns);
    FinishScoresOfRows<kRows>(args, first_row, columns);
    float factors[kRows];
    SoftmaxOfRows<kRows>(args, first_row, columns, factors);
    if (args.dropout != nullptr) {
      for (int r = 0; r < kRows; ++r) {
        DropRow(args, first_row + r, columns, args.scores + r * kScoreStride);
      }
    }
    float* output = args.output + first_row * args.value_width;
    const int64_t width = args.value_row_width;
    int64_t c = 0;
    for (; c + 4 * lanes <= width; c += 4 * lanes) {
      AddValueRows<kRows, 4, kType, false>(args, columns, c, factors, output);
    }
    for (; c + lanes <= width; c += lanes) {
      AddValueRows<kRows, 1, kType, false>(args, columns, c, factors, output);
    }
    if (c < width) {
      AddValueRows<kRows, 1, kType, true>(args, columns, c, factors, output);
    }
  }
};

void AttendRows(const TileArgs& args) {
  const DecodeRows visit{args};
  int64_t r = 0;
  if constexpr (kDecodeRows >= 4) {
    for (; args.rows - r >= 4; r += 4) visit.Rows<4>(r);
  }
  for (; args.rows - r >= 2; r += 2) visit.Rows<2>(r);
  if (r < args.rows) visit.Rows<1>(r);
}

}  // namespace attention::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(misc-definitions-in-headers)

#endif  // include guard
