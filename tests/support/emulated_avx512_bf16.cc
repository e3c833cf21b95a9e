// The instruction of AVX512-BF16 in plain C++: what avx512.cc does on the
// processor's runs here on any machine.

#include <cstdint>
#include <cstring>

#include "core/cpu/kernels/bf16/products.h"
#include "tests/support/emulated_products.h"

namespace attention::cpu {
namespace {

struct Sums {
  float lanes[16];
};

Sums ZeroSums() { return {}; }

Sums LoadSums(const float* from) {
  Sums sums;
  std::memcpy(sums.lanes, from, sizeof(sums.lanes));
  return sums;
}

void StoreSums(const Sums& sums, float* to) {
  std::memcpy(to, sums.lanes, sizeof(sums.lanes));
}

Sums BroadcastPair(float pair) {
  Sums sums;
  for (float& lane : sums.lanes) lane = pair;
  return sums;
}

// VDPBF16PS adds the second elements' product first.
Sums AddPairProducts(const Sums& sums, const Sums& a, const Sums& b) {
  Sums result;
  for (int n = 0; n < 16; ++n) {
    const test::Bf16Pair x = test::PairOf(a.lanes[n]);
    const test::Bf16Pair y = test::PairOf(b.lanes[n]);
    const float high = test::Flushed(sums.lanes[n] + x.high * y.high);
    result.lanes[n] = test::Flushed(high + x.low * y.low);
  }
  return result;
}

}  // namespace
}  // namespace attention::cpu

#define ATTENTION_SUMS
#define ATTENTION_SUMS_INLINE inline
#include "core/cpu/kernels/bf16/vector_products-inl.h"

namespace attention::test {

const cpu::Bf16Products& EmulatedAvx512Bf16() {
  static constexpr cpu::Bf16Products kProducts = {
      .name = "bf16_avx512",
      .decode_name = nullptr,
      .fp16_name = nullptr,
      .suffix = "_BF16_EMULATED",
      .begin = [] {},
      .end = [] {},
      .scores = cpu::ScoresOfRows,
      .add_values = cpu::AddValuesOfRows,
      .scores_in_place = nullptr,
      .sums_in_place = nullptr,
      .scores_of_two = nullptr,
      .add_values_of_two = nullptr,
      .int8 = nullptr};
  return kProducts;
}

}  // namespace attention::test
