// The products of int8_products.h on a unit that multiplies tiles. Included
// after in_place_products-inl.h, whose words it uses, by who also has these:
//
//   TileMultiplyAddBytes(sums, rows, columns): TDPBSSD
//
//   SplitSixteen(numbers, exponent, to): the digits of 16 elements of a row of
//   queries in units of 2^exponent, as split_queries() has them. False where
//   they are not the elements
//
//   SplitWeights(weights, count, to): the digits of a row's weights, each digit
//   kMaxTileKeys behind the one before, zeros up to whole steps; returns the
//   unit's exponent
//
//   ScoresOfDigits(sums, exponents, keys, rows, to): sums of digits, 16 of each
//   key, as up to kDigitRows rows of scores; `keys` is a multiple of 16
//
//   QuadElements(rows, count, left, to): 64 columns of four rows of values as
//   quads, four tiles of them kInt8TileBytes apart, in any order. Rows from
//   `count` on, and columns from `left` on, are 0
//
//   StoreSumsOfDigits(tiles, row, exponent, to): the sums of such columns of
//   one of four rows, in order
//
// Not for anything else: it stands in an anonymous namespace.
#ifndef ATTENTION_CORE_CPU_KERNELS_BF16_INT8_PRODUCTS_INL_H_
#define ATTENTION_CORE_CPU_KERNELS_BF16_INT8_PRODUCTS_INL_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/cpu/kernels/bf16/int8_products.h"
#include "core/cpu/kernels/bf16/products.h"
#include "core/cpu/kernels/sizes.h"
#include "core/cpu/kernels/tile_args.h"

// NOLINTBEGIN(google-build-namespaces,misc-definitions-in-headers): see above
namespace attention::cpu {
namespace {

constexpr int kExponentOfWeightUnit = -9;
static_assert(kScaledWeightUnit == 0x1p-9F);

int64_t StepsOf(int64_t width) { return (width + kInt8Depth - 1) / kInt8Depth; }

ATTENTION_PAIRS bool SplitQueries(const float* queries, int64_t stride,
                                  int64_t rows, int64_t width,
                                  const float* largest, int8_t* digits,
                                  int* exponents) {
  const int64_t bytes = StepsOf(width) * kDigitBytes;
  const int64_t groups = (rows + kDigitRows - 1) / kDigitRows;
  std::memset(digits, 0, static_cast<size_t>(groups * bytes));
  bool exact = true;
  for (int64_t r = 0; exact && r < rows; ++r) {
    exact = std::isfinite(largest[r]);
    exponents[r] = exact ? ExponentOfUnit(largest[r]) : 0;
    int8_t* const to =
        digits + r / kDigitRows * bytes + r % kDigitRows * kDigits * kDigits;
    for (int64_t i = 0; exact && i < width; i += 16) {
      exact = SplitSixteen(queries + r * stride + i, exponents[r],
                           to + i / kDigits * kInt8Depth);
    }
  }
  return exact;
}

// kBf16RowTile keys from `first` on, where they lie if a tile can be loaded
// from there, else in `room`: rows of whole steps.
ATTENTION_PAIRS_INLINE KeysOfTile TileOfBytes(const Bf16Rows& keys,
                                              int64_t first, int64_t width,
                                              unsigned char* room) {
  const unsigned char* const* const rows = keys.rows + first;
  const int64_t count = keys.count - first;
  if (count >= kBf16RowTile && width % kInt8Depth == 0 &&
      AreEquidistant(rows)) {
    return {rows[0], rows[1] - rows[0]};
  }
  const int64_t padded = StepsOf(width) * kInt8Depth;
  for (int64_t r = 0; r < kBf16RowTile; ++r) {
    unsigned char* const to = room + r * padded;
    const int64_t copied = r < count ? width : 0;
    if (copied > 0) std::memcpy(to, rows[r], static_cast<size_t>(copied));
    std::memset(to + copied, 0, static_cast<size_t>(padded - copied));
  }
  return {room, padded};
}

// Two tiles of keys times the digits of four rows.
ATTENTION_TILES void ScorePanelOfBytes(const int8_t* digits,
                                       const KeysOfTile (&keys)[2],
                                       int64_t steps, int32_t* sums) {
  TileZero(0);
  TileZero(1);
  for (int64_t i = 0; i < steps; ++i) {
    TileLoad(4, digits + i * kDigitBytes, kInt8Depth);
    TileLoad(2, keys[0].data + i * kInt8Depth, keys[0].stride);
    TileMultiplyAddBytes(0, 2, 4);
    TileLoad(3, keys[1].data + i * kInt8Depth, keys[1].stride);
    TileMultiplyAddBytes(1, 3, 4);
  }
  TileStore(0, sums, kInt8Depth);
  TileStore(1, sums + kTileFloats, kInt8Depth);
}

ATTENTION_PAIRS void ScoresOfBytes(const int8_t* digits, const int* exponents,
                                   const Bf16Rows& keys, int64_t width,
                                   int64_t rows, unsigned char* room,
                                   float* scores) {
  const int64_t steps = StepsOf(width);
  const int64_t padded =
      (keys.count + kBf16Panel - 1) / kBf16Panel * kBf16Panel;
  // Key by key, the digits of four rows each. They become rows when all are
  // there: who reads them at once waits for the products.
  alignas(64) int32_t sums[kMaxTileKeys * kBf16RowTile];
  for (int64_t r = 0; r < rows; r += kDigitRows) {
    for (int64_t first = 0; first < keys.count; first += kBf16Panel) {
      const KeysOfTile panel[2] = {
          TileOfBytes(keys, first, width, room),
          TileOfBytes(keys, first + kBf16RowTile, width,
                      room + kBf16RowTile * steps * kInt8Depth)};
      const int64_t end =
          keys.count - first < kBf16Panel ? keys.count : first + kBf16Panel;
      for (int64_t k = first; r == 0 && k < end; ++k) {
        BringCloser(keys.rows[keys.ahead + k], width);
      }
      ScorePanelOfBytes(digits, panel, steps, sums + first * kBf16RowTile);
    }
    digits += steps * kDigitBytes;
    ScoresOfDigits(sums, exponents + r, padded,
                   rows - r < kDigitRows ? rows - r : kDigitRows,
                   scores + r * kScoreStride);
  }
}

// 64 columns of values from `column` on, as quads: four tiles for each step.
ATTENTION_PAIRS_INLINE void QuadColumns(const Bf16Rows& values, int64_t first,
                                        int64_t column, int64_t left,
                                        unsigned char* to) {
  const unsigned char* const* const rows = values.rows + first;
  const unsigned char* const* const ahead = rows + values.ahead;
  const int64_t bytes = left < kInt8Columns ? left : kInt8Columns;
  for (int64_t n = 0; n < kInt8Depth; n += 4) {
    const unsigned char* four[4];
    const int64_t count = values.count - first - n;
    for (int64_t m = 0; m < 4; ++m) {
      if (m >= count) break;
      four[m] = rows[n + m] + column;
      BringCloser(ahead[n + m] + column, bytes);
    }
    QuadElements(four, count, left, to + n * 16);
  }
}

// A step of four rows' weights times 64 columns of values.
ATTENTION_TILES_INLINE void AddQuads(const int8_t* weights,
                                     const unsigned char* values) {
  TileLoad(4, weights, kMaxTileKeys);
  TileLoad(5, values, kInt8Depth);
  TileMultiplyAddBytes(0, 4, 5);
  TileLoad(6, values + kInt8TileBytes, kInt8Depth);
  TileMultiplyAddBytes(1, 4, 6);
  TileLoad(5, values + 2 * kInt8TileBytes, kInt8Depth);
  TileMultiplyAddBytes(2, 4, 5);
  TileLoad(6, values + 3 * kInt8TileBytes, kInt8Depth);
  TileMultiplyAddBytes(3, 4, 6);
}

ATTENTION_PAIRS void SumsOfBytes(const float* weights, const Bf16Rows& values,
                                 int64_t width, int64_t rows,
                                 unsigned char* room, float* sums,
                                 int64_t stride) {
  constexpr int64_t kStepBytes = 4 * kInt8TileBytes;
  auto* const digits = reinterpret_cast<int8_t*>(room);
  const int64_t groups = (rows + kDigitRows - 1) / kDigitRows;
  unsigned char* const quads = room + groups * kWeightDigitBytes;
  int exponents[kMaxMicroRows];
  for (int64_t r = 0; r < rows; ++r) {
    exponents[r] = SplitWeights(weights + r * kScoreStride, values.count,
                                digits + r * kDigits * kMaxTileKeys) +
                   kExponentOfWeightUnit;
  }
  // Sums of rows that are not there are not looked at.
  const int64_t split = rows * kDigits * kMaxTileKeys;
  std::memset(digits + split, 0,
              static_cast<size_t>(groups * kWeightDigitBytes - split));
  // Tiles of the other of two places may still be loaded from; where there are
  // more rows, all of the columns are kept for them.
  const int64_t places = groups > 1 ? kMaxTileKeys / kInt8Depth : 2;
  alignas(64) int32_t tiles[4 * kTileFloats];
  for (int64_t column = 0; column < width; column += kInt8Columns) {
    for (int64_t g = 0; g < groups; ++g) {
      ClearFour();
      for (int64_t k = 0; k < values.count; k += kInt8Depth) {
        unsigned char* const to = quads + k / kInt8Depth % places * kStepBytes;
        if (g == 0) QuadColumns(values, k, column, width - column, to);
        AddQuads(digits + g * kWeightDigitBytes + k, to);
      }
      StoreFour(tiles);
      for (int64_t r = g * kDigitRows; r < rows && r < (g + 1) * kDigitRows;
           ++r) {
        StoreSumsOfDigits(tiles, r % kDigitRows, exponents[r],
                          sums + r * stride + column);
      }
    }
  }
}

}  // namespace
}  // namespace attention::cpu
// NOLINTEND(google-build-namespaces,misc-definitions-in-headers)

#endif  // ATTENTION_CORE_CPU_KERNELS_BF16_INT8_PRODUCTS_INL_H_
