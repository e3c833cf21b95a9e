#include "server/models/parameter_set_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <variant>

#include "tests/support/status_matchers.h"

namespace attention::server {
namespace {

using ::attention::test::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Lt;
using ::testing::SizeIs;

TEST(ParameterSetConfig, NeedsNoMoreThanAScoringFunction) {
  ASSERT_OK_AND_ASSIGN(
      const ParameterSetConfig config,
      ParseParameterSetConfig(R"({"scoring": "scaled_dot_product"})"));
  const auto& scoring = std::get<ScaledDotProduct>(config.defaults.scoring);
  EXPECT_EQ(scoring.scale, std::nullopt);
  EXPECT_EQ(config.defaults.softcap, std::nullopt);
  EXPECT_EQ(config.defaults.masks.causal, Causal::kNone);
  EXPECT_THAT(config.parameters, IsEmpty());
}

TEST(ParameterSetConfig, SaysWhetherRequestsAreOfSequences) {
  const auto of = [](const std::string& rest) {
    return ParseParameterSetConfig(R"({"scoring": "gaussian")" + rest + "}");
  };
  ASSERT_OK_AND_ASSIGN(const ParameterSetConfig silent, of(""));
  EXPECT_FALSE(silent.sequences);
  ASSERT_OK_AND_ASSIGN(const ParameterSetConfig set,
                       of(R"(, "sequences": true)"));
  EXPECT_TRUE(set.sequences);
  EXPECT_THAT(of(R"(, "sequences": 1)"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "sequences: 1 (expected true or false)"));
}

TEST(ParameterSetConfig, ReadsEveryOption) {
  ASSERT_OK_AND_ASSIGN(const ParameterSetConfig config,
                       ParseParameterSetConfig(R"({
    "scoring": "gaussian",
    "options": {
      "sigma": 2, "softcap": 30.5, "causal": "top_left", "query_offset": -7,
      "key_offset": 9223372036854775807, "window_left": 0, "window_right": 5,
      "dropout_p": 0.25, "seed": 18446744073709551615, "training": true,
      "weights_after_dropout": true, "empty_rows": "uniform"}})"));
  const AttentionProblem& defaults = config.defaults;
  EXPECT_EQ(std::get<Gaussian>(defaults.scoring).sigma, 2);
  EXPECT_EQ(defaults.softcap, 30.5);
  EXPECT_EQ(defaults.masks.causal, Causal::kTopLeft);
  EXPECT_EQ(defaults.masks.query_offset, -7);
  EXPECT_EQ(defaults.masks.key_offset, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(defaults.masks.window.left, 0);
  EXPECT_EQ(defaults.masks.window.right, 5);
  EXPECT_EQ(defaults.dropout.p, 0.25);
  EXPECT_EQ(defaults.dropout.seed, std::numeric_limits<uint64_t>::max());
  EXPECT_TRUE(defaults.dropout.training);
  EXPECT_TRUE(defaults.wanted.weights_after_dropout);
  EXPECT_EQ(defaults.empty_rows, EmptyRows::kUniform);
}

TEST(ParameterSetConfig, ReadsTheScalesOfBothThatHaveOne) {
  ASSERT_OK_AND_ASSIGN(
      const ParameterSetConfig dot,
      ParseParameterSetConfig(
          R"({"scoring": "scaled_dot_product", "options": {"scale": 0}})"));
  EXPECT_EQ(std::get<ScaledDotProduct>(dot.defaults.scoring).scale, 0);
  ASSERT_OK_AND_ASSIGN(
      const ParameterSetConfig bilinear,
      ParseParameterSetConfig(
          R"({"scoring": "bilinear", "options": {"scale": -1.5}})"));
  EXPECT_EQ(std::get<Bilinear>(bilinear.defaults.scoring).scale, -1.5);
}

TEST(ParameterSetConfig, ReadsWhereParametersComeFrom) {
  ASSERT_OK_AND_ASSIGN(const ParameterSetConfig config,
                       ParseParameterSetConfig(R"({
    "scoring": "additive",
    "parameters": {
      "w_q": {"tensor": "encoder.q.weight", "layout": "output_by_input"},
      "w_k": {"layout": "input_by_output"}}})"));
  ASSERT_EQ(config.parameters.size(), 3);
  const ParameterSource& w_q = config.parameters.at("w_q");
  EXPECT_EQ(w_q.tensor, "encoder.q.weight");
  EXPECT_EQ(w_q.layout, WeightLayout::kOutputByInput);
  EXPECT_EQ(config.parameters.at("w_k").tensor, "w_k");
  EXPECT_EQ(config.parameters.at("w_k").layout, WeightLayout::kInputByOutput);
  EXPECT_EQ(config.parameters.at("w_v").tensor, "w_v");
  EXPECT_EQ(config.parameters.at("w_v").layout, std::nullopt);
}

struct WrongConfig {
  const char* name;
  std::string json;
  const char* key;
  const char* expected;
};

class ParameterSetConfigRefuses : public ::testing::TestWithParam<WrongConfig> {
};

TEST_P(ParameterSetConfigRefuses, AndNamesTheKey) {
  EXPECT_THAT(ParseParameterSetConfig(GetParam().json),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(::testing::StartsWith(GetParam().key),
                             HasSubstr(GetParam().expected))));
}

// A configuration with these options beside a scoring function.
std::string Options(const char* options,
                    const char* scoring = "scaled_dot_product") {
  return std::string(R"({"scoring": ")") + scoring + R"(", "options": {)" +
         options + "}}";
}

INSTANTIATE_TEST_SUITE_P(
    Wrong, ParameterSetConfigRefuses,
    ::testing::Values(
        WrongConfig{"NotJson", "{", "", "parse error"},
        WrongConfig{"NotAnObject", "[]", "", "not a JSON object"},
        WrongConfig{"TooDeep",
                    R"({"options": )" + std::string(100000, '[') +
                        std::string(100000, ']') + "}",
                    "", "deeper"},
        WrongConfig{"NoScoring", "{}", "scoring: missing", "gaussian"},
        WrongConfig{"UnknownScoring", R"({"scoring": "cosine"})",
                    "scoring: \"cosine\"", "additive, gaussian, bilinear"},
        WrongConfig{"UnknownKey", R"({"scoring": "gaussian", "paramters": {}})",
                    "paramters: unknown key", "scoring, parameters, options"},
        WrongConfig{"Twice",
                    R"({"scoring": "gaussian", "scoring": "bilinear"})",
                    "scoring: comes twice", ""},
        WrongConfig{"UnknownOption", Options(R"("sofcap": 1)"),
                    "options.sofcap: unknown key", "softcap, causal"},
        WrongConfig{"NumberAsText", Options(R"("softcap": "30")"),
                    "options.softcap: \"30\"", "a number"},
        WrongConfig{"FractionalOffset", Options(R"("query_offset": 1.5)"),
                    "options.query_offset: 1.5", "a whole number"},
        WrongConfig{"OffsetBeyond63Bits",
                    Options(R"("key_offset": 9223372036854775808)"),
                    "options.key_offset: 9223372036854775808", "64 bits"},
        WrongConfig{"NegativeSeed", Options(R"("seed": -1)"),
                    "options.seed: -1", "from 0 to 2^64 - 1"},
        WrongConfig{"NumberAsSwitch", Options(R"("training": 1)"),
                    "options.training: 1", "true or false"},
        WrongConfig{"UnknownCausal", Options(R"("causal": true)"),
                    "options.causal: true",
                    "'none', 'top_left', 'bottom_right'"},
        WrongConfig{"NullAsWord", Options(R"("causal": null)"),
                    "options.causal: null",
                    "'none', 'top_left', 'bottom_right'"},
        WrongConfig{"ArrayAsWord", Options(R"("scores": [])"),
                    "options.scores: an array",
                    "'none', 'scaled', 'capped', 'masked'"},
        WrongConfig{"ObjectAsWord", Options(R"("empty_rows": {})"),
                    "options.empty_rows: an object", "'zero', 'uniform'"},
        WrongConfig{"UnknownEmptyRows", Options(R"("empty_rows": "nan")"),
                    "options.empty_rows: 'nan'", "'zero', 'uniform'"},
        WrongConfig{"ScaleOfAdditive", Options(R"("scale": 1)", "additive"),
                    "options.scale", "scaled dot product and bilinear have"},
        WrongConfig{"SigmaOfBilinear", Options(R"("sigma": 1)", "bilinear"),
                    "options.sigma", "Gaussian has"},
        WrongConfig{"OptionsNotAnObject",
                    R"({"scoring": "gaussian", "options": [1]})",
                    "options: an array", "an object"},
        WrongConfig{"ParameterOfAnother",
                    R"({"scoring": "additive", "parameters": {"m": {}}})",
                    "parameters.m: unknown key", "w_q, w_k, w_v"},
        WrongConfig{"ParameterOfNone",
                    R"({"scoring": "gaussian", "parameters": {"m": {}}})",
                    "parameters.m: unknown key",
                    "expected alibi_slopes, sinks"},
        WrongConfig{
            "UnknownLayout",
            R"({"scoring": "bilinear", "parameters": {"m": {"layout": "t"}}})",
            "parameters.m.layout: \"t\"", "input_by_output"},
        WrongConfig{
            "UnknownParameterKey",
            R"({"scoring": "bilinear", "parameters": {"m": {"name": "t"}}})",
            "parameters.m.name: unknown key", "tensor, layout"},
        WrongConfig{
            "TensorNotAName",
            R"({"scoring": "bilinear", "parameters": {"m": {"tensor": 1}}})",
            "parameters.m.tensor: 1", "a string"}),
    [](const auto& test) { return test.param.name; });

TEST(ParameterSetConfig, ErrorsHaveTheBeginningOfALongValue) {
  const std::string value = "\"" + std::string(1000, 'x') + "\"";
  for (const std::string& json :
       {R"({"scoring": )" + value + "}",
        R"({"scoring": "gaussian", "options": )" + value + "}",
        R"({"scoring": "gaussian", "sequences": )" + value + "}",
        R"({"scoring": "bilinear", "parameters": {"m": {"layout": )" + value +
            "}}}"}) {
    EXPECT_THAT(ParseParameterSetConfig(json).status().message(),
                AllOf(HasSubstr(": \"xxx"), HasSubstr("x... (expected "),
                      SizeIs(Lt(200))))
        << json;
  }
}

}  // namespace
}  // namespace attention::server
