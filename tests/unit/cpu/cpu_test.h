#ifndef ATTENTION_TESTS_UNIT_CPU_CPU_TEST_H_
#define ATTENTION_TESTS_UNIT_CPU_CPU_TEST_H_

#include <string>

#include "core/cpu/cpu_backend.h"
#include "gtest/gtest.h"
#include "tests/support/owned_problem.h"
#include "tests/support/random.h"
#include "tests/support/random_problem.h"
#include "tests/support/results.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tolerance.h"
#include "tests/unit/cpu/target_runner.h"

namespace attention::test {

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

  /// Sets every element of one of a problem's views.
  static void Fill(const TensorView& view, double value) {
    ForEachIndex(view.shape, [&](absl::Span<const int64_t> index) {
      SetElement(view, index, value);
    });
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

}  // namespace attention::test

/// Runs the tests of a suite on every instruction set of this processor.
#define INSTANTIATE_FOR_TARGETS(suite)                                        \
  INSTANTIATE_TEST_SUITE_P(Targets, suite, ::testing::ValuesIn(CpuTargets()), \
                           [](const auto& test) { return test.param; })

#endif  // ATTENTION_TESTS_UNIT_CPU_CPU_TEST_H_
