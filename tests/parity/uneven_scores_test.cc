// Scores that are sums of large numbers, on every backend: their rounding may
// cost what the tolerances say.

#include "tests/support/uneven_scores.h"

#include <string>
#include <tuple>
#include <utility>

#include "gtest/gtest.h"
#include "tests/parity/backend_test.h"

namespace attention::test {
namespace {

// Parameter: backend, problem.
using UnevenScoresTest =
    ::testing::TestWithParam<std::tuple<std::string, UnevenScores>>;

TEST_P(UnevenScoresTest, MatchTheOracle) {
  const auto& [backend, scores] = GetParam();
  const OwnedProblem owned = scores.make();
  ASSERT_OK_AND_ASSIGN(const Results results,
                       RunOn(*MakeEngine(backend), owned.problem));
  Expected expected = ComputeExpected(owned.problem);
  if (backend.starts_with("cuda") && scores.of_tensor_cores) {
    expected = OfTensorCores(std::move(expected));
  }
  EXPECT_TRUE(Matches(owned.problem, expected, results));
}

INSTANTIATE_TEST_SUITE_P(
    Backends, UnevenScoresTest,
    ::testing::Combine(::testing::ValuesIn(Backends()),
                       ::testing::ValuesIn(AllUnevenScores())),
    [](const auto& test) {
      return std::get<0>(test.param) + "_" + std::get<1>(test.param).name;
    });

}  // namespace
}  // namespace attention::test
