// Problems of the sizes that a GPU is for: longer than any tile, split keys and
// products in row blocks.

#include <cstdint>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/parity/backend_test.h"
#include "tests/support/random.h"

namespace attention::test {
namespace {

struct LargeCase {
  std::string name;
  ProblemSpec spec;
};

class LargeTest : public ::testing::TestWithParam<LargeCase> {};

TEST_P(LargeTest, MatchesTheOracle) {
  const OwnedProblem owned = MakeProblem(GetParam().spec, TestSeed());
  const auto engine = MakeEngine(Backends()[0]);
  ASSERT_OK_AND_ASSIGN(const Results first, RunOn(*engine, owned.problem));
  EXPECT_TRUE(Matches(owned.problem, first));
  ASSERT_OK_AND_ASSIGN(const Results second, RunOn(*engine, owned.problem));
  EXPECT_TRUE(SameBits(first, second));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, LargeTest,
    ::testing::Values(LargeCase{"Fp32Causal",
                                {.query_heads = 2,
                                 .kv_heads = 2,
                                 .query_length = 700,
                                 .key_length = 900,
                                 .width = 64,
                                 .value_width = 64,
                                 .causal = Causal::kTopLeft,
                                 .wanted = kNoWeights}},
                      LargeCase{"Bf16GroupedQuery",
                                {.query_heads = 8,
                                 .kv_heads = 2,
                                 .query_length = 513,
                                 .key_length = 1025,
                                 .width = 128,
                                 .value_width = 128,
                                 .type = DataType::kBFloat16,
                                 .causal = Causal::kBottomRight,
                                 .wanted = kNoWeights}},
                      LargeCase{"Fp16Window",
                                {.query_length = 1000,
                                 .key_length = 1000,
                                 .width = 64,
                                 .value_width = 64,
                                 .type = DataType::kFloat16,
                                 .window = {.left = 100, .right = 20},
                                 .wanted = kNoWeights}},
                      LargeCase{"Fp32Weights",
                                {.query_heads = 4,
                                 .kv_heads = 2,
                                 .query_length = 520,
                                 .key_length = 530,
                                 .width = 64,
                                 .value_width = 64}},
                      LargeCase{"Bf16Weights",
                                {.query_length = 520,
                                 .key_length = 530,
                                 .width = 64,
                                 .value_width = 64,
                                 .type = DataType::kBFloat16}},
                      LargeCase{"Decode",
                                {.query_heads = 8,
                                 .kv_heads = 2,
                                 .query_length = 1,
                                 .key_length = 20000,
                                 .width = 128,
                                 .value_width = 128,
                                 .type = DataType::kBFloat16,
                                 .wanted = kNoWeights}},
                      LargeCase{"Additive",
                                {.query_length = 300,
                                 .key_length = 400,
                                 .width = 64,
                                 .value_width = 64,
                                 .hidden_width = 64,
                                 .scoring = ScoringKind::kAdditive,
                                 .wanted = kNoWeights}},
                      LargeCase{"GaussianFarFromTheOrigin",
                                {.query_length = 300,
                                 .key_length = 400,
                                 .width = 64,
                                 .value_width = 64,
                                 .magnitudes = Magnitudes::kFarFromOrigin,
                                 .scoring = ScoringKind::kGaussian,
                                 .sigma = 8,
                                 .wanted = kNoWeights}}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace attention::test
