// Products of INT8 with keys and values where they lie, by the digits of what
// they are multiplied by, against plain code: AMX, where this processor has it,
// and its emulation.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/cpu/kernels/bf16/int8_products.h"
#include "core/cpu/kernels/bf16/products.h"
#include "gtest/gtest.h"
#include "tests/unit/cpu/kernels/kernel_test.h"
#include "tests/unit/cpu/kernels/stored_rows.h"

namespace attention::cpu {
namespace {

int64_t RoundedUp(int64_t count, int64_t step) {
  return (count + step - 1) / step * step;
}

class Int8InPlaceTest : public ::testing::TestWithParam<NamedInPlace> {
 protected:
  // Some rows of queries, split.
  struct Split {
    Split(const Int8Products& products, const Floats& rows, int64_t count,
          int64_t width)
        : stride(RoundedUp(width, 16)),
          queries(static_cast<size_t>(count * stride)),
          digits(static_cast<size_t>(RoundedUp(count, kDigitRows) / kDigitRows *
                                     RoundedUp(width, kInt8Depth) / kInt8Depth *
                                     kDigitBytes)),
          exponents(static_cast<size_t>(count)) {
      Floats largest(static_cast<size_t>(count));
      for (int64_t r = 0; r < count; ++r) {
        float& most = largest[static_cast<size_t>(r)];
        for (int64_t i = 0; i < width; ++i) {
          const float element = rows[static_cast<size_t>(r * width + i)];
          queries[static_cast<size_t>(r * stride + i)] = element;
          most = std::max(most, std::abs(element));
        }
      }
      exact = products.split_queries(queries.data(), stride, count, width,
                                     largest.data(), digits.data(),
                                     exponents.data());
    }

    int64_t stride;
    Floats queries;
    std::vector<int8_t> digits;
    std::vector<int> exponents;
    bool exact;
  };

  StoredRows Random(int64_t count, int64_t width, bool dense = true) {
    return RandomRows(random_, Element::kInt8, count, width, dense);
  }

  // Numbers of 16 bits.
  Floats Numbers(int64_t count, Element type = Element::kBFloat16) {
    Floats numbers(static_cast<size_t>(count));
    for (float& number : numbers) {
      number =
          static_cast<float>(Widened(type, Narrowed(type, random_.Normal())));
    }
    return numbers;
  }

  void CheckScores(const Floats& queries, int64_t rows, StoredRows& keys) {
    SCOPED_TRACE(testing::Message() << rows << " rows, " << keys.count
                                    << " keys, width " << keys.width);
    const Split split(products_, queries, rows, keys.width);
    ASSERT_TRUE(split.exact);
    std::vector<unsigned char> room(
        static_cast<size_t>(kBf16Panel * RoundedUp(keys.width, kInt8Depth)));
    Floats found(static_cast<size_t>((rows + 1) * kScoreStride), kUntouched);
    std::vector<const unsigned char*> places;
    unit_.begin();
    products_.scores(split.digits.data(), split.exponents.data(),
                     keys.Of(places), keys.width, rows, room.data(),
                     found.data());
    unit_.end();
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t k = 0; k < keys.count; ++k) {
        double score = 0;
        double magnitude = 0;
        for (int64_t i = 0; i < keys.width; ++i) {
          const double term =
              double{queries[static_cast<size_t>(r * keys.width + i)]} *
              keys.value(k, i);
          score += term;
          magnitude += std::abs(term);
        }
        // Sums of digits are exact: four roundings, whatever the width.
        ASSERT_TRUE(IsNear(score, 8 * kEps * magnitude,
                           found[static_cast<size_t>(r * kScoreStride + k)]))
            << "row " << r << ", key " << k;
      }
      const int64_t padded = RoundedUp(keys.count, kBf16Panel);
      EXPECT_EQ(found[static_cast<size_t>(r * kScoreStride + padded)],
                kUntouched);
    }
    EXPECT_EQ(found[static_cast<size_t>(rows * kScoreStride)], kUntouched);
  }
  void CheckScores(int64_t rows, StoredRows& keys) {
    CheckScores(Numbers(rows * keys.width), rows, keys);
  }

  // `weights`: `count` of each row.
  void CheckSums(const Floats& weights, int64_t rows, StoredRows& values) {
    SCOPED_TRACE(testing::Message() << rows << " rows, " << values.count
                                    << " keys, width " << values.width);
    const int64_t stride = RoundedUp(values.width, kInt8Columns);
    Floats padded(static_cast<size_t>(rows * kScoreStride), kUntouched);
    std::vector<double> largest(static_cast<size_t>(rows));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t k = 0; k < values.count; ++k) {
        const float weight = weights[static_cast<size_t>(r * values.count + k)];
        padded[static_cast<size_t>(r * kScoreStride + k)] = weight;
        double& most = largest[static_cast<size_t>(r)];
        most = std::max(most, double{weight});
      }
    }
    std::vector<unsigned char> room(static_cast<size_t>(Int8RoomBytes(rows)));
    Floats found(static_cast<size_t>((rows + 1) * stride), kUntouched);
    std::vector<const unsigned char*> places;
    unit_.begin();
    products_.sums(padded.data(), values.Of(places), values.width, rows,
                   room.data(), found.data(), stride);
    unit_.end();
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < stride; ++c) {
        double sum = 0;
        double tolerance = 0;
        for (int64_t k = 0; c < values.width && k < values.count; ++k) {
          const double weight =
              weights[static_cast<size_t>(r * values.count + k)];
          const double value = kScaledWeightUnit * values.value(k, c);
          sum += weight * value;
          // A weight is off by half a unit.
          tolerance +=
              std::abs(value) *
              (8 * kEps * weight + 0x1p-30 * largest[static_cast<size_t>(r)]);
        }
        ASSERT_TRUE(
            IsNear(sum, tolerance, found[static_cast<size_t>(r * stride + c)]))
            << "row " << r << ", column " << c;
      }
    }
    EXPECT_EQ(found[static_cast<size_t>(rows * stride)], kUntouched);
  }
  void CheckSums(int64_t rows, StoredRows& values) {
    Floats weights(static_cast<size_t>(rows * values.count));
    for (float& weight : weights) {
      weight = static_cast<float>(std::exp(3 * random_.Normal()));
    }
    CheckSums(weights, rows, values);
  }

  const Bf16Products& unit_ = *GetParam().products;
  const Int8Products& products_ = *unit_.int8;
  test::Random random_{test::TestSeed()};
};

// Each in a row of one key beside zeros: no other element hides it.
TEST_P(Int8InPlaceTest, EveryByteIsItsNumber) {
  for (int byte = 0; byte < 256; ++byte) {
    StoredRows row(Element::kInt8, 1, 1, true);
    *row.at(0, 0) = static_cast<unsigned char>(byte);
    CheckScores({1.0F}, 1, row);
    CheckSums({1.0F}, 1, row);
  }
}

TEST_P(Int8InPlaceTest, ScoresOfAnyWidth) {
  for (const int64_t width :
       {1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 300}) {
    StoredRows keys = Random(70, width);
    CheckScores(5, keys);
  }
}

TEST_P(Int8InPlaceTest, ScoresOfAnyNumberOfRowsAndKeys) {
  for (const int64_t count : {1, 15, 16, 17, 31, 32, 33, 97, 512}) {
    for (const int64_t rows : {1, 3, 4, 5, 8}) {
      StoredRows keys = Random(count, 64);
      CheckScores(rows, keys);
    }
  }
}

TEST_P(Int8InPlaceTest, ScoresOfKeysThatLieApart) {
  for (const int64_t width : {64, 128, 130}) {
    StoredRows keys = Random(64, width, /*dense=*/false);
    CheckScores(4, keys);
  }
}

TEST_P(Int8InPlaceTest, ScoresOfQueriesOfFp16) {
  StoredRows keys = Random(40, 64);
  CheckScores(Numbers(int64_t{4} * 64, Element::kFloat16), 4, keys);
}

TEST_P(Int8InPlaceTest, ScoresOfTheLargestNumbersThereAre) {
  StoredRows keys(Element::kInt8, 33, 1000, true);
  for (int64_t k = 0; k < keys.count; ++k) {
    for (int64_t i = 0; i < keys.width; ++i) {
      *keys.at(k, i) = k % 2 == 0 ? 0x80 : 0x7F;
    }
  }
  for (const float element :
       {-0x1.fep-119F, -1.0F, 0x1p-97F, 1.9921875F, 0x1p100F}) {
    CheckScores(Floats(1000, element), 1, keys);
  }
}

TEST_P(Int8InPlaceTest, QueriesAreExactAsFarAsTheirDigitsReach) {
  const auto exact = [this](const Floats& row) {
    const auto width = static_cast<int64_t>(row.size());
    return Split(products_, row, 1, width).exact;
  };
  constexpr float kLeastOfEight = 0x1.02p-22F;  // 8 bits
  EXPECT_TRUE(exact({0.0F, 0.0F}));
  EXPECT_TRUE(exact({1.9921875F, kLeastOfEight}));
  EXPECT_TRUE(exact({-1.0F, 0.0F, -kLeastOfEight}));
  EXPECT_FALSE(exact({2.0F, kLeastOfEight}));
  Floats last(70, 1.0F);
  last.back() = 0x1.02p-30F;
  EXPECT_FALSE(exact(last));
  EXPECT_FALSE(exact({0x1p110F, 0x1p-47F}));  // flushed where it is scaled
  EXPECT_TRUE(exact({0x1.fep-119F, -0x1p-126F}));
  EXPECT_FALSE(exact({1.0F, std::numeric_limits<float>::infinity()}));
  EXPECT_FALSE(exact({std::nanf(""), 1.0F}));
}

TEST_P(Int8InPlaceTest, SumsOfAnyWidth) {
  for (const int64_t width :
       {1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 300}) {
    StoredRows values = Random(70, width);
    CheckSums(5, values);
  }
}

TEST_P(Int8InPlaceTest, SumsOfAnyNumberOfRowsAndKeys) {
  for (const int64_t count : {1, 15, 16, 17, 63, 64, 65, 97, 200, 512}) {
    for (const int64_t rows : {1, 3, 4, 5, 8, 32}) {
      StoredRows values = Random(count, 64, count % 2 == 0);
      CheckSums(rows, values);
    }
  }
}

TEST_P(Int8InPlaceTest, SumsOfTheSmallestAndLargestWeights) {
  for (const float unit : {0x1p-126F, 0x1p-100F, 0x1p89F}) {
    StoredRows values = Random(70, 64);
    Floats weights(70);
    for (float& weight : weights) {
      weight = unit * static_cast<float>(1 + random_.Below(100));
    }
    CheckSums(weights, 1, values);
  }
  StoredRows values = Random(70, 64);
  CheckSums(Floats(70), 1, values);  // none
}

INSTANTIATE_TEST_SUITE_P(Units, Int8InPlaceTest,
                         ::testing::ValuesIn(ProductsInPlace()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace attention::cpu
