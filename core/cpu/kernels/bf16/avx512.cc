// Products of BF16 with AVX512-BF16: VDPBF16PS adds two products to each of 16
// sums (Intel 64 and IA-32 Architectures Software Developer's Manual, volume
// 2).

#include "core/cpu/kernels/bf16/products.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

#define ATTENTION_BF16 \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#define ATTENTION_BF16_INLINE \
  ATTENTION_BF16 __attribute__((always_inline)) inline

namespace attention::cpu {
namespace {

// Rows whose sums, two vectors each, stay in registers: 16 sums hide what an
// instruction takes, and no few rows are left over, which would not.
constexpr int64_t kRows = 8;
static_assert(kMaxMicroRows % kRows == 0);

void Nothing() {}

ATTENTION_BF16_INLINE __m512bh Bf16(__m512 pairs) {
  return reinterpret_cast<__m512bh>(pairs);
}

// sums[r] += pairs of row r times pairs of columns, all `depth` of them; the
// columns' rows are a panel apart.
template <int kCount, bool kTwo>
ATTENTION_BF16_INLINE void Accumulate(const float* rows, int64_t stride,
                                      const float* columns, int64_t depth,
                                      __m512* sums0, __m512* sums1) {
  for (int64_t i = 0; i < depth; ++i) {
    const __m512bh column0 = Bf16(_mm512_loadu_ps(columns));
    const __m512bh column1 =
        Bf16(kTwo ? _mm512_loadu_ps(columns + 16) : _mm512_setzero_ps());
#pragma GCC unroll 16
    for (int r = 0; r < kCount; ++r) {
      const __m512bh row = Bf16(_mm512_set1_ps(rows[r * stride]));
      sums0[r] = _mm512_dpbf16_ps(sums0[r], row, column0);
      if constexpr (kTwo) {
        sums1[r] = _mm512_dpbf16_ps(sums1[r], row, column1);
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
  ATTENTION_BF16 void Rows(int64_t first) const {
    for (int64_t p = 0; p < panels; ++p) {
      float* const to = scores + first * kScoreStride + p * kBf16Panel;
      __m512 sums0[kCount];
      __m512 sums1[kCount];
#pragma GCC unroll 16
      for (int r = 0; r < kCount; ++r) {
        sums0[r] = sums1[r] = _mm512_setzero_ps();
      }
      Accumulate<kCount, true>(queries + first * width, width,
                               keys + p * width * kBf16Panel, width, sums0,
                               sums1);
#pragma GCC unroll 16
      for (int r = 0; r < kCount; ++r) {
        _mm512_storeu_ps(to + r * kScoreStride, sums0[r]);
        _mm512_storeu_ps(to + r * kScoreStride + 16, sums1[r]);
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
  ATTENTION_BF16 void Rows(int64_t first) const {
    for (int64_t c = 0; c < width; c += kBf16Panel) {
      if (width - c > 16) {
        Panel<kCount, true>(first, c);
      } else {
        Panel<kCount, false>(first, c);
      }
    }
  }

  template <int kCount, bool kTwo>
  ATTENTION_BF16_INLINE void Panel(int64_t first, int64_t column) const {
    constexpr int64_t kPanelFloats = kBf16Depth * kBf16Panel;
    float* const to = output + first * width + column;
    __m512 sums0[kCount];
    __m512 sums1[kCount];
#pragma GCC unroll 16
    for (int r = 0; r < kCount; ++r) {
      sums0[r] = _mm512_loadu_ps(to + r * width);
      sums1[r] =
          kTwo ? _mm512_loadu_ps(to + r * width + 16) : _mm512_setzero_ps();
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
      _mm512_storeu_ps(to + r * width, sums0[r]);
      if constexpr (kTwo) _mm512_storeu_ps(to + r * width + 16, sums1[r]);
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

void Scores(const float* queries, const float* keys, int64_t width,
            int64_t rows, int64_t panels, float* scores) {
  ForRows(rows, ScoreRows{queries, keys, width, panels, scores});
}

void AddValues(const float* weights, const float* values, int64_t value_panels,
               int64_t rows, int64_t panels, float* output,
               int64_t output_width) {
  ForRows(rows, ValueRows{weights, values, value_panels, panels, output,
                          output_width});
}

// The operating system's part is known from AVX-512 itself.
bool ProcessorHasBf16() {
  constexpr unsigned kBf16 = 1U << 5;  // leaf 7, 1: EAX
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & kBf16) != 0;
}

}  // namespace

const Bf16Products* Avx512Bf16Products() {
  static const bool kAvailable = ProcessorHasBf16();
  static constexpr Bf16Products kProducts = {.name = "bf16_avx512",
                                             .suffix = "_BF16",
                                             .begin = Nothing,
                                             .end = Nothing,
                                             .scores = Scores,
                                             .add_values = AddValues};
  return kAvailable ? &kProducts : nullptr;
}

bool Avx512Bf16IsFast() { return __builtin_cpu_is("amd") != 0; }

}  // namespace attention::cpu

#else

namespace attention::cpu {

const Bf16Products* Avx512Bf16Products() { return nullptr; }
bool Avx512Bf16IsFast() { return false; }

}  // namespace attention::cpu

#endif
