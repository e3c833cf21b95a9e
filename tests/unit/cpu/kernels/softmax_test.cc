// The online softmax of a tile's rows: weights and states (softmax-inl.h).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/cpu/kernels/softmax_fixture.h"

namespace attention::cpu {
namespace {

using SoftmaxTest = SoftmaxFixture;

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

INSTANTIATE_FOR_KERNELS(SoftmaxTest);

}  // namespace
}  // namespace attention::cpu
