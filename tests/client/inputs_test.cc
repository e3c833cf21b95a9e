#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cpp/cli/attend_inputs.h"
#include "client/cpp/cli/attend_report.h"
#include "client/cpp/cli/convert.h"
#include "client/cpp/cli/failure.h"
#include "client/cpp/cli/json_output.h"
#include "core/formats/npy.h"
#include "core/formats/safetensors.h"
#include "tests/support/temporary_folder.h"

namespace attention::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::SizeIs;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

const std::string kData = ATTENTION_TEST_DATA;

std::string Message(const absl::Status& status) {
  return absl::StrCat(status.message());
}

Tensor Doubles(std::vector<double> values) {
  Tensor tensor = *Tensor::Create(DataType::kFloat64,
                                  {1, static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(),
            reinterpret_cast<double*>(tensor.data()));
  return tensor;
}

absl::StatusOr<Inputs> Load(const std::string& safetensors,
                            const std::string& prefix = "",
                            std::map<std::string, std::string> npy = {}) {
  InputFlags flags;
  flags.safetensors = safetensors;
  flags.prefix = prefix;
  flags.npy = std::move(npy);
  return LoadInputs(flags);
}

TEST(InputsTest, AFileGivesInputsExpectationsTokensAndSentences) {
  const auto inputs = Load(kData + "/minilm_layer3.safetensors");
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  EXPECT_THAT(inputs->tensors,
              UnorderedElementsAre(Key("query"), Key("key"), Key("value"),
                                   Key("valid_lens")));
  EXPECT_THAT(inputs->expected,
              UnorderedElementsAre(Key("output"), Key("weights")));
  EXPECT_THAT(inputs->tokens, SizeIs(4 * 28));
  EXPECT_THAT(inputs->sentences, SizeIs(4));
  EXPECT_THAT(inputs->unused, IsEmpty());
}

TEST(InputsTest, ACaseTakesItsTensorsAlone) {
  const auto inputs =
      Load(kData + "/pytorch.safetensors", "dot_product/binary_mask");
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  EXPECT_THAT(inputs->tensors,
              UnorderedElementsAre(Key("query"), Key("key"), Key("value"),
                                   Key("attend_mask")));
  EXPECT_THAT(inputs->expected,
              UnorderedElementsAre(Key("output"), Key("weights")));
}

TEST(InputsTest, TensorsOfNoKnownNameAreListed) {
  const auto inputs =
      Load(kData + "/jax.safetensors", "multi_head/sliding_window");
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  EXPECT_THAT(inputs->unused, ElementsAre("window"));
}

TEST(InputsTest, ASecondNameForOneThingIsListed) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/twice.safetensors";
  SafetensorsFile file;
  for (const char* name : {"query", "key", "value", "attend_mask", "mask",
                           "expected_output", "output"}) {
    file.tensors[name] = Tensor::FromFloats({1, 1}, {1});
  }
  file.tensors["attend_mask"] = Tensor::FromInts({1, 1}, {1});
  file.tensors["expected_output"] = Tensor::FromInts({1, 1}, {1});
  ASSERT_TRUE(WriteSafetensors(path, file).ok());
  const auto inputs = Load(path);
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  EXPECT_EQ(inputs->tensors.at("attend_mask").type(), DataType::kInt32);
  EXPECT_EQ(inputs->expected.at("output").type(), DataType::kInt32);
  EXPECT_THAT(inputs->unused, ElementsAre("mask", "output"));
}

TEST(InputsTest, WithoutACaseTheErrorListsThem) {
  for (const char* prefix : {"", "multi_head/nothing"}) {
    const auto inputs = Load(kData + "/pytorch.safetensors", prefix);
    EXPECT_THAT(
        Message(inputs.status()),
        AllOf(HasSubstr("pytorch.safetensors"), HasSubstr("multi_head/bias")));
  }
}

TEST(InputsTest, AMissingTensorIsNamed) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/no_value.safetensors";
  SafetensorsFile file;
  file.tensors["query"] = Tensor::FromFloats({1, 1}, {1});
  file.tensors["key"] = Tensor::FromFloats({1, 1}, {1});
  ASSERT_TRUE(WriteSafetensors(path, file).ok());
  EXPECT_THAT(Message(Load(path).status()),
              AllOf(HasSubstr(path), HasSubstr("no tensor \"value\"")));
}

TEST(InputsTest, ANumPyFileStandsInForTheFilesTensor) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/lens.npy";
  ASSERT_TRUE(WriteNpy(path, Tensor::FromInts({4}, {1, 2, 3, 4})).ok());
  const auto inputs =
      Load(kData + "/minilm_layer3.safetensors", "", {{"valid_lens", path}});
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  EXPECT_THAT(inputs->tensors.at("valid_lens").ToFloats(),
              ElementsAre(1, 2, 3, 4));
}

TEST(InputsTest, ANumPyFileThatIsNoneIsNamedWithItsFlag) {
  const auto inputs =
      Load(kData + "/minilm_layer3.safetensors", "", {{"valid_lens", "3"}});
  EXPECT_THAT(Message(inputs.status()),
              StartsWith("--valid-lens: 3: cannot be opened"));
}

TEST(ConvertTest, DoublesBecomeFp32AndANoteSaysSo) {
  Inputs inputs;
  for (const char* name : {"query", "key", "value", "bias"}) {
    inputs.tensors[name] = Doubles({0.1, 2});
  }
  std::vector<std::string> notes;
  ASSERT_TRUE(ConvertInputs(std::nullopt, inputs, notes).ok());
  EXPECT_THAT(inputs.tensors["query"].ToFloats(), ElementsAre(0.1F, 2.0F));
  EXPECT_THAT(
      notes,
      ElementsAre("query, key, value, bias converted from FP64 to FP32"));
}

TEST(ConvertTest, WhatFitsIsLeftAlone) {
  Inputs inputs;
  inputs.tensors["query"] = *Tensor::Create(DataType::kBFloat16, {1});
  inputs.tensors["bias"] = *Tensor::Create(DataType::kBFloat16, {1});
  inputs.tensors["w_q"] = *Tensor::Create(DataType::kFloat32, {1});
  inputs.tensors["valid_lens"] = *Tensor::Create(DataType::kInt64, {1});
  std::vector<std::string> notes;
  ASSERT_TRUE(ConvertInputs(std::nullopt, inputs, notes).ok());
  EXPECT_THAT(notes, IsEmpty());
}

TEST(ConvertTest, WhatIsAlwaysFp32FollowsNoQuery) {
  for (const char* name :
       {"alibi_slopes", "sinks", "key_scale", "value_scale"}) {
    for (const DataType type : {DataType::kFloat64, DataType::kFloat16}) {
      Inputs inputs;
      inputs.tensors["query"] = *Tensor::Create(DataType::kFloat16, {1});
      inputs.tensors[name] = *Tensor::Create(type, {1});
      std::vector<std::string> notes;
      ASSERT_TRUE(ConvertInputs(std::nullopt, inputs, notes).ok());
      EXPECT_EQ(inputs.tensors[name].type(), DataType::kFloat32) << name;
    }
  }
}

TEST(ConvertTest, AWantedTypeIsForTheQueryAndWhatMustFollowIt) {
  Inputs inputs;
  inputs.tensors["query"] = Doubles({70'000, 1});
  inputs.tensors["bias"] = *Tensor::Create(DataType::kBFloat16, {1});
  inputs.tensors["m"] = *Tensor::Create(DataType::kFloat32, {1});
  std::vector<std::string> notes;
  ASSERT_TRUE(ConvertInputs(DataType::kFloat16, inputs, notes).ok());
  EXPECT_EQ(inputs.tensors["query"].type(), DataType::kFloat16);
  EXPECT_EQ(inputs.tensors["bias"].type(), DataType::kFloat32);
  EXPECT_EQ(inputs.tensors["m"].type(), DataType::kFloat32);
  EXPECT_THAT(notes, ElementsAre("query converted from FP64 to FP16",
                                 "bias converted from BF16 to FP32",
                                 "query: 1 finite values became infinite in "
                                 "FP16"));
}

TEST(ReportTest, EveryTensorThatIsSentIsListedAndCounted) {
  for (const auto& [name, tensor] :
       std::map<std::string, std::optional<Tensor> client::AttendRequest::*>{
           {"valid_lens", &client::AttendRequest::valid_lens},
           {"attend_mask", &client::AttendRequest::attend_mask},
           {"bias", &client::AttendRequest::bias},
           {"alibi_slopes", &client::AttendRequest::alibi_slopes},
           {"sinks", &client::AttendRequest::sinks},
           {"query_offsets", &client::AttendRequest::query_offsets},
           {"query_starts", &client::AttendRequest::query_starts},
           {"key_starts", &client::AttendRequest::key_starts},
           {"key_scale", &client::AttendRequest::key_scale},
           {"value_scale", &client::AttendRequest::value_scale}}) {
    client::AttendRequest request;
    request.*tensor = Tensor::FromInts({3}, {1, 2, 3});
    EXPECT_THAT(DescribeRequest(request), HasSubstr(name));
    EXPECT_THAT(DescribeResult(request, {}, std::chrono::nanoseconds(0)),
                HasSubstr("12 bytes sent"))
        << name;
  }
}

// ESC, and CSI in one character, which is no ASCII.
TEST(ReportTest, WhatAServerSaysCommandsNoTerminal) {
  client::AttendResult result;
  result.backend = "cpu\x1b[31m";
  result.kernel =
      "x\xc2\x9b"
      "31m\n";
  EXPECT_THAT(DescribeResult({}, result, std::chrono::nanoseconds(0)),
              HasSubstr("backend cpu?[31m, kernel x?31m?\n"));
  ::testing::internal::CaptureStderr();
  Report(
      absl::InternalError("a\xc2\x9b"
                          "31m\x1b[31m\nb"));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "attention-client: a?31m [31m b\n");
  ::testing::internal::CaptureStdout();
  PrintJson(
      "x\xc2\x9b"
      "31m");
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "\"x\\u009b31m\"\n");
}

TEST(ReportTest, TheLargestDifferenceCountsEveryElement) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const auto difference = [](const std::vector<float>& a,
                             const std::vector<float>& b) {
    return *LargestDifference(Tensor::FromFloats({2}, a),
                              Tensor::FromFloats({2}, b));
  };
  EXPECT_EQ(difference({1, 2}, {1.5, 1}), 1.0);
  EXPECT_EQ(difference({nan, -inf}, {nan, -inf}), 0.0);
  EXPECT_EQ(difference({nan, 1}, {1, 1}), inf);
  EXPECT_EQ(difference({1, 1}, {1, nan}), inf);
  EXPECT_EQ(difference({inf, 1}, {-inf, 1}), inf);
}

TEST(ReportTest, DifferentShapesHaveNoDifference) {
  EXPECT_FALSE(LargestDifference(Tensor::FromFloats({2, 1}, {1, 2}),
                                 Tensor::FromFloats({1, 2}, {1, 2}))
                   .ok());
}

}  // namespace
}  // namespace attention::cli
