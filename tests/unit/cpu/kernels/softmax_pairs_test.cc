// The weights of a tile's rows in pairs of BF16 (softmax-inl.h).

#include <cstdint>
#include <vector>

#include "core/cpu/kernels/bf16/products.h"
#include "gtest/gtest.h"
#include "tests/unit/cpu/kernels/softmax_fixture.h"

namespace attention::cpu {
namespace {

class SoftmaxPairsTest : public SoftmaxFixture {
 protected:
  // A number of 16 bits that no weight is.
  static constexpr uint32_t kNoWeight = 0xFFFE;

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
          terms == 2 ? (BitsFrom(rest) + 0x8000) >> 16 : kNoWeight;
      ASSERT_EQ(second, expected) << "row " << row << ", key " << j;
    }
  }

  Floats pairs_ =
      Floats(2 * kBf16WeightTerm, FloatFromBits(kNoWeight << 16 | kNoWeight));
};

// Weights in pairs of BF16, key i beside key 16 + i of 32: the same numbers,
// rounded with ties away from zero. The floats beside them are there where they
// are asked for, and change nothing.
TEST_P(SoftmaxPairsTest, AreTheSameWeightsRounded) {
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
        before.reserve(kRows);
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
TEST_P(SoftmaxPairsTest, OfTwoTermsHoldWhatTheFirstHasLost) {
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
TEST_P(SoftmaxPairsTest, RoundTiesUp) {
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

INSTANTIATE_FOR_KERNELS(SoftmaxPairsTest);

}  // namespace
}  // namespace attention::cpu
