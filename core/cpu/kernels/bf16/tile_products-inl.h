// QK and PV on a unit that multiplies tiles of 16 rows of 64 bytes. Included by
// whoever has such a unit: the processor's (amx.cc), or one in plain C++ (the
// tests, on a machine without). It is given as
//
//   TileZero(t), TileLoad(t, from, bytes), TileStore(t, to, bytes): a tile, and
//   rows of memory `bytes` apart
//   TileMultiplyAdd(sums, rows, columns): TDPBF16PS
//   ATTENTION_TILES, ATTENTION_TILES_INLINE: attributes of functions that use
//   them
//
// Tiles are numbered by literals, which are part of the processor's
// instructions. Not for anything else: it stands in an anonymous namespace.
#ifndef ATTENTION_CORE_CPU_KERNELS_BF16_TILE_PRODUCTS_INL_H_
#define ATTENTION_CORE_CPU_KERNELS_BF16_TILE_PRODUCTS_INL_H_

#include <cstdint>

#include "core/cpu/kernels/bf16/products.h"
#include "core/cpu/kernels/sizes.h"

// NOLINTBEGIN(google-build-namespaces,misc-definitions-in-headers): see above
namespace attention::cpu {
namespace {

// Bytes of a row of a tile, and from one row of a panel to the next.
constexpr int64_t kPanelBytes = kBf16Panel * sizeof(float);
constexpr int64_t kScoreBytes = kScoreStride * sizeof(float);
constexpr int64_t kWeightBytes = kBf16WeightStride * sizeof(float);
// Floats of kBf16Depth rows of a panel.
constexpr int64_t kPanelFloats = kBf16Depth * kBf16Panel;

// Tiles 0 to 3 are sums (rows 0-15 and 16-31, two times 16 columns), 4 and 5
// take rows, 6 and 7 columns. Numbers of tiles are part of the instructions.
template <bool kTwoRows, bool kTwoColumns>
ATTENTION_TILES_INLINE void Clear() {
  TileZero(0);
  if constexpr (kTwoColumns) TileZero(1);
  if constexpr (kTwoRows) TileZero(2);
  if constexpr (kTwoRows && kTwoColumns) TileZero(3);
}

template <bool kTwoRows, bool kTwoColumns>
ATTENTION_TILES_INLINE void Load(const float* from, int64_t stride,
                                 int64_t bytes) {
  TileLoad(0, from, bytes);
  if constexpr (kTwoColumns) TileLoad(1, from + 16, bytes);
  if constexpr (kTwoRows) TileLoad(2, from + 16 * stride, bytes);
  if constexpr (kTwoRows && kTwoColumns) {
    TileLoad(3, from + 16 * stride + 16, bytes);
  }
}

template <bool kTwoRows, bool kTwoColumns>
ATTENTION_TILES_INLINE void Store(float* to, int64_t stride, int64_t bytes) {
  TileStore(0, to, bytes);
  if constexpr (kTwoColumns) TileStore(1, to + 16, bytes);
  if constexpr (kTwoRows) TileStore(2, to + 16 * stride, bytes);
  if constexpr (kTwoRows && kTwoColumns) {
    TileStore(3, to + 16 * stride + 16, bytes);
  }
}

// 16 pairs of each row, and of each column.
template <bool kTwoRows>
ATTENTION_TILES_INLINE void LoadRows(const float* rows, int64_t stride,
                                     int64_t bytes) {
  TileLoad(4, rows, bytes);
  if constexpr (kTwoRows) TileLoad(5, rows + 16 * stride, bytes);
}

template <bool kTwoColumns>
ATTENTION_TILES_INLINE void LoadColumns(const float* columns) {
  TileLoad(6, columns, kPanelBytes);
  if constexpr (kTwoColumns) TileLoad(7, columns + 16, kPanelBytes);
}

template <bool kTwoRows, bool kTwoColumns>
ATTENTION_TILES_INLINE void Multiply() {
  TileMultiplyAdd(0, 4, 6);
  if constexpr (kTwoColumns) TileMultiplyAdd(1, 4, 7);
  if constexpr (kTwoRows) TileMultiplyAdd(2, 5, 6);
  if constexpr (kTwoRows && kTwoColumns) TileMultiplyAdd(3, 5, 7);
}

// One step: such rows times such columns.
template <bool kTwoRows, bool kTwoColumns>
ATTENTION_TILES_INLINE void Step(const float* rows, int64_t stride,
                                 int64_t bytes, const float* columns) {
  LoadRows<kTwoRows>(rows, stride, bytes);
  LoadColumns<kTwoColumns>(columns);
  Multiply<kTwoRows, kTwoColumns>();
}

// Elements are the sums of `kTerms` terms. The products of second terms, small
// beside the others, come first and so lose nothing to the sums' roundings.
template <int kTerms, bool kTwoRows>
ATTENTION_TILES void Scores(const float* queries, const float* keys,
                            int64_t width, int64_t panels, float* scores) {
  const int64_t stride = kTerms * width;
  const int64_t bytes = stride * static_cast<int64_t>(sizeof(float));
  for (int64_t p = 0; p < panels; ++p) {
    Clear<kTwoRows, true>();
    for (int64_t i = 0; kTerms == 2 && i < width; i += kBf16Depth) {
      LoadRows<kTwoRows>(queries + width + i, stride, bytes);
      LoadColumns<true>(keys + i * kBf16Panel);
      Multiply<kTwoRows, true>();
      LoadColumns<true>(keys + (width + i) * kBf16Panel);
      Multiply<kTwoRows, true>();
      LoadRows<kTwoRows>(queries + i, stride, bytes);
      Multiply<kTwoRows, true>();
    }
    for (int64_t i = 0; i < width; i += kBf16Depth) {
      Step<kTwoRows, true>(queries + i, stride, bytes, keys + i * kBf16Panel);
    }
    Store<kTwoRows, true>(scores + p * kBf16Panel, kScoreStride, kScoreBytes);
    keys += stride * kBf16Panel;
  }
}

template <int kTerms>
void ScoresOfRows(const float* queries, const float* keys, int64_t width,
                  int64_t rows, int64_t panels, float* scores) {
  if (rows > kBf16RowTile) {
    Scores<kTerms, true>(queries, keys, width, panels, scores);
  } else {
    Scores<kTerms, false>(queries, keys, width, panels, scores);
  }
}

// `value_stride`: floats from one panel of keys to the next; `second`: to the
// second terms of the same values.
template <int kTerms, bool kTwoRows, bool kTwoColumns>
ATTENTION_TILES void AddPanel(const float* weights, const float* values,
                              int64_t value_stride, int64_t second,
                              int64_t panels, float* output, int64_t width) {
  const int64_t bytes = width * static_cast<int64_t>(sizeof(float));
  Load<kTwoRows, kTwoColumns>(output, width, bytes);
  for (int64_t p = 0; p < panels; ++p) {
    if constexpr (kTerms == 2) {
      LoadRows<kTwoRows>(weights + kBf16WeightTerm, kBf16WeightStride,
                         kWeightBytes);
      LoadColumns<kTwoColumns>(values);
      Multiply<kTwoRows, kTwoColumns>();
      LoadRows<kTwoRows>(weights, kBf16WeightStride, kWeightBytes);
      Multiply<kTwoRows, kTwoColumns>();
      LoadColumns<kTwoColumns>(values + second);
      Multiply<kTwoRows, kTwoColumns>();
    } else {
      Step<kTwoRows, kTwoColumns>(weights, kBf16WeightStride, kWeightBytes,
                                  values);
    }
    weights += kBf16Depth;
    values += value_stride;
  }
  Store<kTwoRows, kTwoColumns>(output, width, bytes);
}

template <int kTerms, bool kTwoRows>
void AddValues(const float* weights, const float* values, int64_t value_panels,
               int64_t panels, float* output, int64_t width) {
  const int64_t stride = value_panels * kPanelFloats;
  const int64_t second = stride / kTerms;
  for (int64_t c = 0; c < width; c += kBf16Panel) {
    if (width - c > 16) {
      AddPanel<kTerms, kTwoRows, true>(weights, values, stride, second, panels,
                                       output + c, width);
    } else {
      AddPanel<kTerms, kTwoRows, false>(weights, values, stride, second, panels,
                                        output + c, width);
    }
    values += kPanelFloats;
  }
}

template <int kTerms>
void AddValuesOfRows(const float* weights, const float* values,
                     int64_t value_panels, int64_t rows, int64_t panels,
                     float* output, int64_t output_width) {
  if (rows > kBf16RowTile) {
    AddValues<kTerms, true>(weights, values, value_panels, panels, output,
                            output_width);
  } else {
    AddValues<kTerms, false>(weights, values, value_panels, panels, output,
                             output_width);
  }
}

}  // namespace
}  // namespace attention::cpu
// NOLINTEND(google-build-namespaces,misc-definitions-in-headers)

#endif  // ATTENTION_CORE_CPU_KERNELS_BF16_TILE_PRODUCTS_INL_H_
