// Products of BF16 with AVX512-BF16: VDPBF16PS adds two products to each of 16
// sums (Intel 64 and IA-32 Architectures Software Developer's Manual, volume
// 2).

#include "core/cpu/kernels/bf16/products.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

#define ATTENTION_SUMS \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#define ATTENTION_SUMS_INLINE \
  ATTENTION_SUMS __attribute__((always_inline)) inline

namespace attention::cpu {
namespace {

using Sums = __m512;

ATTENTION_SUMS_INLINE Sums ZeroSums() { return _mm512_setzero_ps(); }
ATTENTION_SUMS_INLINE Sums LoadSums(const float* from) {
  return _mm512_loadu_ps(from);
}
ATTENTION_SUMS_INLINE void StoreSums(Sums sums, float* to) {
  _mm512_storeu_ps(to, sums);
}
ATTENTION_SUMS_INLINE Sums BroadcastPair(float pair) {
  return _mm512_set1_ps(pair);
}
ATTENTION_SUMS_INLINE Sums AddPairProducts(Sums sums, Sums a, Sums b) {
  return _mm512_dpbf16_ps(sums, reinterpret_cast<__m512bh>(a),
                          reinterpret_cast<__m512bh>(b));
}

}  // namespace
}  // namespace attention::cpu

#include "core/cpu/kernels/bf16/vector_products-inl.h"

namespace attention::cpu {
namespace {

void Nothing() {}

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
                                             .decode_name = nullptr,
                                             .fp16_name = nullptr,
                                             .suffix = "_BF16",
                                             .begin = Nothing,
                                             .end = Nothing,
                                             .scores = ScoresOfRows,
                                             .add_values = AddValuesOfRows,
                                             .scores_in_place = nullptr,
                                             .sums_in_place = nullptr,
                                             .scores_of_two = nullptr,
                                             .add_values_of_two = nullptr,
                                             .int8 = nullptr};
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
