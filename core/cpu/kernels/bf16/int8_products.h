#ifndef ATTENTION_CORE_CPU_KERNELS_BF16_INT8_PRODUCTS_H_
#define ATTENTION_CORE_CPU_KERNELS_BF16_INT8_PRODUCTS_H_

#include <cmath>
#include <cstdint>

#include "core/cpu/kernels/sizes.h"

/// Products of INT8 with sums in INT32, which lose nothing, of keys and values
/// where they lie.
///
/// What they are multiplied by are whole numbers below 2^30 in magnitude, in
/// some unit, written as four digits to base 256 from -128 to 127. A tile of 16
/// columns, or rows, has the digits of four rows side by side. A sum is then
/// that of four sums of digits, each times its power of 256.
namespace attention::cpu {

struct Bf16Rows;

/// Digits of a number, and rows whose digits are multiplied together.
inline constexpr int64_t kDigits = 4;
inline constexpr int64_t kDigitRows = 4;
/// Elements of one step of a product; columns of values of one.
inline constexpr int64_t kInt8Depth = 64;
inline constexpr int64_t kInt8Columns = 64;
/// Bytes of all digits of kDigitRows rows of a step.
inline constexpr int64_t kDigitBytes = kDigits * kDigitRows * kInt8Depth;
/// Bytes of the digits of kDigitRows rows of weights.
inline constexpr int64_t kWeightDigitBytes =
    kDigits * kDigitRows * kMaxTileKeys;
/// Bytes of scratch that sums() takes for so many rows: the digits of their
/// weights, and kInt8Columns columns of a tile's values.
constexpr int64_t Int8RoomBytes(int64_t rows) {
  return (rows + kDigitRows - 1) / kDigitRows * kWeightDigitBytes +
         kInt8Columns * kMaxTileKeys;
}

/// Bytes of a tile.
inline constexpr int64_t kInt8TileBytes = 1024;

/// The exponent of the unit of which `largest` is less than 2^30.
inline int ExponentOfUnit(float largest) {
  int exponent = 0;
  std::frexp(largest, &exponent);
  return exponent - 30;
}

/// One way to compute them. Rows are at most kMaxMicroRows.
struct Int8Products {
  const char* decode_name;  // of kernels that decode with it

  /// The digits of rows of queries, `stride` floats apart and 0 from element
  /// `width` to the next multiple of 16: [4 rows][64 elements][16 quads][row]
  /// [digit][4], 0 where there is no element. `largest`: each row's largest
  /// magnitude; `exponents`: of the power of two that its digits count. False
  /// where a row is not what its digits say: of BF16, an element that is not 0
  /// is less than 2^-22 of the largest, or one is not finite.
  bool (*split_queries)(const float* queries, int64_t stride, int64_t rows,
                        int64_t width, const float* largest, int8_t* digits,
                        int* exponents);
  /// Rows of scores, kScoreStride apart, of keys of `width` elements, for as
  /// many as whole panels of them have. `room` has room for a panel of keys,
  /// each of whole steps.
  void (*scores)(const int8_t* digits, const int* exponents,
                 const Bf16Rows& keys, int64_t width, int64_t rows,
                 unsigned char* room, float* scores);
  /// Weights, 0 or more, rows of kScoreStride of them, times values of `width`
  /// elements, times kScaledWeightUnit: sums for each row, `stride` apart, with
  /// room for whole kInt8Columns. A weight counts as the nearest multiple of a
  /// unit that is at most 2^-29 of its row's largest. `room`: Int8RoomBytes().
  void (*sums)(const float* weights, const Bf16Rows& values, int64_t width,
               int64_t rows, unsigned char* room, float* sums, int64_t stride);
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_KERNELS_BF16_INT8_PRODUCTS_H_
