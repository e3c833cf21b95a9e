// Small problems, whole (small-inl.h).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/cpu/kernels/kernel_test.h"

namespace attention::cpu {
namespace {

// Rows with something between them; the memory ends with the last one, so that
// the sanitizers see what is read or written behind it.
struct Rows {
  Rows(int64_t count, int64_t row_width, int64_t gap, float fill)
      : width(row_width),
        stride(row_width + gap),
        data(static_cast<size_t>(count == 0 ? 0
                                            : (count - 1) * stride + row_width),
             fill) {}

  float& at(int64_t row, int64_t column) {
    return data[static_cast<size_t>(row * stride + column)];
  }

  int64_t width;
  int64_t stride;
  std::vector<float> data;
};

struct Problem {
  Problem(int64_t of_rows, int64_t of_keys, int64_t width, int64_t value_width,
          int64_t gap = 3)
      : rows(of_rows),
        keys(of_keys),
        query(rows, width, gap, kUntouched),
        key(keys, width, gap, kUntouched),
        value(keys, value_width, gap, kUntouched),
        output(rows, value_width, gap, kUntouched) {}

  int64_t rows;
  int64_t keys;
  Rows query;
  Rows key;
  Rows value;
  Rows output;
  float factor = 0.37F;
};

class SmallTest : public KernelTest {
 protected:
  void FillRows(Rows& rows, int64_t count) {
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t i = 0; i < rows.width; ++i) {
        rows.at(r, i) = static_cast<float>(random_.Normal());
      }
    }
  }
  Problem Random(int64_t rows, int64_t keys, int64_t width,
                 int64_t value_width) {
    Problem p(rows, keys, width, value_width);
    FillRows(p.query, rows);
    FillRows(p.key, keys);
    FillRows(p.value, keys);
    return p;
  }

  bool Run(Problem& p) const {
    return kernels_.attend_small({.rows = p.rows,
                                  .keys = p.keys,
                                  .width = p.query.width,
                                  .value_width = p.value.width,
                                  .query = p.query.data.data(),
                                  .query_stride = p.query.stride,
                                  .key = p.key.data.data(),
                                  .key_stride = p.key.stride,
                                  .value = p.value.data.data(),
                                  .value_stride = p.value.stride,
                                  .factor = p.factor,
                                  .output = p.output.data.data(),
                                  .output_stride = p.output.stride});
  }

  // Runs and holds all rows to plain code.
  void RunAndCheck(Problem& p) const {
    SCOPED_TRACE(testing::Message()
                 << p.rows << " rows, " << p.keys << " keys, width "
                 << p.query.width << ", " << p.value.width);
    ASSERT_TRUE(Run(p));
    for (int64_t r = 0; r < p.rows; ++r) {
      ASSERT_NO_FATAL_FAILURE(CheckRow(p, r)) << "row " << r;
    }
    for (int64_t r = 0; r + 1 < p.rows; ++r) {
      for (int64_t c = p.output.width; c < p.output.stride; ++c) {
        ASSERT_EQ(p.output.at(r, c), kUntouched) << "row " << r;
      }
    }
  }

  // A score of n products is within n + 3 roundings of their magnitudes, its
  // difference from the largest one within one of its own, and a weight within
  // 1.8 and what the power makes of those; the sums of n weights, and of
  // weighted values, have n more, the quotient 2.
  static void CheckRow(Problem& p, int64_t r) {
    std::vector<double> scores;
    double bound = 0;
    for (int64_t j = 0; j < p.keys; ++j) {
      double score = 0;
      double magnitude = 0;
      for (int64_t i = 0; i < p.query.width; ++i) {
        const double term =
            static_cast<double>(p.query.at(r, i)) * p.factor * p.key.at(j, i);
        score += term;
        magnitude += std::abs(term);
      }
      scores.push_back(score);
      if (score == -HUGE_VAL) continue;
      bound = std::max(
          bound, kEps * (static_cast<double>(p.query.width + 4) * magnitude));
    }
    const double top = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (double& score : scores) {
      score = std::exp2(score - top);
      sum += score;
    }
    const double relative = 2 * (2 * std::log(2.0) * bound + 1.8 * kEps) +
                            static_cast<double>(2 * p.keys + 4) * kEps;
    for (int64_t c = 0; c < p.value.width; ++c) {
      double expected = 0;
      double magnitude = 0;
      for (int64_t j = 0; j < p.keys; ++j) {
        const double term =
            scores[static_cast<size_t>(j)] / sum * p.value.at(j, c);
        expected += term;
        magnitude += std::abs(term);
      }
      ASSERT_TRUE(IsNear(expected, relative * magnitude, p.output.at(r, c)))
          << "column " << c;
    }
  }
};

TEST_P(SmallTest, AnyNumberOfKeysAndRows) {
  for (int64_t keys = 1; keys <= kSmallKeys; ++keys) {
    for (const int64_t rows : {0, 1, 2, 5, 17, 256}) {
      Problem p = Random(rows, keys, 8, 8);
      ASSERT_NO_FATAL_FAILURE(RunAndCheck(p));
    }
  }
}

TEST_P(SmallTest, AnyWidths) {
  std::vector<int64_t> widths = {1,  2,  3,  lanes_ - 1, lanes_, lanes_ + 1,
                                 16, 31, 32, 48,         63,     kSmallWidth};
  for (const int64_t width : widths) {
    for (const int64_t value_width : widths) {
      Problem p = Random(3, 7, width, value_width);
      ASSERT_NO_FATAL_FAILURE(RunAndCheck(p));
    }
  }
}

TEST_P(SmallTest, ValuesOfNoWidth) {
  Problem p = Random(3, 7, 5, 0);
  RunAndCheck(p);
}

// Powers of 2 whose exponents are whole numbers are exact, however far apart.
TEST_P(SmallTest, ScoresOfAnySize) {
  for (const float top : {0.0F, 1.0F, -126.0F, 200.0F, 1e30F, -kMaxFloat}) {
    for (const float step : {0.0F, 1.0F, 100.0F, 127.0F, 1e30F}) {
      for (int64_t keys = 1; keys <= kSmallKeys; ++keys) {
        Problem p = Random(2, keys, 1, 5);
        p.factor = 1;
        for (int64_t r = 0; r < p.rows; ++r) p.query.at(r, 0) = 1;
        double sum = 0;
        std::vector<double> weights;
        for (int64_t j = 0; j < keys; ++j) {
          // The largest in the middle.
          const float score =
              top - step * static_cast<float>(std::abs(j - keys / 2));
          p.key.at(j, 0) = std::max(score, -kMaxFloat);
          weights.push_back(
              std::exp2(static_cast<double>(p.key.at(j, 0)) - top));
          sum += weights.back();
        }
        ASSERT_TRUE(Run(p)) << top << ", " << step;
        for (int64_t c = 0; c < 5; ++c) {
          double expected = 0;
          double magnitude = 0;
          for (int64_t j = 0; j < keys; ++j) {
            const double term =
                weights[static_cast<size_t>(j)] / sum * p.value.at(j, c);
            expected += term;
            magnitude += std::abs(term);
          }
          for (int64_t r = 0; r < p.rows; ++r) {
            ASSERT_TRUE(IsNear(
                expected, kEps * static_cast<double>(2 * keys + 4) * magnitude,
                p.output.at(r, c)))
                << top << ", " << step << ", " << keys << " keys";
          }
        }
      }
    }
  }
}

TEST_P(SmallTest, OneKeyGivesItsValues) {
  for (const float special : SpecialFloats()) {
    if (!std::isfinite(special)) continue;
    Problem p = Random(2, 1, 3, lanes_ + 1);
    p.value.at(0, 0) = special;
    p.value.at(0, lanes_) = special;
    ASSERT_TRUE(Run(p)) << special;
    for (int64_t c = 0; c <= lanes_; ++c) {
      ASSERT_TRUE(IsNear(p.value.at(0, c), 0, p.output.at(1, c))) << special;
    }
  }
}

// Whatever the key's weight: it may take part with one that is 0 in FP32.
TEST_P(SmallTest, ValuesThatAreNotFiniteAreRefused) {
  for (const float special : SpecialFloats()) {
    if (std::isfinite(special)) continue;
    for (const int64_t width : {int64_t{1}, lanes_, 2 * lanes_ + 3}) {
      for (const int64_t at : {int64_t{0}, width - 1}) {
        for (const float factor : {0.37F, 1e4F}) {
          Problem p = Random(3, 6, 4, width);
          p.factor = factor;
          p.value.at(5, at) = special;
          ASSERT_FALSE(Run(p)) << special << " at " << at << ", " << factor;
        }
      }
    }
  }
}

TEST_P(SmallTest, RowsThatAreNanAreRefused) {
  for (const int64_t value_width : {int64_t{0}, int64_t{1}, lanes_ + 1}) {
    for (int64_t keys = 1; keys <= kSmallKeys; ++keys) {
      for (const uint32_t bits : kNanBits) {
        Problem of_query = Random(3, keys, 5, value_width);
        of_query.query.at(2, 4) = FloatFromBits(bits);
        ASSERT_FALSE(Run(of_query)) << std::hex << bits;
        Problem of_key = Random(3, keys, 5, value_width);
        of_key.key.at(keys - 1, 0) = FloatFromBits(bits);
        ASSERT_FALSE(Run(of_key)) << std::hex << bits;
      }
    }
  }
}

TEST_P(SmallTest, InfiniteScoresAreRefused) {
  for (int64_t keys = 1; keys <= kSmallKeys; ++keys) {
    Problem p = Random(1, keys, 1, 4);
    p.query.at(0, 0) = 2;
    p.key.at(keys / 2, 0) = kInfinity;
    ASSERT_FALSE(Run(p)) << keys << " keys";
    p.key.at(keys / 2, 0) = kMaxFloat;  // too large when it is multiplied
    p.factor = 1;
    ASSERT_FALSE(Run(p)) << keys << " keys";
  }
}

TEST_P(SmallTest, AKeyThatScoresMinusInfinityTakesNoPart) {
  for (int64_t keys = 2; keys <= kSmallKeys; ++keys) {
    for (const int64_t at : {int64_t{0}, keys - 1}) {
      Problem p = Random(2, keys, 1, 4);
      p.query.at(0, 0) = 2;
      p.query.at(1, 0) = 0.5;
      p.key.at(at, 0) = -kInfinity;
      ASSERT_NO_FATAL_FAILURE(RunAndCheck(p));
    }
  }
}

TEST_P(SmallTest, RowsInWhichNoKeyTakesPartAreRefused) {
  for (int64_t keys = 1; keys <= kSmallKeys; ++keys) {
    Problem p = Random(1, keys, 1, 4);
    p.query.at(0, 0) = 1;
    for (int64_t j = 0; j < keys; ++j) p.key.at(j, 0) = -kInfinity;
    ASSERT_FALSE(Run(p)) << keys << " keys";
  }
}

// Rows may be brought in pieces, and copied to where they lie closer.
TEST_P(SmallTest, BitsDependNeitherOnOtherRowsNorOnWhereRowsLie) {
  constexpr int64_t kRows = 5;
  Problem together = Random(kRows, 13, 19, 21);
  ASSERT_TRUE(Run(together));
  for (int64_t r = 0; r < kRows; ++r) {
    Problem alone(1, 13, 19, 21, 0);
    for (int64_t i = 0; i < 19; ++i) {
      alone.query.at(0, i) = together.query.at(r, i);
    }
    for (int64_t j = 0; j < 13; ++j) {
      for (int64_t i = 0; i < 19; ++i) {
        alone.key.at(j, i) = together.key.at(j, i);
      }
      for (int64_t c = 0; c < 21; ++c) {
        alone.value.at(j, c) = together.value.at(j, c);
      }
    }
    ASSERT_TRUE(Run(alone));
    for (int64_t c = 0; c < 21; ++c) {
      ASSERT_EQ(alone.output.at(0, c), together.output.at(r, c))
          << "row " << r << ", column " << c;
    }
  }
}

INSTANTIATE_FOR_KERNELS(SmallTest);

}  // namespace
}  // namespace attention::cpu
