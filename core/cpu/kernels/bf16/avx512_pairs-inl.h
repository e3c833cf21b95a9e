// What in_place_products-inl.h is given on a processor with AVX-512 and its
// VBMI: VPERMI2B looks up a table of 128 bytes (Intel 64 and IA-32
// Architectures Software Developer's Manual, volume 2). Not for anything but
// amx.cc: it stands in an anonymous namespace.
#ifndef ATTENTION_CORE_CPU_KERNELS_BF16_AVX512_PAIRS_INL_H_
#define ATTENTION_CORE_CPU_KERNELS_BF16_AVX512_PAIRS_INL_H_

#include <immintrin.h>

#include <cstdint>

#include "core/cpu/kernels/bf16/byte_table.h"
#include "core/cpu/kernels/sizes.h"

#define ATTENTION_PAIRS                              \
  __attribute__((                                    \
      target("avx512f,avx512bw,avx512vl,avx512vbmi," \
             "amx-tile,amx-bf16,amx-int8")))
#define ATTENTION_PAIRS_INLINE \
  ATTENTION_PAIRS __attribute__((always_inline)) inline

// NOLINTBEGIN(google-build-namespaces,misc-definitions-in-headers): see above
namespace attention::cpu {
namespace {

// 64 elements: two vectors of BF16.
struct Elements {
  __m512i low;
  __m512i high;
};

// The first `count` bytes, at most 64, of `from`, and zeros.
ATTENTION_PAIRS_INLINE __m512i LoadBytes(const unsigned char* from,
                                         int64_t count) {
  if (count >= 64) return _mm512_loadu_si512(from);
  if (count <= 0) return _mm512_setzero_si512();
  return _mm512_maskz_loadu_epi8((uint64_t{1} << count) - 1, from);
}

// What elements of one byte are: a table in registers.
template <Element kType>
struct Numbers {
  __m512i low[2];
  __m512i high[2];
  __m512i low_of_128;
  __m512i high_of_128;
  __m512i order;
  __m512i sign;

  ATTENTION_PAIRS_INLINE explicit Numbers(const ByteTable* table)
      : low{_mm512_load_si512(table->low), _mm512_load_si512(table->low + 64)},
        high{_mm512_load_si512(table->high),
             _mm512_load_si512(table->high + 64)},
        low_of_128(
            _mm512_set1_epi8(static_cast<char>(table->bits_of_128 & 0xFF))),
        high_of_128(
            _mm512_set1_epi8(static_cast<char>(table->bits_of_128 >> 8))),
        // Of which interleaving, 8 by 8, leaves elements in order.
        order(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7)),
        sign(_mm512_set1_epi8(static_cast<char>(0x80))) {}

  // The first `left` elements of a row, at most 64, and zeros.
  ATTENTION_PAIRS_INLINE Elements Load(const unsigned char* row,
                                       int64_t left) const {
    const __m512i x = _mm512_permutexvar_epi64(order, LoadBytes(row, left));
    // Tables are looked up by the lower 7 bits.
    const __m512i magnitude = kType == Element::kInt8 ? _mm512_abs_epi8(x) : x;
    __m512i lower = _mm512_permutex2var_epi8(low[0], magnitude, low[1]);
    __m512i upper = _mm512_permutex2var_epi8(high[0], magnitude, high[1]);
    if constexpr (kType == Element::kInt8) {
      const __mmask64 is_128 = _mm512_movepi8_mask(magnitude);
      lower = _mm512_mask_mov_epi8(lower, is_128, low_of_128);
      upper = _mm512_mask_mov_epi8(upper, is_128, high_of_128);
    }
    constexpr int kFirstOrBoth = 0xF8;  // a | (b & c)
    upper = _mm512_ternarylogic_epi64(upper, x, sign, kFirstOrBoth);
    return {_mm512_unpacklo_epi8(lower, upper),
            _mm512_unpackhi_epi8(lower, upper)};
  }
};

template <>
struct Numbers<Element::kBFloat16> {
  explicit Numbers(const ByteTable* /*table*/) {}

  ATTENTION_PAIRS_INLINE Elements Load(const unsigned char* row,
                                       int64_t left) const {
    return {LoadBytes(row, 2 * left), LoadBytes(row + 64, 2 * left - 64)};
  }
};

template <Element kType>
ATTENTION_PAIRS_INLINE Elements LoadOrZeros(const Numbers<kType>& numbers,
                                            const unsigned char* row,
                                            int64_t left) {
  if (row != nullptr) return numbers.Load(row, left);
  return {_mm512_setzero_si512(), _mm512_setzero_si512()};
}

template <Element kType>
ATTENTION_PAIRS_INLINE void CopyElements(const Numbers<kType>& numbers,
                                         const unsigned char* row,
                                         int64_t width, int64_t padded,
                                         uint16_t* to) {
  for (int64_t i = 0; i < padded; i += 64) {
    const unsigned char* const from =
        row == nullptr || i >= width ? nullptr : row + i * SizeOf(kType);
    const Elements some = LoadOrZeros(numbers, from, width - i);
    _mm512_storeu_si512(to + i, some.low);
    if (i + 32 < padded) _mm512_storeu_si512(to + i + 32, some.high);
  }
}

// 0 where an element is not finite.
ATTENTION_PAIRS_INLINE __m512i FiniteOf(__m512i elements) {
  const __m512i infinity = _mm512_set1_epi16(0x7F80);
  const __mmask32 finite =
      _mm512_cmpneq_epi16_mask(_mm512_and_si512(elements, infinity), infinity);
  return _mm512_maskz_mov_epi16(finite, elements);
}

// Even columns are pairs of one tile, odd ones of the next.
ATTENTION_PAIRS_INLINE void PairColumns(__m512i first, __m512i second,
                                        float* to) {
  constexpr __mmask32 kOdd = 0xAAAAAAAA;
  _mm512_storeu_si512(
      to, _mm512_mask_blend_epi16(kOdd, first, _mm512_slli_epi32(second, 16)));
  _mm512_storeu_si512(
      to + 256,
      _mm512_mask_blend_epi16(kOdd, _mm512_srli_epi32(first, 16), second));
}

template <Element kType>
ATTENTION_PAIRS_INLINE void PairElements(const Numbers<kType>& numbers,
                                         const unsigned char* first,
                                         const unsigned char* second,
                                         int64_t left, bool finite, float* to) {
  Elements a = LoadOrZeros(numbers, first, left);
  Elements b = LoadOrZeros(numbers, second, left);
  if (finite) {
    a = {FiniteOf(a.low), FiniteOf(a.high)};
    b = {FiniteOf(b.low), FiniteOf(b.high)};
  }
  PairColumns(a.low, b.low, to);
  PairColumns(a.high, b.high, to + 512);
}

// Four floats of each of four keys, 16 floats apart.
ATTENTION_PAIRS_INLINE __m512 FourOfFour(const float* from) {
  __m512 v = _mm512_castps128_ps512(_mm_loadu_ps(from));
  v = _mm512_insertf32x4(v, _mm_loadu_ps(from + 16), 1);
  v = _mm512_insertf32x4(v, _mm_loadu_ps(from + 32), 2);
  return _mm512_insertf32x4(v, _mm_loadu_ps(from + 48), 3);
}

ATTENTION_PAIRS_INLINE void Transpose(const float* sums, int64_t keys,
                                      int64_t rows, float* to) {
  // Numbers 0 and 1, and 2 and 3, of the keys of two vectors.
  const __m512i low = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9,
                                        13, 17, 21, 25, 29);
  const __m512i high = _mm512_setr_epi32(2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11,
                                         15, 19, 23, 27, 31);
  for (int64_t r = 0; r < rows; r += 4) {
    for (int64_t k = 0; k < keys; k += 16) {
      const float* const from = sums + k * 16 + r;
      const __m512 a = FourOfFour(from);
      const __m512 b = FourOfFour(from + 64);
      const __m512 c = FourOfFour(from + 128);
      const __m512 d = FourOfFour(from + 192);
      const __m512 first[] = {_mm512_permutex2var_ps(a, low, b),
                              _mm512_permutex2var_ps(a, high, b)};
      const __m512 second[] = {_mm512_permutex2var_ps(c, low, d),
                               _mm512_permutex2var_ps(c, high, d)};
      float* const at = to + r * kScoreStride + k;
      const auto store = [at, rows, r](int64_t n, __m512 row) ATTENTION_PAIRS {
        if (r + n < rows) _mm512_storeu_ps(at + n * kScoreStride, row);
      };
      store(0, _mm512_shuffle_f32x4(first[0], second[0], 0x44));
      store(1, _mm512_shuffle_f32x4(first[0], second[0], 0xEE));
      store(2, _mm512_shuffle_f32x4(first[1], second[1], 0x44));
      store(3, _mm512_shuffle_f32x4(first[1], second[1], 0xEE));
    }
  }
}

ATTENTION_PAIRS_INLINE void OrderColumns(const float* tiles, int64_t row,
                                         float* to) {
  const __m512i first =
      _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i second = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28,
                                           13, 29, 14, 30, 15, 31);
  for (int64_t n = 0; n < 2; ++n) {
    const __m512 even = _mm512_loadu_ps(tiles + 512 * n + row * 16);
    const __m512 odd = _mm512_loadu_ps(tiles + 512 * n + 256 + row * 16);
    _mm512_storeu_ps(to + 32 * n, _mm512_permutex2var_ps(even, first, odd));
    _mm512_storeu_ps(to + 32 * n + 16,
                     _mm512_permutex2var_ps(even, second, odd));
  }
}

}  // namespace
}  // namespace attention::cpu
// NOLINTEND(google-build-namespaces,misc-definitions-in-headers)

#endif  // ATTENTION_CORE_CPU_KERNELS_BF16_AVX512_PAIRS_INL_H_
