// What the tolerances are made of: kappa of every scoring function, what may
// count as 0, and the rows and elements that may be anything because FP32 may
// overflow on the way to them, and no others.

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/oracle.h"
#include "tests/support/random.h"
#include "tests/support/random_problem.h"
#include "tests/support/special_numbers.h"
#include "tests/support/tolerance.h"

namespace attention::test {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;

// One row per batch entry, each with 3 keys.
ProblemSpec TwoRows(ScoringKind scoring) {
  return {.batch = 2,
          .query_length = 1,
          .key_length = 3,
          .width = 4,
          .value_width = 2,
          .hidden_width = 1,
          .scoring = scoring};
}

const TensorView& Key(const OwnedProblem& owned) {
  return owned.problem.key_value[0].key;
}
const TensorView& Value(const OwnedProblem& owned) {
  return owned.problem.key_value[0].value;
}

OwnedProblem Constant(const ProblemSpec& spec, double query, double key) {
  OwnedProblem owned = MakeProblem(spec, TestSeed());
  Fill(owned.problem.query, query);
  Fill(Key(owned), key);
  return owned;
}

TEST(KappaTest, OfADotProductIsTheSumOfItsTermsMagnitudes) {
  ProblemSpec spec = TwoRows(ScoringKind::kDotProduct);
  spec.scale = -0.5;
  const OwnedProblem owned = Constant(spec, 2, -3);
  EXPECT_THAT(ComputeExpected(owned.problem).kappa, Each(12));
}

TEST(KappaTest, GrowsWithTheRootOfTheWidth) {
  ProblemSpec spec = TwoRows(ScoringKind::kDotProduct);
  spec.width = 1024;
  spec.scale = 1;
  const OwnedProblem owned = Constant(spec, 1, 1);
  EXPECT_THAT(ComputeExpected(owned.problem).kappa, Each(8 * 1024));
}

TEST(KappaTest, OfAdditiveScoringHasTheProjectionsTimesTheTanhsSlope) {
  const OwnedProblem owned =
      Constant(TwoRows(ScoringKind::kAdditive), 0.5, -0.25);
  const auto& additive = std::get<Additive>(owned.problem.scoring);
  Fill(additive.w_q, 0.1);  // 4 terms: 0.2
  Fill(additive.w_k, 0.2);  // 7 terms: -0.35
  Fill(additive.w_v, -3);
  const double t = std::tanh(0.2 - 0.35);
  EXPECT_THAT(ComputeExpected(owned.problem).kappa,
              Each(DoubleNear(3 * (1 + (1 - t * t) * 0.55), 1e-7)));
}

TEST(KappaTest, OfGaussianScoringIsItsScore) {
  ProblemSpec spec = TwoRows(ScoringKind::kGaussian);
  spec.sigma = 2;
  const OwnedProblem owned = Constant(spec, 1001, 1000);
  EXPECT_THAT(ComputeExpected(owned.problem).kappa, Each(0.5));
}

// Terms that cancel count all the same.
TEST(KappaTest, OfBilinearScoringIsSummedOverBothWidths) {
  const OwnedProblem owned = Constant(TwoRows(ScoringKind::kBilinear), 2, 3);
  const TensorView& m = std::get<Bilinear>(owned.problem.scoring).m;
  Fill(m, 1);
  Fill(Slice(m, 0, 0, 2), -1);
  EXPECT_THAT(ComputeExpected(owned.problem).kappa, Each(4 * 7 * 6));
}

TEST(KappaTest, HasTheBiasMagnitudeOfKeysThatTakePart) {
  ProblemSpec spec = TwoRows(ScoringKind::kDotProduct);
  spec.bias = MaskExtents::kAll;
  const OwnedProblem owned = Constant(spec, 0, 1);
  Fill(*owned.problem.masks.bias, -7);
  SetElement(*owned.problem.masks.bias, {1, 0, 0, 2},
             -std::numeric_limits<double>::infinity());
  EXPECT_THAT(ComputeExpected(owned.problem).kappa, ElementsAre(7, 7));
}

// 1e-40 times 1e38 is 0.01, and nothing where 1e-40 counts as 0.
TEST(RangeTest, AnInputThatVanishesLosesItsTerms) {
  ProblemSpec spec = TwoRows(ScoringKind::kDotProduct);
  spec.scale = 1;
  const OwnedProblem owned = Constant(spec, 1, 1);
  SetElement(owned.problem.query, {1, 0, 0, 0}, 1e-40);
  SetElement(Key(owned), {1, 0, 2, 0}, 1e38);
  EXPECT_THAT(ComputeExpected(owned.problem).lost,
              ElementsAre(DoubleNear(0, 1e-36), DoubleNear(0.01, 1e-4)));
}

TEST(RangeTest, OrdinaryNumbersLoseNothing) {
  for (const ScoringKind scoring :
       {ScoringKind::kDotProduct, ScoringKind::kAdditive,
        ScoringKind::kGaussian, ScoringKind::kBilinear}) {
    const OwnedProblem owned = MakeProblem(TwoRows(scoring), TestSeed());
    EXPECT_THAT(ComputeExpected(owned.problem).lost,
                Each(DoubleNear(0, 1e-30)));
  }
}

// The problem's own answer, with one output that is not.
bool PassesWith(const OwnedProblem& owned, size_t at, float output) {
  const Expected expected = ComputeExpected(owned.problem);
  std::vector<float> outputs(expected.output.begin(), expected.output.end());
  outputs[at] = output;
  Results results;
  results.output = Tensor::FromFloats({2, 1, 1, 2}, outputs);
  AttentionProblem problem = owned.problem;
  problem.wanted = {};
  return static_cast<bool>(Matches(problem, expected, results));
}

class OverflowTest : public ::testing::TestWithParam<ScoringKind> {};

TEST_P(OverflowTest, ExcusesItsRowAlone) {
  const OwnedProblem owned = MakeProblem(TwoRows(GetParam()), TestSeed());
  EXPECT_FALSE(PassesWith(owned, 2, kFloatNan));
  Fill(Slice(owned.problem.query, 0, 1, 2), 3e38);
  Fill(Slice(Key(owned), 0, 1, 2), 2);
  EXPECT_TRUE(PassesWith(owned, 2, kFloatNan));
  EXPECT_FALSE(PassesWith(owned, 0, kFloatNan));
}

TEST_P(OverflowTest, OfAMaskedKeyExcusesNothing) {
  ProblemSpec spec = TwoRows(GetParam());
  spec.attend_mask = MaskExtents::kAll;
  const OwnedProblem owned = MakeProblem(spec, TestSeed());
  Fill(*owned.problem.masks.attend_mask, 1);
  SetElement(*owned.problem.masks.attend_mask, {1, 0, 0, 2}, 0);
  Fill(Slice(Slice(Key(owned), 0, 1, 2), 2, 2, 3), 3e38);
  EXPECT_FALSE(PassesWith(owned, 2, kFloatNan));
}

std::string NameOfOverflowTest(
    const ::testing::TestParamInfo<ScoringKind>& test) {
  static constexpr const char* kNames[] = {"dot_product", "additive",
                                           "gaussian", "bilinear"};
  return kNames[static_cast<int>(test.param)];
}

INSTANTIATE_TEST_SUITE_P(Scorings, OverflowTest,
                         ::testing::Values(ScoringKind::kDotProduct,
                                           ScoringKind::kAdditive,
                                           ScoringKind::kGaussian,
                                           ScoringKind::kBilinear),
                         NameOfOverflowTest);

TEST(RangeTest, ValuesThatOverflowExcuseTheirElementAlone) {
  const OwnedProblem owned =
      MakeProblem(TwoRows(ScoringKind::kDotProduct), TestSeed());
  Fill(Slice(Slice(Value(owned), 0, 1, 2), 3, 1, 2), 3e38);
  EXPECT_TRUE(PassesWith(owned, 3, kFloatNan));
  EXPECT_FALSE(PassesWith(owned, 2, kFloatNan));
}

// As masks are often written. The other keys' row is like any other.
TEST(RangeTest, AHugeNegativeBiasIsNoOverflow) {
  ProblemSpec spec = TwoRows(ScoringKind::kDotProduct);
  spec.bias = MaskExtents::kAll;
  const OwnedProblem owned = MakeProblem(spec, TestSeed());
  SetElement(*owned.problem.masks.bias, {1, 0, 0, 2}, -3.4e38);
  EXPECT_FALSE(PassesWith(owned, 2, kFloatNan));
}

TEST(RangeTest, AScoreOfMinusInfinityTakesNoPart) {
  ProblemSpec spec = TwoRows(ScoringKind::kGaussian);
  const OwnedProblem owned = MakeProblem(spec, TestSeed());
  Fill(Slice(Slice(Key(owned), 0, 1, 2), 2, 2, 3),
       std::numeric_limits<double>::infinity());
  const Expected expected = ComputeExpected(owned.problem);
  EXPECT_EQ(expected.takes_part,
            std::vector<bool>({true, true, true, true, true, false}));
  EXPECT_EQ(expected.weights[5], 0);
  EXPECT_FALSE(PassesWith(owned, 2, kFloatNan));
}

// What is added to the lowest number rounds to it, or to -inf.
TEST(RangeTest, SumsBelowTheLowestNumberTakePartAsTheyRound) {
  constexpr double kLowest = std::numeric_limits<float>::lowest();
  ProblemSpec spec = TwoRows(ScoringKind::kDotProduct);
  spec.bias = MaskExtents::kAll;
  spec.scale = 1;
  const OwnedProblem owned = Constant(spec, 1, -0.25);
  Fill(*owned.problem.masks.bias, kLowest);
  Fill(Slice(Key(owned), 0, 1, 2), -0x1p110);
  const Expected expected = ComputeExpected(owned.problem);
  EXPECT_EQ(expected.takes_part,
            std::vector<bool>({true, true, true, false, false, false}));
  EXPECT_THAT(expected.lse,
              ElementsAre(kLowest, -std::numeric_limits<double>::infinity()));
  EXPECT_THAT(expected.row_overflows, Each(false));
}

TEST(RangeTest, ASumThatMayRoundToMinusInfinityExcusesItsRowAlone) {
  ProblemSpec spec = TwoRows(ScoringKind::kDotProduct);
  spec.bias = MaskExtents::kAll;
  spec.scale = 1;
  const OwnedProblem owned = Constant(spec, 1, -0.25);
  Fill(*owned.problem.masks.bias, std::numeric_limits<float>::lowest());
  Fill(Slice(Key(owned), 0, 1, 2), -0x1p101);  // together half a last place
  EXPECT_THAT(ComputeExpected(owned.problem).row_overflows,
              ElementsAre(false, true));
}

}  // namespace
}  // namespace attention::test
