// Products of BF16 against plain code: AMX and AVX512-BF16, those that this
// processor has, and the emulation of both, which the same code cuts into tiles
// and vectors.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "core/cpu/kernels/bf16/products.h"
#include "gtest/gtest.h"
#include "tests/support/emulated_products.h"
#include "tests/unit/cpu/kernels/kernel_test.h"

namespace attention::cpu {
namespace {

struct Products {
  std::string name;
  const Bf16Products* products;
};

std::vector<Products> AllProducts() {
  std::vector<Products> all = {
      {"emulated_amx", &test::EmulatedAmx()},
      {"emulated_avx512_bf16", &test::EmulatedAvx512Bf16()}};
  if (AmxProducts() != nullptr) all.push_back({"amx", AmxProducts()});
  if (Avx512Bf16Products() != nullptr) {
    all.push_back({"avx512_bf16", Avx512Bf16Products()});
  }
  return all;
}

// A matrix of BF16, and what its elements are worth. Of elements in two terms
// all first terms come before all second ones: in a row, or of values in a
// column.
struct Elements {
  Elements(int64_t of_rows, int64_t of_columns)
      : rows(of_rows),
        columns(of_columns),
        bits(static_cast<size_t>(rows * columns)) {}

  uint16_t& at(int64_t row, int64_t column) {
    return bits[static_cast<size_t>(row * columns + column)];
  }
  std::vector<double> Values() const {
    std::vector<double> values;
    values.reserve(bits.size());
    for (const uint16_t element : bits) {
      values.push_back(Widened(Element::kBFloat16, element));
    }
    return values;
  }

  int64_t rows;
  int64_t columns;
  std::vector<uint16_t> bits;
};

void StorePair(uint16_t low, uint16_t high, float* to) {
  const uint32_t pair = low | static_cast<uint32_t>(high) << 16;
  std::memcpy(to, &pair, sizeof(pair));
}

class Bf16ProductsTest : public ::testing::TestWithParam<Products> {
 protected:
  Elements Random(int64_t rows, int64_t columns) {
    Elements elements(rows, columns);
    for (uint16_t& bits : elements.bits) {
      bits = Narrowed(Element::kBFloat16, random_.Normal());
    }
    return elements;
  }
  // Rows of first terms, then of as many second terms, which are smaller.
  Elements RandomOfTwo(int64_t rows, int64_t columns) {
    Elements elements = Random(rows, 2 * columns);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = columns; i < 2 * columns; ++i) {
        elements.at(r, i) =
            Narrowed(Element::kBFloat16, random_.Normal() * 0x1p-8);
      }
    }
    return elements;
  }

  // Scores of `queries` and `keys`, rows of pairs, held to plain code. A sum of
  // n products of 16 bits, which are exact: n roundings.
  void CheckScores(Elements& queries, Elements& keys, int64_t terms = 1) {
    const int64_t width = queries.columns / 2;  // pairs
    const int64_t panels = keys.rows / kBf16Panel;
    SCOPED_TRACE(testing::Message() << queries.rows << " rows, " << width
                                    << " pairs, " << panels << " panels");
    // Whole tiles of rows are read and written.
    Floats rows(static_cast<size_t>(kMaxMicroRows * width));
    for (int64_t r = 0; r < queries.rows; ++r) {
      for (int64_t i = 0; i < width; ++i) {
        StorePair(queries.at(r, 2 * i), queries.at(r, 2 * i + 1),
                  &rows[static_cast<size_t>(r * width + i)]);
      }
    }
    Floats packed(static_cast<size_t>(keys.rows * width + 1));
    for (int64_t k = 0; k < keys.rows; ++k) {
      for (int64_t i = 0; i < width; ++i) {
        const int64_t to = (k / kBf16Panel * width + i) * kBf16Panel;
        StorePair(keys.at(k, 2 * i), keys.at(k, 2 * i + 1),
                  &packed[static_cast<size_t>(to + k % kBf16Panel)]);
      }
    }
    Floats found(static_cast<size_t>(kMaxMicroRows * kScoreStride), kUntouched);
    const auto scores = terms == 2 ? products_.scores_of_two : products_.scores;
    products_.begin();
    scores(rows.data(), packed.data(), width / terms, queries.rows, panels,
           found.data());
    products_.end();
    CheckScores(queries, keys, terms, found);
  }

  void CheckScores(const Elements& queries, const Elements& keys, int64_t terms,
                   const Floats& found) {
    const int64_t width = queries.columns / terms;
    const std::vector<double> query = queries.Values();
    const std::vector<double> key = keys.Values();
    for (int64_t r = 0; r < queries.rows; ++r) {
      for (int64_t k = 0; k < keys.rows; ++k) {
        double score = 0;
        double magnitude = 0;
        for (int64_t i = 0; i < width; ++i) {
          double of_query = 0;
          double of_key = 0;
          for (int64_t at = i; at < queries.columns; at += width) {
            of_query += query[static_cast<size_t>(r * queries.columns + at)];
            of_key += key[static_cast<size_t>(k * keys.columns + at)];
          }
          score += of_query * of_key;
          magnitude += std::abs(of_query * of_key);
        }
        // On its way, a sum of such parts may leave FP32's range.
        if (std::isfinite(magnitude) && magnitude > kMaxFloat) continue;
        const double bound =
            static_cast<double>(queries.columns) * kEps * magnitude;
        ASSERT_TRUE(IsNear(score, bound,
                           found[static_cast<size_t>(r * kScoreStride + k)]))
            << "row " << r << ", key " << k;
      }
      EXPECT_EQ(found[static_cast<size_t>(r * kScoreStride + keys.rows)],
                kUntouched);
    }
  }

  // Adds `weights` times `values` to rows that hold numbers already. `more`:
  // panels of columns that values have beyond those of the output.
  void CheckValues(Elements& weights, Elements& values, int64_t more,
                   int64_t terms = 1) {
    const int64_t keys = values.rows / terms;
    const int64_t width = values.columns;
    SCOPED_TRACE(testing::Message() << weights.rows << " rows, " << keys
                                    << " keys, " << width << " columns");
    const int64_t panels =
        (width + kBf16Panel - 1) / kBf16Panel + more;  // of columns of a term
    Floats paired(static_cast<size_t>(terms * kBf16WeightTerm));
    // Somewhere in memory, where there are no keys, too.
    Floats packed(
        static_cast<size_t>(terms * keys * panels * kBf16Panel / 2 + 1));
    for (int64_t term = 0; term < terms; ++term) {
      for (int64_t n = 0; n < keys / 2; ++n) {
        // Pair n is of two keys of its panel, half a panel apart.
        const int64_t key =
            term * keys + n / kBf16Depth * kBf16Panel + n % kBf16Depth;
        const int64_t to_weight = term * kBf16WeightTerm + n;
        for (int64_t r = 0; r < weights.rows; ++r) {
          StorePair(
              weights.at(r, key), weights.at(r, key + kBf16Depth),
              &paired[static_cast<size_t>(to_weight + r * kBf16WeightStride)]);
        }
        for (int64_t c = 0; c < width; ++c) {
          const int64_t panel =
              (n / kBf16Depth * terms + term) * panels + c / kBf16Panel;
          const int64_t to =
              (panel * kBf16Depth + n % kBf16Depth) * kBf16Panel +
              c % kBf16Panel;
          StorePair(values.at(key, c), values.at(key + kBf16Depth, c),
                    &packed[static_cast<size_t>(to)]);
        }
      }
    }
    Floats found(static_cast<size_t>(kMaxMicroRows * width));
    for (float& x : found) x = static_cast<float>(random_.Normal());
    const Floats before = found;
    const auto add_values =
        terms == 2 ? products_.add_values_of_two : products_.add_values;
    products_.begin();
    add_values(paired.data(), packed.data(), terms * panels, weights.rows,
               keys / kBf16Panel, found.data(), width);
    products_.end();
    const std::vector<double> weight = weights.Values();
    const std::vector<double> value = values.Values();
    for (int64_t r = 0; r < weights.rows; ++r) {
      for (int64_t c = 0; c < width; ++c) {
        const auto at = static_cast<size_t>(r * width + c);
        double sum = before[at];
        double magnitude = std::abs(sum);
        const auto add = [&](int64_t of_weight, int64_t of_value) {
          const double term =
              weight[static_cast<size_t>(r * weights.columns + of_weight)] *
              value[static_cast<size_t>(of_value * width + c)];
          sum += term;
          magnitude += std::abs(term);
        };
        for (int64_t k = 0; k < keys; ++k) {
          add(k, k);
          if (terms == 1) continue;
          add(k, keys + k);
          add(keys + k, k);
        }
        const auto products = static_cast<double>((2 * terms - 1) * keys);
        const double bound = (products + 1) * kEps * magnitude;
        ASSERT_TRUE(IsNear(sum, bound, found[at]))
            << "row " << r << ", column " << c;
      }
    }
  }

  const Bf16Products& products_ = *GetParam().products;
  test::Random random_{test::TestSeed()};
};

TEST_P(Bf16ProductsTest, ScoresOfAnyNumberOfRows) {
  for (int64_t rows = 1; rows <= kMaxMicroRows; ++rows) {
    Elements queries = Random(rows, 64);
    Elements keys = Random(96, 64);
    CheckScores(queries, keys);
  }
}

TEST_P(Bf16ProductsTest, ScoresOfAnyWidthAndNumberOfPanels) {
  for (const int64_t pairs : {16, 32, 48, 64, 512}) {
    for (const int64_t panels : {0, 1, 2, 16}) {
      Elements queries = Random(17, 2 * pairs);
      Elements keys = Random(panels * kBf16Panel, 2 * pairs);
      CheckScores(queries, keys);
    }
  }
}

// Each is its row's, or its key's, alone. Such products take subnormal numbers
// for 0, and sums beyond FP32 are infinite.
TEST_P(Bf16ProductsTest, SpecialNumbersStayWithTheirScores) {
  int64_t n = 0;
  for (const float special : SpecialFloats()) {
    const auto bits = static_cast<uint16_t>(BitsFrom(special) >> 16);
    Elements queries = Random(20, 32);
    Elements keys = Random(64, 32);
    queries.at(n % 20, 5) = bits;
    keys.at(17 + n % 30, 6) = bits;
    CheckScores(queries, keys);
    ++n;
  }
}

TEST_P(Bf16ProductsTest, ScoresOfTwoTerms) {
  if (products_.scores_of_two == nullptr) return;
  for (const int64_t rows : {1, 15, 16, 17, 32}) {
    for (const int64_t width : {32, 64, 96, 1024}) {
      for (const int64_t panels : {0, 1, 3}) {
        Elements queries = RandomOfTwo(rows, width);
        Elements keys = RandomOfTwo(panels * kBf16Panel, width);
        CheckScores(queries, keys, 2);
      }
    }
  }
}

TEST_P(Bf16ProductsTest, ValuesOfTwoTerms) {
  if (products_.add_values_of_two == nullptr) return;
  for (const int64_t rows : {1, 15, 16, 17, 32}) {
    for (const int64_t width : {16, 32, 48, 64}) {
      for (const int64_t panels : {0, 1, 2, 16}) {
        for (const int64_t more : {0, 2}) {
          const int64_t keys = panels * kBf16Panel;
          Elements weights = RandomOfTwo(rows, keys);
          Elements values = Random(2 * keys, width);
          CheckValues(weights, values, more, 2);
        }
      }
    }
  }
}

TEST_P(Bf16ProductsTest, ValuesOfAnyNumberOfRows) {
  for (int64_t rows = 1; rows <= kMaxMicroRows; ++rows) {
    Elements weights = Random(rows, 64);
    Elements values = Random(64, 48);
    CheckValues(weights, values, 0);
  }
}

TEST_P(Bf16ProductsTest, ValuesOfAnyWidthAndNumberOfPanels) {
  for (const int64_t width : {16, 32, 48, 64, 512}) {
    for (const int64_t panels : {0, 1, 2, 3, 16}) {
      for (const int64_t more : {0, 2}) {
        Elements weights = Random(17, panels * kBf16Panel);
        Elements values = Random(panels * kBf16Panel, width);
        CheckValues(weights, values, more);
      }
    }
  }
}

TEST_P(Bf16ProductsTest, NanWeightsStayInTheirRow) {
  Elements weights = Random(20, 64);
  Elements values = Random(64, 48);
  for (const uint32_t bits : kNanBits) {
    // Those whose payload is in the lower half are no NaN in 16 bits.
    if ((bits & 0x007F0000) == 0) continue;
    weights.at(7, 40) = static_cast<uint16_t>(bits >> 16);
    CheckValues(weights, values, 0);
  }
}

TEST_P(Bf16ProductsTest, InfiniteValuesStayInTheirColumn) {
  Elements weights = Random(20, 64);
  Elements values = Random(64, 48);
  values.at(3, 17) = 0x7F80;
  for (int64_t r = 0; r < weights.rows; ++r) {
    weights.at(r, 3) = Narrowed(Element::kBFloat16, 0.5);
  }
  CheckValues(weights, values, 0);
}

INSTANTIATE_TEST_SUITE_P(Units, Bf16ProductsTest,
                         ::testing::ValuesIn(AllProducts()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace attention::cpu
