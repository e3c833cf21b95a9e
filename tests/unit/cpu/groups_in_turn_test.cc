// Where a token's heads lie side by side, and in small pages, kv groups take
// turns at each tile of keys: the bits of one after the other, however many do.

#include <cstdint>
#include <limits>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "core/cpu/plan.h"
#include "core/cpu/targets.h"
#include "core/validate.h"
#include "gtest/gtest.h"
#include "tests/unit/cpu/cpu_test.h"

namespace attention::test {
namespace {

// Of several tiles in every type, and of two splits.
ProblemSpec DecodeInTurn() {
  return {.batch = 1,
          .query_heads = 6,
          .kv_heads = 3,
          .query_length = 2,
          .key_length = 3100,
          .width = 16,
          .value_width = 18,
          .wanted = kNoWeights};
}

class GroupsInTurnTest : public CpuThreadsTest {
 protected:
  // Holds what several threads make of such keys, in one piece and in pages, to
  // what one makes of heads that lie one after the other.
  template <typename Change = void (*)(const AttentionProblem&)>
  static void ExpectBitsOfHeadsApart(
      ProblemSpec spec, const Change& change = [](const AttentionProblem&) {}) {
    OwnedProblem apart = MakeProblem(spec, TestSeed());
    change(apart.problem);
    ASSERT_OK_AND_ASSIGN(const Results expected,
                         TargetRunner(GetParam(), 1).Run(apart.problem));
    spec.layout = Layout::kLengthFirst;
    OwnedProblem beside = MakeProblem(spec, TestSeed());
    change(beside.problem);
    ExpectOfAnyThreads(beside.problem, expected);
    for (OwnedProblem* const paged : {&apart, &beside}) {
      SplitIntoBlocks(paged->problem, 100);
      ExpectOfAnyThreads(paged->problem, expected);
    }
  }

 private:
  static void ExpectOfAnyThreads(const AttentionProblem& problem,
                                 const Results& expected) {
    for (const int threads : {1, 2, 7}) {
      ASSERT_OK_AND_ASSIGN(const Results results,
                           TargetRunner(GetParam(), threads).Run(problem));
      EXPECT_TRUE(SameBits(expected, results)) << threads << " threads";
    }
  }
};

TEST_P(GroupsInTurnTest, OfEveryType) {
  for (const auto& [type, key_type] :
       {std::tuple(DataType::kFloat32, DataType::kFloat32),
        std::tuple(DataType::kFloat16, DataType::kFloat16),
        std::tuple(DataType::kBFloat16, DataType::kBFloat16),
        std::tuple(DataType::kBFloat16, DataType::kInt8),
        std::tuple(DataType::kBFloat16, DataType::kFloat8)}) {
    ProblemSpec spec = DecodeInTurn();
    spec.type = type;
    spec.key_type = key_type;
    ExpectBitsOfHeadsApart(spec);
  }
}

TEST_P(GroupsInTurnTest, OfEntriesOfUnequalLengths) {
  ProblemSpec spec = DecodeInTurn();
  spec.batch = 6;
  spec.valid_lens = LengthsShape::kPerRow;
  spec.sinks = PerHeadShape::kPerBatchAndHead;
  ExpectBitsOfHeadsApart(spec);
}

TEST_P(GroupsInTurnTest, OfWindowsAndBiases) {
  ProblemSpec spec = DecodeInTurn();
  spec.causal = Causal::kBottomRight;
  spec.window.left = 2500;
  spec.bias = MaskExtents::kAll;
  spec.alibi_slopes = PerHeadShape::kPerHead;
  ExpectBitsOfHeadsApart(spec);
}

// They are computed again, block by block, in another pass.
TEST_P(GroupsInTurnTest, OfRowsWithoutKeys) {
  ProblemSpec spec = DecodeInTurn();
  spec.query_offset = -1;
  spec.causal = Causal::kTopLeft;
  spec.empty_rows = EmptyRows::kUniform;
  ExpectBitsOfHeadsApart(spec);
}

TEST_P(GroupsInTurnTest, OfValuesThatAreNotFinite) {
  ExpectBitsOfHeadsApart(DecodeInTurn(), [](const AttentionProblem& problem) {
    const TensorView of_head = Slice(problem.key_value[0].value, 1, 1, 2);
    Fill(Slice(of_head, 2, 0, 1), std::numeric_limits<double>::infinity());
  });
}

// More groups than take turns at once.
TEST_P(GroupsInTurnTest, OfManyHeads) {
  ProblemSpec spec = DecodeInTurn();
  spec.query_heads = spec.kv_heads = 70;
  spec.key_length = 150;
  spec.width = spec.value_width = 64;
  ExpectBitsOfHeadsApart(spec);
}

// Every block counts its own tiles.
TEST_P(GroupsInTurnTest, ATileOfEachGroupIsATile) {
  const auto count = [](Layout layout) {
    ProblemSpec spec = DecodeInTurn();
    spec.layout = layout;
    int64_t tiles = 0;
    TargetRunner runner(GetParam(), 1);
    runner.BeforeTile([&tiles] { ++tiles; });
    const auto results = runner.Run(MakeProblem(spec, TestSeed()).problem);
    EXPECT_TRUE(results.ok()) << results.status();
    return tiles;
  };
  EXPECT_EQ(count(Layout::kLengthFirst), count(Layout::kRowMajor));
}

INSTANTIATE_FOR_TARGETS(GroupsInTurnTest);

int64_t GroupsInTurn(const ProblemSpec& spec) {
  const OwnedProblem owned = MakeProblem(spec, TestSeed());
  return cpu::MakePlan(*Validate(owned.problem), cpu::Targets()[0])
      .groups_in_turn;
}

TEST(GroupsInTurnPlanTest, AreAllWhereATokensHeadsLieSideBySide) {
  ProblemSpec spec = DecodeInTurn();
  EXPECT_EQ(GroupsInTurn(spec), 1);
  spec.layout = Layout::kLengthFirst;
  EXPECT_EQ(GroupsInTurn(spec), 3);
}

TEST(GroupsInTurnPlanTest, AreAllInSmallPages) {
  ProblemSpec spec = DecodeInTurn();
  spec.keys_per_block = 16;
  EXPECT_EQ(GroupsInTurn(spec), 3);
  spec.keys_per_block = 1550;  // 97 KiB
  EXPECT_EQ(GroupsInTurn(spec), 1);
}

TEST(GroupsInTurnPlanTest, NeedKeysOfMoreThanOneTile) {
  ProblemSpec spec = DecodeInTurn();
  spec.layout = Layout::kLengthFirst;
  spec.key_length = 5;
  EXPECT_EQ(GroupsInTurn(spec), 1);
}

}  // namespace
}  // namespace attention::test
