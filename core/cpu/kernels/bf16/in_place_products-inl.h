// QK and PV on a unit that multiplies tiles, of keys and values where they lie:
// decoding reads each once. Included after tile_products-inl.h, whose words it
// uses, by who also has these:
//
//   Numbers<type>(table): what a row's elements are as BF16
//
//   CopyElements(numbers, row, width, padded, to): a row, and zeros from
//   element `width` to `padded`; of null zeros alone
//
//   PairElements(numbers, first, second, width, finite, to): 64 columns of two
//   rows of values as pairs; kInPlaceTiles tiles, kTileFloats floats apart, in
//   any order. A row that is null, and columns from `width` on, are 0, and so,
//   where `finite`, is what is not
//
//   OrderColumns(tiles, row, to): what such columns' sums are, in order
//
//   Transpose(sums, keys, rows, to): `keys` times 16 sums as `rows` rows of
//   kScoreStride; `keys` is a multiple of 16
//
//   ATTENTION_PAIRS, ATTENTION_PAIRS_INLINE: attributes of such functions
//
// Not for anything else: it stands in an anonymous namespace.
#ifndef ATTENTION_CORE_CPU_KERNELS_BF16_IN_PLACE_PRODUCTS_INL_H_
#define ATTENTION_CORE_CPU_KERNELS_BF16_IN_PLACE_PRODUCTS_INL_H_

#include <cstdint>

#include "core/cpu/kernels/bf16/products.h"
#include "core/cpu/kernels/sizes.h"

// NOLINTBEGIN(google-build-namespaces,misc-definitions-in-headers): see above
namespace attention::cpu {
namespace {

// Into the second-level cache: the first has no room for so much.
ATTENTION_PAIRS_INLINE void BringCloser(const unsigned char* from,
                                        int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += kLine) {
    __builtin_prefetch(from + i, 0, 2);
  }
}

// A tile of keys, which take the rows' place: a score is the same sum of the
// same products, and keys need not be packed.
struct KeysOfTile {
  const unsigned char* data;
  int64_t stride;  // in bytes
};

// Whether kBf16RowTile rows are equally far from each other.
ATTENTION_PAIRS_INLINE bool AreEquidistant(const unsigned char* const* rows) {
  bool equal = true;
  for (int64_t r = 2; r < kBf16RowTile; ++r) {
    equal = equal && rows[r] - rows[r - 1] == rows[1] - rows[0];
  }
  return equal;
}

// kBf16RowTile keys from `first` on, where they lie if a tile can be loaded
// from there, else in `room`: rows of `width` pairs.
template <Element kType>
ATTENTION_PAIRS_INLINE KeysOfTile TileOfKeys(const Numbers<kType>& numbers,
                                             const Bf16Rows& keys,
                                             int64_t first, int64_t elements,
                                             int64_t width, float* room) {
  const unsigned char* const* const rows = keys.rows + first;
  const int64_t count = keys.count - first;
  if constexpr (kType == Element::kBFloat16) {
    if (count >= kBf16RowTile && elements == 2 * width &&
        AreEquidistant(rows)) {
      return {rows[0], rows[1] - rows[0]};
    }
  }
  for (int64_t r = 0; r < kBf16RowTile; ++r) {
    CopyElements(numbers, r < count ? rows[r] : nullptr, elements, 2 * width,
                 reinterpret_cast<uint16_t*>(room + r * width));
  }
  return {reinterpret_cast<const unsigned char*>(room),
          width * static_cast<int64_t>(sizeof(float))};
}

constexpr int64_t kTileFloats = kBf16RowTile * 16;

// Queries, kSteps times 16 pairs of each, in tiles 4 to 7.
template <int kSteps>
ATTENTION_TILES_INLINE void LoadQueries(const float* queries) {
  TileLoad(4, queries, kPanelBytes);
  if constexpr (kSteps > 1) TileLoad(5, queries + kPanelFloats, kPanelBytes);
  if constexpr (kSteps > 2) {
    TileLoad(6, queries + 2 * kPanelFloats, kPanelBytes);
  }
  if constexpr (kSteps > 3) {
    TileLoad(7, queries + 3 * kPanelFloats, kPanelBytes);
  }
}

// Two tiles of keys times those queries, into tiles 0 and 1: products of one
// wait for each other, not for those of the other.
template <int kSteps>
ATTENTION_TILES_INLINE void AddScores(const KeysOfTile (&keys)[2],
                                      int64_t bytes) {
  TileLoad(2, keys[0].data + bytes, keys[0].stride);
  TileMultiplyAdd(0, 2, 4);
  TileLoad(3, keys[1].data + bytes, keys[1].stride);
  TileMultiplyAdd(1, 3, 4);
  if constexpr (kSteps > 1) {
    TileLoad(2, keys[0].data + bytes + 64, keys[0].stride);
    TileMultiplyAdd(0, 2, 5);
    TileLoad(3, keys[1].data + bytes + 64, keys[1].stride);
    TileMultiplyAdd(1, 3, 5);
  }
  if constexpr (kSteps > 2) {
    TileLoad(2, keys[0].data + bytes + 128, keys[0].stride);
    TileMultiplyAdd(0, 2, 6);
    TileLoad(3, keys[1].data + bytes + 128, keys[1].stride);
    TileMultiplyAdd(1, 3, 6);
  }
  if constexpr (kSteps > 3) {
    TileLoad(2, keys[0].data + bytes + 192, keys[0].stride);
    TileMultiplyAdd(0, 2, 7);
    TileLoad(3, keys[1].data + bytes + 192, keys[1].stride);
    TileMultiplyAdd(1, 3, 7);
  }
}

// Pairs that the queries' tiles hold.
constexpr int64_t kPairsOfSteps = 4 * kBf16Depth;

template <int kSteps>
ATTENTION_TILES_INLINE void ScorePanel(const float* queries,
                                       const KeysOfTile (&keys)[2],
                                       int64_t first_pair, bool loads) {
  if (loads) LoadQueries<kSteps>(queries + first_pair * kBf16Panel);
  AddScores<kSteps>(keys, first_pair * static_cast<int64_t>(sizeof(float)));
}

// `loaded`: the queries' tiles hold all of them.
ATTENTION_TILES void ScorePanelOfKeys(const float* queries,
                                      const KeysOfTile (&keys)[2],
                                      int64_t width, bool loaded, float* sums) {
  TileZero(0);
  TileZero(1);
  int64_t i = 0;
  for (; i + kPairsOfSteps <= width; i += kPairsOfSteps) {
    ScorePanel<4>(queries, keys, i, !loaded);
  }
  switch ((width - i) / kBf16Depth) {
    case 3:
      ScorePanel<3>(queries, keys, i, !loaded);
      break;
    case 2:
      ScorePanel<2>(queries, keys, i, !loaded);
      break;
    case 1:
      ScorePanel<1>(queries, keys, i, !loaded);
      break;
    default:
      break;
  }
  TileStore(0, sums, 64);
  TileStore(1, sums + kTileFloats, 64);
}

template <Element kType>
ATTENTION_PAIRS void ScoresOfType(const float* queries, const Bf16Rows& keys,
                                  int64_t elements, int64_t rows, float* room,
                                  float* scores) {
  const int64_t width =
      (elements + 2 * kBf16Depth - 1) / (2 * kBf16Depth) * kBf16Depth;
  const int64_t padded =
      (keys.count + kBf16Panel - 1) / kBf16Panel * kBf16Panel;
  const Numbers<kType> numbers(keys.table);
  // Key by key, 16 rows each. They become rows when all are there: who reads
  // them at once waits for the products.
  alignas(64) float sums[kMaxTileKeys * kBf16RowTile];
  for (int64_t r = 0; r < rows; r += kBf16RowTile) {
    for (int64_t first = 0; first < keys.count; first += kBf16Panel) {
      const KeysOfTile panel[2] = {
          TileOfKeys(numbers, keys, first, elements, width, room),
          TileOfKeys(numbers, keys, first + kBf16RowTile, elements, width,
                     room + kBf16RowTile * width)};
      const int64_t end =
          keys.count - first < kBf16Panel ? keys.count : first + kBf16Panel;
      for (int64_t k = first; r == 0 && k < end; ++k) {
        BringCloser(keys.rows[keys.ahead + k], elements * SizeOf(kType));
      }
      ScorePanelOfKeys(queries + r, panel, width,
                       first > 0 && width <= kPairsOfSteps,
                       sums + first * kBf16RowTile);
    }
    const int64_t some = rows - r < kBf16RowTile ? rows - r : kBf16RowTile;
    Transpose(sums, padded, some, scores + r * kScoreStride);
  }
}

void ScoresInPlace(const float* queries, const Bf16Rows& keys, int64_t elements,
                   int64_t rows, float* room, float* scores) {
  const auto score = keys.type == Element::kInt8 ? ScoresOfType<Element::kInt8>
                     : keys.type == Element::kFloat8
                         ? ScoresOfType<Element::kFloat8>
                         : ScoresOfType<Element::kBFloat16>;
  score(queries, keys, elements, rows, room, scores);
}

// Of columns of values that are multiplied together.
constexpr int64_t kInPlaceTiles = 4;
static_assert(kBf16InPlaceColumns == kInPlaceTiles * 16);

// A panel of keys' weights times its values, in pairs.
ATTENTION_TILES_INLINE void AddWeighted(const float* weights,
                                        const float* values) {
  TileLoad(4, weights, kWeightBytes);
  TileLoad(5, values, 64);
  TileMultiplyAdd(0, 4, 5);
  TileLoad(6, values + kTileFloats, 64);
  TileMultiplyAdd(1, 4, 6);
  TileLoad(5, values + 2 * kTileFloats, 64);
  TileMultiplyAdd(2, 4, 5);
  TileLoad(6, values + 3 * kTileFloats, 64);
  TileMultiplyAdd(3, 4, 6);
}

// Sums of kBf16InPlaceColumns columns from `column` on, in tiles 0 to 3;
// kWhole: all of them are there.
template <Element kType, bool kWhole>
ATTENTION_PAIRS_INLINE void SumColumns(const float* weights,
                                       const Bf16Rows& values, int64_t column,
                                       int64_t width, bool finite,
                                       float* pairs) {
  const Numbers<kType> numbers(values.table);
  const int64_t left = kWhole ? kBf16InPlaceColumns : width - column;
  const int64_t offset = SizeOf(kType) * column;
  const int64_t bytes = SizeOf(kType) * left;
  for (int64_t first = 0; first < values.count; first += kBf16Panel) {
    const unsigned char* const* const rows = values.rows + first;
    const unsigned char* const* const ahead = rows + values.ahead;
    const int64_t count = values.count - first;
    // Two places in turns: tiles may still be loaded from the other.
    float* const to =
        pairs + first / kBf16Panel % 2 * kInPlaceTiles * kTileFloats;
    for (int64_t n = 0; n < kBf16Depth; ++n) {
      const int64_t m = n + kBf16Depth;
      const unsigned char* const a = n < count ? rows[n] + offset : nullptr;
      const unsigned char* const b = m < count ? rows[m] + offset : nullptr;
      if (a != nullptr) BringCloser(ahead[n] + offset, bytes);
      if (b != nullptr) BringCloser(ahead[m] + offset, bytes);
      PairElements(numbers, a, b, left, finite, to + n * 16);
    }
    AddWeighted(weights + first / 2, to);
  }
}

ATTENTION_TILES_INLINE void ClearFour() {
  TileZero(0);
  TileZero(1);
  TileZero(2);
  TileZero(3);
}

template <class T>
ATTENTION_TILES_INLINE void StoreFour(T* to) {
  TileStore(0, to, 64);
  TileStore(1, to + kTileFloats, 64);
  TileStore(2, to + 2 * kTileFloats, 64);
  TileStore(3, to + 3 * kTileFloats, 64);
}

template <Element kType>
ATTENTION_PAIRS void SumsOfType(const float* weights, const Bf16Rows& values,
                                int64_t width, int64_t rows, bool finite,
                                float* sums, int64_t stride) {
  alignas(64) float pairs[2 * kInPlaceTiles * kTileFloats];
  for (int64_t column = 0; column < width; column += kBf16InPlaceColumns) {
    for (int64_t r = 0; r < rows; r += kBf16RowTile) {
      const float* const of_rows = weights + r * kBf16WeightStride;
      ClearFour();
      if (width - column >= kBf16InPlaceColumns) {
        SumColumns<kType, true>(of_rows, values, column, width, finite, pairs);
      } else {
        SumColumns<kType, false>(of_rows, values, column, width, finite, pairs);
      }
      StoreFour(pairs);
      for (int64_t n = r; n < rows && n < r + kBf16RowTile; ++n) {
        OrderColumns(pairs, n - r, sums + n * stride + column);
      }
    }
  }
}

void SumsInPlace(const float* weights, const Bf16Rows& values, int64_t width,
                 int64_t rows, bool finite, float* sums, int64_t stride) {
  const auto sum = values.type == Element::kInt8 ? SumsOfType<Element::kInt8>
                   : values.type == Element::kFloat8
                       ? SumsOfType<Element::kFloat8>
                       : SumsOfType<Element::kBFloat16>;
  sum(weights, values, width, rows, finite, sums, stride);
}

}  // namespace
}  // namespace attention::cpu
// NOLINTEND(google-build-namespaces,misc-definitions-in-headers)

#endif  // ATTENTION_CORE_CPU_KERNELS_BF16_IN_PLACE_PRODUCTS_INL_H_
