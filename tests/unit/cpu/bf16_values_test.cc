// Products of BF16, and of FP16 in two terms: values near the ends of the
// range, NaN and infinities.

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/special_numbers.h"
#include "tests/unit/cpu/bf16_fixture.h"

namespace attention::test {
namespace {

using Bf16ValuesTest = Bf16Fixture;

TEST_P(Bf16ValuesTest, ScoresThatRiseFromTileToTile) {
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

TEST_P(Bf16ValuesTest, SubnormalNumbers) {
  ProblemSpec spec = Prefill();
  spec.magnitudes = Magnitudes::kSubnormal;
  CheckBoth(spec);
}

TEST_P(Bf16ValuesTest, HugeNumbers) {
  ProblemSpec spec = Prefill();
  spec.magnitudes = Magnitudes::kHuge;
  CheckBoth(spec);
}

// Products, and results, from far below to far above 1.
TEST_P(Bf16ValuesTest, MagnitudesNearTheEndsOfTheRange) {
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
TEST_P(Bf16ValuesTest, OneNumberNearTheEndsOfTheRange) {
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

TEST_P(Bf16ValuesTest, WhatIsMaskedReachesNoRow) {
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

// Decoding reads values where they lie: in whole vectors, but for the last.
TEST_P(Bf16ValuesTest, NanInAValueThatIsReadWhereItLies) {
  for (const int64_t value_width : {5, 33, 40, 70}) {
    SCOPED_TRACE(value_width);
    ProblemSpec spec = Prefill();
    spec.query_heads = 16;
    spec.query_length = 1;
    spec.value_width = value_width;
    spec.wanted.weights = false;
    const OwnedProblem owned = MakeProblem(spec, TestSeed());
    SetElement(owned.problem.key_value[0].value, {0, 1, 77, 3}, kNan);
    const Expected expected = ComputeExpected(owned.problem);
    for (const std::string& target : Targets()) {
      SCOPED_TRACE(target);
      TargetRunner runner(target);
      ASSERT_OK_AND_ASSIGN(const Results results, runner.Run(owned.problem));
      EXPECT_TRUE(Matches(owned.problem, expected, results));
      EXPECT_THAT(runner.kernel(), ::testing::HasSubstr("_decode"));
    }
  }
}

TEST_P(Bf16ValuesTest, NanInAQueryStaysInItsRow) {
  const OwnedProblem owned = MakeProblem(Prefill(), TestSeed());
  SetElement(owned.problem.query, {0, 1, 50, 5}, kNan);
  Check(owned.problem);
}

// A score of -inf takes its key out, one of +inf makes NaN of its row unless a
// softcap makes it finite. Beside the infinity stand numbers of both signs, and
// some of which one BF16 number is enough.
TEST_P(Bf16ValuesTest, InfinitiesScoreAsTheyDoInFp32) {
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
TEST_P(Bf16ValuesTest, AKeyAtMinusInfinityTakesNoPart) {
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

INSTANTIATE_TEST_SUITE_P(Types, Bf16ValuesTest,
                         ::testing::Values(DataType::kBFloat16,
                                           DataType::kFloat16),
                         Bf16Fixture::NameOf);

}  // namespace
}  // namespace attention::test
