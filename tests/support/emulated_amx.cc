// The tile unit of AMX in plain C++: what amx.cc does on the processor's runs
// here on any machine.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "core/cpu/kernels/bf16/products.h"
#include "tests/support/emulated_products.h"

namespace attention::cpu {
namespace {

constexpr int64_t kRows = 16;
constexpr int64_t kRowFloats = 16;

struct Tile {
  float rows[kRows][kRowFloats];
};

struct TileUnit {
  bool configured = false;
  Tile tiles[8];
};
thread_local TileUnit unit;

// A tile that is used before LDTILECFG, or after TILERELEASE, is a fault on the
// processor, too.
Tile& TileOf(int tile) {
  if (!unit.configured) std::abort();
  return unit.tiles[tile];
}

const unsigned char* RowAt(const void* from, int64_t bytes, int64_t row) {
  return static_cast<const unsigned char*>(from) + row * bytes;
}

void TileZero(int tile) { TileOf(tile) = {}; }

void TileLoad(int tile, const void* from, int64_t bytes) {
  for (int64_t r = 0; r < kRows; ++r) {
    std::memcpy(TileOf(tile).rows[r], RowAt(from, bytes, r),
                sizeof(Tile::rows[r]));
  }
}

void TileStore(int tile, void* to, int64_t bytes) {
  for (int64_t r = 0; r < kRows; ++r) {
    std::memcpy(static_cast<unsigned char*>(to) + r * bytes,
                TileOf(tile).rows[r], sizeof(Tile::rows[r]));
  }
}

// The first elements of a tile's pairs, and the second.
struct Halves {
  explicit Halves(const Tile& tile) {
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t n = 0; n < kRowFloats; ++n) {
        const test::Bf16Pair pair = test::PairOf(tile.rows[r][n]);
        low[r][n] = pair.low;
        high[r][n] = pair.high;
      }
    }
  }
  float low[kRows][kRowFloats];
  float high[kRows][kRowFloats];
};

// TDPBF16PS sums the first elements of pairs apart from the second.
void TileMultiplyAdd(int sums, int rows, int columns) {
  const Halves a(TileOf(rows));
  const Halves b(TileOf(columns));
  Tile& to = TileOf(sums);
  for (int64_t m = 0; m < kRows; ++m) {
    float low[kRowFloats] = {};
    float high[kRowFloats] = {};
    for (int64_t k = 0; k < kRowFloats; ++k) {
      for (int64_t n = 0; n < kRowFloats; ++n) {
        low[n] = test::Flushed(low[n] + a.low[m][k] * b.low[k][n]);
        high[n] = test::Flushed(high[n] + a.high[m][k] * b.high[k][n]);
      }
    }
    for (int64_t n = 0; n < kRowFloats; ++n) {
      to.rows[m][n] = test::Flushed(to.rows[m][n] + (low[n] + high[n]));
    }
  }
}

// TDPBSSD. Sums are whole numbers, in the place of floats.
void TileMultiplyAddBytes(int sums, int rows, int columns) {
  const Tile a = TileOf(rows);
  const Tile b = TileOf(columns);
  const auto quad = [](const Tile& tile, int64_t r, int64_t n) {
    return std::bit_cast<std::array<int8_t, 4>>(tile.rows[r][n]);
  };
  for (int64_t m = 0; m < kRows; ++m) {
    for (int64_t n = 0; n < kRowFloats; ++n) {
      float& to = TileOf(sums).rows[m][n];
      auto sum = std::bit_cast<int32_t>(to);
      for (int64_t k = 0; k < kRows; ++k) {
        for (size_t i = 0; i < 4; ++i) {
          sum += quad(a, m, k)[i] * quad(b, k, n)[i];
        }
      }
      to = std::bit_cast<float>(sum);
    }
  }
}

template <Element kType>
struct Numbers {
  explicit Numbers(const ByteTable* of_bytes) : table(of_bytes) {}

  uint16_t At(const unsigned char* row, int64_t i, int64_t width) const {
    if (row == nullptr || i >= width) return 0;
    if (SizeOf(kType) == 1) return table->Of(row[i]);
    uint16_t element;
    std::memcpy(&element, row + 2 * i, sizeof(element));
    return element;
  }

  const ByteTable* table;
};

template <Element kType>
void CopyElements(const Numbers<kType>& numbers, const unsigned char* row,
                  int64_t width, int64_t padded, uint16_t* to) {
  for (int64_t i = 0; i < padded; ++i) to[i] = numbers.At(row, i, width);
}

template <Element kType>
void PairElements(const Numbers<kType>& numbers, const unsigned char* first,
                  const unsigned char* second, int64_t width, bool finite,
                  float* to) {
  for (int64_t i = 0; i < kBf16InPlaceColumns; ++i) {
    uint32_t pair = 0;
    for (const unsigned char* row : {second, first}) {
      const uint16_t element = numbers.At(row, i, width);
      const bool kept = !finite || (element & 0x7F80) != 0x7F80;
      pair = pair << 16 | (kept ? element : 0);
    }
    std::memcpy(to + i / 16 * 256 + i % 16, &pair, sizeof(pair));
  }
}

void Transpose(const float* sums, int64_t keys, int64_t rows, float* to) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < keys; ++k) {
      to[r * kScoreStride + k] = sums[k * 16 + r];
    }
  }
}

void OrderColumns(const float* tiles, int64_t row, float* to) {
  for (int64_t i = 0; i < kBf16InPlaceColumns; ++i) {
    to[i] = tiles[i / 16 * 256 + row * 16 + i % 16];
  }
}

// Digits to base 256, the least first, each from -128 to 127.
std::array<int8_t, kDigits> DigitsOf(double number) {
  auto left = static_cast<int64_t>(number);
  std::array<int8_t, kDigits> digits;
  for (int8_t& digit : digits) {
    digit = static_cast<int8_t>(left & 0xFF);
    left = (left - digit) / 256;
  }
  return digits;
}

bool SplitSixteen(const float* numbers, int exponent, int8_t* to) {
  for (int64_t i = 0; i < 16; ++i) {
    const double scaled = std::ldexp(double{numbers[i]}, -exponent);
    if (std::nearbyint(scaled) != scaled) return false;
    const auto digits = DigitsOf(scaled);
    for (int64_t d = 0; d < kDigits; ++d) {
      to[i / 4 * kInt8Depth + d * 4 + i % 4] = digits[static_cast<size_t>(d)];
    }
  }
  return true;
}

int SplitWeights(const float* weights, int64_t count, int8_t* to) {
  const int exponent = ExponentOfUnit(
      count == 0 ? 0 : *std::max_element(weights, weights + count));
  const int64_t padded = (count + kInt8Depth - 1) / kInt8Depth * kInt8Depth;
  for (int64_t k = 0; k < padded; ++k) {
    const auto digits = DigitsOf(
        k < count ? std::nearbyint(std::ldexp(double{weights[k]}, -exponent))
                  : 0);
    for (int64_t d = 0; d < kDigits; ++d) {
      to[d * kMaxTileKeys + k] = digits[static_cast<size_t>(d)];
    }
  }
  return exponent;
}

// The sum of the sums of digits that lie `step` apart.
float SumOfDigits(const int32_t* sums, int64_t step) {
  float sum = 0;
  for (int64_t d = 0; d < kDigits; ++d) {
    sum += static_cast<float>(sums[d * step]) *
           static_cast<float>(int64_t{1} << (8 * d));
  }
  return sum;
}

void ScoresOfDigits(const int32_t* sums, const int* exponents, int64_t keys,
                    int64_t rows, float* to) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < keys; ++k) {
      to[r * kScoreStride + k] =
          std::ldexp(SumOfDigits(sums + k * 16 + r * kDigits, 1), exponents[r]);
    }
  }
}

void QuadElements(const unsigned char* const* rows, int64_t count, int64_t left,
                  unsigned char* to) {
  for (int64_t i = 0; i < kInt8Columns; ++i) {
    for (int64_t n = 0; n < 4; ++n) {
      to[i / 16 * 1024 + i % 16 * 4 + n] =
          n < count && i < left ? rows[n][i] : 0;
    }
  }
}

void StoreSumsOfDigits(const int32_t* tiles, int64_t row, int exponent,
                       float* to) {
  for (int64_t i = 0; i < kInt8Columns; ++i) {
    to[i] = std::ldexp(
        SumOfDigits(tiles + i / 16 * 256 + row * 64 + i % 16, 16), exponent);
  }
}

}  // namespace
}  // namespace attention::cpu

#define ATTENTION_TILES
#define ATTENTION_TILES_INLINE inline
#define ATTENTION_PAIRS
#define ATTENTION_PAIRS_INLINE inline
#include "core/cpu/kernels/bf16/tile_products-inl.h"
// And after it
#include "core/cpu/kernels/bf16/in_place_products-inl.h"
// And after that
#include "core/cpu/kernels/bf16/int8_products-inl.h"

namespace attention::test {
const cpu::Bf16Products& EmulatedAmx() {
  static constexpr cpu::Int8Products kInt8 = {
      .decode_name = "int8_amx_decode",
      .split_queries = cpu::SplitQueries,
      .scores = cpu::ScoresOfBytes,
      .sums = cpu::SumsOfBytes};
  static constexpr cpu::Bf16Products kProducts = {
      .name = "bf16_amx",
      .decode_name = "bf16_amx_decode",
      .fp16_name = "fp16_amx",
      .suffix = "_AMX_EMULATED",
      .begin = [] { cpu::unit.configured = true; },
      .end = [] { cpu::unit.configured = false; },
      .scores = cpu::ScoresOfRows<1>,
      .add_values = cpu::AddValuesOfRows<1>,
      .scores_in_place = cpu::ScoresInPlace,
      .sums_in_place = cpu::SumsInPlace,
      .scores_of_two = cpu::ScoresOfRows<2>,
      .add_values_of_two = cpu::AddValuesOfRows<2>,
      .int8 = &kInt8};
  return kProducts;
}

}  // namespace attention::test
