#include "core/softmax_state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/support/special_numbers.h"

namespace attention {
namespace {

using test::kInfinity;
using State = SoftmaxState<double>;

State Of(const std::vector<double>& scores) {
  State state;
  for (const double score : scores) state.Add(score);
  return state;
}

State Merged(State a, const State& b) {
  a.Merge(b);
  return a;
}

TEST(SoftmaxState, IsEmptyAtFirst) {
  const State state;
  EXPECT_TRUE(state.empty());
  EXPECT_EQ(state.LogSumExp(), -kInfinity);
  EXPECT_EQ(state.Weight(3), 0);
  EXPECT_EQ(state.Normalizer(), 0);
}

TEST(SoftmaxState, GivesTheLogSumOfExponentials) {
  const State state = Of({1, 2, 3});
  EXPECT_NEAR(state.LogSumExp(),
              std::log(std::exp(1) + std::exp(2) + std::exp(3)), 1e-15);
}

TEST(SoftmaxState, WeightsSumToOne) {
  const State state = Of({-3, 0.5, 7});
  EXPECT_NEAR(state.Weight(-3) + state.Weight(0.5) + state.Weight(7), 1, 1e-15);
}

TEST(SoftmaxState, DoesNotOverflowOnLargeScores) {
  const State state = Of({1e5, 1e5});
  EXPECT_EQ(state.Weight(1e5), 0.5);
  EXPECT_NEAR(state.LogSumExp(), 1e5 + std::log(2), 1e-9);
}

TEST(SoftmaxState, AScoreThatIsComputedAgainAndRoundsUpHasNoMoreThanItsWeight) {
  State state;
  state.Add(1e20);
  EXPECT_EQ(state.Weight(1e20 + 1e6), 1);
}

TEST(SoftmaxState, MergesToTheWhole) {
  const State whole = Of({1, -2, 5, 0.25});
  const State merged = Merged(Of({1, -2}), Of({5, 0.25}));
  EXPECT_NEAR(merged.LogSumExp(), whole.LogSumExp(), 1e-15);
}

TEST(SoftmaxState, MergeIsCommutative) {
  const State a = Of({1, 9});
  const State b = Of({4});
  EXPECT_EQ(Merged(a, b).LogSumExp(), Merged(b, a).LogSumExp());
}

TEST(SoftmaxState, MergeIsAssociativeToRounding) {
  const State a = Of({1, 9});
  const State b = Of({4});
  const State c = Of({-7, 8});
  EXPECT_NEAR(Merged(Merged(a, b), c).LogSumExp(),
              Merged(a, Merged(b, c)).LogSumExp(), 1e-14);
}

TEST(SoftmaxState, EmptyIsNeutralForMerge) {
  State state = Of({2, 3});
  const double before = state.LogSumExp();
  const auto factors = state.Merge(State());
  EXPECT_EQ(factors.mine, 1);
  EXPECT_EQ(factors.other, 0);
  EXPECT_EQ(state.LogSumExp(), before);
  EXPECT_EQ(Merged(State(), state).LogSumExp(), before);
}

TEST(SoftmaxState, FactorsBringWeightedSumsToOneMaximum) {
  State state = Of({1});
  double weighted = 10;  // one key of score 1 and value 10
  const auto factors = state.Merge(Of({3}));
  weighted = weighted * factors.mine + 20 * factors.other;
  const double expected =
      (10 * std::exp(1) + 20 * std::exp(3)) / (std::exp(1) + std::exp(3));
  EXPECT_NEAR(weighted * state.Normalizer(), expected, 1e-14);
}

TEST(SoftmaxState, MinusInfinityTakesNoPart) {
  EXPECT_TRUE(Of({-kInfinity, -kInfinity}).empty());
  EXPECT_EQ(Of({-kInfinity, 2}).LogSumExp(), 2);
  EXPECT_EQ(Of({2}).Weight(-kInfinity), 0);
}

TEST(SoftmaxState, NanMakesTheRowNanInAnyOrder) {
  const double nan = std::nan("");
  EXPECT_TRUE(std::isnan(Of({1, nan}).LogSumExp()));
  EXPECT_TRUE(std::isnan(Of({nan, 1}).LogSumExp()));
  EXPECT_TRUE(std::isnan(Merged(Of({1}), Of({nan})).Weight(1)));
  EXPECT_EQ(Of({nan}).Weight(-kInfinity), 0);
}

TEST(SoftmaxState, PlusInfinityMakesTheRowNanInAnyOrder) {
  EXPECT_TRUE(std::isnan(Of({1, kInfinity}).Weight(1)));
  EXPECT_TRUE(std::isnan(Of({kInfinity, 1}).Weight(1)));
  EXPECT_TRUE(std::isnan(Of({kInfinity}).LogSumExp()));
}

}  // namespace
}  // namespace attention
