#ifndef ATTENTION_TESTS_UNIT_CPU_CPU_TEST_H_
#define ATTENTION_TESTS_UNIT_CPU_CPU_TEST_H_

#include <string>

#include "gtest/gtest.h"
#include "tests/support/cpu_test_targets.h"
#include "tests/support/owned_problem.h"
#include "tests/support/random.h"
#include "tests/support/random_problem.h"
#include "tests/support/results.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tolerance.h"
#include "tests/unit/cpu/target_runner.h"

namespace attention::test {

/// Computes a problem on every instruction set (CpuTestTargets()) and holds the
/// results to the oracle, which is asked once.
inline void CheckOnEveryTarget(const AttentionProblem& problem) {
  const Expected expected = ComputeExpected(problem);
  for (const std::string& target : CpuTestTargets()) {
    SCOPED_TRACE(target);
    ASSERT_OK_AND_ASSIGN(const Results results,
                         TargetRunner(target).Run(problem));
    EXPECT_TRUE(Matches(problem, expected, results));
  }
}

/// A test of the cpu backend; the parameter is the instruction set.
class CpuTest : public ::testing::TestWithParam<std::string> {
 protected:
  void Check(const ProblemSpec& spec) {
    Check(MakeProblem(spec, TestSeed()).problem);
  }
  /// Computes a problem and holds the results to the oracle.
  void Check(const AttentionProblem& problem) {
    ASSERT_OK_AND_ASSIGN(const Results results, runner_.Run(problem));
    EXPECT_TRUE(Matches(problem, results));
  }

  TargetRunner runner_{GetParam()};
};

/// Tests of what threads change. Every one has its pool to itself: oneTBB gives
/// no pool more threads than the smallest one that exists beside it has.
class CpuThreadsTest : public ::testing::TestWithParam<std::string> {
 protected:
  /// Computes a problem with 1, 2 and 7 threads and holds the results to each
  /// other, bit by bit.
  static void CheckThatBitsAreTheSame(const AttentionProblem& problem) {
    ASSERT_OK_AND_ASSIGN(const Results expected,
                         TargetRunner(GetParam(), 1).Run(problem));
    for (const int threads : {2, 7}) {
      ASSERT_OK_AND_ASSIGN(const Results results,
                           TargetRunner(GetParam(), threads).Run(problem));
      EXPECT_TRUE(SameBits(expected, results)) << threads << " threads";
    }
  }
};

/// "dot_product", ..., for names of tests.
inline std::string NameOf(ScoringKind scoring) {
  switch (scoring) {
    case ScoringKind::kDotProduct:
      return "dot_product";
    case ScoringKind::kAdditive:
      return "additive";
    case ScoringKind::kGaussian:
      return "gaussian";
    case ScoringKind::kBilinear:
      return "bilinear";
  }
  return "";
}

inline constexpr ScoringKind kAllScorings[] = {
    ScoringKind::kDotProduct, ScoringKind::kAdditive, ScoringKind::kGaussian,
    ScoringKind::kBilinear};

}  // namespace attention::test

/// Runs the tests of a suite on every instruction set (CpuTestTargets()).
#define INSTANTIATE_FOR_TARGETS(suite)                            \
  INSTANTIATE_TEST_SUITE_P(Targets, suite,                        \
                           ::testing::ValuesIn(CpuTestTargets()), \
                           [](const auto& test) { return test.param; })

#endif  // ATTENTION_TESTS_UNIT_CPU_CPU_TEST_H_
