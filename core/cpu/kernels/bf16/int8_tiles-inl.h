// QK and PV of INT8 keys and values where they lie, with the digits of queries
// and weights (int8_products.h). Included once per instruction set.
#if defined(ATTENTION_CORE_CPU_KERNELS_BF16_INT8_TILES_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CORE_CPU_KERNELS_BF16_INT8_TILES_INL_H_
#undef ATTENTION_CORE_CPU_KERNELS_BF16_INT8_TILES_INL_H_
#else
#define ATTENTION_CORE_CPU_KERNELS_BF16_INT8_TILES_INL_H_
#endif

#include "core/cpu/kernels/bf16/in_place_tiles-inl.h"
#include "core/cpu/kernels/bf16/int8_products.h"
#include "core/cpu/kernels/epilogue-inl.h"
#include "core/cpu/kernels/tile_args.h"
#include "hwy/highway.h"

// Compiled once per instruction set, into a namespace of its own each time.
// NOLINTBEGIN(misc-definitions-in-headers)
HWY_BEFORE_NAMESPACE();
namespace attention::cpu::HWY_NAMESPACE {

// QK of some rows, in args.scores. Columns are whole panels.
HWY_INLINE void ScoreInt8InPlace(const TileArgs& args, int64_t first_row,
                                 int64_t rows, const Columns& columns) {
  const Int8Operands& int8 = args.int8;
  const InPlaceOperands& operands = args.in_place;
  args.bf16.products->int8->scores(
      int8.query_digits + first_row / kDigitRows * int8.digits_of_rows,
      int8.query_exponents + first_row,
      RowsInPlace(operands, args.keys, columns, operands.keys,
                  operands.key_width, nullptr),
      operands.key_width, rows, int8.key_room, args.scores + columns.first);
  MultiplyByScales(rows, columns, operands.key_scales, 1.0F, args.scores);
}

// Output times the rows' factors, plus PV. Weights are multiplied by their
// keys' scales.
HWY_INLINE void AddInt8ValuesInPlace(const TileArgs& args, int64_t first_row,
                                     int64_t rows, const Columns& columns,
                                     float* weights, const float* factors) {
  const Int8Operands& int8 = args.int8;
  const InPlaceOperands& operands = args.in_place;
  MultiplyByScales(rows, columns, operands.value_scales,
                   1.0F / kScaledWeightUnit, weights);
  args.bf16.products->int8->sums(
      weights + columns.first,
      RowsInPlace(operands, args.keys, columns, operands.values,
                  operands.value_width, nullptr),
      operands.value_width, rows, int8.value_room, int8.sums, int8.sums_stride);
  AddSumsInPlace(args, first_row, rows, int8.sums, int8.sums_stride, factors);
}

}  // namespace attention::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(misc-definitions-in-headers)

#endif  // include guard
