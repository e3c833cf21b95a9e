// The online softmax of a tile's rows: weights and states (softmax-inl.h).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/cpu/kernels/bf16/products.h"
#include "gtest/gtest.h"
#include "tests/unit/cpu/kernels/kernel_test.h"

namespace attention::cpu {
namespace {

// A row's maximum and sum.
struct State {
  double max;
  double sum;
};

class SoftmaxTest : public KernelTest {
 protected:
  static constexpr float kExponents[] = {1.0F, 1.44269504F, 0.25F};
  // Weights relative to an earlier maximum may sum to this (softmax-inl.h).
  static constexpr double kLargestSum = 16384;
  // A number of 16 bits that no weight is.
  static constexpr uint32_t kUntouched = 0xFFFE;

  SoftmaxTest()
      : weights_(kMaxMicroRows * kScoreStride),
        factors_(kMaxMicroRows),
        pairs_(2 * kBf16WeightTerm,
               FloatFromBits(kUntouched << 16 | kUntouched)) {}

  // Scores of a row, -inf beyond its keys.
  static void SetScores(Tile& tile, int64_t row, const Floats& scores) {
    std::fill_n(tile.score_row(row), kScoreStride, -kInfinity);
    std::copy(scores.begin(), scores.end(), tile.score_row(row));
  }

  // Whole vectors.
  TileColumns ColumnsFor(int64_t keys) const {
    return {0, (keys + lanes_ - 1) / lanes_ * lanes_, 0, keys};
  }

  // A weight's error, relative to it: that of 2^x with its roundings, and those
  // of its argument exponent * (score - max), a difference and a product, which
  // the power shows enlarged by ln 2 times it.
  double RoundingsOfWeight(double argument) const {
    return kEps * (1.8 + 2 * std::log(2.0) * std::abs(argument));
  }

  // Computes a tile's softmax and holds every row to plain code, given what it
  // was before.
  void RunAndCheck(Tile& tile, const TileColumns& columns) {
    const Floats scores = tile.scores;
    std::vector<State> before;
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
      EXPECT_LE(sum, kLargestSum * 1.001);
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

  // A key's number in the pairs of a term.
  static uint32_t InPairs(const Floats& pairs, int64_t term, int64_t row,
                          int64_t key) {
    const int64_t low = key % kBf16Panel % kBf16Depth;
    const uint32_t pair = BitsFrom(pairs[static_cast<size_t>(
        term * kBf16WeightTerm + row * kBf16WeightStride +
        key / kBf16Panel * kBf16Depth + low)]);
    return key % kBf16Panel >= kBf16Depth ? pair >> 16 : pair & 0xFFFF;
  }

  void CheckPairs(const TileColumns& columns, int64_t row, const Floats& pairs,
                  int64_t terms = 1) const {
    for (int64_t j = columns.first; j < columns.last; ++j) {
      const int64_t key = j - columns.first;
      const float weight =
          weights_[static_cast<size_t>(row * kScoreStride + j)];
      const uint32_t first = InPairs(pairs, 0, row, key);
      ASSERT_EQ(first, (BitsFrom(weight) + 0x8000) >> 16)
          << "row " << row << ", key " << j;
      const uint32_t second = InPairs(pairs, 1, row, key);
      const float rest = weight - FloatFromBits(first << 16);
      const uint32_t expected =
          terms == 2 ? (BitsFrom(rest) + 0x8000) >> 16 : kUntouched;
      ASSERT_EQ(second, expected) << "row " << row << ", key " << j;
    }
  }

  Floats weights_;
  Floats factors_;
  Floats pairs_;
};

TEST_P(SoftmaxTest, OfAnyNumberOfKeysAndRows) {
  for (const float exponent : kExponents) {
    for (const int64_t keys : Lengths()) {
      for (const int64_t rows : {1, 2, 3, 4, 5, 12, 32}) {
        SCOPED_TRACE(testing::Message() << exponent << ": " << rows << " rows, "
                                        << keys << " keys");
        Tile tile(rows, keys, lanes_);
        tile.args.states.exponent = exponent;
        // Fresh, then one after another.
        for (int i = 0; i < 3; ++i) {
          for (int64_t r = 0; r < rows; ++r) {
            SetScores(tile, r, Normals(keys, 10));
          }
          ASSERT_NO_FATAL_FAILURE(RunAndCheck(tile, ColumnsFor(keys)));
        }
      }
    }
  }
}

// In place of the scores, as a fresh micro-tile's weights are.
TEST_P(SoftmaxTest, WeightsMayTakeThePlaceOfScores) {
  Tile tile(6, 160, lanes_);
  for (int64_t r = 0; r < 6; ++r) SetScores(tile, r, Normals(160, 5));
  Tile other(6, 160, lanes_);
  other.scores = tile.scores;
  other.args.scores = other.scores.data();
  const TileColumns columns = ColumnsFor(160);
  parts_.softmax(tile.args, columns, weights_.data(), factors_.data());
  parts_.softmax(other.args, columns, other.args.scores, factors_.data());
  EXPECT_EQ(tile.sum, other.sum);
  for (int64_t r = 0; r < 6; ++r) {
    for (int64_t j = 0; j < 160; ++j) {
      ASSERT_EQ(weights_[static_cast<size_t>(r * kScoreStride + j)],
                other.score_row(r)[j]);
    }
  }
}

// Maxima that rise a little are kept, those that rise by a lot are not, and
// those that fall leave weights that may be nothing. In four rows each step
// comes at another time.
TEST_P(SoftmaxTest, StatesFollowMaximaThatMove) {
  constexpr float kSteps[] = {1, 8, 13, 15, 60, 126, 128, 200, 1e4F, 1e30F};
  for (const float exponent : kExponents) {
    for (const float step : kSteps) {
      for (const float sign : {1.0F, -1.0F}) {
        SCOPED_TRACE(testing::Message() << exponent << ": " << sign * step);
        Tile tile(7, 40, lanes_);
        tile.args.states.exponent = exponent;
        for (int i = 0; i < 5; ++i) {
          for (int64_t r = 0; r < 7; ++r) {
            Floats scores = Normals(40);
            for (float& s : scores) s += i > r % 4 ? sign * step : 0;
            SetScores(tile, r, scores);
          }
          ASSERT_NO_FATAL_FAILURE(RunAndCheck(tile, ColumnsFor(40)));
        }
      }
    }
  }
}

// What states stand for, after many tiles: sum * 2^(exponent * max). Each tile
// adds the roundings of a weight and of a factor, whose arguments are below 64
// where they count.
TEST_P(SoftmaxTest, StatesOfManyTilesAreThoseOfAllKeys) {
  constexpr int kTiles = 20;
  constexpr int64_t kKeys = 100;
  for (const float exponent : kExponents) {
    Tile tile(5, kKeys, lanes_);
    tile.args.states.exponent = exponent;
    std::vector<Floats> all(5);
    for (int i = 0; i < kTiles; ++i) {
      for (int64_t r = 0; r < 5; ++r) {
        Floats scores = Normals(kKeys, 4);
        for (float& s : scores) s += static_cast<float>(r * i);
        SetScores(tile, r, scores);
        Floats& row = all[static_cast<size_t>(r)];
        row.insert(row.end(), scores.begin(), scores.end());
      }
      parts_.softmax(tile.args, ColumnsFor(kKeys), weights_.data(),
                     factors_.data());
    }
    for (size_t r = 0; r < 5; ++r) {
      double expected = 0;
      for (const float s : all[r]) {
        expected +=
            std::exp2(exponent * (static_cast<double>(s) - tile.max[r]));
      }
      const double roundings =
          2 * kTiles * RoundingsOfWeight(64) + kEps * (kKeys / 4.0 + 8);
      EXPECT_NEAR(tile.sum[r], expected, expected * roundings) << "row " << r;
    }
  }
}

// Rows of which no key takes part stay as they are: before the first key, and
// after some.
TEST_P(SoftmaxTest, RowsWithoutKeysStayAsTheyAre) {
  for (const int64_t keys : Lengths()) {
    Tile tile(6, keys, lanes_);
    for (int64_t r = 0; r < 6; ++r) {
      SetScores(tile, r, r % 2 == 0 ? Normals(keys) : Floats());
    }
    RunAndCheck(tile, ColumnsFor(keys));
    for (size_t r = 1; r < 6; r += 2) {
      EXPECT_EQ(tile.max[r], -kInfinity);
      EXPECT_EQ(tile.sum[r], 0);
      EXPECT_EQ(factors_[r], 1);
    }
    const std::vector<double> sums = tile.sum;
    for (int64_t r = 0; r < 6; ++r) SetScores(tile, r, {});
    RunAndCheck(tile, ColumnsFor(keys));
    EXPECT_EQ(tile.sum, sums);
    // Rows that have no maximum yet get one.
    for (int64_t r = 0; r < 6; ++r) SetScores(tile, r, Normals(keys));
    RunAndCheck(tile, ColumnsFor(keys));
  }
}

TEST_P(SoftmaxTest, TheLowestFiniteScoresWeighAsOthersDo) {
  Tile tile(1, 2 * lanes_, lanes_);
  SetScores(tile, 0, Floats(static_cast<size_t>(2 * lanes_), -kMaxFloat));
  RunAndCheck(tile, ColumnsFor(2 * lanes_));
  EXPECT_EQ(tile.max[0], -kMaxFloat);
  EXPECT_EQ(tile.sum[0], static_cast<double>(2 * lanes_));
}

// NaN and +inf: the row's sum is NaN from then on, that of other rows is not.
TEST_P(SoftmaxTest, NanAndInfinityStayInTheirRow) {
  const int64_t keys = 3 * lanes_;
  std::vector<float> bad = {kInfinity};
  for (const uint32_t bits : kNanBits) bad.push_back(FloatFromBits(bits));
  for (const float exponent : kExponents) {
    for (const float x : bad) {
      for (const int64_t at : {int64_t{0}, lanes_ + 1, keys - 1}) {
        for (const int tile_of_bad : {0, 1}) {
          Tile tile(6, keys, lanes_);
          tile.args.states.exponent = exponent;
          for (int i = 0; i < 3; ++i) {
            for (int64_t r = 0; r < 6; ++r) {
              Floats scores = Normals(keys);
              if (r == 2 && i == tile_of_bad) {
                scores[static_cast<size_t>(at)] = x;
              }
              // Alone among keys that take no part.
              if (r == 4 && i == tile_of_bad) {
                std::fill(scores.begin(), scores.end(), -kInfinity);
                scores[static_cast<size_t>(at)] = x;
              }
              SetScores(tile, r, scores);
            }
            parts_.softmax(tile.args, ColumnsFor(keys), weights_.data(),
                           factors_.data());
            if (i != tile_of_bad) continue;
            for (const int64_t r : {2, 4}) {
              ASSERT_TRUE(std::isnan(
                  weights_[static_cast<size_t>(r * kScoreStride + at)]))
                  << std::hex << BitsFrom(x);
            }
          }
          for (size_t r = 0; r < 6; ++r) {
            ASSERT_EQ(std::isnan(tile.sum[r]), r == 2 || r == 4)
                << "row " << r << ", key " << at << ", " << std::hex
                << BitsFrom(x);
          }
        }
      }
    }
  }
}

// Weights in pairs of BF16, key i beside key 16 + i of 32: the same numbers,
// rounded with ties away from zero. The floats beside them are there where they
// are asked for, and change nothing.
TEST_P(SoftmaxTest, PairsAreTheSameWeightsRounded) {
  for (const float exponent : kExponents) {
    for (const int64_t keys : {32, 64, 96, 512}) {
      SCOPED_TRACE(testing::Message() << exponent << ", " << keys);
      constexpr int64_t kRows = 7;
      Tile tile(kRows, keys, lanes_);
      Tile alone(kRows, keys, lanes_);
      Floats other_pairs = pairs_;
      tile.args.states.exponent = exponent;
      alone.args.states.exponent = exponent;
      tile.args.bf16.weights = pairs_.data();
      alone.args.bf16.weights = other_pairs.data();
      for (int i = 0; i < 3; ++i) {
        for (int64_t r = 0; r < kRows; ++r) {
          const Floats scores = Normals(keys, i == 1 ? 100 : 3);
          SetScores(tile, r, scores);
          SetScores(alone, r, scores);
        }
        // From the second panel on, too.
        const TileColumns columns = {i == 2 && keys > 32 ? 32 : 0, keys, 0,
                                     keys};
        parts_.softmax_paired(alone.args, columns, nullptr, factors_.data());
        std::vector<State> before;
        for (size_t r = 0; r < kRows; ++r) {
          before.push_back({tile.max[r], tile.sum[r]});
        }
        parts_.softmax_paired(tile.args, columns, weights_.data(),
                              factors_.data());
        EXPECT_EQ(tile.sum, alone.sum);
        for (int64_t r = 0; r < kRows; ++r) {
          ASSERT_NO_FATAL_FAILURE(CheckRow(tile, columns,
                                           before[static_cast<size_t>(r)], r,
                                           tile.score_row(r)));
          CheckPairs(columns, r, pairs_);
          CheckPairs(columns, r, other_pairs);
        }
      }
    }
  }
}

// What the first term's rounding has lost, rounded in the same way.
TEST_P(SoftmaxTest, PairsOfTwoTermsHoldWhatTheFirstHasLost) {
  for (const int64_t keys : {32, 96, 512}) {
    constexpr int64_t kRows = 5;
    Tile tile(kRows, keys, lanes_);
    tile.args.bf16.weights = pairs_.data();
    tile.args.bf16.terms = 2;
    for (int64_t r = 0; r < kRows; ++r) SetScores(tile, r, Normals(keys, 3));
    const TileColumns columns = {0, keys, 0, keys};
    parts_.softmax_paired(tile.args, columns, weights_.data(), factors_.data());
    for (int64_t r = 0; r < kRows; ++r) {
      ASSERT_NO_FATAL_FAILURE(CheckPairs(columns, r, pairs_, 2));
    }
  }
}

// Weights that lie between two numbers of BF16 are rare: they are looked for
// among those of 0 to -1/2, in steps of 2^-20.
TEST_P(SoftmaxTest, PairsRoundTiesUp) {
  Tile tile(1, 512, lanes_);
  tile.args.bf16.weights = pairs_.data();
  const auto is_tie = [this](size_t key) {
    return (BitsFrom(weights_[key]) & 0xFFFF) == 0x8000;
  };
  Floats ties = {0};  // the maximum
  for (int64_t first = 1; first < 1 << 19 && ties.size() < 8; first += 511) {
    Floats scores = {0};
    for (int64_t i = first; i < first + 511; ++i) {
      scores.push_back(static_cast<float>(i) * -0x1p-20F);
    }
    SetScores(tile, 0, scores);
    tile.max[0] = -kInfinity;
    tile.sum[0] = 0;
    parts_.softmax(tile.args, ColumnsFor(512), weights_.data(),
                   factors_.data());
    for (size_t j = 0; j < scores.size(); ++j) {
      if (is_tie(j)) ties.push_back(scores[j]);
    }
  }
  ASSERT_GT(ties.size(), 1U);
  SetScores(tile, 0, ties);
  tile.max[0] = -kInfinity;
  tile.sum[0] = 0;
  const TileColumns columns = {0, kBf16Panel, 0, kBf16Panel};
  parts_.softmax_paired(tile.args, columns, weights_.data(), factors_.data());
  EXPECT_TRUE(is_tie(1));
  CheckPairs(columns, 0, pairs_);
}

INSTANTIATE_FOR_KERNELS(SoftmaxTest);

}  // namespace
}  // namespace attention::cpu
