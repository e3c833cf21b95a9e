// Queries, keys and values in the order in which the products read them:
// pack-inl.h, and the copies of BF16 in bf16/tiles-inl.h.

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "core/cpu/kernels/bf16/products.h"
#include "gtest/gtest.h"
#include "tests/unit/cpu/kernels/kernel_test.h"

namespace attention::cpu {
namespace {

constexpr uint32_t kUntouched = 0xDEADBEEF;

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

  static Floats Untouched(int64_t count) {
    return Floats(static_cast<size_t>(count), FloatFromBits(kUntouched));
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
      ASSERT_EQ(BitsFrom(packed[at]), kUntouched);
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
      EXPECT_EQ(BitsFrom(packed.back()), kUntouched);
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
  EXPECT_EQ(BitsFrom(packed[0]), kUntouched);
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
  void Check(int64_t count, int64_t width, bool plants) {
    SCOPED_TRACE(testing::Message() << count << " keys of " << width
                                    << " values, plants " << plants);
    std::vector<uint16_t> bits = BrainRows(count * width);
    for (uint16_t& x : bits) {
      if ((x & 0x7F80) == 0x7F80) x = 0x3F80;
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
    Floats packed = Untouched(padded * panels * kBf16Depth + 1);
    EXPECT_EQ(kernels_.pack_bf16_values(rows.data(), count, width, panels,
                                        packed.data()),
              !plants);
    const auto element = [&](int64_t key, int64_t column) -> uint32_t {
      return key < count && column < width
                 ? bits[static_cast<size_t>(key * width + column)]
                 : 0;
    };
    size_t at = 0;  // [32 keys][panel][16 pairs][32 columns]
    for (int64_t key = 0; key < padded; key += kBf16Panel) {
      for (int64_t column = 0; column < panels * kBf16Panel;
           column += kBf16Panel) {
        for (int64_t i = 0; i < kBf16Depth * kBf16Panel; ++i) {
          const int64_t low = key + i / kBf16Panel;
          const int64_t c = column + i % kBf16Panel;
          ASSERT_EQ(BitsFrom(packed[at++]),
                    element(low, c) | element(low + kBf16Depth, c) << 16);
        }
      }
    }
    EXPECT_EQ(BitsFrom(packed.back()), kUntouched);
  }
};

TEST_P(PackBf16ValuesTest, ArePairsOfKeys) {
  for (const int64_t count : {1, 15, 16, 17, 32, 33, 64, 512}) {
    for (const int64_t width : {1, 3, 15, 16, 31, 32, 33, 100}) {
      Check(count, width, false);
    }
  }
}

TEST_P(PackBf16ValuesTest, AreZeroWhereTheyAreNotFinite) {
  for (const int64_t count : {1, 17, 32, 100}) {
    for (const int64_t width : {1, 16, 33}) Check(count, width, true);
  }
}

// Rows of BF16 as a caller may have them: elements `column_stride` bytes apart,
// the first at an odd address or an even one.
class CopyBf16Test : public PackTest {
 protected:
  void Check(int64_t width, int64_t column_stride, int64_t misaligned) {
    SCOPED_TRACE(testing::Message() << width << " elements " << column_stride
                                    << " apart, " << misaligned << " off");
    constexpr int64_t kRows = 3;
    constexpr int64_t kPaddedRows = 5;
    const int64_t row_stride = width * column_stride + 5;
    const std::vector<uint16_t> bits = BrainRows(kRows * width);
    std::vector<unsigned char> memory(
        static_cast<size_t>(kRows * row_stride + misaligned));
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t i = 0; i < width; ++i) {
        std::memcpy(
            memory.data() + misaligned + r * row_stride + i * column_stride,
            &bits[static_cast<size_t>(r * width + i)], 2);
      }
    }
    const int64_t stride = (width + 31) / 32 * 16;  // pairs
    Floats to = Untouched(kPaddedRows * stride + 1);
    const RowSource from = {memory.data() + misaligned, row_stride,
                            column_stride, Element::kBFloat16};
    kernels_.copy_bf16(from, kRows, kPaddedRows, width, to.data(), stride);
    for (int64_t r = 0; r < kPaddedRows; ++r) {
      for (int64_t i = 0; i < 2 * stride; ++i) {
        uint16_t found;
        std::memcpy(
            &found,
            reinterpret_cast<const char*>(to.data()) + 2 * (r * 2 * stride + i),
            2);
        const bool padding = r >= kRows || i >= width;
        ASSERT_EQ(found, padding ? 0 : bits[static_cast<size_t>(r * width + i)])
            << "row " << r << ", element " << i;
      }
    }
    EXPECT_EQ(BitsFrom(to.back()), kUntouched);
  }
};

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
