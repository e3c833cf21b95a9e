// What int8_products-inl.h is given on a processor with AVX-512 and its VBMI.
// Not for anything but amx.cc: it stands in an anonymous namespace.
#ifndef ATTENTION_CORE_CPU_KERNELS_BF16_AVX512_DIGITS_INL_H_
#define ATTENTION_CORE_CPU_KERNELS_BF16_AVX512_DIGITS_INL_H_

#include <immintrin.h>

#include <cmath>
#include <cstdint>

#include "core/cpu/kernels/bf16/avx512_pairs-inl.h"
#include "core/cpu/kernels/bf16/int8_products.h"
#include "core/cpu/kernels/sizes.h"

// NOLINTBEGIN(google-build-namespaces,misc-definitions-in-headers): see above
namespace attention::cpu {
namespace {

// Bytes of each number are its digits, the least first. Added to a number, 128
// in each byte but the last carries what is above 127 into the next; the
// bytes are 128 too large then.
ATTENTION_PAIRS_INLINE __m512i DigitsOf(__m512i numbers) {
  const __m512i carry = _mm512_set1_epi32(0x00808080);
  return _mm512_xor_si512(_mm512_add_epi32(numbers, carry), carry);
}

// What is multiplied by 2^exponent.
ATTENTION_PAIRS_INLINE __m512 Scaled(__m512 numbers, int exponent) {
  return _mm512_scalef_ps(numbers,
                          _mm512_set1_ps(static_cast<float>(exponent)));
}

ATTENTION_PAIRS_INLINE bool SplitSixteen(const float* numbers, int exponent,
                                         int8_t* to) {
  const __m512 elements = _mm512_loadu_ps(numbers);
  const __m512i whole = _mm512_cvtps_epi32(Scaled(elements, -exponent));
  // Of each four numbers, their first digits, their second ones and so on.
  const __m512i by_digit = _mm512_broadcast_i32x4(
      _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  const __m512i digits = _mm512_shuffle_epi8(DigitsOf(whole), by_digit);
  const auto store = [to](int64_t quad, __m128i four) ATTENTION_PAIRS {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + quad * kInt8Depth), four);
  };
  store(0, _mm512_castsi512_si128(digits));
  store(1, _mm512_extracti32x4_epi32(digits, 1));
  store(2, _mm512_extracti32x4_epi32(digits, 2));
  store(3, _mm512_extracti32x4_epi32(digits, 3));
  // Scaled back: what is too small for digits may have been lost on the way.
  return _mm512_cmpeq_ps_mask(Scaled(_mm512_cvtepi32_ps(whole), exponent),
                              elements) == 0xFFFF;
}

ATTENTION_PAIRS_INLINE int SplitWeights(const float* weights, int64_t count,
                                        int8_t* to) {
  const auto load = [weights, count](int64_t k) ATTENTION_PAIRS {
    const int64_t left = count - k;
    const auto mask =
        static_cast<__mmask16>(left >= 16 ? 0xFFFF : (1 << left) - 1);
    return _mm512_maskz_loadu_ps(mask, weights + k);
  };
  __m512 largest = _mm512_setzero_ps();
  for (int64_t k = 0; k < count; k += 16) {
    largest = _mm512_max_ps(largest, load(k));
  }
  const int exponent = ExponentOfUnit(_mm512_reduce_max_ps(largest));
  // The first digits of 16 numbers, their second ones and so on.
  const __m512i bytes = _mm512_broadcast_i32x4(
      _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  const __m512i order =
      _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const auto store = [to](int64_t digit, int64_t k,
                          __m128i some) ATTENTION_PAIRS {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + digit * kMaxTileKeys + k),
                     some);
  };
  int64_t k = 0;
  for (; k < count; k += 16) {
    const __m512i whole = _mm512_cvtps_epi32(Scaled(load(k), -exponent));
    const __m512i digits = _mm512_permutexvar_epi32(
        order, _mm512_shuffle_epi8(DigitsOf(whole), bytes));
    store(0, k, _mm512_castsi512_si128(digits));
    store(1, k, _mm512_extracti32x4_epi32(digits, 1));
    store(2, k, _mm512_extracti32x4_epi32(digits, 2));
    store(3, k, _mm512_extracti32x4_epi32(digits, 3));
  }
  for (; k % kInt8Depth != 0; k += 16) {
    for (int64_t digit = 0; digit < kDigits; ++digit) {
      store(digit, k, _mm_setzero_si128());
    }
  }
  return exponent;
}

// Of four rows, in each lane of four: the sums of a key, digits added up.
ATTENTION_PAIRS_INLINE __m512 FourKeys(const int32_t* sums, __m512 powers) {
  const auto load = [sums, powers](int64_t key) ATTENTION_PAIRS {
    return _mm512_mul_ps(
        powers, _mm512_cvtepi32_ps(_mm512_load_si512(sums + 16 * key)));
  };
  const __m512 a = load(0);
  const __m512 b = load(1);
  const __m512 c = load(2);
  const __m512 d = load(3);
  // Two digits of two keys, then all of four.
  const __m512 ab =
      _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  const __m512 cd =
      _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
  return _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44),
                       _mm512_shuffle_ps(ab, cd, 0xEE));
}

ATTENTION_PAIRS_INLINE void ScoresOfDigits(const int32_t* sums,
                                           const int* exponents, int64_t keys,
                                           int64_t rows, float* to) {
  const __m512 powers =
      _mm512_broadcast_f32x4(_mm_setr_ps(1, 0x1p8F, 0x1p16F, 0x1p24F));
  for (int64_t k = 0; k < keys; k += 16) {
    const __m512 a = FourKeys(sums + k * 16, powers);
    const __m512 b = FourKeys(sums + k * 16 + 64, powers);
    const __m512 c = FourKeys(sums + k * 16 + 128, powers);
    const __m512 d = FourKeys(sums + k * 16 + 192, powers);
    // Even rows, and odd ones, of eight keys.
    const __m512 even[] = {_mm512_shuffle_f32x4(a, b, 0x88),
                           _mm512_shuffle_f32x4(c, d, 0x88)};
    const __m512 odd[] = {_mm512_shuffle_f32x4(a, b, 0xDD),
                          _mm512_shuffle_f32x4(c, d, 0xDD)};
    const auto store = [to, exponents, rows, k](int64_t row, __m512 scores)
                           ATTENTION_PAIRS {
                             if (row >= rows) return;
                             _mm512_storeu_ps(to + row * kScoreStride + k,
                                              Scaled(scores, exponents[row]));
                           };
    store(0, _mm512_shuffle_f32x4(even[0], even[1], 0x88));
    store(1, _mm512_shuffle_f32x4(odd[0], odd[1], 0x88));
    store(2, _mm512_shuffle_f32x4(even[0], even[1], 0xDD));
    store(3, _mm512_shuffle_f32x4(odd[0], odd[1], 0xDD));
  }
}

ATTENTION_PAIRS_INLINE void QuadElements(const unsigned char* const* rows,
                                         int64_t count, int64_t left,
                                         unsigned char* to) {
  const auto load = [rows, count, left](int64_t n) ATTENTION_PAIRS {
    return n < count ? LoadBytes(rows[n], left) : _mm512_setzero_si512();
  };
  const __m512i a = load(0);
  const __m512i b = load(1);
  const __m512i c = load(2);
  const __m512i d = load(3);
  const __m512i ab[] = {_mm512_unpacklo_epi8(a, b), _mm512_unpackhi_epi8(a, b)};
  const __m512i cd[] = {_mm512_unpacklo_epi8(c, d), _mm512_unpackhi_epi8(c, d)};
  for (int64_t n = 0; n < 2; ++n) {
    _mm512_storeu_si512(to + 2 * n * kInt8TileBytes,
                        _mm512_unpacklo_epi16(ab[n], cd[n]));
    _mm512_storeu_si512(to + (2 * n + 1) * kInt8TileBytes,
                        _mm512_unpackhi_epi16(ab[n], cd[n]));
  }
}

ATTENTION_PAIRS_INLINE void StoreSumsOfDigits(const int32_t* tiles, int64_t row,
                                              int exponent, float* to) {
  __m512 sums[4];
  for (int64_t tile = 0; tile < 4; ++tile) {
    const int32_t* const from = tiles + tile * 256 + row * kDigits * 16;
    const auto load = [from](int64_t digit) ATTENTION_PAIRS {
      return _mm512_cvtepi32_ps(_mm512_load_si512(from + digit * 16));
    };
    __m512 sum = _mm512_fmadd_ps(load(1), _mm512_set1_ps(0x1p8F), load(0));
    sum = _mm512_fmadd_ps(load(2), _mm512_set1_ps(0x1p16F), sum);
    sum = _mm512_fmadd_ps(load(3), _mm512_set1_ps(0x1p24F), sum);
    sums[tile] = Scaled(sum, exponent);
  }
  // Block n of each has four columns from 16 n on.
  const __m512 even[] = {_mm512_shuffle_f32x4(sums[0], sums[1], 0x88),
                         _mm512_shuffle_f32x4(sums[2], sums[3], 0x88)};
  const __m512 odd[] = {_mm512_shuffle_f32x4(sums[0], sums[1], 0xDD),
                        _mm512_shuffle_f32x4(sums[2], sums[3], 0xDD)};
  _mm512_storeu_ps(to, _mm512_shuffle_f32x4(even[0], even[1], 0x88));
  _mm512_storeu_ps(to + 16, _mm512_shuffle_f32x4(odd[0], odd[1], 0x88));
  _mm512_storeu_ps(to + 32, _mm512_shuffle_f32x4(even[0], even[1], 0xDD));
  _mm512_storeu_ps(to + 48, _mm512_shuffle_f32x4(odd[0], odd[1], 0xDD));
}

}  // namespace
}  // namespace attention::cpu
// NOLINTEND(google-build-namespaces,misc-definitions-in-headers)

#endif  // ATTENTION_CORE_CPU_KERNELS_BF16_AVX512_DIGITS_INL_H_
