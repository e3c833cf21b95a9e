#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <variant>

#include "client/cpp/cli/attend_flags.h"

namespace attention::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Inputs WithParameters(const std::vector<std::string>& names) {
  Inputs inputs;
  for (const char* name : {"query", "key", "value"}) {
    inputs.tensors[name] = Tensor::FromFloats({1, 1}, {1});
  }
  for (const std::string& name : names) {
    inputs.tensors[name] = Tensor::FromFloats({1, 1}, {2});
  }
  return inputs;
}

// The request of a command line, as CLI11 reads it.
absl::StatusOr<client::AttendRequest> Parse(const std::string& command_line,
                                            Inputs& inputs) {
  CLI::App app;
  AttendFlags flags;
  AddAttendFlags(app, flags);
  app.parse(command_line);
  return BuildRequest(flags, inputs);
}

absl::StatusOr<client::AttendRequest> Parse(
    const std::string& command_line,
    const std::vector<std::string>& parameters = {}) {
  Inputs inputs = WithParameters(parameters);
  return Parse(command_line, inputs);
}

TEST(RequestTest, WithoutFlagsNothingIsSet) {
  const auto request = Parse("");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_FALSE(std::get<client::ScaledDotProduct>(request->scoring).scale);
  EXPECT_FALSE(request->softcap || request->causal || request->query_offset ||
               request->key_offset || request->window_left ||
               request->window_right || request->training ||
               request->dropout_p || request->seed ||
               request->weights_after_dropout || request->empty_rows ||
               request->valid_lens || request->attend_mask || request->bias);
  EXPECT_FALSE(request->return_weights || request->return_lse);
}

TEST(RequestTest, EveryFlagReachesTheRequest) {
  const auto request = Parse(
      "--scale 0 --softcap 30 --causal top_left --query-offset -3 "
      "--key-offset 4 --window-left 0 --window-right 6 --training "
      "--dropout-p 0.25 --seed 18446744073709551615 --weights-after-dropout "
      "--empty-rows uniform --weights --lse --top-k 5 --key-weights --scores "
      "capped",
      {"valid_lens", "attend_mask", "bias"});
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(std::get<client::ScaledDotProduct>(request->scoring).scale, 0.0);
  EXPECT_EQ(request->softcap, 30.0);
  EXPECT_EQ(request->causal, client::Causal::kTopLeft);
  EXPECT_EQ(request->query_offset, -3);
  EXPECT_EQ(request->key_offset, 4);
  EXPECT_EQ(request->window_left, 0);
  EXPECT_EQ(request->window_right, 6);
  EXPECT_EQ(request->training, true);
  EXPECT_EQ(request->dropout_p, 0.25);
  EXPECT_EQ(request->seed, 18'446'744'073'709'551'615U);
  EXPECT_EQ(request->weights_after_dropout, true);
  EXPECT_EQ(request->empty_rows, client::EmptyRows::kUniform);
  EXPECT_TRUE(request->return_weights && request->return_lse);
  EXPECT_EQ(request->top_k, 5);
  EXPECT_TRUE(request->return_key_weights);
  EXPECT_EQ(request->scores, client::Scores::kCapped);
  EXPECT_TRUE(request->valid_lens && request->attend_mask && request->bias);
}

TEST(RequestTest, ScoringFollowsFromTheParameters) {
  EXPECT_TRUE(std::holds_alternative<client::Additive>(
      Parse("", {"w_q", "w_k", "w_v"})->scoring));
  EXPECT_EQ(
      std::get<client::Bilinear>(Parse("--scale 2", {"m"})->scoring).scale,
      2.0);
  EXPECT_EQ(std::get<client::Gaussian>(Parse("--sigma 2")->scoring).sigma, 2.0);
  EXPECT_FALSE(
      std::get<client::Gaussian>(Parse("--scoring gaussian")->scoring).sigma);
}

TEST(RequestTest, AParameterSetStandsInForParameters) {
  Inputs inputs = WithParameters({"m"});
  const auto request = Parse("--parameter-set trained --scale 2", inputs);
  ASSERT_TRUE(request.ok()) << request.status();
  const auto& set = std::get<client::ParameterSet>(request->scoring);
  EXPECT_EQ(set.name, "trained");
  EXPECT_EQ(set.scale, 2.0);
  EXPECT_EQ(set.sigma, std::nullopt);
  EXPECT_THAT(inputs.unused, ElementsAre("m"));
}

TEST(RequestTest, ParametersThatANamedScoringDoesNotUseAreListed) {
  Inputs inputs = WithParameters({"w_q", "w_k", "w_v", "m"});
  ASSERT_TRUE(Parse("--scoring additive", inputs).ok());
  EXPECT_THAT(inputs.unused, ElementsAre("m"));
}

TEST(RequestTest, AHeatmapAndExpectationsAskForWeights) {
  EXPECT_TRUE(Parse("--heatmap 0,0")->return_weights);
  Inputs inputs = WithParameters({});
  inputs.expected["weights"] = Tensor::FromFloats({1, 1}, {1});
  EXPECT_TRUE(Parse("", inputs)->return_weights);
}

struct Contradiction {
  const char* name;
  const char* command_line;
  std::vector<std::string> parameters;
  const char* message;
};

class ContradictionTest : public ::testing::TestWithParam<Contradiction> {};

TEST_P(ContradictionTest, IsRefused) {
  const auto request = Parse(GetParam().command_line, GetParam().parameters);
  EXPECT_THAT(std::string(request.status().message()),
              HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, ContradictionTest,
    ::testing::Values(
        Contradiction{"Both", "", {"w_q", "m"}, "choose with --scoring"},
        Contradiction{"SigmaElsewhere",
                      "--scoring scaled_dot_product --sigma 1",
                      {},
                      "--sigma does not go with scaled_dot_product"},
        Contradiction{"ScaleOfGaussian",
                      "--scoring gaussian --scale 1",
                      {},
                      "--scale does not go with gaussian"},
        Contradiction{"ScaleOfAdditive",
                      "--scale 1",
                      {"w_q", "w_k", "w_v"},
                      "--scale does not go with additive"},
        Contradiction{"NoM", "--scoring bilinear", {}, "needs m"},
        Contradiction{"NoWv", "", {"w_q", "w_k"}, "--w-v FILE.npy"},
        Contradiction{"MForGaussian",
                      "--scoring gaussian --m m.npy",
                      {"m"},
                      "--m does not go with gaussian"}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace attention::cli
