// Problems of a few keys, as the tutorials have them.

#include <cstdint>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/special_numbers.h"
#include "tests/unit/cpu/cpu_test.h"

namespace attention::test {
namespace {

class SmallProblemTest : public CpuTest {
 protected:
  // The tutorials' (2, 4, 8), with one of everything to vary.
  static ProblemSpec Small() {
    return {.batch = 2,
            .query_heads = 1,
            .query_length = 4,
            .key_length = 4,
            .width = 8,
            .value_width = 8,
            .wanted = {.weights = false, .lse = false}};
  }
};

TEST_P(SmallProblemTest, EveryNumberOfKeys) {
  for (int64_t keys = 1; keys <= 16; ++keys) {
    ProblemSpec spec = Small();
    spec.key_length = keys;
    spec.scale = 2;
    Check(spec);
  }
}

TEST_P(SmallProblemTest, WidthsAroundTheLanes) {
  for (const int64_t width : {1, 3, 4, 5, 7, 9, 15, 16, 17, 31, 33, 63, 64}) {
    ProblemSpec spec = Small();
    spec.width = width;
    spec.value_width = 65 - width;
    spec.scale = 3;
    Check(spec);
  }
}

TEST_P(SmallProblemTest, HeadsThatShareKeys) {
  ProblemSpec spec = Small();
  spec.query_heads = 6;
  spec.kv_heads = 2;
  spec.query_length = 3;
  spec.scale = 2;
  Check(spec);
}

TEST_P(SmallProblemTest, RowsThatAreNotSideBySide) {
  for (const Layout layout :
       {Layout::kLengthFirst, Layout::kReversed, Layout::kMisaligned}) {
    ProblemSpec spec = Small();
    spec.query_heads = spec.kv_heads = 3;
    spec.layout = layout;
    spec.scale = 2;
    Check(spec);
  }
}

// Nor does it decide which kernel answers: another would round otherwise.
TEST_P(SmallProblemTest, WhereRowsLieDoesNotShow) {
  ProblemSpec spec = Small();
  spec.query_heads = spec.kv_heads = 3;
  spec.query_length = 19;
  spec.key_length = 13;
  spec.width = 33;
  spec.value_width = 7;
  const OwnedProblem plain = MakeProblem(spec, TestSeed());
  ASSERT_OK_AND_ASSIGN(const Results expected, runner_.Run(plain.problem));
  for (const Layout layout :
       {Layout::kLengthFirst, Layout::kReversed, Layout::kMisaligned}) {
    spec.layout = layout;
    const OwnedProblem other = MakeProblem(spec, TestSeed());
    ASSERT_OK_AND_ASSIGN(const Results results, runner_.Run(other.problem));
    EXPECT_TRUE(SameBits(expected, results)) << static_cast<int>(layout);
  }
}

TEST_P(SmallProblemTest, NoQueriesAndNoValues) {
  for (const bool queries : {false, true}) {
    ProblemSpec spec = Small();
    (queries ? spec.query_length : spec.value_width) = 0;
    Check(spec);
  }
}

// For each of the heads its keys would be copied, which takes minutes.
TEST_P(SmallProblemTest, ManyHeadsWithoutQueriesAreNoWork) {
  ProblemSpec spec = Small();
  spec.batch = 256;
  spec.query_heads = int64_t{1} << 24;
  spec.query_length = 0;
  spec.key_length = spec.width = spec.value_width = 1;
  spec.layout = Layout::kMisaligned;
  const OwnedProblem owned = MakeProblem(spec, TestSeed());
  EXPECT_TRUE(runner_.Run(owned.problem).ok());
}

TEST_P(SmallProblemTest, JustBeyondSmall) {
  ProblemSpec keys = Small();
  keys.key_length = 17;
  ProblemSpec width = Small();
  width.width = 65;
  ProblemSpec masked = Small();
  masked.causal = Causal::kTopLeft;
  for (const ProblemSpec& spec : {keys, width, masked}) {
    Check(spec);
  }
}

TEST_P(SmallProblemTest, ScoresCloseToZero) {
  for (const double scale : {0.0, 1e-6}) {
    ProblemSpec spec = Small();
    spec.scale = scale;
    Check(spec);
  }
}

TEST_P(SmallProblemTest, WhatIsNotFiniteStaysInItsRows) {
  for (const double value : {kNan, kInfinity, -kInfinity, 3e38}) {
    const OwnedProblem owned = MakeProblem(Small(), TestSeed());
    SetElement(owned.problem.query, {0, 0, 1, 2}, value);
    Check(owned.problem);
    SetElement(owned.problem.key_value[0].value, {1, 0, 2, 3}, value);
    Check(owned.problem);
  }
}

INSTANTIATE_FOR_TARGETS(SmallProblemTest);

}  // namespace
}  // namespace attention::test
