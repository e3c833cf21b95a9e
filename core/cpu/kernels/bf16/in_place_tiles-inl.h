// QK and PV with products of BF16, of a few rows and of keys and values that
// are read once, where they lie: what one step of decoding is. Included once
// per instruction set.
#if defined(ATTENTION_CORE_CPU_KERNELS_BF16_IN_PLACE_TILES_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CORE_CPU_KERNELS_BF16_IN_PLACE_TILES_INL_H_
#undef ATTENTION_CORE_CPU_KERNELS_BF16_IN_PLACE_TILES_INL_H_
#else
#define ATTENTION_CORE_CPU_KERNELS_BF16_IN_PLACE_TILES_INL_H_
#endif

#include "core/cpu/kernels/bf16/products.h"
#include "core/cpu/kernels/bf16/tiles-inl.h"
#include "core/cpu/kernels/epilogue-inl.h"
#include "core/cpu/kernels/math-inl.h"
#include "core/cpu/kernels/pv-inl.h"
#include "core/cpu/kernels/tile_args.h"
#include "hwy/highway.h"

// Compiled once per instruction set, into a namespace of its own each time.
// NOLINTBEGIN(misc-definitions-in-headers)
HWY_BEFORE_NAMESPACE();
namespace attention::cpu::HWY_NAMESPACE {

// How far ahead keys, and values, are asked for.
inline constexpr int64_t kAheadBytes = int64_t{16} * 1024;

// Keys, or values, of `width` elements, that lie at `rows`, of the columns that
// are computed.
HWY_INLINE Bf16Rows RowsInPlace(const InPlaceOperands& operands, int64_t keys,
                                const Columns& columns,
                                const unsigned char* const* rows, int64_t width,
                                const ByteTable* table) {
  const int64_t row_bytes = HWY_MAX(1, width * SizeOf(operands.type));
  return {.rows = rows + columns.first,
          .ahead = HWY_MIN(operands.ahead,
                           HWY_MAX(kBf16Panel, kAheadBytes / row_bytes)),
          .count = HWY_MIN(columns.last, keys) - columns.first,
          .type = operands.type,
          .table = table};
}

// QK of some rows, in args.scores. Columns are whole panels.
HWY_INLINE void ScoreBf16InPlace(const TileArgs& args, int64_t first_row,
                                 int64_t rows, const Columns& columns) {
  const Bf16Operands& bf16 = args.bf16;
  const InPlaceOperands& operands = args.in_place;
  bf16.products->scores_in_place(
      bf16.packed_queries + first_row * bf16.width,
      RowsInPlace(operands, args.keys, columns, operands.keys,
                  operands.key_width, bf16.key_table),
      operands.key_width, rows, bf16.key_room, args.scores + columns.first);
  if (operands.key_scales != nullptr) {
    MultiplyByScales(rows, columns, operands.key_scales, 1.0F, args.scores);
  }
}

// Output times the rows' factors, plus what PV gave, rows `stride` apart.
HWY_INLINE void AddSumsInPlace(const TileArgs& args, int64_t first_row,
                               int64_t rows, const float* sums, int64_t stride,
                               const float* factors) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t width = args.states.width;
  for (int64_t r = 0; r < rows; ++r) {
    const float* const from = sums + r * stride;
    float* const to = args.states.output + (first_row + r) * width;
    for (int64_t c = 0; c < args.in_place.value_width; c += lanes) {
      const VF some[1][1] = {{hn::LoadU(d, from + c)}};
      AddSums<1, 1, true>(some, 1.0F, factors + r, width, to + c);
    }
  }
}

// Output times the rows' factors, plus PV. Where a value is not finite, which
// the sums tell, it is left out, and told.
HWY_INLINE void AddBf16ValuesInPlace(const TileArgs& args, int64_t first_row,
                                     int64_t rows, const Columns& columns,
                                     const float* factors) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const Bf16Operands& bf16 = args.bf16;
  const InPlaceOperands& operands = args.in_place;
  const auto sum = [&](bool finite) HWY_ATTR {
    bf16.products->sums_in_place(
        bf16.weights,
        RowsInPlace(operands, args.keys, columns, operands.values,
                    operands.value_width, bf16.value_table),
        operands.value_width, rows, finite, bf16.sums, bf16.sums_stride);
  };
  sum(*args.met_non_finite);
  if (!*args.met_non_finite) {
    VF all = hn::Zero(d);  // NaN where a sum is not finite
    for (int64_t r = 0; r < rows; ++r) {
      const float* const from = bf16.sums + r * bf16.sums_stride;
      for (int64_t c = 0; c < bf16.sums_stride; c += lanes) {
        all = hn::MulAdd(hn::LoadU(d, from + c), hn::Zero(d), all);
      }
    }
    if (HWY_UNLIKELY(!hn::AllTrue(d, hn::Eq(all, all)))) {
      *args.met_non_finite = true;
      sum(true);
    }
  }
  AddSumsInPlace(args, first_row, rows, bf16.sums, bf16.sums_stride, factors);
}

}  // namespace attention::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(misc-definitions-in-headers)

#endif  // include guard
