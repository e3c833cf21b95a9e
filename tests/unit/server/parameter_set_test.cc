#include "server/models/parameter_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "core/element.h"
#include "tests/support/model_folders.h"
#include "tests/support/status_matchers.h"

namespace attention::server {
namespace {

using ::attention::test::IsOk;
using ::attention::test::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using Tensors = std::map<std::string, Tensor>;

// Dq = 2, Dk = 3, h = 4.
const Tensor kWq = Tensor::FromFloats({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
const Tensor kWqTransposed =
    Tensor::FromFloats({4, 2}, {1, 5, 2, 6, 3, 7, 4, 8});
const Tensor kWk = Tensor::FromFloats({3, 4}, std::vector<float>(12, 1));
const Tensor kWv = Tensor::FromFloats({4}, {1, 2, 3, 4});

constexpr char kAdditive[] = R"({
    "scoring": "additive",
    "parameters": {"w_q": {"layout": "input_by_output"},
                   "w_k": {"layout": "input_by_output"}}})";
constexpr char kLinear[] = R"({
    "scoring": "additive",
    "parameters": {"w_q": {"tensor": "q.weight", "layout": "output_by_input"},
                   "w_k": {"layout": "input_by_output"},
                   "w_v": {"layout": "output_by_input"}}})";
constexpr char kBilinear[] = R"({
    "scoring": "bilinear",
    "parameters": {"m": {"layout": "input_by_output"}}})";

class LoadParameterSetTest : public ::testing::Test {
 protected:
  absl::StatusOr<ParameterSet> Load(const std::string& config,
                                    const Tensors& tensors = {}) {
    return LoadParameterSet("a", folders_.Add("a", config, tensors));
  }

  test::ModelFolders folders_;
};

TEST_F(LoadParameterSetTest, TakesInputByOutputAsItLies) {
  ASSERT_OK_AND_ASSIGN(
      const ParameterSet set,
      Load(kAdditive, {{"w_q", kWq}, {"w_k", kWk}, {"w_v", kWv}}));
  EXPECT_EQ(set.name, "a");
  const auto& scoring = std::get<Additive>(set.defaults.scoring);
  EXPECT_EQ(scoring.w_q.data, set.tensors.at("w_q").data());
  EXPECT_THAT(scoring.w_q.shape, ElementsAre(2, 4));
  EXPECT_THAT(scoring.w_k.shape, ElementsAre(3, 4));
  EXPECT_THAT(scoring.w_v.shape, ElementsAre(4));
  EXPECT_EQ(set.tensors.at("w_q").ToFloats(), kWq.ToFloats());
}

TEST_F(LoadParameterSetTest, TransposesWhatALinearLayerStores) {
  const Tensor w_v = Tensor::FromFloats({1, 4}, {1, 2, 3, 4});
  ASSERT_OK_AND_ASSIGN(
      const ParameterSet set,
      Load(kLinear, {{"q.weight", kWqTransposed}, {"w_k", kWk}, {"w_v", w_v}}));
  EXPECT_THAT(set.tensors.at("w_q").shape(), ElementsAre(2, 4));
  EXPECT_EQ(set.tensors.at("w_q").ToFloats(), kWq.ToFloats());
  EXPECT_THAT(set.tensors.at("w_v").shape(), ElementsAre(4, 1));
  EXPECT_EQ(set.tensors.at("w_v").ToFloats(), kWv.ToFloats());
}

TEST_F(LoadParameterSetTest, TransposesEachHeadByItself) {
  ASSERT_OK_AND_ASSIGN(
      const ParameterSet set,
      Load(R"({"scoring": "bilinear",
               "parameters": {"m": {"layout": "output_by_input"}}})",
           {{"m", Tensor::FromFloats({2, 2, 3}, {1, 2, 3, 4, 5, 6, 10, 20, 30,
                                                 40, 50, 60})}}));
  EXPECT_THAT(set.tensors.at("m").shape(), ElementsAre(2, 3, 2));
  EXPECT_THAT(set.tensors.at("m").ToFloats(),
              ElementsAre(1, 4, 2, 5, 3, 6, 10, 40, 20, 50, 30, 60));
}

TEST_F(LoadParameterSetTest, EachHeadMayHaveItsOwnVector) {
  const Tensor per_head = Tensor::FromFloats({3, 4}, std::vector<float>(12, 1));
  ASSERT_OK_AND_ASSIGN(const ParameterSet set,
                       Load(R"({"scoring": "additive",
               "parameters": {"w_q": {"layout": "input_by_output"},
                              "w_k": {"layout": "input_by_output"},
                              "w_v": {"layout": "input_by_output"}}})",
                            {{"w_q", kWq}, {"w_k", kWk}, {"w_v", per_head}}));
  EXPECT_THAT(set.tensors.at("w_v").shape(), ElementsAre(3, 4));
}

TEST_F(LoadParameterSetTest, WidensSixteenBits) {
  Tensor half = Tensor::Create(DataType::kBFloat16, {1, 1}).value();
  StoreElement(DataType::kBFloat16, 1.5, half.data());
  ASSERT_OK_AND_ASSIGN(const ParameterSet set, Load(kBilinear, {{"m", half}}));
  EXPECT_EQ(set.tensors.at("m").type(), DataType::kFloat32);
  EXPECT_THAT(set.tensors.at("m").ToFloats(), ElementsAre(1.5));
}

TEST_F(LoadParameterSetTest, PassesOverTensorsThatNoParameterNames) {
  ASSERT_OK_AND_ASSIGN(
      const ParameterSet set,
      Load(kAdditive,
           {{"w_q", kWq}, {"w_k", kWk}, {"w_v", kWv}, {"decoder", kWq}}));
  EXPECT_EQ(set.tensors.size(), 3);
}

TEST_F(LoadParameterSetTest, NeedsNoTensorsForAGaussian) {
  ASSERT_OK_AND_ASSIGN(
      const ParameterSet set,
      Load(R"({"scoring": "gaussian", "options": {"sigma": 0.5}})"));
  EXPECT_EQ(std::get<Gaussian>(set.defaults.scoring).sigma, 0.5);
}

// How many keys there are is each request's.
TEST_F(LoadParameterSetTest, TakesATopKOfSeveralKeys) {
  ASSERT_OK_AND_ASSIGN(
      const ParameterSet set,
      Load(R"({"scoring": "gaussian", "options": {"top_k": 5}})"));
  EXPECT_EQ(set.defaults.wanted.top_k, 5);
}

TEST_F(LoadParameterSetTest, SaysWhichFileIsMissing) {
  EXPECT_THAT(LoadParameterSet("a", folders_.path()),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(StartsWith("config.json: "),
                             Not(HasSubstr(folders_.path())))));
  EXPECT_THAT(Load(kBilinear),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(StartsWith("parameters.safetensors: "),
                             Not(HasSubstr(folders_.path())))));
}

TEST_F(LoadParameterSetTest, RefusesMoreParametersThanThereIsMemory) {
  // As FP32, whatever the file has.
  const Tensor half = Tensor::Create(DataType::kFloat16, {8, 8}).value();
  const std::string folder = folders_.Add("a", kBilinear, {{"m", half}});
  EXPECT_THAT(LoadParameterSet("a", folder, /*most_bytes=*/256), IsOk());
  EXPECT_THAT(LoadParameterSet("a", folder, /*most_bytes=*/255),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(StartsWith("parameters.safetensors: tensor 'm'"),
                             HasSubstr("has 64 elements (expected at most 63"),
                             HasSubstr("--memory-limit"))));
}

TEST_F(LoadParameterSetTest, RefusesAConfigThatIsNone) {
  const std::string folder = folders_.Add("a", kBilinear);
  std::filesystem::resize_file(folder + "/config.json", 10LL << 30);
  EXPECT_THAT(LoadParameterSet("a", folder),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("config.json: has 10737418240 bytes "
                                 "(expected at most 1048576)")));
}

struct WrongSet {
  const char* name;
  std::string config;
  Tensors tensors;
  const char* message;
};

class LoadParameterSetRefuses : public LoadParameterSetTest,
                                public ::testing::WithParamInterface<WrongSet> {
};

TEST_P(LoadParameterSetRefuses, AndNamesWhatIsWrong) {
  EXPECT_THAT(Load(GetParam().config, GetParam().tensors),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr(GetParam().message)));
}

Tensor Matrix(float value) { return Tensor::FromFloats({1, 1}, {value}); }

INSTANTIATE_TEST_SUITE_P(
    Wrong, LoadParameterSetRefuses,
    ::testing::Values(
        WrongSet{"Config", "{}", {}, "config.json: scoring: missing"},
        WrongSet{"NoTensor",
                 kBilinear,
                 {{"M", Matrix(1)}, {"w_q", Matrix(1)}},
                 "has no tensor 'm' for m (it has M, w_q)"},
        WrongSet{"NoTensorOfALongName",
                 absl::StrCat(R"({"scoring": "bilinear", "parameters": {"m": )",
                              R"({"tensor": ")", std::string(2000, 't'),
                              R"(", "layout": "input_by_output"}}})"),
                 {{"M", Matrix(1)}},
                 "t...' for m (it has M)"},
        WrongSet{"NoLayout",
                 R"({"scoring": "bilinear"})",
                 {{"m", Matrix(1)}},
                 "parameters.m.layout: missing (tensor 'm' has shape [1, 1]"},
        WrongSet{"Integers",
                 kBilinear,
                 {{"m", Tensor::Create(DataType::kInt32, {1, 1}).value()}},
                 "tensor 'm': datatype INT32 (expected FP32, FP16 or BF16)"},
        WrongSet{"FP64",
                 kBilinear,
                 {{"m", Tensor::Create(DataType::kFloat64, {1, 1}).value()}},
                 "datatype FP64"},
        WrongSet{"NaN",
                 kBilinear,
                 {{"m", Matrix(std::numeric_limits<float>::quiet_NaN())}},
                 "tensor 'm': element 0 is nan (expected finite numbers)"},
        WrongSet{"Vector",
                 kBilinear,
                 {{"m", kWv}},
                 "parameters.safetensors: m: shape [4]"},
        WrongSet{"NoWidth",
                 kBilinear,
                 {{"m", Tensor::FromFloats({0, 2}, {})}},
                 "width 0"},
        WrongSet{"HiddenWidthsDiffer",
                 kAdditive,
                 {{"w_q", kWq},
                  {"w_k", Tensor::FromFloats({3, 2}, {1, 2, 3, 4, 5, 6})},
                  {"w_v", kWv}},
                 "w_k: shape [3, 2] (expected [3, 4]"},
        WrongSet{"HeadsDiffer",
                 kAdditive,
                 {{"w_q", Tensor::FromFloats({2, 1, 1}, {1, 2})},
                  {"w_k", Tensor::FromFloats({3, 1, 1}, {1, 2, 3})},
                  {"w_v", Tensor::FromFloats({1}, {1})}},
                 "w_q: shape [2, 1, 1]"},
        WrongSet{
            "VectorPerHeadAsALinearLayers",
            kLinear,
            {{"q.weight", kWqTransposed},
             {"w_k", kWk},
             {"w_v", Tensor::FromFloats({4, 4}, std::vector<float>(16, 1))}},
            "tensor 'w_v': shape [4, 4]"},
        WrongSet{"SoftcapOutOfRange",
                 R"({"scoring": "gaussian", "options": {"softcap": -1}})",
                 {},
                 "config.json: softcap: -1 (expected more than 0)"},
        WrongSet{"TopKOfNone",
                 R"({"scoring": "gaussian", "options": {"top_k": 0}})",
                 {},
                 "config.json: options.top_k: 0 (expected 1 to the number"},
        WrongSet{"OptionsThatContradict",
                 R"({"scoring": "gaussian",
                "options": {"causal": "bottom_right", "query_offset": 1}})",
                 {},
                 "config.json: query_offset"}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace attention::server
