// Products of BF16 against the oracle, of FP16 too where it is in two terms:
// those that this processor has, and emulations of all on vectors of every
// width.

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/cpu/cpu_test.h"

namespace attention::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Computes every problem on all of Bf16TestTargets() that multiply its type,
/// which is the parameter; the oracle, which takes longer, is asked once.
class Bf16Test : public ::testing::TestWithParam<DataType> {
 protected:
  static bool IsFp16() { return GetParam() == DataType::kFloat16; }
  static std::vector<std::string> Targets() {
    std::vector<std::string> targets = Bf16TestTargets();
    std::erase_if(targets, [](const std::string& target) {
      return IsFp16() && !absl::StrContains(target, "_AMX");
    });
    return targets;
  }

  // FP16 is split for a kv group of 64 rows or more (plan.cc).
  static int64_t Queries(int64_t more) { return IsFp16() ? 64 + more : more; }

  static ProblemSpec Prefill() {
    return {.batch = 1,
            .query_heads = 4,
            .kv_heads = 2,
            .query_length = 103,
            .key_length = 270,
            .width = 36,
            .value_width = 40,
            .type = GetParam()};
  }

  void Check(const ProblemSpec& spec) {
    Check(MakeProblem(spec, TestSeed()).problem);
  }
  void Check(const AttentionProblem& problem) {
    const Expected expected = ComputeExpected(problem);
    for (const std::string& target : Targets()) {
      SCOPED_TRACE(target);
      TargetRunner runner(target);
      ASSERT_OK_AND_ASSIGN(const Results results, runner.Run(problem));
      EXPECT_TRUE(Matches(problem, expected, results));
      EXPECT_THAT(runner.kernel(),
                  ::testing::StartsWith(IsFp16() ? "fp16_amx" : "bf16"));
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

TEST_P(Bf16Test, AwkwardQueriesAndKeys) {
  for (const int64_t queries : {5, 15, 16, 17, 31, 33, 65, 127, 129}) {
    for (const int64_t keys : {1, 15, 16, 17, 31, 33, 65, 127, 129, 300}) {
      SCOPED_TRACE(testing::Message() << queries << " x " << keys);
      ProblemSpec spec = Prefill();
      spec.query_heads = 2;
      spec.kv_heads = 1;
      spec.query_length = Queries(queries);
      spec.key_length = keys;
      CheckBoth(spec);
    }
  }
}

TEST_P(Bf16Test, AwkwardWidths) {
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
TEST_P(Bf16Test, WideHeads) {
  ProblemSpec spec = Prefill();
  spec.query_length = 40;
  spec.key_length = 150;
  spec.width = 1000;
  spec.value_width = 700;
  CheckBoth(spec);
}

TEST_P(Bf16Test, OneQueryWithWeights) {
  ProblemSpec spec = Prefill();
  spec.query_length = Queries(1);
  Check(spec);
}

TEST_P(Bf16Test, NoValues) {
  ProblemSpec spec = Prefill();
  spec.value_width = 0;
  CheckBoth(spec);
}

// More rows than a block has, more keys than are kept until they are
// normalised.
TEST_P(Bf16Test, ManyRowsAndKeys) {
  ProblemSpec spec = Prefill();
  spec.query_length = 600;
  CheckBoth(spec);
  spec.query_length = Queries(20);
  spec.key_length = 7000;
  CheckBoth(spec);
  spec.dropout = {.training = true, .p = 0.3, .seed = 7};
  spec.wanted.weights_after_dropout = true;
  Check(spec);
}

TEST_P(Bf16Test, EveryMask) {
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
TEST_P(Bf16Test, EveryOptionWithFullTiles) {
  for (const bool causal : {false, true}) {
    ProblemSpec spec = Prefill();
    spec.query_heads = spec.kv_heads = 1;
    spec.query_length = Queries(6);
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

TEST_P(Bf16Test, RowsInWhichNoKeyTakesPart) {
  for (const EmptyRows empty : {EmptyRows::kZero, EmptyRows::kUniform}) {
    ProblemSpec spec = Prefill();
    spec.empty_rows = empty;
    spec.causal = Causal::kTopLeft;
    spec.key_offset = 40;
    CheckBoth(spec);
  }
}

TEST_P(Bf16Test, SoftcapAndScales) {
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

TEST_P(Bf16Test, Dropout) {
  ProblemSpec spec = Prefill();
  spec.dropout = {.training = true, .p = 0.3, .seed = 7};
  CheckBoth(spec);
  spec.wanted.weights_after_dropout = true;
  CheckBoth(spec);
}

TEST_P(Bf16Test, LayoutsBlocksAndGroupedHeads) {
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

TEST_P(Bf16Test, ScoresThatRiseFromTileToTile) {
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

TEST_P(Bf16Test, SubnormalNumbers) {
  ProblemSpec spec = Prefill();
  spec.magnitudes = Magnitudes::kSubnormal;
  CheckBoth(spec);
}

TEST_P(Bf16Test, HugeNumbers) {
  ProblemSpec spec = Prefill();
  spec.magnitudes = Magnitudes::kHuge;
  CheckBoth(spec);
}

// Products, and results, from far below to far above 1.
TEST_P(Bf16Test, MagnitudesNearTheEndsOfTheRange) {
  const std::vector<double> larges =
      IsFp16() ? std::vector<double>{0x1p14, 65504}
               : std::vector<double>{0x1p56, 0x1p57, 0x1p100};
  const std::vector<double> smalls =
      IsFp16() ? std::vector<double>{0x1p-14, 0x1.ffcp-15, 0x1p-24}
               : std::vector<double>{0x1p-56, 0x1p-57, 0x1p-100, 0x1p-120};
  for (const double large : larges) {
    for (const double small : smalls) {
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
TEST_P(Bf16Test, OneNumberNearTheEndsOfTheRange) {
  for (const int64_t at : {0, 130, 269}) {
    for (const int64_t length : {40, 300}) {
      ProblemSpec spec = Prefill();
      spec.query_length = length;
      const OwnedProblem owned = MakeProblem(spec, TestSeed());
      const bool fp16 = IsFp16();
      SetElement(owned.problem.key_value[0].key, {0, 0, at, 3},
                 fp16 ? 0x1p-23 : 0x1p-100);
      SetElement(owned.problem.key_value[0].value, {0, 1, at, 3},
                 fp16 ? 0x1p15 : 0x1p90);
      Check(owned.problem);
      SetElement(owned.problem.query, {0, 3, length - 1, 0},
                 fp16 ? 0x1p-24 : 0x1p-130);
      Check(owned.problem);
    }
  }
}

TEST_P(Bf16Test, WhatIsMaskedReachesNoRow) {
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

TEST_P(Bf16Test, NanInAQueryStaysInItsRow) {
  const OwnedProblem owned = MakeProblem(Prefill(), TestSeed());
  SetElement(owned.problem.query, {0, 1, 50, 5}, kNan);
  Check(owned.problem);
}

// A score of -inf takes its key out, one of +inf makes NaN of its row unless a
// softcap makes it finite. Beside the infinity stand numbers of both signs, and
// some of which one BF16 number is enough.
TEST_P(Bf16Test, InfinitiesScoreAsTheyDoInFp32) {
  for (const double infinity : {kInfinity, -kInfinity}) {
    for (const bool of_query : {false, true}) {
      for (const double softcap : {0.0, 3.0}) {
        SCOPED_TRACE(testing::Message() << infinity << " in a query "
                                        << of_query << ", softcap " << softcap);
        ProblemSpec spec = Prefill();
        spec.query_length = 40;
        spec.key_length = 70;
        if (softcap > 0) spec.softcap = softcap;
        const OwnedProblem owned = MakeProblem(spec, TestSeed());
        const TensorView& query = owned.problem.query;
        const TensorView& key = owned.problem.key_value[0].key;
        const TensorView& others = of_query ? key : query;
        for (int64_t i = 0; i < 40; ++i) {
          SetElement(others, {0, 0, i, 5}, i % 2 == 0 ? 1 : -0.75);
        }
        SetElement(others, {0, 0, 7, 5}, 0);
        SetElement(of_query ? query : key, {0, 0, 33, 5}, infinity);
        Check(owned.problem);
      }
    }
  }
}

// In every row: the key takes no part in any.
TEST_P(Bf16Test, AKeyAtMinusInfinityTakesNoPart) {
  ProblemSpec spec = Prefill();
  spec.wanted.weights = true;
  const OwnedProblem owned = MakeProblem(spec, TestSeed());
  for (int64_t head = 0; head < spec.query_heads; ++head) {
    for (int64_t i = 0; i < spec.query_length; ++i) {
      SetElement(owned.problem.query, {0, head, i, 5},
                 1 + static_cast<double>(i % 3) / 1024);
    }
  }
  SetElement(owned.problem.key_value[0].key, {0, 1, 50, 5}, -kInfinity);
  Check(owned.problem);
}

TEST_P(Bf16Test, OtherProblemsStayInFp32) {
  const std::string amx = IsFp16() ? "fp16_amx" : "bf16";
  for (const std::string& target : Targets()) {
    SCOPED_TRACE(target);
    TargetRunner runner(target);
    const auto kernel_of = [&runner](const ProblemSpec& spec) {
      const OwnedProblem owned = MakeProblem(spec, TestSeed());
      EXPECT_THAT(runner.Run(owned.problem), IsOk());
      return runner.kernel();
    };
    ProblemSpec spec = Prefill();
    EXPECT_THAT(kernel_of(spec), ::testing::StartsWith(amx));
    spec.key_type = IsFp16() ? DataType::kBFloat16 : DataType::kFloat16;
    EXPECT_THAT(kernel_of(spec), ::testing::StartsWith("fp32"));
    spec = Prefill();
    spec.scoring = ScoringKind::kBilinear;
    EXPECT_THAT(kernel_of(spec), ::testing::StartsWith("fp32"));
    spec = Prefill();
    spec.query_length = 1;
    spec.wanted.weights = false;
    EXPECT_THAT(kernel_of(spec), ::testing::StartsWith("fp32"));
    spec.query_length = 31;  // of two heads
    EXPECT_THAT(kernel_of(spec),
                ::testing::StartsWith(IsFp16() ? "fp32_tiles" : "bf16"));
    spec.query_length = 32;
    EXPECT_THAT(kernel_of(spec), ::testing::StartsWith(amx));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Bf16Test,
                         ::testing::Values(DataType::kBFloat16,
                                           DataType::kFloat16),
                         [](const auto& test) {
                           return test.param == DataType::kFloat16 ? "FP16"
                                                                   : "BF16";
                         });

// VDPBF16PS has half the rate that the six products of two terms would need.
TEST(Bf16TargetsTest, Avx512Bf16LeavesFp16InFp32) {
  for (const std::string& target : Bf16TestTargets()) {
    if (absl::StrContains(target, "_AMX")) continue;
    SCOPED_TRACE(target);
    TargetRunner runner(target);
    const OwnedProblem owned = MakeProblem({.query_heads = 1,
                                            .kv_heads = 1,
                                            .query_length = 100,
                                            .key_length = 40,
                                            .width = 16,
                                            .value_width = 16,
                                            .type = DataType::kFloat16},
                                           TestSeed());
    EXPECT_THAT(runner.Run(owned.problem), IsOk());
    EXPECT_EQ(runner.kernel(), "fp32_tiles");
  }
}

/// The parameter is one of Bf16TestTargets().
using Bf16ThreadsTest = CpuThreadsTest;

TEST_P(Bf16ThreadsTest, GiveTheSameBits) {
  for (const DataType type : {DataType::kBFloat16, DataType::kFloat16}) {
    for (const bool weights : {false, true}) {
      ProblemSpec spec = {.batch = 1,
                          .query_heads = 4,
                          .kv_heads = 2,
                          .query_length = 700,
                          .key_length = 270,
                          .width = 36,
                          .value_width = 40,
                          .type = type};
      spec.wanted.weights = weights;
      CheckThatBitsAreTheSame(MakeProblem(spec, TestSeed()).problem);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Products, Bf16ThreadsTest,
                         ::testing::ValuesIn(Bf16TestTargets()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace attention::test
