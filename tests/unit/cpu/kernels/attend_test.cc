// A tile of keys, from QK to PV, for all classes of operands, and who is told
// its weights (attend_tile, tile-inl.h).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/cpu/kernels/kernel_test.h"
#include "tests/unit/cpu/kernels/scored_tile.h"

namespace attention::cpu {
namespace {

class AttendTest : public KernelTest {
 protected:
  static constexpr int64_t kWidth = 64;

  // All weights that a tile has told, in rows of kScoreStride; 0 for the keys
  // that it has not spoken of.
  struct Told {
    explicit Told(ScoredTile& tile, bool after_dropout)
        : times(static_cast<size_t>(tile.args.rows)),
          weights(static_cast<size_t>(tile.args.rows * kScoreStride)) {
      tile.args.weights = {.keep =
                               [](void* context, const TileWeights& told) {
                                 static_cast<Told*>(context)->Keep(told);
                               },
                           .context = this,
                           .after_dropout = after_dropout};
    }
    Told(const Told&) = delete;

    void Keep(const TileWeights& told) {
      for (int64_t r = 0; r < told.rows; ++r) {
        const int64_t row = told.first_row + r;
        ++times[static_cast<size_t>(row)];
        const float* const from = told.weights + r * kScoreStride;
        std::copy(from + told.begin, from + told.end,
                  weights.begin() + row * kScoreStride + told.begin);
      }
    }

    std::vector<int> times;
    std::vector<float> weights;
  };

  ScoredTile Make(TestedOperands operands, int64_t rows, int64_t keys) {
    std::vector<float> scores;
    scores.reserve(static_cast<size_t>(keys));
    for (int64_t j = 0; j < keys; ++j) {
      scores.push_back(static_cast<float>(random_.Between(-12, 0)) / 4);
    }
    return ScoredTile(operands, rows, scores, kWidth, kernels_, random_);
  }

  static void SetRanges(Tile& tile) {
    const auto keys = static_cast<int32_t>(tile.args.keys);
    for (size_t r = 0; r < tile.begin.size(); ++r) {
      // Some micro-tiles attend nothing at all.
      const bool none = r % 4 == 1 || (r >= 12 && r < 24);
      tile.begin[r] = r % 4 == 2 ? keys / 3 : 0;
      tile.end[r] = none ? tile.begin[r] : keys;
    }
  }

  // e^(score - max) of the tile, before dropout; 0 outside the row's range.
  static double WeightOf(const ScoredTile& tile, int64_t row, int64_t key) {
    const auto r = static_cast<size_t>(row);
    if (key < tile.begin[r] || key >= tile.end[r]) return 0;
    const double score =
        static_cast<double>(tile.key_scores[static_cast<size_t>(key)]) *
        ScoredTile::row_factor(row);
    return std::exp2(score - tile.max[r]);
  }

  // Weights of exponents up to 16 are within 1.8 + 23 roundings, those that PV
  // multiplies in BF16 within one of BF16's, besides, or, in two terms, within
  // one of the second and the product of two second ones; a sum of n in lanes
  // has at most n more, of products in two terms three times as many.
  static double RelativeBound(const ScoredTile& tile) {
    return kEps * static_cast<double>(26 + tile.args.keys + 3);
  }

  static void Check(const ScoredTile& tile, bool drops) {
    const bool bf16 = tile.args.operands == Operands::kBf16 ||
                      tile.args.operands == Operands::kBf16InPlace;
    const double of_bf16 =
        !bf16 ? 0
        : tile.args.bf16.terms == 1
            ? 0x1p-8
            : 0x1p-15 + 2 * kEps * static_cast<double>(tile.args.keys);
    for (int64_t r = 0; r < tile.args.rows; ++r) {
      double sum = 0;
      for (int64_t j = 0; j < tile.args.keys; ++j) {
        sum += WeightOf(tile, r, j);
      }
      ASSERT_NEAR(tile.sum[static_cast<size_t>(r)], sum,
                  RelativeBound(tile) * sum)
          << "row " << r;
      for (int64_t c = 0; c < kWidth; ++c) {
        double expected = 0;
        double magnitude = 0;
        for (int64_t j = 0; j < tile.args.keys; ++j) {
          const double term = WeightOf(tile, r, j) *
                              (drops ? DropFactor(r, 1000 + j) : 1) *
                              tile.values[static_cast<size_t>(j * kWidth + c)];
          expected += term;
          magnitude += std::abs(term);
        }
        ASSERT_TRUE(IsNear(expected,
                           (RelativeBound(tile) + of_bf16) * magnitude,
                           tile.output[static_cast<size_t>(r * kWidth + c)]))
            << "row " << r << ", column " << c;
      }
    }
  }

  static void CheckTold(const ScoredTile& tile, const Told& told,
                        bool after_dropout) {
    EXPECT_EQ(told.times,
              std::vector<int>(static_cast<size_t>(tile.args.rows), 1));
    for (int64_t r = 0; r < tile.args.rows; ++r) {
      for (int64_t j = 0; j < tile.args.keys; ++j) {
        const double weight = WeightOf(tile, r, j) *
                              (after_dropout ? DropFactor(r, 1000 + j) : 1);
        ASSERT_TRUE(
            IsNear(weight, RelativeBound(tile) * weight,
                   told.weights[static_cast<size_t>(r * kScoreStride + j)]))
            << "row " << r << ", key " << j;
      }
    }
  }
};

TEST_P(AttendTest, AnyNumberOfRowsAndKeys) {
  for (const TestedOperands operands : kOperands) {
    for (const int64_t keys : Lengths()) {
      for (const int64_t rows : {1, 2, 5, 13, 33}) {
        SCOPED_TRACE(testing::Message()
                     << "operands " << static_cast<int>(operands.operands)
                     << " in " << operands.terms << " terms, " << rows
                     << " rows, " << keys << " keys");
        ScoredTile tile = Make(operands, rows, keys);
        SetRanges(tile);
        kernels_.attend_tile(tile.args);
        ASSERT_NO_FATAL_FAILURE(Check(tile, false));
      }
    }
  }
}

// The same keys twice: all sums are twice as large, relative to the maxima
// that rows have already.
TEST_P(AttendTest, ASecondTileIsAddedToTheFirst) {
  for (const TestedOperands operands : kOperands) {
    ScoredTile tile = Make(operands, 13, 45);
    kernels_.attend_tile(tile.args);
    const Floats max = tile.max;
    const Floats output = tile.output;
    const std::vector<double> sum = tile.sum;
    kernels_.attend_tile(tile.args);
    EXPECT_EQ(tile.max, max);
    for (size_t r = 0; r < 13; ++r) EXPECT_EQ(tile.sum[r], 2 * sum[r]);
    for (size_t i = 0; i < 13 * kWidth; ++i) {
      ASSERT_NEAR(tile.output[i], 2 * output[i], 1e-4);
    }
  }
}

// Dropout takes weights from the output, not from the sums.
TEST_P(AttendTest, DropoutComesAfterTheSums) {
  for (const TestedOperands operands : kOperands) {
    ScoredTile tile = Make(operands, 33, 77);
    SetRanges(tile);
    SetDropout(tile);
    kernels_.attend_tile(tile.args);
    Check(tile, true);
  }
}

// Of all rows once, those that attend nothing, too.
TEST_P(AttendTest, TellsItsWeights) {
  for (const TestedOperands operands : kOperands) {
    for (const int64_t keys : Lengths()) {
      ScoredTile tile = Make(operands, 33, keys);
      SetRanges(tile);
      const Told told(tile, false);
      kernels_.attend_tile(tile.args);
      ASSERT_NO_FATAL_FAILURE(Check(tile, false));
      CheckTold(tile, told, false);
    }
  }
}

TEST_P(AttendTest, TellsWeightsBeforeOrAfterDropout) {
  for (const TestedOperands operands : kOperands) {
    for (const bool after_dropout : {false, true}) {
      ScoredTile tile = Make(operands, 33, 77);
      SetRanges(tile);
      SetDropout(tile);
      const Told told(tile, after_dropout);
      kernels_.attend_tile(tile.args);
      ASSERT_NO_FATAL_FAILURE(Check(tile, true));
      CheckTold(tile, told, after_dropout);
    }
  }
}

INSTANTIATE_FOR_KERNELS(AttendTest);

}  // namespace
}  // namespace attention::cpu
