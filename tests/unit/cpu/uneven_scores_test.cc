// The same on every instruction set as tests/parity has for every backend:
// scores that are sums of large numbers.

#include "tests/support/uneven_scores.h"

#include <string>
#include <tuple>

#include "gtest/gtest.h"
#include "tests/unit/cpu/cpu_test.h"

namespace attention::test {
namespace {

// Parameter: instruction set, problem.
using CpuUnevenScoresTest =
    ::testing::TestWithParam<std::tuple<std::string, UnevenScores>>;

TEST_P(CpuUnevenScoresTest, MatchTheOracle) {
  const auto& [target, scores] = GetParam();
  const OwnedProblem owned = scores.make();
  ASSERT_OK_AND_ASSIGN(const Results results,
                       TargetRunner(target).Run(owned.problem));
  EXPECT_TRUE(Matches(owned.problem, results));
}

INSTANTIATE_TEST_SUITE_P(
    Targets, CpuUnevenScoresTest,
    ::testing::Combine(::testing::ValuesIn(CpuTargets()),
                       ::testing::ValuesIn(AllUnevenScores())),
    [](const auto& test) {
      return std::get<0>(test.param) + "_" + std::get<1>(test.param).name;
    });

}  // namespace
}  // namespace attention::test
