// Finite numbers never mask: a bias of the lowest one leaves a key in its row.

#include <cstdint>
#include <limits>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/parity/backend_test.h"
#include "tests/parity/ways.h"
#include "tests/support/random.h"
#include "tests/support/special_numbers.h"

namespace attention::test {
namespace {

// Parameter: backend, way, type, whether weights are wanted.
class LowestBiasTest : public ::testing::TestWithParam<
                           std::tuple<std::string, Way, DataType, bool>> {
 protected:
  static ProblemSpec Spec() {
    ProblemSpec spec = SpecOf(std::get<1>(GetParam()), std::get<2>(GetParam()));
    spec.wanted.weights = std::get<3>(GetParam());
    return spec;
  }

  static Results Run(const AttentionProblem& problem) {
    return RunOn(*MakeEngine(std::get<0>(GetParam())), problem).value();
  }

  // What all keys alike give, with a log-sum-exp of `lse`.
  static Expected Mean(const AttentionProblem& problem, double lse) {
    AttentionProblem even = problem;
    even.masks.bias.reset();
    even.scoring = ScaledDotProduct{.scale = 0};
    Expected expected = ComputeExpected(even);
    for (double& of_row : expected.lse) of_row = lse;
    return expected;
  }

  // Many programs pad so: torch.finfo(type).min.
  static constexpr double kLowest[] = {std::numeric_limits<float>::lowest(),
                                       -0x1.fep127};
};

TEST_P(LowestBiasTest, OfEveryKeyGivesTheMean) {
  for (const ScoringKind scoring :
       {ScoringKind::kDotProduct, ScoringKind::kGaussian}) {
    for (const double lowest : kLowest) {
      ProblemSpec spec = Spec();
      spec.scoring = scoring;
      spec.bias = MaskExtents::kFewerDimensions;
      spec.causal = Causal::kBottomRight;
      const OwnedProblem owned = MakeProblem(spec, TestSeed());
      Fill(*owned.problem.masks.bias, lowest);
      EXPECT_TRUE(Matches(owned.problem, Mean(owned.problem, lowest),
                          Run(owned.problem)));
    }
  }
}

// What is added to it is less than half of its last place.
TEST_P(LowestBiasTest, AfterSoftcapAndAlibiGivesTheMean) {
  ProblemSpec spec = Spec();
  spec.softcap = 3;
  spec.alibi_slopes = PerHeadShape::kPerHead;
  spec.bias = MaskExtents::kFewerDimensions;
  const OwnedProblem owned = MakeProblem(spec, TestSeed());
  Fill(*owned.problem.masks.bias, kLowest[0]);
  AttentionProblem even = owned.problem;
  even.softcap.reset();
  even.alibi_slopes.reset();
  EXPECT_TRUE(
      Matches(owned.problem, Mean(even, kLowest[0]), Run(owned.problem)));
}

TEST_P(LowestBiasTest, OfSomeKeysLeavesTheOtherKeysTheirWeights) {
  ProblemSpec spec = Spec();
  spec.bias = MaskExtents::kFewerDimensions;
  const OwnedProblem owned = MakeProblem(spec, TestSeed());
  const TensorView& bias = *owned.problem.masks.bias;
  const auto set = [&](double value) {
    for (int64_t key = 1; key < spec.key_length; key += 3) {
      Fill(Slice(bias, 1, key, key + 1), value);
    }
  };
  set(-kInfinity);
  const Expected masked = ComputeExpected(owned.problem);
  set(kLowest[0]);
  EXPECT_TRUE(Matches(owned.problem, masked, Run(owned.problem)));
}

std::string NameOfLowestBiasTest(
    const ::testing::TestParamInfo<LowestBiasTest::ParamType>& test) {
  const auto& [backend, way, type, weights] = test.param;
  return absl::StrCat(backend, "_", way.name, "_", Name(type),
                      weights ? "_weights" : "");
}

INSTANTIATE_TEST_SUITE_P(Backends, LowestBiasTest,
                         ::testing::Combine(::testing::ValuesIn(Backends()),
                                            ::testing::ValuesIn(kWays),
                                            ::testing::ValuesIn(kWayTypes),
                                            ::testing::Bool()),
                         NameOfLowestBiasTest);

}  // namespace
}  // namespace attention::test
