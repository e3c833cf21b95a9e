// Products of BF16 against the oracle: those that this processor has, and
// emulations of all on vectors of every width.

#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/cpu/cpu_test.h"

namespace attention::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Computes every problem on all of Bf16TestTargets(); the oracle, which takes
/// longer, is asked once.
class Bf16Test : public ::testing::Test {
 protected:
  static ProblemSpec Prefill() {
    return {.batch = 1,
            .query_heads = 4,
            .kv_heads = 2,
            .query_length = 103,
            .key_length = 270,
            .width = 36,
            .value_width = 40,
            .type = DataType::kBFloat16};
  }

  void Check(const ProblemSpec& spec) {
    Check(MakeProblem(spec, TestSeed()).problem);
  }
  void Check(const AttentionProblem& problem) {
    const Expected expected = ComputeExpected(problem);
    for (const std::string& target : Bf16TestTargets()) {
      SCOPED_TRACE(target);
      TargetRunner runner(target);
      ASSERT_OK_AND_ASSIGN(const Results results, runner.Run(problem));
      EXPECT_TRUE(Matches(problem, expected, results));
      EXPECT_THAT(runner.kernel(), ::testing::StartsWith("bf16"));
    }
  }
  /// With and without returned weights: they are not computed alike.
  void CheckBoth(ProblemSpec spec) {
    for (const bool weights : {false, true}) {
      spec.wanted.weights = weights;
      Check(spec);
    }
  }
};

TEST_F(Bf16Test, AwkwardQueriesAndKeys) {
  for (const int64_t queries : {5, 15, 16, 17, 31, 33, 65, 127, 129}) {
    for (const int64_t keys : {1, 15, 16, 17, 31, 33, 65, 127, 129, 300}) {
      SCOPED_TRACE(testing::Message() << queries << " x " << keys);
      ProblemSpec spec = Prefill();
      spec.query_heads = 2;
      spec.kv_heads = 1;
      spec.query_length = queries;
      spec.key_length = keys;
      CheckBoth(spec);
    }
  }
}

TEST_F(Bf16Test, AwkwardWidths) {
  for (const int64_t width : {1, 2, 15, 16, 17, 31, 33, 65, 127, 129}) {
    for (const int64_t value_width : {1, 15, 16, 17, 31, 33, 65, 127, 129}) {
      SCOPED_TRACE(testing::Message() << width << ", " << value_width);
      ProblemSpec spec = Prefill();
      spec.query_length = 37;
      spec.key_length = 70;
      spec.width = width;
      spec.value_width = value_width;
      Check(spec);
    }
  }
}

// Tiles of fewer keys, blocks of fewer rows.
TEST_F(Bf16Test, WideHeads) {
  ProblemSpec spec = Prefill();
  spec.query_length = 40;
  spec.key_length = 150;
  spec.width = 1000;
  spec.value_width = 700;
  CheckBoth(spec);
}

TEST_F(Bf16Test, OneQueryWithWeights) {
  ProblemSpec spec = Prefill();
  spec.query_length = 1;
  Check(spec);
}

TEST_F(Bf16Test, NoValues) {
  ProblemSpec spec = Prefill();
  spec.value_width = 0;
  CheckBoth(spec);
}

// More rows than a block has, more keys than are kept until they are
// normalised.
TEST_F(Bf16Test, ManyRowsAndKeys) {
  ProblemSpec spec = Prefill();
  spec.query_length = 600;
  CheckBoth(spec);
  spec.query_length = 20;
  spec.key_length = 7000;
  CheckBoth(spec);
  spec.dropout = {.training = true, .p = 0.3, .seed = 7};
  spec.wanted.weights_after_dropout = true;
  Check(spec);
}

TEST_F(Bf16Test, EveryMask) {
  ProblemSpec spec = Prefill();
  spec.valid_lens = LengthsShape::kPerRow;
  CheckBoth(spec);
  spec.valid_lens = LengthsShape::kPerBatch;
  spec.causal = Causal::kBottomRight;
  CheckBoth(spec);
  spec.causal = Causal::kTopLeft;
  spec.query_offset = 30;
  CheckBoth(spec);
  spec.window = {.left = 50, .right = 3};
  CheckBoth(spec);
  for (const MaskExtents extents : {MaskExtents::kAll, MaskExtents::kSomeOnes,
                                    MaskExtents::kFewerDimensions}) {
    spec.attend_mask = extents;
    CheckBoth(spec);
    spec.bias = extents;
    spec.bias_masks = 0.2;
    CheckBoth(spec);
  }
}

// In tiles whose keys all rows attend, nothing else calls for an epilogue.
TEST_F(Bf16Test, EveryOptionWithFullTiles) {
  for (const bool causal : {false, true}) {
    ProblemSpec spec = Prefill();
    spec.query_heads = spec.kv_heads = 1;
    spec.query_length = 6;
    spec.key_length = 1024;
    if (causal) spec.causal = Causal::kBottomRight;
    for (void (*option)(ProblemSpec&) :
         {+[](ProblemSpec& s) { s.alibi_slopes = PerHeadShape::kPerHead; },
          +[](ProblemSpec& s) { s.softcap = 3; },
          +[](ProblemSpec& s) { s.sinks = PerHeadShape::kPerHead; },
          +[](ProblemSpec& s) { s.bias = MaskExtents::kAll; },
          +[](ProblemSpec& s) { s.attend_mask = MaskExtents::kAll; },
          +[](ProblemSpec& s) {
            s.dropout = {.training = true, .p = 0.3, .seed = 7};
          }}) {
      ProblemSpec with_option = spec;
      option(with_option);
      CheckBoth(with_option);
    }
  }
}

TEST_F(Bf16Test, RowsInWhichNoKeyTakesPart) {
  for (const EmptyRows empty : {EmptyRows::kZero, EmptyRows::kUniform}) {
    ProblemSpec spec = Prefill();
    spec.empty_rows = empty;
    spec.causal = Causal::kTopLeft;
    spec.key_offset = 40;
    CheckBoth(spec);
  }
}

TEST_F(Bf16Test, SoftcapAndScales) {
  for (const double scale : {-1.0, 0.0, 1e-6, 1.0, 10.0}) {
    ProblemSpec spec = Prefill();
    spec.query_length = 33;
    spec.scale = scale;
    CheckBoth(spec);
    spec.softcap = 3;
    CheckBoth(spec);
    spec.bias = MaskExtents::kAll;
    spec.bias_in_query_type = true;
    CheckBoth(spec);
  }
}

TEST_F(Bf16Test, Dropout) {
  ProblemSpec spec = Prefill();
  spec.dropout = {.training = true, .p = 0.3, .seed = 7};
  CheckBoth(spec);
  spec.wanted.weights_after_dropout = true;
  CheckBoth(spec);
}

TEST_F(Bf16Test, LayoutsBlocksAndGroupedHeads) {
  for (const Layout layout : {Layout::kRowMajor, Layout::kLengthFirst,
                              Layout::kMisaligned, Layout::kReversed}) {
    ProblemSpec spec = Prefill();
    spec.layout = layout;
    CheckBoth(spec);
    spec.kv_heads = 1;
    spec.keys_per_block = 100;
    CheckBoth(spec);
  }
}

TEST_F(Bf16Test, ScoresThatRiseFromTileToTile) {
  ProblemSpec spec = Prefill();
  spec.scale = 1;
  const OwnedProblem owned = MakeProblem(spec, TestSeed());
  Fill(owned.problem.query, 4);
  const TensorView& key = owned.problem.key_value[0].key;
  for (int64_t j = 0; j < spec.key_length; ++j) {
    for (int64_t i = 0; i < spec.width; ++i) {
      SetElement(key, {0, 0, j, i}, static_cast<double>(j) / 256);
      SetElement(key, {0, 1, j, i}, static_cast<double>(300 - j) / 64);
    }
  }
  Check(owned.problem);
}

TEST_F(Bf16Test, SubnormalNumbers) {
  ProblemSpec spec = Prefill();
  spec.magnitudes = Magnitudes::kSubnormal;
  CheckBoth(spec);
}

TEST_F(Bf16Test, HugeNumbers) {
  ProblemSpec spec = Prefill();
  spec.magnitudes = Magnitudes::kHuge;
  CheckBoth(spec);
}

// Products, and results, from far below to far above 1.
TEST_F(Bf16Test, MagnitudesNearTheEndsOfTheRange) {
  for (const double large : {0x1p56, 0x1p57, 0x1p100}) {
    for (const double small : {0x1p-56, 0x1p-57, 0x1p-100, 0x1p-120}) {
      SCOPED_TRACE(testing::Message() << large << ", " << small);
      ProblemSpec spec = Prefill();
      spec.query_length = 33;
      spec.scale = 1;
      const OwnedProblem owned = MakeProblem(spec, TestSeed());
      Fill(owned.problem.query, small);
      Fill(owned.problem.key_value[0].key, large);
      Fill(Slice(owned.problem.key_value[0].key, 3, 1, 2), -large / 2);
      Check(owned.problem);
      Fill(owned.problem.key_value[0].value, small);
      Check(owned.problem);
    }
  }
}

// In one tile, or one block of rows, of several.
TEST_F(Bf16Test, OneNumberNearTheEndsOfTheRange) {
  for (const int64_t at : {0, 130, 269}) {
    for (const int64_t length : {40, 300}) {
      ProblemSpec spec = Prefill();
      spec.query_length = length;
      const OwnedProblem owned = MakeProblem(spec, TestSeed());
      SetElement(owned.problem.key_value[0].key, {0, 0, at, 3}, 0x1p-100);
      SetElement(owned.problem.key_value[0].value, {0, 1, at, 3}, 0x1p90);
      Check(owned.problem);
      SetElement(owned.problem.query, {0, 3, length - 1, 0}, 0x1p-130);
      Check(owned.problem);
    }
  }
}

TEST_F(Bf16Test, WhatIsMaskedReachesNoRow) {
  for (const double value : {kNan, kInfinity, -kInfinity}) {
    ProblemSpec spec = Prefill();
    spec.causal = Causal::kTopLeft;
    const OwnedProblem owned = MakeProblem(spec, TestSeed());
    for (int64_t d = 0; d < spec.value_width; ++d) {
      SetElement(owned.problem.key_value[0].value, {0, 0, 60, d}, value);
    }
    SetElement(owned.problem.key_value[0].key, {0, 1, 77, 3}, value);
    Check(owned.problem);
  }
}

TEST_F(Bf16Test, NanInAQueryStaysInItsRow) {
  const OwnedProblem owned = MakeProblem(Prefill(), TestSeed());
  SetElement(owned.problem.query, {0, 1, 50, 5}, kNan);
  Check(owned.problem);
}

TEST_F(Bf16Test, OtherProblemsStayInFp32) {
  for (const std::string& target : Bf16TestTargets()) {
    SCOPED_TRACE(target);
    TargetRunner runner(target);
    const auto kernel_of = [&runner](const ProblemSpec& spec) {
      const OwnedProblem owned = MakeProblem(spec, TestSeed());
      EXPECT_THAT(runner.Run(owned.problem), IsOk());
      return runner.kernel();
    };
    ProblemSpec spec = Prefill();
    EXPECT_THAT(kernel_of(spec), ::testing::StartsWith("bf16"));
    spec.type = DataType::kFloat16;
    EXPECT_THAT(kernel_of(spec), ::testing::StartsWith("fp32"));
    spec = Prefill();
    spec.scoring = ScoringKind::kBilinear;
    EXPECT_THAT(kernel_of(spec), ::testing::StartsWith("fp32"));
    spec = Prefill();
    spec.query_length = 1;
    spec.wanted.weights = false;
    EXPECT_THAT(kernel_of(spec), ::testing::StartsWith("fp32"));
  }
}

/// The parameter is one of Bf16TestTargets().
using Bf16ThreadsTest = CpuThreadsTest;

TEST_P(Bf16ThreadsTest, GiveTheSameBits) {
  for (const bool weights : {false, true}) {
    ProblemSpec spec = {.batch = 1,
                        .query_heads = 4,
                        .kv_heads = 2,
                        .query_length = 700,
                        .key_length = 270,
                        .width = 36,
                        .value_width = 40,
                        .type = DataType::kBFloat16};
    spec.wanted.weights = weights;
    CheckThatBitsAreTheSame(MakeProblem(spec, TestSeed()).problem);
  }
}

INSTANTIATE_TEST_SUITE_P(Products, Bf16ThreadsTest,
                         ::testing::ValuesIn(Bf16TestTargets()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace attention::test
