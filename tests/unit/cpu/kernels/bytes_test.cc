// Rows of INT8 and FP8, each with a scale, into FP32 (bytes-inl.h) and into
// BF16 (bf16/bytes-inl.h).

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/cpu/kernels/kernel_test.h"

namespace attention::cpu {
namespace {

constexpr Element kByteElements[] = {Element::kInt8, Element::kFloat8};
// The last ones have products beyond FP32's range, and below its normal one.
constexpr float kByteScales[] = {1,     0.37F,     0,          1e-30F,
                                 2e38F, 0x1p-124F, 0x1.fp-126F};

class BytesTest : public KernelTest {
 protected:
  // One rounding, that of the product.
  static void CheckElement(Element type, uint8_t byte, float scale,
                           float found) {
    const double exact = WidenedByte(type, byte) * scale;
    ASSERT_TRUE(IsNear(exact, kEps * std::abs(exact), found))
        << static_cast<int>(byte) << " times " << scale;
    if (type == Element::kFloat8) {
      ASSERT_EQ(std::signbit(found), byte >= 0x80);
    }
  }
};

// At every place of a vector, and in the part of one at the end.
TEST_P(BytesTest, EveryByteIsWidened) {
  std::vector<unsigned char> bytes(512);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<unsigned char>(i);
  }
  for (const Element type : kByteElements) {
    for (const float scale : kByteScales) {
      for (int64_t first = 0; first <= lanes_; ++first) {
        const RowSource rows = {
            .data = bytes.data() + first,
            .row_stride = 0,
            .column_stride = 1,
            .type = type,
            .scales = reinterpret_cast<const unsigned char*>(&scale)};
        const int64_t width = 256 + first;
        Floats to(static_cast<size_t>(width + 1), kUntouched);
        kernels_.widen_rows(rows, 1, width, to.data(), 0, width);
        for (int64_t i = 0; i < width; ++i) {
          const auto n = static_cast<size_t>(i);
          ASSERT_NO_FATAL_FAILURE(CheckElement(
              type, bytes[n + static_cast<size_t>(first)], scale, to[n]));
        }
        EXPECT_EQ(to.back(), kUntouched);
      }
    }
  }
}

// Any strides, of rows, of columns and of scales.
TEST_P(BytesTest, EveryRowHasItsScale) {
  constexpr int64_t kRows = 3;
  const float scales[] = {0.5F, 3, 0.125F, 7, 11};
  for (const Element type : kByteElements) {
    for (const int64_t width : {int64_t{1}, lanes_ - 1, 2 * lanes_ + 3}) {
      for (const int64_t column_stride : {1, 3, -1, 0}) {
        for (const int64_t scale_stride : {4, 8, 0, -4}) {
          const int64_t row = width * std::abs(column_stride) + 1;
          std::vector<unsigned char> bytes(static_cast<size_t>(kRows * row));
          for (unsigned char& byte : bytes) {
            byte = static_cast<unsigned char>(random_.Below(256));
          }
          const int64_t first = scale_stride < 0 ? 2 : 0;
          const RowSource rows = {
              .data = bytes.data() + (column_stride < 0 ? width - 1 : 0),
              .row_stride = row,
              .column_stride = column_stride,
              .type = type,
              .scales = reinterpret_cast<const unsigned char*>(scales + first),
              .scale_stride = scale_stride};
          const int64_t stride = (width + lanes_ - 1) / lanes_ * lanes_;
          Floats to(static_cast<size_t>(kRows * stride), kUntouched);
          kernels_.widen_rows(rows, kRows, width, to.data(), stride, stride);
          for (int64_t r = 0; r < kRows; ++r) {
            for (int64_t i = 0; i < stride; ++i) {
              const float found = to[static_cast<size_t>(r * stride + i)];
              if (i >= width) {
                ASSERT_EQ(found, 0);
                continue;
              }
              ASSERT_NO_FATAL_FAILURE(
                  CheckElement(type, rows.data[r * row + i * column_stride],
                               scales[first + r * scale_stride / 4], found));
            }
          }
        }
      }
    }
  }
}

// An element of BF16 and what is left of the scale make the element, at any
// place of a vector; zeros follow the last one.
TEST_P(BytesTest, EveryByteIsBf16TimesAScale) {
  constexpr int64_t kPairs = 144;
  std::vector<unsigned char> bytes(1024);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<unsigned char>(i / 2);
  }
  for (const Element type : kByteElements) {
    for (const float scale : kByteScales) {
      for (const int64_t stride : {1, 2}) {
        for (int64_t first = 0; first <= lanes_; ++first) {
          const RowSource rows = {
              .data = bytes.data() + first,
              .row_stride = 0,
              .column_stride = stride,
              .type = type,
              .scales = reinterpret_cast<const unsigned char*>(&scale)};
          Floats to(kPairs + 1, kUntouched);
          float rest = 0;
          kernels_.copy_bytes_as_bf16(rows, 1, 256, to.data(), kPairs, &rest);
          for (int64_t i = 0; i < 2 * kPairs; ++i) {
            uint16_t brain;
            std::memcpy(&brain,
                        reinterpret_cast<const uint16_t*>(to.data()) + i,
                        sizeof(brain));
            const float found = FloatFromBits(uint32_t{brain} << 16) * rest;
            if (i >= 256) {
              ASSERT_EQ(found, 0);
            } else {
              ASSERT_NO_FATAL_FAILURE(
                  CheckElement(type, rows.data[i * stride], scale, found));
            }
          }
          EXPECT_EQ(to.back(), kUntouched);
        }
      }
    }
  }
}

// Else a weight, or a score, might pass the range that its product does not.
TEST_P(BytesTest, WhatIsLeftOfAScaleIsNearOne) {
  for (const float scale :
       {0x1p-126F, 1e-30F, 0.37F, 0.99F, 1.0F, 1.99F, 1e30F, kMaxFloat}) {
    const unsigned char byte = 1;
    const RowSource rows = {
        .data = &byte,
        .row_stride = 0,
        .column_stride = 1,
        .type = Element::kInt8,
        .scales = reinterpret_cast<const unsigned char*>(&scale)};
    Floats to(16);
    float rest = 0;
    kernels_.copy_bytes_as_bf16(rows, 1, 1, to.data(), 16, &rest);
    EXPECT_GE(rest, 0.5F);
    EXPECT_LT(rest, 2);
  }
}

INSTANTIATE_FOR_KERNELS(BytesTest);

}  // namespace
}  // namespace attention::cpu
