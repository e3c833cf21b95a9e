// The second sweep: weights of rows whose softmax is known, and scores, on
// their way to where they are wanted (tile-inl.h).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/cpu/kernels/kernel_test.h"
#include "tests/unit/cpu/kernels/scored_tile.h"

namespace attention::cpu {
namespace {

class WeightsTest : public KernelTest {
 protected:
  static constexpr int64_t kWidth = 32;  // of values, which nobody reads

  // What take() was told.
  struct Told {
    int64_t row;
    int64_t begin;
    int64_t end;
    std::vector<float> scores;
    std::vector<float> weights;
  };

  // Where weights of a tile go, and what they are made with: a softmax that is
  // known.
  struct Wanted {
    explicit Wanted(Tile& tile)
        : stores(static_cast<size_t>(tile.args.rows), 1),
          inverse_sum(static_cast<size_t>(tile.args.rows), 0.4F),
          stored(static_cast<size_t>(tile.args.rows * kScoreStride),
                 kUntouched) {
      std::fill(tile.max.begin(), tile.max.end(), 3.0F);
      for (int64_t r = 0; r < tile.args.rows; ++r) {
        to.push_back(stored.data() + r * kScoreStride);
      }
      args.rows = stores.data();
      args.inverse_sum = inverse_sum.data();
      args.weights = to.data();
      args.context = this;
      args.take = [](void* context, const RowWeights& row) {
        static_cast<Wanted*>(context)->told.push_back(
            {row.row,
             row.begin,
             row.end,
             {row.scores + row.begin, row.scores + row.end},
             {row.weights + row.begin, row.weights + row.end}});
      };
    }

    float at(int64_t row, int64_t key) const {
      return stored[static_cast<size_t>(row * kScoreStride + key)];
    }

    std::vector<uint8_t> stores;
    std::vector<float> inverse_sum;
    std::vector<float> stored;
    std::vector<float*> to;
    std::vector<Told> told;
    WeightArgs args = {};
  };

  // Whole numbers, which are exact in all operands.
  std::vector<float> Scores(int64_t keys) {
    std::vector<float> scores;
    scores.reserve(static_cast<size_t>(keys));
    for (int64_t j = 0; j < keys; ++j) {
      scores.push_back(static_cast<float>(random_.Between(-20, 5)));
    }
    return scores;
  }

  ScoredTile Make(TestedOperands operands, int64_t rows,
                  const std::vector<float>& scores) {
    return ScoredTile(operands, rows, scores, kWidth, kernels_, random_);
  }

  // Ranges of all kinds: all keys, none, some in the middle, the last one.
  static void SetRanges(Tile& tile) {
    const auto keys = static_cast<int32_t>(tile.args.keys);
    for (size_t r = 0; r < tile.begin.size(); ++r) {
      const int32_t begins[] = {0, keys / 2, keys / 3, keys - 1};
      const int32_t ends[] = {keys, keys / 2, keys - keys / 3, keys};
      tile.begin[r] = begins[r % 4];
      tile.end[r] = ends[r % 4];
    }
  }

  static bool Attends(const Tile& tile, int64_t row, int64_t key) {
    const auto r = static_cast<size_t>(row);
    return key >= tile.begin[r] && key < tile.end[r];
  }

  // exp2(exponent (score - max)) / sum: a difference, a product, the power
  // within 1.8 roundings, a product.
  static ::testing::AssertionResult IsWeight(const ScoredTile& tile,
                                             const Wanted& wanted, int64_t row,
                                             int64_t key, float found,
                                             double dropout = 1) {
    const auto r = static_cast<size_t>(row);
    const double score =
        static_cast<double>(tile.key_scores[static_cast<size_t>(key)]) *
        ScoredTile::row_factor(row);
    const double argument = tile.args.states.exponent * (score - tile.max[r]);
    const double weight = std::exp2(argument) * wanted.inverse_sum[r] * dropout;
    const double roundings = 3.8 + 2 * std::log(2.0) * std::abs(argument);
    return IsNear(weight, kEps * roundings * weight, found);
  }
};

TEST_P(WeightsTest, AreStoredForTheKeysOfRowsRanges) {
  for (const TestedOperands operands : kOperands) {
    for (const float exponent : {1.0F, 1.44269504F}) {
      for (const int64_t keys : Lengths()) {
        for (const int64_t rows : {1, 2, 5, 13, 33}) {
          SCOPED_TRACE(testing::Message()
                       << "operands " << static_cast<int>(operands.operands)
                       << " in " << operands.terms << " terms, " << rows
                       << " rows, " << keys << " keys");
          ScoredTile tile = Make(operands, rows, Scores(keys));
          tile.args.states.exponent = exponent;
          SetRanges(tile);
          Wanted wanted(tile);
          kernels_.store_weights(tile.args, wanted.args);
          for (int64_t r = 0; r < rows; ++r) {
            for (int64_t j = 0; j < kScoreStride; ++j) {
              if (Attends(tile, r, j)) {
                ASSERT_TRUE(IsWeight(tile, wanted, r, j, wanted.at(r, j)))
                    << "row " << r << ", key " << j;
              } else {
                ASSERT_EQ(wanted.at(r, j), kUntouched)
                    << "row " << r << ", key " << j;
              }
            }
          }
        }
      }
    }
  }
}

// Those that are stored, and those that are not, but for rows without keys.
TEST_P(WeightsTest, AreToldOfEveryRowThatIsAskedFor) {
  for (const TestedOperands operands : kOperands) {
    ScoredTile tile = Make(operands, 13, Scores(45));
    SetRanges(tile);
    Wanted wanted(tile);
    wanted.stores[4] = 0;
    wanted.to[7] = nullptr;
    kernels_.store_weights(tile.args, wanted.args);
    std::vector<int64_t> rows;
    for (const Told& told : wanted.told) {
      const auto r = static_cast<size_t>(told.row);
      rows.push_back(told.row);
      EXPECT_EQ(told.begin, tile.begin[r]);
      EXPECT_EQ(told.end, tile.end[r]);
      for (int64_t j = told.begin; j < told.end; ++j) {
        const auto at = static_cast<size_t>(j - told.begin);
        EXPECT_EQ(told.scores[at], tile.key_scores[static_cast<size_t>(j)] *
                                       ScoredTile::row_factor(told.row));
        EXPECT_TRUE(IsWeight(tile, wanted, told.row, j, told.weights[at]));
      }
    }
    EXPECT_EQ(rows, (std::vector<int64_t>{0, 2, 3, 6, 7, 8, 10, 11, 12}));
    EXPECT_EQ(wanted.at(4, 0), kUntouched);
    EXPECT_EQ(wanted.at(7, 44), kUntouched);
  }
}

TEST_P(WeightsTest, MayBeToldToNobody) {
  ScoredTile tile = Make({Operands::kPacked}, 5, Scores(40));
  Wanted wanted(tile);
  wanted.args.take = nullptr;
  kernels_.store_weights(tile.args, wanted.args);
  EXPECT_TRUE(IsWeight(tile, wanted, 4, 39, wanted.at(4, 39)));
}

// Told are always those before it.
TEST_P(WeightsTest, AreStoredAfterDropoutOnlyWhereThatIsWanted) {
  for (const TestedOperands operands : kOperands) {
    for (const bool after_dropout : {false, true}) {
      ScoredTile tile = Make(operands, 13, Scores(45));
      SetRanges(tile);
      SetDropout(tile);
      Wanted wanted(tile);
      wanted.args.after_dropout = after_dropout;
      kernels_.store_weights(tile.args, wanted.args);
      for (int64_t r = 0; r < 13; ++r) {
        for (int64_t j = tile.begin[static_cast<size_t>(r)];
             j < tile.end[static_cast<size_t>(r)]; ++j) {
          const float factor = after_dropout ? DropFactor(r, 1000 + j) : 1.0F;
          ASSERT_TRUE(IsWeight(tile, wanted, r, j, wanted.at(r, j), factor))
              << "row " << r << ", key " << j;
        }
      }
      for (const Told& told : wanted.told) {
        ASSERT_TRUE(
            IsWeight(tile, wanted, told.row, told.begin, told.weights.front()));
      }
    }
  }
}

TEST_P(WeightsTest, AfterDropoutAreThoseBeforeItWhereNothingIsDropped) {
  ScoredTile tile = Make({Operands::kPacked}, 5, Scores(40));
  Wanted wanted(tile);
  wanted.args.after_dropout = true;
  kernels_.store_weights(tile.args, wanted.args);
  EXPECT_TRUE(IsWeight(tile, wanted, 4, 39, wanted.at(4, 39)));
}

// Of masked keys, and of those that score -inf by themselves: in rows that are
// NaN, and in those that have no other keys, too.
TEST_P(WeightsTest, OfKeysThatTakeNoPartAreExactlyZero) {
  constexpr int64_t kKeys = 45;
  std::vector<unsigned char> mask(kKeys, 1);
  mask[7] = mask[44] = 0;
  for (const TestedOperands operands :
       {TestedOperands{Operands::kPacked}, {Operands::kInPlace}}) {
    std::vector<float> scores = Scores(kKeys);
    scores[20] = -kInfinity;
    ScoredTile tile = Make(operands, 6, scores);
    const std::vector<const unsigned char*> masks(6, mask.data());
    tile.args.epilogue.mask_rows = masks.data();
    tile.args.epilogue.mask_stride = 1;
    Wanted wanted(tile);
    // As rows are that are NaN, from a score or from a sum, and empty ones.
    tile.max[1] = -kInfinity;
    wanted.inverse_sum[1] = FloatFromBits(0xFFC00001);
    wanted.inverse_sum[2] = FloatFromBits(0x7F800001);
    tile.max[3] = kInfinity;
    wanted.inverse_sum[4] = kInfinity;
    kernels_.store_weights(tile.args, wanted.args);
    for (int64_t r = 0; r < 6; ++r) {
      for (int64_t j = 0; j < kKeys; ++j) {
        if (j == 7 || j == 20 || j == 44) {
          ASSERT_EQ(BitsFrom(wanted.at(r, j)), 0U) << "row " << r;
        } else if (r == 1 || r == 2) {
          ASSERT_TRUE(std::isnan(wanted.at(r, j))) << "row " << r;
        } else if (r == 0 || r == 5) {
          ASSERT_TRUE(IsWeight(tile, wanted, r, j, wanted.at(r, j)));
        }
      }
    }
  }
}

TEST_P(WeightsTest, OfKeysThatScoreNanAreNan) {
  for (const TestedOperands operands :
       {TestedOperands{Operands::kPacked}, {Operands::kInPlace}}) {
    for (const uint32_t bits : kNanBits) {
      for (const int64_t at : {int64_t{0}, lanes_, int64_t{44}}) {
        std::vector<float> scores = Scores(45);
        scores[static_cast<size_t>(at)] = FloatFromBits(bits);
        ScoredTile tile = Make(operands, 3, scores);
        Wanted wanted(tile);
        kernels_.store_weights(tile.args, wanted.args);
        for (int64_t r = 0; r < 3; ++r) {
          for (int64_t j = 0; j < 45; ++j) {
            ASSERT_EQ(std::isnan(wanted.at(r, j)), j == at)
                << std::hex << bits << ", key " << std::dec << j;
          }
        }
      }
    }
  }
}

class ScoresTest : public WeightsTest {};

TEST_P(ScoresTest, AreStoredForTheKeysOfRowsRanges) {
  for (const TestedOperands operands : kOperands) {
    for (const int64_t keys : Lengths()) {
      for (const int64_t rows : {1, 5, 13, 33}) {
        SCOPED_TRACE(testing::Message()
                     << "operands " << static_cast<int>(operands.operands)
                     << " in " << operands.terms << " terms, " << rows
                     << " rows, " << keys << " keys");
        ScoredTile tile = Make(operands, rows, Scores(keys));
        SetRanges(tile);
        Wanted wanted(tile);
        kernels_.store_scores(tile.args, {.scores = wanted.to.data()});
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t j = 0; j < kScoreStride; ++j) {
            const float expected =
                Attends(tile, r, j) ? tile.key_scores[static_cast<size_t>(j)] *
                                          ScoredTile::row_factor(r)
                                    : kUntouched;
            ASSERT_EQ(wanted.at(r, j), expected)
                << "row " << r << ", key " << j;
          }
        }
      }
    }
  }
}

// Normal numbers, infinities and NaN as they are, and -inf of masked keys.
TEST_P(ScoresTest, OfSpecialNumbersAreTheseNumbers) {
  const std::vector<float> specials = SpecialFloats();
  const auto keys = static_cast<int64_t>(specials.size());
  std::vector<unsigned char> mask(specials.size(), 1);
  for (const bool masked : {false, true}) {
    std::fill(mask.begin(), mask.end(), masked ? 0 : 1);
    ScoredTile tile = Make({Operands::kPacked}, 1, specials);
    const unsigned char* const row = mask.data();
    tile.args.epilogue.mask_rows = &row;
    tile.args.epilogue.mask_stride = 1;
    Wanted wanted(tile);
    kernels_.store_scores(tile.args, {.scores = wanted.to.data()});
    for (int64_t j = 0; j < keys; ++j) {
      const float special = specials[static_cast<size_t>(j)];
      ASSERT_TRUE(IsNear(masked ? -HUGE_VAL : special, 0, wanted.at(0, j)))
          << special;
    }
  }
}

INSTANTIATE_FOR_KERNELS(WeightsTest);
INSTANTIATE_FOR_KERNELS(ScoresTest);

}  // namespace
}  // namespace attention::cpu
