// attention-client attend: files in, results and files out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/element.h"
#include "core/formats/safetensors.h"
#include "server/server.h"
#include "tests/client/program_fixture.h"
#include "tests/client/scripted_service.h"
#include "tests/support/model_folders.h"

namespace attention {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const std::string kData = ATTENTION_TEST_DATA;

using AttendProgramTest = ProgramFixture;

TEST_F(AttendProgramTest, ComparesWithWhatTheFileExpects) {
  const ProgramResult result =
      RunHere({"attend", "--input", kData + "/minilm_layer3.safetensors",
               "--tolerance", "1e-5", "--heatmap", "1,3"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("[4, 12, 28, 32] FP32"),
                    HasSubstr("from the expected output"),
                    HasSubstr("from the expected weights"),
                    HasSubstr("backend " + DefaultBackend() + ","),
                    HasSubstr("The cat sat on the mat"), HasSubstr("because"),
                    Not(HasSubstr("[PAD]"))));
}

TEST_F(AttendProgramTest, ParametersThatTheServerHasStandInForThoseOfTheFile) {
  const std::string path = kData + "/pytorch.safetensors";
  const auto file = ReadSafetensors(path);
  ASSERT_TRUE(file.ok()) << file.status();
  test::ModelFolders folders;
  folders.Add("trained",
              R"({"scoring": "additive", "parameters": {
                    "w_q": {"layout": "input_by_output"},
                    "w_k": {"layout": "input_by_output"},
                    "w_v": {"layout": "input_by_output"}}})",
              {{"w_q", file->tensors.at("additive/toy/w_q")},
               {"w_k", file->tensors.at("additive/toy/w_k")},
               {"w_v", file->tensors.at("additive/toy/w_v")}});
  server::ServerOptions options;
  options.grpc_port = 0;
  options.http = false;
  options.model_repository = folders.path();
  const auto server = server::Server::Start(options);
  ASSERT_TRUE(server.ok()) << server.status();
  const ProgramResult result = RunClient(
      {"attend", "--server", (*server)->address(), "--input", path, "--case",
       "additive/toy", "--parameter-set", "trained", "--tolerance", "1e-5"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.output, AllOf(HasSubstr("parameter set trained"),
                                   HasSubstr("from the expected output")));
}

TEST_F(AttendProgramTest, ADifferenceAboveTheToleranceEndsWithOne) {
  const ProgramResult result =
      RunHere({"attend", "--input", kData + "/minilm_layer3.safetensors",
               "--scale", "1", "--tolerance", "1e-5"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.errors, HasSubstr("more than the tolerance of 1e-05"));
}

TEST_F(AttendProgramTest, EveryCaseOfAFrameworksFileAgrees) {
  const std::string path = kData + "/pytorch.safetensors";
  const auto file = ReadSafetensors(path);
  ASSERT_TRUE(file.ok()) << file.status();
  int cases = 0;
  for (const auto& [name, tensor] : file->tensors) {
    const size_t end = name.rfind("/query");
    if (end == std::string::npos) continue;
    std::vector<std::string> arguments = {
        "attend", "--input",          path, "--tolerance", "1e-5",
        "--case", name.substr(0, end)};
    if (name.find("gaussian") == 0) {
      arguments.insert(arguments.end(), {"--scoring", "gaussian"});
    }
    if (name.find("multi_head/causal") == 0) {
      arguments.insert(arguments.end(), {"--causal", "top_left"});
    }
    const ProgramResult result = RunHere(arguments);
    EXPECT_EQ(result.exit_code, 0) << name << result.output << result.errors;
    ++cases;
  }
  EXPECT_GT(cases, 10);
}

TEST_F(AttendProgramTest, NumPyFilesInSafetensorsOut) {
  const std::string query = WriteTensor("q", Tensor::FromFloats({1, 1}, {1}));
  const std::string key = WriteTensor("k", Tensor::FromFloats({2, 1}, {1, 1}));
  const std::string value =
      WriteTensor("v", Tensor::FromFloats({2, 1}, {3, 5}));
  const std::string output = folder_.path() + "/out.safetensors";
  const ProgramResult result =
      RunHere({"attend", "--query", query, "--key", key, "--value", value,
               "--weights", "--lse", "--top-k", "2", "--key-weights",
               "--scores", "masked", "--output", output});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const auto file = ReadSafetensors(output);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(file->tensors.at("output").ToFloats(), ElementsAre(4));
  EXPECT_THAT(file->tensors.at("weights").ToFloats(), ElementsAre(0.5, 0.5));
  EXPECT_EQ(file->tensors.count("lse"), 1U);
  EXPECT_THAT(file->tensors.at("top_k_indices").ToDoubles(), ElementsAre(0, 1));
  EXPECT_THAT(file->tensors.at("top_k_weights").ToFloats(),
              ElementsAre(0.5, 0.5));
  EXPECT_THAT(file->tensors.at("key_weights").ToFloats(),
              ElementsAre(0.5, 0.5));
  EXPECT_THAT(file->tensors.at("scores").ToFloats(), ElementsAre(1, 1));
  // The first that auto tries takes every request.
  EXPECT_EQ(file->metadata.at("backend"), DefaultBackend());
}

TEST_F(AttendProgramTest, ResultsGoIntoNoNumPyFile) {
  const std::string tensor = WriteTensor("x", Tensor::FromFloats({1, 1}, {1}));
  const std::string output = folder_.path() + "/out.npy";
  const ProgramResult result =
      RunHere({"attend", "--query", tensor, "--key", tensor, "--value", tensor,
               "--output", output});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.errors,
              HasSubstr("--output: " + output + " (expected a safetensors"));
}

// What cache quantizers write: FP8 with a scale for each row, and INT8.
TEST_F(AttendProgramTest, KeysOfOneByteComeWithScales) {
  for (const DataType type : {DataType::kInt8, DataType::kFloat8}) {
    SafetensorsFile file;
    file.tensors["query"] = Tensor::FromFloats({1, 1}, {1});
    for (const auto& [name, second] :
         {std::pair("key", 2.0), std::pair("value", 4.0)}) {
      Tensor tensor = Tensor::Create(type, {2, 1}).value();
      StoreElement(type, second, tensor.data() + 1);
      file.tensors[name] = std::move(tensor);
    }
    file.tensors["key_scale"] = Tensor::FromFloats({2}, {1, 0});
    file.tensors["value_scale"] = Tensor::FromFloats({2}, {1, 0.5});
    const std::string input = folder_.path() + "/small.safetensors";
    const std::string output = folder_.path() + "/out.safetensors";
    ASSERT_TRUE(WriteSafetensors(input, file).ok());
    const ProgramResult result =
        RunHere({"attend", "--input", input, "--output", output});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    const auto answer = ReadSafetensors(output);
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_THAT(answer->tensors.at("output").ToFloats(), ElementsAre(1));
  }
}

TEST_F(AttendProgramTest, APackedBatchHasNoHeatmap) {
  const std::string query =
      WriteTensor("q3", Tensor::Create(DataType::kFloat32, {5, 2, 8}).value());
  const std::string key =
      WriteTensor("k3", Tensor::Create(DataType::kFloat32, {7, 2, 8}).value());
  const ProgramResult result = RunHere(
      {"attend", "--query", query, "--key", key, "--value", key,
       "--query-starts", WriteTensor("qs", Tensor::FromInts({3}, {0, 2, 5})),
       "--key-starts", WriteTensor("ks", Tensor::FromInts({3}, {0, 3, 7})),
       "--heatmap", "0,0"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.errors, StartsWith("attention-client: --heatmap: "));
}

// What would be drawn lies beyond them.
TEST(FaultyServerTest, WeightsOfAnotherShapeAreNoHeatmap) {
  v1::AttendResponse reply;
  for (v1::Tensor* tensor : {reply.mutable_output(), reply.mutable_weights()}) {
    tensor->set_datatype(v1::DATA_TYPE_FP32);
    tensor->add_shape(1);
    tensor->add_shape(1);
    tensor->set_data(std::string(4, '\0'));
  }
  const client::ScriptedService service({}, reply);
  const ProgramResult result =
      RunClient({"attend", "--server", service.address(), "--input",
                 kData + "/minilm_layer3.safetensors", "--heatmap", "3,11"});
  EXPECT_EQ(result.exit_code, 1) << result.output;
  EXPECT_THAT(result.errors,
              StartsWith("attention-client: INTERNAL: reply: weights [1, 1]"));
}

TEST(FaultyServerTest, OneThatSaysItIsUnavailableAnswers) {
  const client::ScriptedService service(std::vector<grpc::Status>(
      4, {grpc::StatusCode::UNAVAILABLE, "the server is draining"}));
  const ProgramResult result =
      RunClient({"attend", "--server", service.address(), "--input",
                 kData + "/minilm_layer3.safetensors"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.errors, "attention-client: " + service.address() +
                               " cannot serve now (UNAVAILABLE: the server is "
                               "draining); try again\n");
}

TEST_F(AttendProgramTest, WholeNumbersAreDecimal) {
  const std::string query = WriteTensor("q4", Tensor::FromFloats({1, 1}, {1}));
  const std::string key =
      WriteTensor("k4", Tensor::Create(DataType::kFloat32, {10, 1}).value());
  const ProgramResult result = RunHere({"attend", "--query", query, "--key",
                                        key, "--value", key, "--top-k", "010"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("[1, 10] INT64"));
}

TEST_F(AttendProgramTest, TheServersErrorsAreShownAsTheyAre) {
  const std::string query = WriteTensor("q2", Tensor::FromFloats({1, 1}, {1}));
  const std::string key = WriteTensor("k2", Tensor::FromFloats({1, 2}, {1, 1}));
  const ProgramResult result =
      RunHere({"attend", "--query", query, "--key", key, "--value", query});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.errors,
              StartsWith("attention-client: INVALID_ARGUMENT: key: "));
}

}  // namespace
}  // namespace attention
