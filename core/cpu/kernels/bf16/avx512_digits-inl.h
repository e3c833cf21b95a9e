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

// Of each four numbers, their first digits, their second ones and so on.
ATTENTION_PAIRS_INLINE __m512i DigitsOfFours(__m512i numbers) {
  return _mm512_shuffle_epi8(
      DigitsOf(numbers),
      _mm512_broadcast_i32x4(
          _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)));
}

// A vector's four blocks, `stride` bytes apart.
ATTENTION_PAIRS_INLINE void StoreBlocks(__m512i blocks, int64_t stride,
                                        int8_t* to) {
  const auto store = [stride, to](int64_t n, __m128i block) ATTENTION_PAIRS {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + n * stride), block);
  };
  store(0, _mm512_castsi512_si128(blocks));
  store(1, _mm512_extracti32x4_epi32(blocks, 1));
  store(2, _mm512_extracti32x4_epi32(blocks, 2));
  store(3, _mm512_extracti32x4_epi32(blocks, 3));
}

// to[n] has block n of each of four vectors.
ATTENTION_PAIRS_INLINE void TransposeBlocks(const __m512* from, __m512* to) {
  const __m512 even[] = {_mm512_shuffle_f32x4(from[0], from[1], 0x88),
                         _mm512_shuffle_f32x4(from[2], from[3], 0x88)};
  const __m512 odd[] = {_mm512_shuffle_f32x4(from[0], from[1], 0xDD),
                        _mm512_shuffle_f32x4(from[2], from[3], 0xDD)};
  to[0] = _mm512_shuffle_f32x4(even[0], even[1], 0x88);
  to[1] = _mm512_shuffle_f32x4(odd[0], odd[1], 0x88);
  to[2] = _mm512_shuffle_f32x4(even[0], even[1], 0xDD);
  to[3] = _mm512_shuffle_f32x4(odd[0], odd[1], 0xDD);
}

ATTENTION_PAIRS_INLINE bool SplitSixteen(const float* numbers, int exponent,
                                         int8_t* to) {
  const __m512 elements = _mm512_loadu_ps(numbers);
  const __m512i whole = _mm512_cvtps_epi32(Scaled(elements, -exponent));
  StoreBlocks(DigitsOfFours(whole), kInt8Depth, to);
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
  // All first digits of 16 numbers, all second ones and so on.
  const __m512i order =
      _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  int64_t k = 0;
  for (; k < count; k += 16) {
    const __m512i whole = _mm512_cvtps_epi32(Scaled(load(k), -exponent));
    StoreBlocks(_mm512_permutexvar_epi32(order, DigitsOfFours(whole)),
                kMaxTileKeys, to + k);
  }
  for (; k % kInt8Depth != 0; k += 16) {
    StoreBlocks(_mm512_setzero_si512(), kMaxTileKeys, to + k);
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
    const __m512 keys_by_row[] = {FourKeys(sums + k * 16, powers),
                                  FourKeys(sums + k * 16 + 64, powers),
                                  FourKeys(sums + k * 16 + 128, powers),
                                  FourKeys(sums + k * 16 + 192, powers)};
    __m512 scores[kDigitRows];
    TransposeBlocks(keys_by_row, scores);
    for (int64_t r = 0; r < rows; ++r) {
      _mm512_storeu_ps(to + r * kScoreStride + k,
                       Scaled(scores[r], exponents[r]));
    }
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
  __m512 columns[4];
  TransposeBlocks(sums, columns);
  for (int64_t n = 0; n < 4; ++n) _mm512_storeu_ps(to + 16 * n, columns[n]);
}

}  // namespace
}  // namespace attention::cpu
// NOLINTEND(google-build-namespaces,misc-definitions-in-headers)

#endif  // ATTENTION_CORE_CPU_KERNELS_BF16_AVX512_DIGITS_INL_H_
