// Rows without keys, and tensors without elements.

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/parity/backend_test.h"
#include "tests/support/random.h"

namespace attention::test {
namespace {

using ::testing::Each;

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

class EmptyTest : public BackendTest {
 protected:
  // Compares with the oracle in every rank and for both kinds of empty rows.
  void CheckAllRanks(ProblemSpec spec) const {
    for (spec.rank = 2; spec.rank <= 4; ++spec.rank) {
      for (const EmptyRows empty : {EmptyRows::kZero, EmptyRows::kUniform}) {
        SCOPED_TRACE(spec.rank);
        spec.empty_rows = empty;
        Check(MakeProblem(spec, TestSeed()).problem);
      }
    }
  }

  static OwnedProblem WithoutAnyKey(EmptyRows empty_rows) {
    OwnedProblem owned =
        MakeProblem({.key_length = 8, .empty_rows = empty_rows}, TestSeed());
    owned.problem.masks.valid_lens =
        owned.Add(DataType::kInt32, {2}, Layout::kRowMajor,
                  [](absl::Span<const int64_t>) { return 0; });
    return owned;
  }
};

TEST_P(EmptyTest, ARowWithoutKeysIsZero) {
  const OwnedProblem owned = WithoutAnyKey(EmptyRows::kZero);
  ASSERT_OK_AND_ASSIGN(const Results results, Run(owned.problem));
  EXPECT_THAT(results.output.ToDoubles(), Each(0));
  EXPECT_THAT(results.weights->ToDoubles(), Each(0));
  EXPECT_THAT(results.lse->ToDoubles(), Each(kMinusInfinity));
}

TEST_P(EmptyTest, ARowWithoutKeysIsTheMeanWhenUniform) {
  const OwnedProblem owned = WithoutAnyKey(EmptyRows::kUniform);
  ASSERT_OK_AND_ASSIGN(const Results results, Run(owned.problem));
  EXPECT_TRUE(Matches(owned.problem, results));
  EXPECT_THAT(results.weights->ToDoubles(), Each(0.125));
  EXPECT_THAT(results.lse->ToDoubles(), Each(kMinusInfinity));
}

// Every mask can leave a row without keys.
TEST_P(EmptyTest, RowsWithoutKeysBesideRowsWithSome) {
  for (const EmptyRows empty : {EmptyRows::kZero, EmptyRows::kUniform}) {
    for (const Causal causal : {Causal::kTopLeft, Causal::kBottomRight}) {
      ProblemSpec spec = {.query_length = 40,
                          .key_length = 9,
                          .attend_mask = MaskExtents::kAll,
                          .causal = causal,
                          .window = {.left = 5, .right = 2},
                          .empty_rows = empty};
      Check(MakeProblem(spec, TestSeed()).problem);
      spec.attend_mask = MaskExtents::kNone;
      spec.bias = MaskExtents::kAll;
      spec.bias_masks = 0.9;
      Check(MakeProblem(spec, TestSeed()).problem);
    }
  }
}

TEST_P(EmptyTest, OffsetsAtTheirLimitsDoNotOverflow) {
  constexpr int64_t kMost = int64_t{1} << 62;
  for (const int64_t query_offset : {-kMost, int64_t{0}, kMost}) {
    for (const int64_t key_offset : {-kMost, int64_t{0}, kMost}) {
      for (const int64_t reach :
           {int64_t{0}, std::numeric_limits<int64_t>::max()}) {
        Check(MakeProblem({.causal = Causal::kTopLeft,
                           .query_offset = query_offset,
                           .key_offset = key_offset,
                           .window = {.left = reach, .right = reach}},
                          TestSeed())
                  .problem);
      }
    }
  }
}

TEST_P(EmptyTest, NoKeys) {
  CheckAllRanks({.key_length = 0});
  CheckAllRanks({.key_length = 0,
                 .valid_lens = LengthsShape::kPerRow,
                 .attend_mask = MaskExtents::kAll,
                 .causal = Causal::kBottomRight});
}

TEST_P(EmptyTest, NoBlocksOfKeys) {
  OwnedProblem owned = MakeProblem({}, TestSeed());
  owned.problem.key_value.clear();
  Check(owned.problem);
}

TEST_P(EmptyTest, NoQueries) {
  CheckAllRanks({.query_length = 0, .valid_lens = LengthsShape::kPerRow});
}

// No byte of it bounds the number of heads.
TEST_P(EmptyTest, NoQueriesOfManyHeadsTakeNoTime) {
  constexpr int64_t kEntries = 4096;
  const std::vector<float> ones(kEntries, 1);
  const TensorView keys =
      ContiguousView(DataType::kFloat32, {kEntries, 1, 1, 1}, ones.data());
  AttentionProblem problem;
  problem.query = ContiguousView(DataType::kFloat32,
                                 {kEntries, int64_t{1} << 24, 0, 1}, nullptr);
  problem.key_value.push_back({keys, keys});
  ASSERT_OK_AND_ASSIGN(const Results results, Run(problem));
  EXPECT_EQ(results.output.element_count(), 0);
}

// Nor that of the rows of a batch without entries.
TEST_P(EmptyTest, NoEntriesOfManyRowsTakeNoTime) {
  constexpr int64_t kMany = int64_t{1} << 24;
  const TensorView keys =
      ContiguousView(DataType::kFloat32, {0, 1, 1, 1}, nullptr);
  AttentionProblem problem;
  problem.query =
      ContiguousView(DataType::kFloat32, {0, kMany, kMany, 1}, nullptr);
  problem.key_value.push_back({keys, keys});
  ASSERT_OK_AND_ASSIGN(const Results results, Run(problem));
  EXPECT_EQ(results.output.element_count(), 0);
}

// Nor that of the entries which share sinks.
TEST_P(EmptyTest, NoQueriesThatShareSinksTakeNoTime) {
  const std::vector<float> ones(size_t{1} << 20, 1);
  const auto heads = static_cast<int64_t>(ones.size());
  const TensorView none = ContiguousView(
      DataType::kFloat32, {int64_t{1} << 24, heads, 0, 1}, nullptr);
  AttentionProblem problem;
  problem.query = none;
  problem.key_value.push_back({none, none});
  problem.sinks = ContiguousView(DataType::kFloat32, {heads}, ones.data());
  ASSERT_OK_AND_ASSIGN(const Results results, Run(problem));
  EXPECT_EQ(results.output.element_count(), 0);
}

TEST_P(EmptyTest, NoBatchEntries) {
  for (const int rank : {3, 4}) {
    Check(MakeProblem(
              {.rank = rank, .batch = 0, .valid_lens = LengthsShape::kPerBatch},
              TestSeed())
              .problem);
  }
}

TEST_P(EmptyTest, NoValueWidth) { CheckAllRanks({.value_width = 0}); }

TEST_P(EmptyTest, NothingAtAll) {
  CheckAllRanks({.query_length = 0, .key_length = 0, .value_width = 0});
}

INSTANTIATE_FOR_BACKENDS(EmptyTest);

}  // namespace
}  // namespace attention::test
