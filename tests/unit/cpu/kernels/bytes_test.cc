// Rows of INT8 and FP8, each with a scale, into FP32: bytes-inl.h.

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
constexpr float kByteScales[] = {1, 0.37F, 0, 1e-30F, 2e38F, 0x1p-124F};

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

INSTANTIATE_FOR_KERNELS(BytesTest);

}  // namespace
}  // namespace attention::cpu
