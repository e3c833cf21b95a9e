// Where queries and keys stand: offsets of batch entries, and ALiBi.

#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/parity/backend_test.h"
#include "tests/support/random.h"

namespace attention::test {
namespace {

using PositionsTest = BackendTest;

constexpr int64_t kFarthest = int64_t{1} << 62;

// Three entries of several tiles, each with a mask and ALiBi by position.
ProblemSpec SpecWithPositions(DataType type, int64_t queries) {
  return {.batch = 3,
          .query_heads = 4,
          .kv_heads = 2,
          .query_length = queries,
          .key_length = 140,
          .type = type,
          .causal = Causal::kTopLeft,
          .query_offset = 50,
          .window = {.left = 60, .right = {}},
          .alibi_slopes = PerHeadShape::kPerBatchAndHead};
}

TensorView AddOffsets(const std::vector<int64_t>& offsets,
                      OwnedProblem& owned) {
  return owned.Add(DataType::kInt64, {static_cast<int64_t>(offsets.size())},
                   Layout::kRowMajor, [&](absl::Span<const int64_t> index) {
                     return static_cast<double>(offsets[index[0]]);
                   });
}

TensorView AddSlopes(const std::vector<double>& slopes, OwnedProblem& owned) {
  return owned.Add(DataType::kFloat32, {static_cast<int64_t>(slopes.size())},
                   Layout::kRowMajor, [&](absl::Span<const int64_t> index) {
                     return slopes[index[0]];
                   });
}

TEST_P(PositionsTest, EqualOffsetsAreACommonOffset) {
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
    for (const int64_t queries : {1, 70}) {
      SCOPED_TRACE(absl::StrCat(Name(type), " ", queries));
      OwnedProblem owned =
          MakeProblem(SpecWithPositions(type, queries), TestSeed());
      ASSERT_OK_AND_ASSIGN(const Results common, Run(owned.problem));
      owned.problem.masks.query_offset.reset();
      owned.problem.masks.query_offsets = AddOffsets({50, 50, 50}, owned);
      ASSERT_OK_AND_ASSIGN(const Results each, Run(owned.problem));
      EXPECT_TRUE(SameBits(common, each));
    }
  }
}

// A batch of sequences of different lengths.
TEST_P(PositionsTest, EveryBatchEntryGivesWhatItGivesAlone) {
  constexpr int64_t kOffsets[] = {0, 37, 90};
  OwnedProblem owned =
      MakeProblem(SpecWithPositions(DataType::kFloat32, 40), TestSeed());
  AttentionProblem& problem = owned.problem;
  problem.masks.query_offset.reset();
  problem.masks.query_offsets = AddOffsets({0, 37, 90}, owned);
  ASSERT_OK_AND_ASSIGN(const Results all, Run(problem));
  AttentionProblem alone = problem;
  alone.masks.query_offsets.reset();
  const KeyValueBlock& keys = problem.key_value[0];
  for (int64_t b = 0; b < 3; ++b) {
    alone.query = Slice(problem.query, 0, b, b + 1);
    alone.key_value[0] = {.key = Slice(keys.key, 0, b, b + 1),
                          .value = Slice(keys.value, 0, b, b + 1)};
    alone.alibi_slopes = Slice(*problem.alibi_slopes, 0, b, b + 1);
    alone.masks.query_offset = kOffsets[b];
    ASSERT_OK_AND_ASSIGN(const Results one, Run(alone));
    const auto entry = [b](const Tensor& tensor) {
      return Materialize(Slice(tensor.view(), 0, b, b + 1)).ToDoubles();
    };
    EXPECT_EQ(one.output.ToDoubles(), entry(all.output)) << b;
    EXPECT_EQ(one.weights->ToDoubles(), entry(*all.weights)) << b;
    EXPECT_EQ(one.lse->ToDoubles(), entry(*all.lse)) << b;
  }
}

TEST_P(PositionsTest, AlibiIsTheBiasOfItsDistances) {
  const std::vector<double> slopes = {0.5, 0.25, 0, -0.0625};
  OwnedProblem owned = MakeProblem(
      {.query_heads = 4, .query_length = 70, .key_length = 140}, TestSeed());
  AttentionProblem& problem = owned.problem;
  problem.masks.query_offset = 50;
  problem.masks.key_offset = -9;
  problem.alibi_slopes = AddSlopes(slopes, owned);
  ASSERT_OK_AND_ASSIGN(const Results alibi, Run(problem));
  problem.alibi_slopes.reset();
  problem.masks.bias = owned.Add(
      DataType::kFloat32, {4, 70, 140}, Layout::kRowMajor,
      [&](absl::Span<const int64_t> index) {
        const int64_t distance = (index[1] + 50) - (index[2] - 9);
        return -slopes[index[0]] * std::abs(static_cast<double>(distance));
      });
  const Expected expected = ComputeExpected(problem);
  EXPECT_TRUE(Matches(problem, expected, alibi));
}

// In tiles of which every row reads every key, there are slopes, too.
TEST_P(PositionsTest, AlibiIsInFullTilesOfKeys) {
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
    for (const int64_t keys : {512, 1024}) {
      for (const Causal causal : {Causal::kNone, Causal::kBottomRight}) {
        for (const bool weights : {false, true}) {
          SCOPED_TRACE(absl::StrCat(Name(type), " ", keys, " keys"));
          Check(MakeProblem({.batch = 1,
                             .query_heads = 2,
                             .kv_heads = 1,
                             .query_length = 9,
                             .key_length = keys,
                             .width = 16,
                             .value_width = 16,
                             .type = type,
                             .causal = causal,
                             .alibi_slopes = PerHeadShape::kPerHead,
                             .wanted = {.weights = weights, .lse = true}},
                            TestSeed())
                    .problem);
        }
      }
    }
  }
}

// 64 bits of positions count, however few of them a float has.
TEST_P(PositionsTest, DistancesAreThoseOfPositionsFarAway) {
  for (const int64_t queries : {1, 70}) {
    OwnedProblem owned =
        MakeProblem(SpecWithPositions(DataType::kFloat32, queries), TestSeed());
    Masks& masks = owned.problem.masks;
    ASSERT_OK_AND_ASSIGN(const Results near, Run(owned.problem));
    for (const int64_t far : {int64_t{1} << 40, kFarthest - 50, -kFarthest}) {
      masks.query_offset = far + 50;
      masks.key_offset = far;
      ASSERT_OK_AND_ASSIGN(const Results results, Run(owned.problem));
      EXPECT_TRUE(SameBits(near, results)) << far;
    }
  }
}

// In a row that stands at a key's position, 0 is taken from that key's score
// and more than FP32's range from some others'.
TEST_P(PositionsTest, AHugeSlopeLeavesTheNearestKeyAlone) {
  for (const double slope : {1e30, 3e38}) {
    for (const int64_t queries : {1, 70}) {
      OwnedProblem owned = MakeProblem({.batch = 1,
                                        .query_length = queries,
                                        .key_length = 70,
                                        .value_width = 3},
                                       TestSeed());
      owned.problem.alibi_slopes = AddSlopes({slope}, owned);
      ASSERT_OK_AND_ASSIGN(const Results results, Run(owned.problem));
      const TensorView nearest =
          Slice(owned.problem.key_value[0].value, 2, 0, queries);
      EXPECT_EQ(results.output.ToDoubles(), Materialize(nearest).ToDoubles());
    }
  }
}

// Every key is as far away as every other, to FP32: what comes of it is some
// mean of the values, or nothing where all scores are beyond its range.
TEST_P(PositionsTest, TheFarthestPositionsGiveNoNan) {
  for (const double slope : {1e-30, 0.5, 1e30, 3e38}) {
    for (const int64_t offset : {kFarthest, -kFarthest}) {
      OwnedProblem owned =
          MakeProblem({.query_length = 33, .key_length = 70}, TestSeed());
      owned.problem.masks.query_offsets = AddOffsets({offset, offset}, owned);
      owned.problem.masks.key_offset = -offset;
      owned.problem.alibi_slopes = AddSlopes({slope}, owned);
      ASSERT_OK_AND_ASSIGN(const Results results, Run(owned.problem));
      for (const double element : results.output.ToDoubles()) {
        EXPECT_FALSE(std::isnan(element)) << slope << " at " << offset;
      }
    }
  }
}

INSTANTIATE_FOR_BACKENDS(PositionsTest);

}  // namespace
}  // namespace attention::test
