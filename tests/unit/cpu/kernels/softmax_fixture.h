#ifndef ATTENTION_TESTS_UNIT_CPU_KERNELS_SOFTMAX_FIXTURE_H_
#define ATTENTION_TESTS_UNIT_CPU_KERNELS_SOFTMAX_FIXTURE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/cpu/kernels/kernel_test.h"

namespace attention::cpu {

/// The softmax of a tile, and plain code that checks it. The parameter is
/// KernelTest's.
class SoftmaxFixture : public KernelTest {
 protected:
  /// A row's maximum and sum.
  struct State {
    double max;
    double sum;
  };

  /// By which scores are multiplied.
  static constexpr float kExponents[] = {1.0F, 1.44269504F, 0.25F};

  SoftmaxFixture()
      : weights_(kMaxMicroRows * kScoreStride), factors_(kMaxMicroRows) {}

  /// Scores of a row, -inf beyond its keys.
  static void SetScores(Tile& tile, int64_t row, const Floats& scores) {
    std::fill_n(tile.score_row(row), kScoreStride, -kInfinity);
    std::copy(scores.begin(), scores.end(), tile.score_row(row));
  }

  /// Whole vectors.
  TileColumns ColumnsFor(int64_t keys) const {
    return {0, (keys + lanes_ - 1) / lanes_ * lanes_, 0, keys};
  }

  /// A weight's error, relative to it: that of 2^x with its roundings, and
  /// those of its argument exponent * (score - max), a difference and a
  /// product, which the power shows enlarged by ln 2 times it.
  double RoundingsOfWeight(double argument) const {
    return kEps * (1.8 + 2 * std::log(2.0) * std::abs(argument));
  }

  /// Computes a tile's softmax and holds every row to plain code, given what it
  /// was before.
  void RunAndCheck(Tile& tile, const TileColumns& columns) {
    const Floats scores = tile.scores;
    std::vector<State> before;
    before.reserve(static_cast<size_t>(tile.args.rows));
    for (int64_t r = 0; r < tile.args.rows; ++r) {
      before.push_back(
          {tile.max[static_cast<size_t>(r)], tile.sum[static_cast<size_t>(r)]});
    }
    parts_.softmax(tile.args, columns, weights_.data(), factors_.data());
    for (int64_t r = 0; r < tile.args.rows; ++r) {
      SCOPED_TRACE(testing::Message() << "row " << r);
      CheckRow(tile, columns, before[static_cast<size_t>(r)], r,
               scores.data() + r * kScoreStride);
    }
  }

  /// Holds weights_, factors_ and the state of a row to plain code.
  void CheckRow(const Tile& tile, const TileColumns& columns,
                const State& before, int64_t row, const float* scores) {
    const auto r = static_cast<size_t>(row);
    const double exponent = tile.args.states.exponent;
    const double max = tile.max[r];
    const double top = *std::max_element(scores, scores + columns.last);
    double sum = 0;
    double bound = 0;
    // -inf where no key took part so far: then all weights are 0.
    const double relative_to = max == -HUGE_VAL ? 0 : max;
    for (int64_t j = columns.first; j < columns.last; ++j) {
      const double argument = exponent * (scores[j] - relative_to);
      const double weight = std::exp2(argument);
      const double error =
          weight == 0 ? 0 : weight * RoundingsOfWeight(argument);
      ASSERT_TRUE(IsNear(weight, error,
                         weights_[static_cast<size_t>(row * kScoreStride + j)]))
          << "key " << j << ", score " << scores[j];
      sum += weight;
      bound += error;
    }
    // A sum of n numbers in lanes, four at least: n / 4 + 8 roundings.
    const auto count = static_cast<double>(columns.last - columns.first);
    bound += sum * kEps * (count / 4 + 8);
    const bool kept = max == before.max;
    if (kept) {
      // Relative to an earlier maximum they may sum to as many as there are.
      EXPECT_LE(sum, static_cast<double>(columns.end - columns.begin) * 1.001);
    } else {
      EXPECT_EQ(max, std::max(before.max, top));
    }
    const double argument =
        kept || before.sum == 0 ? 0 : exponent * (before.max - max);
    const double factor = std::exp2(argument);
    const double factor_error =
        factor == 0 ? 0 : factor * RoundingsOfWeight(argument);
    EXPECT_TRUE(IsNear(factor, factor_error, factors_[r]));
    const double expected = before.sum * factor + sum;
    EXPECT_NEAR(tile.sum[r], expected,
                bound + before.sum * factor_error + 0x1p-120);
  }

  Floats weights_;  // kScoreStride a row
  Floats factors_;  // of the earlier sums and outputs
};

}  // namespace attention::cpu

#endif  // ATTENTION_TESTS_UNIT_CPU_KERNELS_SOFTMAX_FIXTURE_H_
