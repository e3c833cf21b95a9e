// Rows of any element type into FP32 and back: convert-inl.h, finish-inl.h.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/cpu/kernels/kernel_test.h"

namespace attention::cpu {
namespace {

class WidenTest : public KernelTest {
 protected:
  // Any bits, so that all kinds of numbers come up.
  std::vector<unsigned char> Bytes(int64_t count) {
    std::vector<unsigned char> bytes(static_cast<size_t>(count));
    for (unsigned char& byte : bytes) {
      byte = static_cast<unsigned char>(random_.Below(256));
    }
    return bytes;
  }

  void CheckRows(const RowSource& from, int64_t width, int64_t padded_width) {
    constexpr int64_t kRows = 3;
    const int64_t to_stride = padded_width + 5;
    Floats to(static_cast<size_t>(kRows * to_stride), kUntouched);
    kernels_.widen_rows(from, kRows, width, to.data(), to_stride, padded_width);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t i = 0; i < to_stride; ++i) {
        const float found = to[static_cast<size_t>(r * to_stride + i)];
        if (i >= width) {
          ASSERT_EQ(found, i < padded_width ? 0.0F : kUntouched);
          continue;
        }
        CheckElement(from.type,
                     from.data + r * from.row_stride + i * from.column_stride,
                     found);
      }
    }
  }

  // FP32 and BF16 keep their bits; of FP16, NaN may become a quiet one.
  static void CheckElement(Element type, const unsigned char* from,
                           float found) {
    const double expected = LoadElement(type, from);
    if (type == Element::kFloat16) {
      ASSERT_TRUE(std::isnan(expected) ? std::isnan(found) : found == expected);
      ASSERT_EQ(std::signbit(found), (from[1] & 0x80) != 0);
    } else {
      uint32_t bits = 0;
      const int64_t size = SizeOf(type);
      std::memcpy(reinterpret_cast<char*>(&bits) + (4 - size), from,
                  static_cast<size_t>(size));
      ASSERT_EQ(BitsFrom(found), bits);
    }
  }
};

TEST_P(WidenTest, RowsOfAnyTypeLayoutAndAddress) {
  for (const Element type : kElements) {
    const int64_t size = SizeOf(type);
    for (const int64_t width : Lengths()) {
      // Strides in bytes, and how far the first element is off.
      for (const auto& [column_stride, misaligned] :
           {std::pair<int64_t, int64_t>{size, 0},
            {size, size},
            {size, 1},
            {3 * size, 0},
            {3 * size + 1, 1},
            {-size, 0},
            {0, 0}}) {
        SCOPED_TRACE(testing::Message()
                     << "type " << static_cast<int>(type) << ", " << width
                     << " elements " << column_stride << " apart, "
                     << misaligned << " off");
        const int64_t row = width * std::abs(column_stride) + 2 * size;
        const std::vector<unsigned char> bytes = Bytes(4 * row + misaligned);
        const int64_t first = misaligned + (column_stride < 0 ? row - size : 0);
        // Padded to whole vectors, which has a way of its own, and not.
        const int64_t vectors = (width + lanes_ - 1) / lanes_ * lanes_;
        for (const int64_t padded :
             {width, width + 3, vectors, vectors + 2 * lanes_}) {
          CheckRows({bytes.data() + first, row, column_stride, type}, width,
                    padded);
          // From the last row to the first.
          CheckRows({bytes.data() + first + 2 * row, -row, column_stride, type},
                    width, padded);
        }
      }
    }
  }
}

TEST_P(WidenTest, EveryNumberOfSixteenBits) {
  for (const Element type : {Element::kFloat16, Element::kBFloat16}) {
    std::vector<uint16_t> all(0x10000);
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
    const auto* bytes = reinterpret_cast<const unsigned char*>(all.data());
    Floats to(all.size());
    kernels_.widen_rows({bytes, 0, 2, type}, 1, 0x10000, to.data(), 0, 0x10000);
    for (size_t i = 0; i < all.size(); ++i) {
      ASSERT_NO_FATAL_FAILURE(CheckElement(type, bytes + 2 * i, to[i])) << i;
    }
  }
}

TEST_P(WidenTest, PartsOfVectorsReadNothingElse) {
  for (const Element type : kElements) {
    for (int64_t count = 0; count < lanes_; ++count) {
      for (const int64_t index : {1, 3}) {
        // No more memory than that: the sanitizers see what is read beside it.
        const std::vector<unsigned char> bytes =
            Bytes((index + count) * SizeOf(type));
        Floats to(static_cast<size_t>(lanes_), kUntouched);
        parts_.load_part(type, bytes.data(), index, count, to.data());
        for (int64_t i = 0; i < lanes_; ++i) {
          const float found = to[static_cast<size_t>(i)];
          if (i < count) {
            CheckElement(type, bytes.data() + (index + i) * SizeOf(type),
                         found);
          } else {
            EXPECT_EQ(BitsFrom(found), 0U);
          }
        }
      }
    }
  }
}

// Numbers to be stored, and what their rows' sums are.
class FinishTest : public KernelTest {
 protected:
  // The least and the most that may be stored where `value` is known within
  // `relative` of it, and a subnormal number may count as 0.
  static std::pair<double, double> Range(Element type, double value,
                                         double relative) {
    const auto stored = [type](double x) {
      return type == Element::kFloat32 ? x : Widened(type, Narrowed(type, x));
    };
    if (std::isinf(value)) return {value, value};
    const double room = relative * std::abs(value) + 0x1p-126;
    return {stored(value - room), stored(value + room)};
  }

  void Check(Element type, const Floats& row, double sum, double relative) {
    const auto width = static_cast<int64_t>(row.size());
    const int64_t stride = (width + lanes_ - 1) / lanes_ * lanes_;
    Floats rows(static_cast<size_t>(3 * stride));
    for (int64_t r = 0; r < 3; ++r) {
      std::copy(row.begin(), row.end(), rows.begin() + r * stride);
    }
    const double sums[] = {sum, sum, 0};
    for (const int64_t misaligned : {0, 1, 2, 4}) {
      SCOPED_TRACE(testing::Message()
                   << "type " << static_cast<int>(type) << ", " << width
                   << " elements, " << misaligned << " off");
      const int64_t bytes = width * SizeOf(type);
      std::vector<unsigned char> memory(
          static_cast<size_t>(2 * (bytes + misaligned) + 1), 0xA5);
      unsigned char* const first = memory.data() + misaligned;
      unsigned char* const last = first + bytes;
      unsigned char* const to[] = {first, nullptr, last};
      kernels_.finish_rows({.rows = 3,
                            .width = width,
                            .output = rows.data(),
                            .output_stride = stride,
                            .sum = sums,
                            .type = type,
                            .to = to});
      for (int64_t i = 0; i < width; ++i) {
        const double value = row[static_cast<size_t>(i)] / sum;
        const double found = LoadElement(type, first + i * SizeOf(type));
        if (std::isnan(value)) {
          ASSERT_TRUE(std::isnan(found)) << i;
        } else {
          const auto [least, most] = Range(type, value, relative);
          ASSERT_GE(found, least) << i << ", " << value;
          ASSERT_LE(found, most) << i << ", " << value;
        }
        // A sum of 0: no key took part.
        if (std::isfinite(row[static_cast<size_t>(i)])) {
          ASSERT_EQ(LoadElement(type, last + i * SizeOf(type)), 0);
        }
      }
      // Behind the last one nothing was written.
      ASSERT_EQ(last[bytes], 0xA5);
    }
  }
};

// Two roundings: that of 1 / sum, and that of its product.
TEST_P(FinishTest, RowsAreDividedByTheirSums) {
  for (const Element type : kElements) {
    for (const int64_t width : Lengths()) {
      Check(type, Normals(width), 3.7, 2 * kEps);
    }
  }
}

// Large sums are those of rows beside a much larger sink.
TEST_P(FinishTest, LargeRowsAreDividedByLargeSums) {
  for (const double sum : {0x1.8p66, 0x1.8p126, 0x1.8p130, 0x1.8p180}) {
    for (const int64_t width : Lengths()) {
      Check(Element::kFloat32, Normals(width, 0x1p120F), sum, 3 * kEps);
    }
  }
}

// With a sum of 1 only the rounding to the element type is left: to nearest,
// ties to even.
TEST_P(FinishTest, RoundsToNearestWithTiesToEven) {
  for (const Element type : {Element::kFloat16, Element::kBFloat16}) {
    Floats row;
    for (uint32_t bits = 0; bits < 0x7F80; bits += 3) {
      const double x = Widened(type, static_cast<uint16_t>(bits));
      const double next = Widened(type, static_cast<uint16_t>(bits + 1));
      if (!std::isfinite(next)) continue;
      const auto tie = static_cast<float>((x + next) / 2);
      for (const float y :
           {static_cast<float>(x), tie, std::nextafter(tie, 0.0F),
            std::nextafter(tie, kInfinity)}) {
        if (y < 0x1p-126F) continue;  // may count as 0
        row.push_back(y);
        row.push_back(-y);
      }
    }
    Check(type, row, 1, 0);
  }
}

TEST_P(FinishTest, SpecialNumbersAreStoredAsWhatTheyAre) {
  Floats row;
  for (const float special : SpecialFloats()) row.push_back(special);
  for (const float x : {65504.0F, 65519.0F, 65520.0F, 65536.0F, 0x1p-24F,
                        0x1p-25F, 0x1.8p-25F, 0x1.FF8p127F, 0x1.FEFFFEp127F}) {
    row.push_back(x);
    row.push_back(-x);
  }
  for (const Element type : kElements) Check(type, row, 1, 0);
}

// from * factor: the rounding of the factor, and of one product or two.
TEST_P(FinishTest, RowsAreScaledWhateverTheFactor) {
  for (const int64_t count : Lengths()) {
    for (const int64_t misaligned : {0, 1}) {
      for (const double factor :
           {0.0, 1.0, 0.3, 0x1.8p-64, 0x1.8p-70, 0x1.8p-130, 0x1.8p-180}) {
        SCOPED_TRACE(testing::Message() << count << " times " << factor);
        Floats from = Normals(count, 1000);
        if (count > 2) from[2] = kInfinity;
        if (count > 3) from[3] = FloatFromBits(0xFFFFFFFF);
        if (count > 4) from[4] = 0x1p120F;
        Floats to(static_cast<size_t>(count + 2), kUntouched);
        kernels_.scale_row(from.data(), count, factor, to.data() + misaligned);
        for (int64_t i = 0; i < count; ++i) {
          const double expected = from[static_cast<size_t>(i)] * factor;
          ASSERT_TRUE(IsNear(expected, 3 * kEps * std::abs(expected),
                             to[static_cast<size_t>(misaligned + i)]))
              << i;
        }
        EXPECT_EQ(to[static_cast<size_t>(misaligned + count)], kUntouched);
      }
    }
  }
}

TEST_P(FinishTest, OfNoNumbersNothingIsStored) {
  const double sum = 1;
  const float from = 1;
  for (const Element type : kElements) {
    Floats to(static_cast<size_t>(lanes_ + 1), kUntouched);
    auto* const bytes = reinterpret_cast<unsigned char*>(to.data());
    kernels_.scale_row(&from, 0, 1, to.data());
    kernels_.finish_rows({.rows = 1,
                          .width = 0,
                          .output = &from,
                          .output_stride = 0,
                          .sum = &sum,
                          .type = type,
                          .to = &bytes});
    EXPECT_EQ(to[0], kUntouched);
    // But padding is.
    const auto* const row = reinterpret_cast<const unsigned char*>(&from);
    kernels_.widen_rows({row, 0, SizeOf(type), type}, 1, 0, to.data(), 0,
                        lanes_);
    EXPECT_EQ(to.front(), 0);
    EXPECT_EQ(to.back(), kUntouched);
  }
}

INSTANTIATE_FOR_KERNELS(WidenTest);
INSTANTIATE_FOR_KERNELS(FinishTest);

}  // namespace
}  // namespace attention::cpu
