// Finite numbers of every kind, on every backend but cpu, for which tests/unit
// has the same on every instruction set.

#include "tests/support/values.h"

#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/parity/backend_test.h"

namespace attention::test {
namespace {

// Parameter: backend, values, scoring, whether decode.
using ValuesOnBackendTest = ::testing::TestWithParam<
    std::tuple<std::string, Values, ScoringKind, bool>>;

TEST_P(ValuesOnBackendTest, AreWithinTheTolerances) {
  const auto& [backend, values, scoring, decode] = GetParam();
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
    SCOPED_TRACE(Name(type));
    const OwnedProblem owned = MakeProblemOf(values, scoring, decode, type);
    ASSERT_OK_AND_ASSIGN(const Results results,
                         RunOn(*MakeEngine(backend), owned.problem));
    EXPECT_TRUE(Matches(owned.problem, results));
  }
}

std::vector<std::string> BackendsButCpu() {
  std::vector<std::string> names = Backends();
  std::erase(names, "cpu");
  return names;
}

std::string NameOfValuesTest(
    const ::testing::TestParamInfo<ValuesOnBackendTest::ParamType>& test) {
  static constexpr const char* kScorings[] = {"dot_product", "additive",
                                              "gaussian", "bilinear"};
  const auto& [backend, values, scoring, decode] = test.param;
  return absl::StrCat(backend, "_", values.name, "_",
                      kScorings[static_cast<int>(scoring)],
                      decode ? "_decode" : "_prefill");
}

INSTANTIATE_TEST_SUITE_P(
    Backends, ValuesOnBackendTest,
    ::testing::Combine(
        ::testing::ValuesIn(BackendsButCpu()), ::testing::ValuesIn(AllValues()),
        ::testing::Values(ScoringKind::kDotProduct, ScoringKind::kAdditive,
                          ScoringKind::kGaussian, ScoringKind::kBilinear),
        ::testing::Bool()),
    NameOfValuesTest);

}  // namespace
}  // namespace attention::test
