// Queries, keys and values in the order in which the products read them:
// pack-inl.h, and the copies of BF16 in bf16/tiles-inl.h.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "core/cpu/kernels/bf16/products.h"
#include "gtest/gtest.h"
#include "tests/unit/cpu/kernels/kernel_test.h"

namespace attention::cpu {
namespace {

constexpr uint32_t kUntouchedBits = 0xDEADBEEF;

class PackTest : public KernelTest {
 protected:
  // Counts of rows that make whole micro-tiles and panels, and every rest.
  std::vector<int64_t> Counts() const {
    return {1,
            2,
            3,
            5,
            8,
            11,
            lanes_ - 1,
            lanes_ + 1,
            2 * lanes_,
            3 * lanes_,
            4 * lanes_ + 1,
            64,
            96};
  }

  // Rows that no kernel may confuse, with some special numbers among them.
  Floats Rows(int64_t count, int64_t stride) {
    Floats rows = Normals(count * stride);
    const std::vector<float> special = SpecialFloats();
    for (float& x : rows) {
      if (random_.Chance(0.1)) {
        x = special[static_cast<size_t>(
            random_.Below(static_cast<int64_t>(special.size())))];
      }
    }
    return rows;
  }

  // Rows of bits of BF16.
  std::vector<uint16_t> BrainRows(int64_t count) {
    std::vector<uint16_t> rows(static_cast<size_t>(count));
    for (uint16_t& x : rows) {
      x = static_cast<uint16_t>(random_.Below(0x10000));
      if (random_.Chance(0.1)) x |= 0x7F80;  // infinities and NaN
    }
    return rows;
  }

  // The two terms of a finite number of FP16, in BF16. The first one is the
  // next number of 8 bits towards 0 that is not the number itself.
  static std::vector<uint16_t> TermsOf(uint16_t half) {
    const double x = Widened(Element::kFloat16, half);
    if (x == 0) return {half, 0};
    uint16_t first = Narrowed(Element::kBFloat16, x);
    if (std::abs(Widened(Element::kBFloat16, first)) >= std::abs(x)) --first;
    const double rest = x - Widened(Element::kBFloat16, first);
    return {first, Narrowed(Element::kBFloat16, rest)};
  }

  static Floats Untouched(int64_t count) {
    return Floats(static_cast<size_t>(count), FloatFromBits(kUntouchedBits));
  }

  // What panels of `panel` keys hold, key by key.
  static void CheckPanels(const Floats& rows, int64_t stride, int64_t count,
                          int64_t width, int64_t panel, const Floats& packed) {
    const int64_t padded = (count + panel - 1) / panel * panel;
    for (int64_t j = 0; j < padded; ++j) {
      for (int64_t i = 0; i < width; ++i) {
        const auto at = static_cast<size_t>(j / panel * panel * width +
                                            i * panel + j % panel);
        const float expected =
            j < count ? rows[static_cast<size_t>(j * stride + i)] : 0.0F;
        ASSERT_EQ(BitsFrom(packed[at]), BitsFrom(expected))
            << "key " << j << ", element " << i;
      }
    }
    for (auto at = static_cast<size_t>(padded * width); at < packed.size();
         ++at) {
      ASSERT_EQ(BitsFrom(packed[at]), kUntouchedBits);
    }
  }
};

TEST_P(PackTest, QueriesLieInMicroTilesTimesTheFactor) {
  for (const int64_t count : Counts()) {
    for (const int64_t width : Lengths()) {
      SCOPED_TRACE(testing::Message() << count << " rows of " << width);
      const int64_t stride = width + 3;
      const Floats rows = Rows(count, stride);
      Floats packed = Untouched(count * width + 1);
      kernels_.pack_queries(rows.data(), stride, count, width, 0.5F,
                            packed.data());
      int64_t first = 0;
      while (first < count) {
        // The largest of 12, 8, 4, 2 and 1, or 6, 4, 2 and 1, that fits.
        int64_t tile = kernels_.micro_rows;
        if (tile > count - first) tile = kernels_.micro_rows > 8 ? 8 : 4;
        while (tile > count - first) tile /= 2;
        for (int64_t r = 0; r < tile; ++r) {
          for (int64_t i = 0; i < width; ++i) {
            // A product with 1/2 is exact.
            ASSERT_TRUE(IsNear(
                0.5 * rows[static_cast<size_t>((first + r) * stride + i)], 0,
                packed[static_cast<size_t>(first * width + i * tile + r)]));
          }
        }
        first += tile;
      }
      EXPECT_EQ(BitsFrom(packed.back()), kUntouchedBits);
    }
  }
}

TEST_P(PackTest, KeysLieInPanelsOfTwoVectors) {
  for (const int64_t count : Counts()) {
    for (const int64_t width : Lengths()) {
      SCOPED_TRACE(testing::Message() << count << " keys of " << width);
      const int64_t stride = width + 3;
      const Floats rows = Rows(count, stride);
      Floats packed = Untouched((count + 2 * lanes_) * width);
      kernels_.pack_keys(rows.data(), stride, count, width, packed.data());
      CheckPanels(rows, stride, count, width, 2 * lanes_, packed);
    }
  }
}

TEST_P(PackTest, NoRowsAreNothingToDo) {
  Floats packed = Untouched(1);
  kernels_.pack_queries(nullptr, 8, 0, 8, 1, packed.data());
  kernels_.pack_keys(nullptr, 8, 0, 8, packed.data());
  kernels_.pack_bf16_keys(nullptr, 8, 0, 8, packed.data());
  EXPECT_TRUE(kernels_.pack_bf16_values(nullptr, 0, 8, 1, packed.data()));
  EXPECT_EQ(BitsFrom(packed[0]), kUntouchedBits);
}

TEST_P(PackTest, KeysOfBf16LieInPanelsOf32) {
  for (const int64_t count : Counts()) {
    for (const int64_t width : {16, 32, 48}) {
      SCOPED_TRACE(testing::Message() << count << " keys of " << width);
      const Floats rows = Rows(count, width);
      Floats packed = Untouched((count + kBf16Panel) * width);
      kernels_.pack_bf16_keys(rows.data(), width, count, width, packed.data());
      CheckPanels(rows, width, count, width, kBf16Panel, packed);
    }
  }
}

// Rows of values that begin anywhere, at odd addresses, too. What is not finite
// among them is 0, and told where `plants`.
class PackBf16ValuesTest : public PackTest {
 protected:
  void Check(Element type, int64_t count, int64_t width, bool plants) {
    SCOPED_TRACE(testing::Message() << count << " keys of " << width
                                    << " values, plants " << plants);
    const int64_t terms = type == Element::kFloat16 ? 2 : 1;
    const uint16_t infinity = terms == 2 ? 0x7C00 : 0x7F80;
    std::vector<uint16_t> bits = BrainRows(count * width);
    for (uint16_t& x : bits) {
      if ((x & infinity) == infinity) x = 0x3C80;
    }
    // Rows in falling order, an odd number of bytes apart: their ends are those
    // of the memory.
    const int64_t stride = 2 * width + 3;
    std::vector<unsigned char> memory(
        static_cast<size_t>((count - 1) * stride + 2 * width));
    if (plants) bits.back() = 0xFF81;
    std::vector<const unsigned char*> rows;
    for (int64_t k = 0; k < count; ++k) {
      unsigned char* const row = memory.data() + (count - 1 - k) * stride;
      std::memcpy(row, &bits[static_cast<size_t>(k * width)],
                  static_cast<size_t>(2 * width));
      rows.push_back(row);
    }
    if (plants) bits.back() = 0;
    const int64_t panels = (width + kBf16Panel - 1) / kBf16Panel;
    const int64_t padded = (count + kBf16Panel - 1) / kBf16Panel * kBf16Panel;
    Floats packed = Untouched(terms * padded * panels * kBf16Depth + 1);
    const auto pack =
        terms == 2 ? kernels_.pack_fp16_values : kernels_.pack_bf16_values;
    EXPECT_EQ(pack(rows.data(), count, width, panels, packed.data()), !plants);
    const auto element = [&](int64_t term, int64_t key,
                             int64_t column) -> uint32_t {
      if (key >= count || column >= width) return 0;
      const uint16_t x = bits[static_cast<size_t>(key * width + column)];
      return terms == 2 ? TermsOf(x)[static_cast<size_t>(term)] : x;
    };
    size_t at = 0;  // [32 keys][term][panel][16 pairs][32 columns]
    for (int64_t n = 0; n < padded / kBf16Panel * terms; ++n) {
      const int64_t key = n / terms * kBf16Panel;
      const int64_t term = n % terms;
      for (int64_t column = 0; column < panels * kBf16Panel;
           column += kBf16Panel) {
        for (int64_t i = 0; i < kBf16Depth * kBf16Panel; ++i) {
          const int64_t low = key + i / kBf16Panel;
          const int64_t c = column + i % kBf16Panel;
          ASSERT_EQ(BitsFrom(packed[at++]),
                    element(term, low, c) | element(term, low + kBf16Depth, c)
                                                << 16);
        }
      }
    }
    EXPECT_EQ(BitsFrom(packed.back()), kUntouchedBits);
  }
};

TEST_P(PackBf16ValuesTest, ArePairsOfKeys) {
  for (const int64_t count : {1, 15, 16, 17, 32, 33, 64, 512}) {
    for (const int64_t width : {1, 3, 15, 16, 31, 32, 33, 100}) {
      for (const Element type : {Element::kBFloat16, Element::kFloat16}) {
        Check(type, count, width, false);
      }
    }
  }
}

TEST_P(PackBf16ValuesTest, AreZeroWhereTheyAreNotFinite) {
  for (const int64_t count : {1, 17, 32, 100}) {
    for (const int64_t width : {1, 16, 33}) {
      for (const Element type : {Element::kBFloat16, Element::kFloat16}) {
        Check(type, count, width, true);
      }
    }
  }
}

// Rows of BF16 as a caller may have them: elements `column_stride` bytes apart,
// the first at an odd address or an even one.
class CopyBf16Test : public PackTest {
 protected:
  void Check(int64_t width, int64_t column_stride, int64_t misaligned) {
    CheckTerms(1, width, column_stride, misaligned);
    CheckTerms(2, width, column_stride, misaligned);
  }
  // In two terms: finite numbers of FP16.
  void CheckTerms(int64_t terms, int64_t width, int64_t column_stride,
                  int64_t misaligned) {
    SCOPED_TRACE(testing::Message() << width << " elements " << column_stride
                                    << " apart, " << misaligned << " off");
    constexpr int64_t kRows = 3;
    constexpr int64_t kPaddedRows = 5;
    const int64_t row_stride = width * column_stride + 5;
    std::vector<uint16_t> bits = BrainRows(kRows * width);
    for (uint16_t& x : bits) {
      if (terms == 2 && (x & 0x7C00) == 0x7C00) x = 0x3C01;
    }
    std::vector<unsigned char> memory(
        static_cast<size_t>(kRows * row_stride + misaligned));
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t i = 0; i < width; ++i) {
        std::memcpy(
            memory.data() + misaligned + r * row_stride + i * column_stride,
            &bits[static_cast<size_t>(r * width + i)], 2);
      }
    }
    const int64_t pairs = (width + 31) / 32 * 16;  // of a term
    const int64_t stride = terms * pairs;
    Floats to = Untouched(kPaddedRows * stride + 1);
    const RowSource from = {
        memory.data() + misaligned, row_stride, column_stride,
        terms == 2 ? Element::kFloat16 : Element::kBFloat16};
    const auto copy = terms == 2 ? kernels_.split_fp16 : kernels_.copy_bf16;
    copy(from, kRows, kPaddedRows, width, to.data(), stride);
    for (int64_t r = 0; r < kPaddedRows; ++r) {
      for (int64_t i = 0; i < 2 * stride; ++i) {
        uint16_t found;
        std::memcpy(
            &found,
            reinterpret_cast<const char*>(to.data()) + 2 * (r * 2 * stride + i),
            2);
        const int64_t column = i % (2 * pairs);
        const auto term = static_cast<size_t>(i / (2 * pairs));
        uint16_t expected = 0;
        if (r < kRows && column < width) {
          const uint16_t x = bits[static_cast<size_t>(r * width + column)];
          expected = terms == 2 ? TermsOf(x)[term] : x;
        }
        ASSERT_EQ(found, expected) << "row " << r << ", element " << i;
      }
    }
    EXPECT_EQ(BitsFrom(to.back()), kUntouchedBits);
  }
};

// Of all 65,536 numbers of FP16, 63,488 are finite: each is the sum of two
// numbers of BF16 of its sign, neither of which is 0 or subnormal unless it is
// 0 itself, so that no product with infinity is NaN that would not be. NaN is
// in the second term, and infinity too.
TEST_P(CopyBf16Test, EveryFp16IsTheSumOfItsTwoTerms) {
  constexpr int64_t kCount = 0x10000;
  std::vector<uint16_t> halves;
  halves.reserve(kCount);
  for (int64_t i = 0; i < kCount; ++i) {
    halves.push_back(static_cast<uint16_t>(i));
  }
  Floats to = Untouched(kCount);
  const RowSource from = {reinterpret_cast<const unsigned char*>(halves.data()),
                          2 * kCount, 2, Element::kFloat16};
  kernels_.split_fp16(from, 1, 1, kCount, to.data(), kCount);
  std::vector<uint16_t> terms(2 * kCount);
  std::memcpy(terms.data(), to.data(), 4 * kCount);
  int64_t finite = 0;
  for (size_t i = 0; i < kCount; ++i) {
    SCOPED_TRACE(testing::Message() << "bits " << i);
    const double x = Widened(Element::kFloat16, halves[i]);
    const double first = Widened(Element::kBFloat16, terms[i]);
    const double second = Widened(Element::kBFloat16, terms[kCount + i]);
    if (std::isnan(x)) {
      ASSERT_TRUE(std::isnan(second));
    } else if (std::isinf(x)) {
      ASSERT_EQ(second, x);
      ASSERT_GT(first * x, 0);
      ASSERT_TRUE(std::isfinite(first));
    } else {
      ++finite;
      ASSERT_EQ(first + second, x);
      if (x == 0) {
        ASSERT_EQ(first, 0);
        continue;
      }
      ASSERT_GE(first / x, 0.5);
      ASSERT_GT(second / x, 0);
      ASSERT_GE(std::abs(second), 0x1p-32);
    }
  }
  EXPECT_EQ(finite, 63488);
}

TEST_P(CopyBf16Test, CopiesEveryBitAndPads) {
  for (const int64_t width : Lengths()) {
    for (const auto& [column_stride, misaligned] :
         {std::pair{2, 0}, {2, 1}, {2, 2}, {6, 0}, {7, 1}}) {
      Check(width, column_stride, misaligned);
    }
  }
}

INSTANTIATE_FOR_KERNELS(PackTest);
INSTANTIATE_FOR_KERNELS(PackBf16ValuesTest);
INSTANTIATE_FOR_KERNELS(CopyBf16Test);

}  // namespace
}  // namespace attention::cpu
