// NamedInPlace of BF16 with keys and values where they lie, of every type that
// decoding reads so, against plain code: AMX, where this processor has it, and
// its emulation.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "core/cpu/kernels/bf16/products.h"
#include "gtest/gtest.h"
#include "tests/unit/cpu/kernels/kernel_test.h"
#include "tests/unit/cpu/kernels/stored_rows.h"

namespace attention::cpu {
namespace {

constexpr Element kTypesInPlace[] = {Element::kBFloat16, Element::kInt8,
                                     Element::kFloat8};

// Of keys; of values, which are counted in another unit.
const ByteTable* KeyTableOf(Element type) {
  static constexpr ByteTable kInt8(Element::kInt8, 1);
  static constexpr ByteTable kFloat8(Element::kFloat8, 1);
  return type == Element::kInt8 ? &kInt8 : &kFloat8;
}
const ByteTable* ValueTableOf(Element type) {
  static constexpr ByteTable kInt8(Element::kInt8, kScaledWeightUnit);
  static constexpr ByteTable kFloat8(Element::kFloat8, kScaledWeightUnit);
  return type == Element::kInt8 ? &kInt8 : &kFloat8;
}

class Bf16InPlaceTest : public ::testing::TestWithParam<NamedInPlace> {
 protected:
  StoredRows Random(Element type, int64_t count, int64_t width,
                    bool dense = true) {
    return RandomRows(random_, type, count, width, dense);
  }

  // Numbers of BF16, `width` to a row.
  std::vector<uint16_t> Numbers(int64_t count) {
    std::vector<uint16_t> numbers(static_cast<size_t>(count));
    for (uint16_t& bits : numbers) {
      bits = Narrowed(Element::kBFloat16, random_.Normal());
    }
    return numbers;
  }

  void CheckScores(int64_t rows, StoredRows& keys) {
    SCOPED_TRACE(testing::Message()
                 << "type " << static_cast<int>(keys.type) << ", " << rows
                 << " rows, " << keys.count << " keys, width " << keys.width);
    const int64_t pairs = (keys.width + 31) / 32 * 16;
    const std::vector<uint16_t> queries = Numbers(rows * keys.width);
    // As a panel of keys is packed: [pair][32 queries][2].
    Floats packed(static_cast<size_t>(pairs * kBf16Panel));
    auto* const elements = reinterpret_cast<unsigned char*>(packed.data());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < keys.width; ++i) {
        std::memcpy(elements + 4 * (i / 2 * kBf16Panel + r) + 2 * (i % 2),
                    &queries[static_cast<size_t>(r * keys.width + i)], 2);
      }
    }
    Floats room(static_cast<size_t>(kBf16Panel * pairs));
    Floats found(static_cast<size_t>((rows + 1) * kScoreStride), kUntouched);
    std::vector<const unsigned char*> places;
    Bf16Rows of_keys = keys.Of(places);
    if (SizeOf(keys.type) == 1) of_keys.table = KeyTableOf(keys.type);
    products_.begin();
    products_.scores_in_place(packed.data(), of_keys, keys.width, rows,
                              room.data(), found.data());
    products_.end();
    const int64_t padded =
        (keys.count + kBf16Panel - 1) / kBf16Panel * kBf16Panel;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t k = 0; k < keys.count; ++k) {
        double score = 0;
        double magnitude = 0;
        for (int64_t i = 0; i < keys.width; ++i) {
          const double term =
              Widened(Element::kBFloat16,
                      queries[static_cast<size_t>(r * keys.width + i)]) *
              keys.value(k, i);
          score += term;
          magnitude += std::abs(term);
        }
        // On its way, a sum of such parts may leave FP32's range.
        if (std::isfinite(magnitude) && magnitude > kMaxFloat) continue;
        ASSERT_TRUE(IsNear(score,
                           static_cast<double>(keys.width) * kEps * magnitude,
                           found[static_cast<size_t>(r * kScoreStride + k)]))
            << "row " << r << ", key " << k;
      }
      EXPECT_EQ(found[static_cast<size_t>(r * kScoreStride + padded)],
                kUntouched);
    }
    EXPECT_EQ(found[static_cast<size_t>(rows * kScoreStride)], kUntouched);
  }

  // `finite`: asks for the sums of what is.
  void CheckSums(int64_t rows, StoredRows& values, bool finite = false) {
    SCOPED_TRACE(testing::Message() << "type " << static_cast<int>(values.type)
                                    << ", " << rows << " rows, " << values.count
                                    << " keys, width " << values.width);
    const int64_t stride = (values.width + kBf16InPlaceColumns - 1) /
                           kBf16InPlaceColumns * kBf16InPlaceColumns;
    const std::vector<uint16_t> weights = Numbers(rows * values.count);
    Floats paired(static_cast<size_t>(kBf16WeightTerm));
    auto* const elements = reinterpret_cast<unsigned char*>(paired.data());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t k = 0; k < values.count; ++k) {
        const int64_t pair = k / kBf16Panel * kBf16Depth + k % kBf16Depth;
        std::memcpy(elements + 4 * (r * kBf16WeightStride + pair) +
                        2 * (k % kBf16Panel / kBf16Depth),
                    &weights[static_cast<size_t>(r * values.count + k)], 2);
      }
    }
    Floats found(static_cast<size_t>((rows + 1) * stride), kUntouched);
    std::vector<const unsigned char*> places;
    Bf16Rows of_values = values.Of(places);
    const bool bytes = SizeOf(values.type) == 1;
    if (bytes) of_values.table = ValueTableOf(values.type);
    const double unit = bytes ? kScaledWeightUnit : 1;
    products_.begin();
    products_.sums_in_place(paired.data(), of_values, values.width, rows,
                            finite, found.data(), stride);
    products_.end();
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < stride; ++c) {
        double sum = 0;
        double magnitude = 0;
        for (int64_t k = 0; c < values.width && k < values.count; ++k) {
          const double value = unit * values.value(k, c);
          if (finite && !std::isfinite(value)) continue;
          const double term =
              Widened(Element::kBFloat16,
                      weights[static_cast<size_t>(r * values.count + k)]) *
              value;
          sum += term;
          magnitude += std::abs(term);
        }
        if (std::isfinite(magnitude) && magnitude > kMaxFloat) continue;
        ASSERT_TRUE(IsNear(sum,
                           static_cast<double>(values.count) * kEps * magnitude,
                           found[static_cast<size_t>(r * stride + c)]))
            << "row " << r << ", column " << c;
      }
    }
    EXPECT_EQ(found[static_cast<size_t>(rows * stride)], kUntouched);
  }

  const Bf16Products& products_ = *GetParam().products;
  test::Random random_{test::TestSeed()};
};

TEST(ByteTableTest, HasTheNumberOfEveryByte) {
  for (const Element type : {Element::kInt8, Element::kFloat8}) {
    for (const float unit : {1.0F, kScaledWeightUnit}) {
      const ByteTable table(type, unit);
      for (int byte = 0; byte < 256; ++byte) {
        const auto element = static_cast<uint8_t>(byte);
        const double expected = WidenedByte(type, element) * unit;
        const double found = Widened(Element::kBFloat16, table.Of(element));
        EXPECT_TRUE(expected == found ||
                    (std::isnan(expected) && std::isnan(found)))
            << "type " << static_cast<int>(type) << ", byte " << byte << ": "
            << found << ", expected " << expected;
      }
    }
  }
}

// Each in a row of one key beside zeros: no other element hides it.
TEST_P(Bf16InPlaceTest, EveryByteIsItsNumber) {
  for (const Element type : {Element::kInt8, Element::kFloat8}) {
    StoredRows rows(type, 16, 16, true);
    for (int64_t byte = 0; byte < 256; ++byte) {
      *rows.at(byte / 16, byte % 16) = static_cast<unsigned char>(byte);
    }
    for (const int64_t count : {int64_t{1}, int64_t{16}}) {
      rows.count = count;
      CheckSums(1, rows);
    }
    for (int64_t byte = 0; byte < 256; ++byte) {
      StoredRows key(type, 1, 1, true);
      *key.at(0, 0) = static_cast<unsigned char>(byte);
      CheckScores(1, key);
      CheckSums(1, key);
    }
  }
}

TEST_P(Bf16InPlaceTest, ScoresOfAnyWidth) {
  for (const Element type : kTypesInPlace) {
    for (const int64_t width :
         {1, 2, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 160, 300}) {
      StoredRows keys = Random(type, 70, width);
      CheckScores(5, keys);
    }
  }
}

TEST_P(Bf16InPlaceTest, ScoresOfAnyNumberOfRowsAndKeys) {
  for (const Element type : kTypesInPlace) {
    for (const int64_t count : {1, 15, 16, 17, 31, 32, 33, 97}) {
      for (const int64_t rows : {1, 3, 4, 5, 16, 17, 31, 32}) {
        StoredRows keys = Random(type, count, 64);
        CheckScores(rows, keys);
      }
    }
    StoredRows most = Random(type, kMaxTileKeys, 64);
    CheckScores(5, most);
  }
}

TEST_P(Bf16InPlaceTest, ScoresOfKeysThatLieApart) {
  for (const Element type : kTypesInPlace) {
    for (const int64_t width : {32, 128, 130}) {
      StoredRows keys = Random(type, 64, width, /*dense=*/false);
      CheckScores(4, keys);
    }
  }
}

TEST_P(Bf16InPlaceTest, SumsOfAnyWidth) {
  for (const Element type : kTypesInPlace) {
    for (const int64_t width :
         {1, 2, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 300}) {
      StoredRows values = Random(type, 70, width);
      CheckSums(5, values);
    }
  }
}

TEST_P(Bf16InPlaceTest, SumsOfAnyNumberOfRowsAndKeys) {
  for (const Element type : kTypesInPlace) {
    for (const int64_t count : {1, 15, 16, 17, 31, 32, 33, 97}) {
      for (const int64_t rows : {1, 3, 4, 5, 16, 17, 31, 32}) {
        StoredRows values = Random(type, count, 64, count % 2 == 0);
        CheckSums(rows, values);
      }
    }
    StoredRows most = Random(type, kMaxTileKeys, 64);
    CheckSums(5, most);
  }
}

TEST_P(Bf16InPlaceTest, SpecialNumbersStayWithTheirKeysAndColumns) {
  int64_t n = 0;
  for (const float special : SpecialFloats()) {
    StoredRows rows = Random(Element::kBFloat16, 40, 70);
    const auto bits = static_cast<uint16_t>(BitsFrom(special) >> 16);
    std::memcpy(rows.at(n % 40, n % 70), &bits, sizeof(bits));
    CheckScores(3, rows);
    CheckSums(3, rows);
    CheckSums(3, rows, /*finite=*/true);
    ++n;
  }
  for (const unsigned char nan : {0x7F, 0xFF}) {
    StoredRows rows = Random(Element::kFloat8, 40, 70);
    *rows.at(33, 65) = nan;
    CheckScores(3, rows);
    CheckSums(3, rows);
    CheckSums(3, rows, /*finite=*/true);
  }
}

INSTANTIATE_TEST_SUITE_P(Units, Bf16InPlaceTest,
                         ::testing::ValuesIn(ProductsInPlace()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace attention::cpu
