#include "core/element.h"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace attention {
namespace {

template <typename T>
T Load(const std::byte* address) {
  T value;
  std::memcpy(&value, address, sizeof(T));
  return value;
}

template <typename T>
void Store(T value, std::byte* address) {
  std::memcpy(address, &value, sizeof(T));
}

// Rounds to `mantissa_bits` of FP32's 23 by the FP64 value, so that the
// rounding to FP32 and then to the narrow type is not two roundings: going to
// FP32 rounds to odd (Boldo and Melquiond, "When double rounding is odd",
// 2005).
float ToFloatRoundedToOdd(double value) {
  auto rounded = static_cast<float>(value);
  if (static_cast<double>(rounded) == value || rounded != rounded ||
      rounded == std::numeric_limits<float>::infinity() ||
      rounded == -std::numeric_limits<float>::infinity()) {
    return rounded;
  }
  auto bits = Load<uint32_t>(reinterpret_cast<const std::byte*>(&rounded));
  if ((bits & 1U) == 0) {
    // Inexact and even: the odd neighbour lies on the value's side.
    const bool away = (static_cast<double>(rounded) < value) == (value > 0);
    bits = away ? bits + 1 : bits - 1;
    Store(bits, reinterpret_cast<std::byte*>(&rounded));
  }
  return rounded;
}

constexpr unsigned kFloat8Sign = 0x80;
constexpr unsigned kFloat8Nan = 0x7F;

// 1 bit of sign, 4 of exponent (bias 7), 3 of fraction.
double FromFloat8(uint8_t bits) {
  const unsigned magnitude = bits & kFloat8Nan;
  if (magnitude == kFloat8Nan) return std::numeric_limits<double>::quiet_NaN();
  const int exponent = std::max(static_cast<int>(magnitude >> 3), 1);
  const int eighths = static_cast<int>(magnitude) - ((exponent - 1) << 3);
  const double value = std::ldexp(eighths, exponent - 10);
  return (bits & kFloat8Sign) != 0 ? -value : value;
}

uint8_t ToFloat8(double value) {
  constexpr double kRoundsToLargest = 464;  // to 448, which is even
  const unsigned sign = std::signbit(value) ? kFloat8Sign : 0;
  const double magnitude = std::abs(value);
  if (!(magnitude <= kRoundsToLargest)) return sign | kFloat8Nan;
  constexpr int kLeastExponent = -6;
  const int exponent = std::max(std::ilogb(magnitude), kLeastExponent);
  const auto eighths = static_cast<unsigned>(
      std::nearbyint(std::ldexp(magnitude, 3 - exponent)));
  // 16 eighths are one more of the exponent; less than 8 a subnormal number.
  return sign |
         ((static_cast<unsigned>(exponent - kLeastExponent) << 3) + eighths);
}

}  // namespace

double LoadElement(DataType type, const std::byte* address) {
  switch (type) {
    case DataType::kBool:
    case DataType::kUint8:
      return Load<uint8_t>(address);
    case DataType::kUint16:
      return Load<uint16_t>(address);
    case DataType::kUint32:
      return Load<uint32_t>(address);
    case DataType::kUint64:
      return static_cast<double>(Load<uint64_t>(address));
    case DataType::kInt8:
      return Load<int8_t>(address);
    case DataType::kInt16:
      return Load<int16_t>(address);
    case DataType::kInt32:
      return Load<int32_t>(address);
    case DataType::kInt64:
      return static_cast<double>(Load<int64_t>(address));
    case DataType::kFloat8:
      return FromFloat8(Load<uint8_t>(address));
    case DataType::kFloat16:
      return static_cast<float>(Load<Eigen::half>(address));
    case DataType::kBFloat16:
      return static_cast<float>(Load<Eigen::bfloat16>(address));
    case DataType::kFloat32:
      return Load<float>(address);
    case DataType::kFloat64:
      return Load<double>(address);
  }
  return 0;
}

void StoreElement(DataType type, double value, std::byte* address) {
  switch (type) {
    case DataType::kBool:
      return Store<uint8_t>(value != 0 ? 1 : 0, address);
    case DataType::kUint8:
      return Store(static_cast<uint8_t>(value), address);
    case DataType::kUint16:
      return Store(static_cast<uint16_t>(value), address);
    case DataType::kUint32:
      return Store(static_cast<uint32_t>(value), address);
    case DataType::kUint64:
      return Store(static_cast<uint64_t>(value), address);
    case DataType::kInt8:
      return Store(static_cast<int8_t>(value), address);
    case DataType::kInt16:
      return Store(static_cast<int16_t>(value), address);
    case DataType::kInt32:
      return Store(static_cast<int32_t>(value), address);
    case DataType::kInt64:
      return Store(static_cast<int64_t>(value), address);
    case DataType::kFloat8:
      return Store(ToFloat8(value), address);
    case DataType::kFloat16:
      return Store(Eigen::half(ToFloatRoundedToOdd(value)), address);
    case DataType::kBFloat16:
      return Store(Eigen::bfloat16(ToFloatRoundedToOdd(value)), address);
    case DataType::kFloat32:
      return Store(static_cast<float>(value), address);
    case DataType::kFloat64:
      return Store(value, address);
  }
}

int64_t LoadInteger(DataType type, const std::byte* address) {
  if (type == DataType::kInt64) return Load<int64_t>(address);
  if (type == DataType::kUint64) {
    constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
    const auto value = Load<uint64_t>(address);
    return static_cast<int64_t>(value < kMost ? value : kMost);
  }
  return static_cast<int64_t>(LoadElement(type, address));
}

}  // namespace attention
