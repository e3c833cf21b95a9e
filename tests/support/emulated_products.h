#ifndef ATTENTION_TESTS_SUPPORT_EMULATED_PRODUCTS_H_
#define ATTENTION_TESTS_SUPPORT_EMULATED_PRODUCTS_H_

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/cpu/kernels/bf16/products.h"

/// Products of BF16 in plain C++, for machines whose processor has none. They
/// are all that is emulated: the core's own code cuts operands into tiles and
/// vectors for them (tile_products-inl.h, vector_products-inl.h).
namespace attention::test {

const cpu::Bf16Products& EmulatedAmx();
const cpu::Bf16Products& EmulatedAvx512Bf16();

/// Two BF16 numbers that stand in the place of a float.
struct Bf16Pair {
  float low;
  float high;
};

/// Such instructions take what is subnormal for 0, and give 0 for it.
inline float Flushed(float value) {
  return std::abs(value) < 0x1p-126F ? 0.0F : value;
}

inline Bf16Pair PairOf(float pair) {
  const auto bits = std::bit_cast<uint32_t>(pair);
  return {Flushed(std::bit_cast<float>(bits << 16)),
          Flushed(std::bit_cast<float>(bits & 0xFFFF0000U))};
}

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_EMULATED_PRODUCTS_H_
