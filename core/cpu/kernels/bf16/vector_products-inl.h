// QK and PV on vectors of 16 sums. Included by whoever has instructions for
// them: the processor's (avx512.cc), or plain C++ (the tests, on a machine
// without). They are given as
//
//   Sums, ZeroSums(), LoadSums(from), StoreSums(sums, to): 16 floats, or pairs
//   BroadcastPair(pair): it, 16 times
//   AddPairProducts(sums, a, b): VDPBF16PS
//   ATTENTION_SUMS, ATTENTION_SUMS_INLINE: attributes of functions that use
//   them
//
// Not for anything else: it stands in an anonymous namespace.
#ifndef ATTENTION_CORE_CPU_KERNELS_BF16_VECTOR_PRODUCTS_INL_H_
#define ATTENTION_CORE_CPU_KERNELS_BF16_VECTOR_PRODUCTS_INL_H_

#include <cstdint>

#include "core/cpu/kernels/bf16/products.h"
#include "core/cpu/kernels/sizes.h"

// NOLINTBEGIN(google-build-namespaces,misc-definitions-in-headers): see above
namespace attention::cpu {
namespace {

// Rows whose sums, two vectors each, stay in registers: 16 sums hide what an
// instruction takes, and no few rows are left over, which would not.
constexpr int64_t kRows = 8;
static_assert(kMaxMicroRows % kRows == 0);

// sums[r] += pairs of row r times pairs of columns, all `depth` of them; the
// columns' rows are a panel apart.
template <int kCount, bool kTwo>
ATTENTION_SUMS_INLINE void Accumulate(const float* rows, int64_t stride,
                                      const float* columns, int64_t depth,
                                      Sums* sums0, Sums* sums1) {
  for (int64_t i = 0; i < depth; ++i) {
    const Sums column0 = LoadSums(columns);
    const Sums column1 = kTwo ? LoadSums(columns + 16) : ZeroSums();
#pragma GCC unroll 16
    for (int r = 0; r < kCount; ++r) {
      const Sums row = BroadcastPair(rows[r * stride]);
      sums0[r] = AddPairProducts(sums0[r], row, column0);
      if constexpr (kTwo) {
        sums1[r] = AddPairProducts(sums1[r], row, column1);
      }
    }
    ++rows;
    columns += kBf16Panel;
  }
}

struct ScoreRows {
  const float* queries;
  const float* keys;
  int64_t width;
  int64_t panels;
  float* scores;

  template <int kCount>
  ATTENTION_SUMS void Rows(int64_t first) const {
    for (int64_t p = 0; p < panels; ++p) {
      float* const to = scores + first * kScoreStride + p * kBf16Panel;
      Sums sums0[kCount];
      Sums sums1[kCount];
#pragma GCC unroll 16
      for (int r = 0; r < kCount; ++r) {
        sums0[r] = sums1[r] = ZeroSums();
      }
      Accumulate<kCount, true>(queries + first * width, width,
                               keys + p * width * kBf16Panel, width, sums0,
                               sums1);
#pragma GCC unroll 16
      for (int r = 0; r < kCount; ++r) {
        StoreSums(sums0[r], to + r * kScoreStride);
        StoreSums(sums1[r], to + r * kScoreStride + 16);
      }
    }
  }
};

struct ValueRows {
  const float* weights;
  const float* values;
  int64_t value_panels;
  int64_t panels;
  float* output;
  int64_t width;

  template <int kCount>
  ATTENTION_SUMS void Rows(int64_t first) const {
    for (int64_t c = 0; c < width; c += kBf16Panel) {
      if (width - c > 16) {
        Panel<kCount, true>(first, c);
      } else {
        Panel<kCount, false>(first, c);
      }
    }
  }

  template <int kCount, bool kTwo>
  ATTENTION_SUMS_INLINE void Panel(int64_t first, int64_t column) const {
    constexpr int64_t kPanelFloats = kBf16Depth * kBf16Panel;
    float* const to = output + first * width + column;
    Sums sums0[kCount];
    Sums sums1[kCount];
#pragma GCC unroll 16
    for (int r = 0; r < kCount; ++r) {
      sums0[r] = LoadSums(to + r * width);
      sums1[r] = kTwo ? LoadSums(to + r * width + 16) : ZeroSums();
    }
    for (int64_t p = 0; p < panels; ++p) {
      const int64_t panel = p * value_panels + column / kBf16Panel;
      Accumulate<kCount, kTwo>(
          weights + first * kBf16WeightStride + p * kBf16Depth,
          kBf16WeightStride, values + panel * kPanelFloats, kBf16Depth, sums0,
          sums1);
    }
#pragma GCC unroll 16
    for (int r = 0; r < kCount; ++r) {
      StoreSums(sums0[r], to + r * width);
      if constexpr (kTwo) StoreSums(sums1[r], to + r * width + 16);
    }
  }
};

template <typename Work>
void ForRows(int64_t rows, const Work& work) {
  int64_t r = 0;
  for (; r + kRows <= rows; r += kRows) work.template Rows<kRows>(r);
  for (; r + 4 <= rows; r += 4) work.template Rows<4>(r);
  for (; r < rows; ++r) work.template Rows<1>(r);
}

void ScoresOfRows(const float* queries, const float* keys, int64_t width,
                  int64_t rows, int64_t panels, float* scores) {
  ForRows(rows, ScoreRows{queries, keys, width, panels, scores});
}

void AddValuesOfRows(const float* weights, const float* values,
                     int64_t value_panels, int64_t rows, int64_t panels,
                     float* output, int64_t output_width) {
  ForRows(rows, ValueRows{weights, values, value_panels, panels, output,
                          output_width});
}

}  // namespace
}  // namespace attention::cpu
// NOLINTEND(google-build-namespaces,misc-definitions-in-headers)

#endif  // ATTENTION_CORE_CPU_KERNELS_BF16_VECTOR_PRODUCTS_INL_H_
