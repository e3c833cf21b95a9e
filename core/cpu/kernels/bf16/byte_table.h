#ifndef ATTENTION_CORE_CPU_KERNELS_BF16_BYTE_TABLE_H_
#define ATTENTION_CORE_CPU_KERNELS_BF16_BYTE_TABLE_H_

#include <bit>
#include <cstdint>

#include "core/cpu/kernels/sizes.h"

namespace attention::cpu {

/// Elements of one byte as numbers of BF16, which are exact: INT8 has 8 bits
/// and FP8 (E4M3) 4, and the exponents of either fit.
struct ByteTable {
  /// `type` is kInt8 or kFloat8. Numbers are multiplied by `unit`, a power of
  /// two.
  constexpr ByteTable(Element type, float unit)
      : is_int8(type == Element::kInt8) {
    for (int magnitude = 0; magnitude < 128; ++magnitude) {
      const uint16_t bits = is_int8
                                ? BitsOf(static_cast<float>(magnitude) * unit)
                                : BitsOfFp8(magnitude, unit);
      low[magnitude] = static_cast<uint8_t>(bits & 0xFF);
      high[magnitude] = static_cast<uint8_t>(bits >> 8);
    }
    // What INT8 has no positive number for.
    bits_of_128 = BitsOf(128.0F * unit);
  }

  /// The bits of one element's number.
  constexpr uint16_t Of(uint8_t element) const {
    const bool negative = element >= 0x80;
    const int sign = negative ? 0x8000 : 0;
    int magnitude = element & 0x7F;
    if (is_int8 && negative) {
      if (magnitude == 0) return static_cast<uint16_t>(bits_of_128 | sign);
      magnitude = 128 - magnitude;
    }
    return static_cast<uint16_t>(high[magnitude] << 8 | low[magnitude] | sign);
  }

  bool is_int8;
  /// Of the magnitudes' bits, in whose place INT8 has two's complement.
  alignas(64) uint8_t low[128] = {};
  alignas(64) uint8_t high[128] = {};
  uint16_t bits_of_128;

 private:
  static constexpr uint16_t BitsOf(float number) {
    return static_cast<uint16_t>(std::bit_cast<uint32_t>(number) >> 16);
  }
  static constexpr uint16_t BitsOfFp8(int magnitude, float unit) {
    if (magnitude == 0x7F) return 0x7FC0;  // NaN
    const int exponent = magnitude >> 3;
    const int fraction = magnitude & 7;
    // Multiples of 2^-9.
    const int count =
        exponent == 0 ? fraction : (8 + fraction) << (exponent - 1);
    return BitsOf(static_cast<float>(count) * 0x1p-9F * unit);
  }
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_KERNELS_BF16_BYTE_TABLE_H_
