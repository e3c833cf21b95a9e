// What holds for every attention whatever its numbers are.

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/parity/backend_test.h"
#include "tests/support/random.h"

namespace attention::test {
namespace {

using ::testing::Each;
using ::testing::Ge;

using PropertiesTest = BackendTest;

TEST_P(PropertiesTest, WeightsAreNotNegativeAndRowsSumToOne) {
  const OwnedProblem owned = MakeProblem(
      {.query_heads = 4, .kv_heads = 2, .query_length = 9, .key_length = 65},
      TestSeed());
  ASSERT_OK_AND_ASSIGN(const Results results, Run(owned.problem));
  const std::vector<double> weights = results.weights->ToDoubles();
  EXPECT_THAT(weights, Each(Ge(0)));
  for (size_t row = 0; row < weights.size() / 65; ++row) {
    double sum = 0;
    for (size_t j = 0; j < 65; ++j) sum += weights[row * 65 + j];
    EXPECT_NEAR(sum, 1, 1e-6) << "row " << row;
  }
}

TEST_P(PropertiesTest, KeysAndValuesMayComeInAnyOrder) {
  const OwnedProblem owned = MakeProblem({.key_length = 41}, TestSeed());
  OwnedProblem permuted = MakeProblem({.key_length = 41}, TestSeed());
  KeyValueBlock& block = permuted.problem.key_value[0];
  // 17 and 41 have no common factor: j -> 17 j mod 41 is a permutation.
  const auto shuffled = [&](const TensorView& view) {
    return permuted.Add(view.type, view.shape, Layout::kRowMajor,
                        [&](absl::Span<const int64_t> index) {
                          Shape from(index.begin(), index.end());
                          from[2] = from[2] * 17 % 41;
                          return ElementOf(view, from);
                        });
  };
  block = {.key = shuffled(block.key), .value = shuffled(block.value)};
  ASSERT_OK_AND_ASSIGN(const Results results, Run(owned.problem));
  ASSERT_OK_AND_ASSIGN(const Results after, Run(permuted.problem));
  const Expected expected = ComputeExpected(owned.problem);
  EXPECT_TRUE(IsWithin("output", after.output.ToDoubles(),
                       results.output.ToDoubles(),
                       OutputTolerances(expected, DataType::kFloat32)));
  EXPECT_TRUE(IsWithin("lse", after.lse->ToDoubles(), results.lse->ToDoubles(),
                       LseTolerances(expected)));
}

TEST_P(PropertiesTest, AConstantBiasChangesNothingButLse) {
  const OwnedProblem plain = MakeProblem({}, TestSeed());
  OwnedProblem shifted = MakeProblem({}, TestSeed());
  const double constant = 3.25;
  shifted.problem.masks.bias =
      shifted.Add(DataType::kFloat32, {1}, Layout::kRowMajor,
                  [&](absl::Span<const int64_t>) { return constant; });
  ASSERT_OK_AND_ASSIGN(const Results before, Run(plain.problem));
  ASSERT_OK_AND_ASSIGN(const Results after, Run(shifted.problem));
  const Expected expected = ComputeExpected(shifted.problem);
  EXPECT_TRUE(IsWithin("output", after.output.ToDoubles(),
                       before.output.ToDoubles(),
                       OutputTolerances(expected, DataType::kFloat32)));
  EXPECT_TRUE(IsWithin("weights", after.weights->ToDoubles(),
                       before.weights->ToDoubles(),
                       WeightTolerances(expected)));
  std::vector<double> lse = before.lse->ToDoubles();
  for (double& element : lse) element += constant;
  EXPECT_TRUE(
      IsWithin("lse", after.lse->ToDoubles(), lse, LseTolerances(expected)));
}

TEST_P(PropertiesTest, OneQueryAtTheBottomRightSeesEveryKey) {
  const ProblemSpec spec = {.query_length = 1, .key_length = 33};
  const OwnedProblem everything = MakeProblem(spec, TestSeed());
  OwnedProblem causal = MakeProblem(spec, TestSeed());
  causal.problem.masks.causal = Causal::kBottomRight;
  ASSERT_OK_AND_ASSIGN(const Results expected, Run(everything.problem));
  ASSERT_OK_AND_ASSIGN(const Results results, Run(causal.problem));
  EXPECT_TRUE(SameBits(results, expected));
}

TEST_P(PropertiesTest, OneQueryAtTheTopLeftSeesTheFirstKeyAlone) {
  OwnedProblem owned = MakeProblem(
      {.query_length = 1, .key_length = 33, .value_width = 3}, TestSeed());
  owned.problem.masks.causal = Causal::kTopLeft;
  ASSERT_OK_AND_ASSIGN(const Results results, Run(owned.problem));
  const TensorView first = Slice(owned.problem.key_value[0].value, 2, 0, 1);
  EXPECT_EQ(results.output.ToDoubles(), Materialize(first).ToDoubles());
}

TEST_P(PropertiesTest, GroupedQueryHeadsReadRepeatedKeyAndValueHeads) {
  const ProblemSpec spec = {.query_heads = 6, .kv_heads = 2};
  const OwnedProblem grouped = MakeProblem(spec, TestSeed());
  OwnedProblem repeated = MakeProblem(spec, TestSeed());
  KeyValueBlock& block = repeated.problem.key_value[0];
  const auto repeat = [&](const TensorView& view) {
    Shape shape = view.shape;
    shape[1] = 6;
    return repeated.Add(view.type, shape, Layout::kRowMajor,
                        [&](absl::Span<const int64_t> index) {
                          Shape from(index.begin(), index.end());
                          from[1] /= 3;
                          return ElementOf(view, from);
                        });
  };
  block = {.key = repeat(block.key), .value = repeat(block.value)};
  ASSERT_OK_AND_ASSIGN(const Results results, Run(grouped.problem));
  ASSERT_OK_AND_ASSIGN(const Results expected, Run(repeated.problem));
  EXPECT_TRUE(SameBits(results, expected));
}

// Scores are whole numbers up to 2^40, so that nothing is rounded: the largest
// one takes all, and its exponential does not overflow.
TEST_P(PropertiesTest, LargeScoresDoNotOverflow) {
  OwnedProblem owned;
  const Shape one_row = {1, 2};
  owned.problem.query =
      owned.Add(DataType::kFloat32, one_row, Layout::kRowMajor,
                [](absl::Span<const int64_t>) { return std::ldexp(1, 20); });
  const auto key = [](absl::Span<const int64_t> index) {
    return index[0] == 2 ? std::ldexp(1, 19) : std::ldexp(-1, 19);
  };
  owned.problem.key_value.push_back(
      {.key = owned.Add(DataType::kFloat32, {5, 2}, Layout::kRowMajor, key),
       .value = owned.Add(DataType::kFloat32, {5, 1}, Layout::kRowMajor,
                          [](absl::Span<const int64_t> index) {
                            return static_cast<double>(index[0]);
                          })});
  owned.problem.scoring = ScaledDotProduct{.scale = 1};
  owned.problem.wanted = {
      .weights = true, .weights_after_dropout = false, .lse = true};
  ASSERT_OK_AND_ASSIGN(const Results results, Run(owned.problem));
  EXPECT_THAT(results.output.ToDoubles(), ::testing::ElementsAre(2));
  EXPECT_THAT(results.weights->ToDoubles(),
              ::testing::ElementsAre(0, 0, 1, 0, 0));
  EXPECT_THAT(results.lse->ToDoubles(),
              ::testing::ElementsAre(std::ldexp(1, 40)));
}

TEST_P(PropertiesTest, AnAdditiveScoreOfAHugeWeightIsNotHalved) {
  OwnedProblem owned;
  const auto number = [&owned](const Shape& shape, double value) {
    return owned.Add(DataType::kFloat32, shape, Layout::kRowMajor,
                     [=](absl::Span<const int64_t>) { return value; });
  };
  const double huge = 3.25 * std::ldexp(1, 126);
  owned.problem.query = number({1, 1}, 0);
  owned.problem.key_value.push_back(
      {.key = number({1, 1}, 0.25), .value = number({1, 1}, 1)});
  owned.problem.scoring = Additive{.w_q = number({1, 1}, 1),
                                   .w_k = number({1, 1}, 1),
                                   .w_v = number({1}, huge)};
  owned.problem.wanted.lse = true;
  ASSERT_OK_AND_ASSIGN(const Results results, Run(owned.problem));
  EXPECT_THAT(results.lse->ToDoubles(),
              ::testing::ElementsAre(
                  ::testing::DoubleNear(huge * std::tanh(0.25), huge * 1e-6)));
}

// A key that takes nearly all the weight and has nothing to give: the output is
// what FP16 makes of the largest values under weights below its smallest
// number.
OwnedProblem LargeValuesOfSmallWeights(bool weights) {
  OwnedProblem owned;
  owned.problem.query = owned.Add(DataType::kFloat16, {1, 1}, Layout::kRowMajor,
                                  [](absl::Span<const int64_t>) { return 1; });
  const auto first = [](double number, double others) {
    return [=](absl::Span<const int64_t> index) {
      return index[0] == 0 ? number : others;
    };
  };
  owned.problem.key_value.push_back(
      {.key = owned.Add(DataType::kFloat16, {2, 1}, Layout::kRowMajor,
                        first(21.3, 0)),
       .value = owned.Add(DataType::kFloat16, {2, 1}, Layout::kRowMajor,
                          first(0, 65504))});
  owned.problem.scoring = ScaledDotProduct{.scale = 1};
  owned.problem.wanted.weights = weights;
  return owned;
}

TEST_P(PropertiesTest, LargeValuesOfSmallWeightsCount) {
  Check(LargeValuesOfSmallWeights(/*weights=*/false).problem);
}

TEST_P(PropertiesTest, LargeValuesOfSmallWeightsCountBesideWeights) {
  Check(LargeValuesOfSmallWeights(/*weights=*/true).problem);
}

TEST_P(PropertiesTest, DropoutTakesItsShareAndKeepsTheMean) {
  const OwnedProblem owned =
      MakeProblem({.query_heads = 3,
                   .kv_heads = 3,
                   .query_length = 33,
                   .key_length = 129,
                   .dropout = {.training = true, .p = 0.25, .seed = 7},
                   .wanted = {.weights = true,
                              .weights_after_dropout = true,
                              .lse = false}},
                  TestSeed());
  ASSERT_OK_AND_ASSIGN(const Results results, Run(owned.problem));
  const std::vector<double> weights = results.weights->ToDoubles();
  const auto zeros = std::count(weights.begin(), weights.end(), 0.0);
  // 25542 weights: the share's standard deviation is 0.0027.
  EXPECT_NEAR(static_cast<double>(zeros) / static_cast<double>(weights.size()),
              0.25, 0.014);
}

TEST_P(PropertiesTest, ResultsMayLieAtAnyAddress) {
  const OwnedProblem owned = MakeProblem({}, TestSeed());
  ASSERT_OK_AND_ASSIGN(const Results expected, Run(owned.problem));
  ASSERT_OK_AND_ASSIGN(const ValidatedProblem valid, Validate(owned.problem));
  AttentionJob job;
  job.problem = &valid;
  std::vector<std::vector<std::byte>> memory(3);
  const auto odd = [&](int n, const Tensor& like) {
    memory[n].resize(like.byte_size() + 1);
    return MutableContiguousView(like.type(), like.shape(),
                                 memory[n].data() + 1);
  };
  job.outputs = {.output = odd(0, expected.output),
                 .weights = odd(1, *expected.weights),
                 .lse = odd(2, *expected.lse)};
  ASSERT_THAT(engine().Run(job), IsOk());
  EXPECT_EQ(Materialize(ReadOnly(job.outputs.output)).ToDoubles(),
            expected.output.ToDoubles());
  EXPECT_EQ(Materialize(ReadOnly(job.outputs.weights)).ToDoubles(),
            expected.weights->ToDoubles());
  EXPECT_EQ(Materialize(ReadOnly(job.outputs.lse)).ToDoubles(),
            expected.lse->ToDoubles());
}

INSTANTIATE_FOR_BACKENDS(PropertiesTest);

}  // namespace
}  // namespace attention::test
