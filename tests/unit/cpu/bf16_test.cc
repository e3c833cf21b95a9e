// Products of BF16 against the oracle, of FP16 too where it is in two terms,
// and of keys of one byte: those that this processor has, and emulations of all
// on vectors of every width. Shapes and options; bf16_values_test.cc and
// bf16_bytes_test.cc have the values.

#include <string>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/cpu/bf16_fixture.h"

namespace attention::test {
namespace {

using Bf16Test = Bf16Fixture;

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
  spec.query_heads = 2;
  spec.kv_heads = 1;
  spec.query_length = 300;
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
    const bool digits =
        GetParam() == DataType::kInt8 && absl::StrContains(target, "_AMX");
    EXPECT_THAT(kernel_of(spec),
                ::testing::StartsWith(digits ? "int8_amx_decode" : "fp32"));
    spec.query_length = 31;  // of two heads
    EXPECT_THAT(kernel_of(spec),
                ::testing::StartsWith(IsFp16() ? "fp32_tiles" : "bf16"));
    spec.query_length = 32;
    EXPECT_THAT(kernel_of(spec), ::testing::StartsWith(amx));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Bf16Test,
                         ::testing::Values(DataType::kBFloat16,
                                           DataType::kFloat16, DataType::kInt8,
                                           DataType::kFloat8),
                         Bf16Fixture::NameOf);

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
  for (const DataType key_type : {DataType::kBFloat16, DataType::kFloat16,
                                  DataType::kInt8, DataType::kFloat8}) {
    for (const bool weights : {false, true}) {
      ProblemSpec spec = {.batch = 1,
                          .query_heads = 4,
                          .kv_heads = 2,
                          .query_length = 700,
                          .key_length = 270,
                          .width = 36,
                          .value_width = 40,
                          .type = key_type == DataType::kFloat16
                                      ? DataType::kFloat16
                                      : DataType::kBFloat16,
                          .key_type = key_type};
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
