#include "core/element.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace attention {
namespace {

template <typename T>
T StoreAs(DataType type, double value) {
  std::array<std::byte, 8> bytes{};
  StoreElement(type, value, bytes.data());
  T result;
  std::memcpy(&result, bytes.data(), sizeof(T));
  return result;
}

double RoundTrip(DataType type, double value) {
  std::array<std::byte, 8> bytes{};
  StoreElement(type, value, bytes.data());
  return LoadElement(type, bytes.data());
}

TEST(StoreElement, RoundsFp16ToNearestEven) {
  EXPECT_EQ(StoreAs<uint16_t>(DataType::kFloat16, 1.0), 0x3C00);
  // 1 + 2^-11 lies halfway between 1 and 1 + 2^-10: the even one is 1.
  EXPECT_EQ(StoreAs<uint16_t>(DataType::kFloat16, 1 + std::ldexp(1, -11)),
            0x3C00);
  EXPECT_EQ(StoreAs<uint16_t>(DataType::kFloat16, 1 + std::ldexp(3, -11)),
            0x3C02);
}

TEST(StoreElement, RoundsOnceFromFp64) {
  // Just above the halfway point, by less than FP32 can tell: rounding to FP32
  // first would make a tie of it and lose the excess.
  const double above = 1 + std::ldexp(1, -11) + std::ldexp(1, -40);
  EXPECT_EQ(StoreAs<uint16_t>(DataType::kFloat16, above), 0x3C01);
  EXPECT_EQ(StoreAs<uint16_t>(DataType::kFloat16, -above), 0xBC01);
  const double bfloat_above = 1 + std::ldexp(1, -8) + std::ldexp(1, -40);
  EXPECT_EQ(StoreAs<uint16_t>(DataType::kBFloat16, bfloat_above), 0x3F81);
  const double below = 1 + std::ldexp(3, -8) - std::ldexp(1, -40);
  EXPECT_EQ(StoreAs<uint16_t>(DataType::kBFloat16, below), 0x3F81);
}

TEST(StoreElement, OverflowsToInfinityAndKeepsNan) {
  for (const DataType type : {DataType::kFloat16, DataType::kBFloat16,
                              DataType::kFloat32, DataType::kFloat64}) {
    const double infinity = std::numeric_limits<double>::infinity();
    EXPECT_EQ(RoundTrip(type, infinity), infinity) << Name(type);
    EXPECT_EQ(RoundTrip(type, -infinity), -infinity) << Name(type);
    EXPECT_TRUE(std::isnan(RoundTrip(type, std::nan("")))) << Name(type);
  }
  EXPECT_TRUE(std::isinf(RoundTrip(DataType::kFloat16, 65520)));
  EXPECT_EQ(RoundTrip(DataType::kFloat16, 65519), 65504);
}

// The specification's own examples of E4M3.
TEST(LoadElement, ReadsFp8) {
  const auto value = [](uint8_t bits) {
    const auto byte = std::byte{bits};
    return LoadElement(DataType::kFloat8, &byte);
  };
  EXPECT_EQ(value(0x00), 0);
  EXPECT_TRUE(std::signbit(value(0x80)));
  EXPECT_EQ(value(0x01), 0x1p-9);    // the least
  EXPECT_EQ(value(0x07), 0x1.Cp-7);  // the largest subnormal number
  EXPECT_EQ(value(0x08), 0x1p-6);    // the least normal one
  EXPECT_EQ(value(0x38), 1);
  EXPECT_EQ(value(0x7E), 448);  // the largest
  EXPECT_EQ(value(0xFE), -448);
  EXPECT_TRUE(std::isnan(value(0x7F)));
  EXPECT_TRUE(std::isnan(value(0xFF)));
}

TEST(StoreElement, RoundsFp8ToNearestEven) {
  const auto stored = [](double value) {
    return StoreAs<uint8_t>(DataType::kFloat8, value);
  };
  // Every number, and what lies halfway and around it between two of them.
  for (int bits = 0; bits < 0x7E; ++bits) {
    const auto byte = std::byte{static_cast<uint8_t>(bits)};
    const auto after = std::byte{static_cast<uint8_t>(bits + 1)};
    const double value = LoadElement(DataType::kFloat8, &byte);
    const double next = LoadElement(DataType::kFloat8, &after);
    const double middle = (value + next) / 2;
    EXPECT_EQ(stored(value), bits);
    EXPECT_EQ(stored(-value), bits + 0x80);
    EXPECT_EQ(stored(std::nextafter(middle, 0)), bits);
    EXPECT_EQ(stored(middle), bits % 2 == 0 ? bits : bits + 1);
    EXPECT_EQ(stored(std::nextafter(middle, 500)), bits + 1);
  }
}

TEST(StoreElement, HasNoInfinitiesInFp8) {
  EXPECT_EQ(RoundTrip(DataType::kFloat8, 464), 448);
  for (const double beyond : {464.01, 1e300, HUGE_VAL, std::nan("")}) {
    EXPECT_TRUE(std::isnan(RoundTrip(DataType::kFloat8, beyond)));
    EXPECT_TRUE(std::isnan(RoundTrip(DataType::kFloat8, -beyond)));
  }
}

TEST(StoreElement, KeepsSubnormals) {
  EXPECT_EQ(RoundTrip(DataType::kFloat16, std::ldexp(1, -24)),
            std::ldexp(1, -24));
  EXPECT_EQ(RoundTrip(DataType::kFloat32, std::ldexp(1, -149)),
            std::ldexp(1, -149));
}

TEST(LoadElement, WidensEveryType) {
  for (const DataType type :
       {DataType::kBool, DataType::kUint8, DataType::kUint16, DataType::kUint32,
        DataType::kUint64, DataType::kInt8, DataType::kInt16, DataType::kInt32,
        DataType::kInt64, DataType::kFloat8, DataType::kFloat16,
        DataType::kBFloat16, DataType::kFloat32, DataType::kFloat64}) {
    EXPECT_EQ(RoundTrip(type, 1), 1) << Name(type);
  }
}

TEST(LoadInteger, IsExactBeyondFp64AndSaturates) {
  std::array<std::byte, 8> bytes{};
  const int64_t odd = (int64_t{1} << 62) + 1;
  std::memcpy(bytes.data(), &odd, sizeof(odd));
  EXPECT_EQ(LoadInteger(DataType::kInt64, bytes.data()), odd);
  bytes.fill(std::byte{0xFF});
  EXPECT_EQ(LoadInteger(DataType::kUint64, bytes.data()),
            std::numeric_limits<int64_t>::max());
  EXPECT_EQ(LoadInteger(DataType::kInt32, bytes.data()), -1);
}

TEST(DataTypeNames, AreEachOthersInverse) {
  for (int i = 0; i <= static_cast<int>(DataType::kFloat64); ++i) {
    const auto type = static_cast<DataType>(i);
    EXPECT_EQ(DataTypeFromName(Name(type)), type);
  }
  EXPECT_EQ(DataTypeFromName("FP4"), std::nullopt);
}

}  // namespace
}  // namespace attention
