// What the Open Inference Protocol tells of the server and its models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/service/gated_server.h"
#include "tests/service/infer_requests.h"
#include "tests/service/wire_client.h"

namespace attention::test {
namespace {

using absl::StatusCode;
using ::testing::Contains;
using ::testing::ElementsAre;

class InferenceModelsTest : public testing::Test {
 protected:
  template <typename Response, typename Request>
  Response Get(const std::string& method, const Request& request) {
    const auto response = CallInference<Response>(client_, method, request);
    EXPECT_TRUE(response.ok()) << method << ": " << response.status();
    return response.value_or(Response());
  }
  template <typename Request>
  static Request Named(const std::string& name,
                       const std::string& version = "") {
    Request request;
    request.set_name(name);
    request.set_version(version);
    return request;
  }
  inference::ModelStatistics Statistics() {
    return Get<inference::ModelStatisticsResponse>(
               "ModelStatistics",
               Named<inference::ModelStatisticsRequest>(kDotProduct))
        .model_stats(0);
  }

  std::unique_ptr<server::Server> server_ = StartServer();
  WireClient client_{server_->address()};
};

TEST_F(InferenceModelsTest, TheServerIsLiveAndReady) {
  EXPECT_TRUE(Get<inference::ServerLiveResponse>("ServerLive",
                                                 inference::ServerLiveRequest())
                  .live());
  EXPECT_TRUE(Get<inference::ServerReadyResponse>(
                  "ServerReady", inference::ServerReadyRequest())
                  .ready());
}

TEST_F(InferenceModelsTest, MetadataNamesTheExtensions) {
  const auto metadata = Get<inference::ServerMetadataResponse>(
      "ServerMetadata", inference::ServerMetadataRequest());
  EXPECT_EQ(metadata.name(), "attention-server");
  EXPECT_THAT(metadata.extensions(), Contains("statistics"));
  EXPECT_THAT(metadata.extensions(), Contains("binary_tensor_data"));
}

TEST_F(InferenceModelsTest, FourModelsAreReady) {
  const auto index = Get<inference::RepositoryIndexResponse>(
      "RepositoryIndex", inference::RepositoryIndexRequest());
  std::vector<std::string> names;
  for (const auto& model : index.models()) {
    names.push_back(model.name());
    EXPECT_EQ(model.state(), "READY");
    EXPECT_TRUE(Get<inference::ModelReadyResponse>(
                    "ModelReady",
                    Named<inference::ModelReadyRequest>(model.name(), "1"))
                    .ready());
  }
  EXPECT_THAT(names, ElementsAre("additive_attention", "bilinear_attention",
                                 "gaussian_attention", kDotProduct));
}

TEST_F(InferenceModelsTest, AnUnknownModelIsNotReadyAndHasNoMetadata) {
  EXPECT_FALSE(Get<inference::ModelReadyResponse>(
                   "ModelReady", Named<inference::ModelReadyRequest>("bert"))
                   .ready());
  EXPECT_EQ(CallInference<inference::ModelMetadataResponse>(
                client_, "ModelMetadata",
                Named<inference::ModelMetadataRequest>("bert"))
                .status()
                .code(),
            StatusCode::kNotFound);
}

// Load generators read both, and look for each tensor of one in the other.
TEST_F(InferenceModelsTest, MetadataAndConfigurationListTheSameTensors) {
  for (const char* model : {kDotProduct, "additive_attention",
                            "gaussian_attention", "bilinear_attention"}) {
    SCOPED_TRACE(model);
    const auto metadata = Get<inference::ModelMetadataResponse>(
        "ModelMetadata", Named<inference::ModelMetadataRequest>(model));
    const auto config =
        Get<inference::ModelConfigResponse>(
            "ModelConfig", Named<inference::ModelConfigRequest>(model))
            .config();
    EXPECT_EQ(metadata.name(), model);
    EXPECT_THAT(metadata.versions(), ElementsAre("1"));
    EXPECT_EQ(config.name(), model);
    EXPECT_EQ(config.max_batch_size(), 0);
    ASSERT_EQ(metadata.inputs_size(), config.input_size());
    for (int n = 0; n < config.input_size(); ++n) {
      EXPECT_EQ(metadata.inputs(n).name(), config.input(n).name());
      EXPECT_EQ(metadata.inputs(n).shape_size(), config.input(n).dims_size());
    }
    ASSERT_EQ(config.output_size(), 1);
    ASSERT_EQ(metadata.outputs_size(), 1);
    EXPECT_EQ(metadata.outputs(0).name(), "output");
  }
}

TEST_F(InferenceModelsTest, StatisticsGrowWithEveryRequest) {
  EXPECT_EQ(Statistics().execution_count(), 0U);
  ASSERT_TRUE(Infer(client_, GoodInfer()).ok());
  ASSERT_TRUE(Infer(client_, GoodInfer()).ok());
  auto wrong = GoodInfer();
  wrong.mutable_inputs(0)->set_datatype("FP8");
  ASSERT_FALSE(Infer(client_, wrong).ok());

  const inference::ModelStatistics statistics = Statistics();
  EXPECT_EQ(statistics.version(), "1");
  EXPECT_EQ(statistics.execution_count(), 2U);
  EXPECT_EQ(statistics.inference_count(), 4U);  // of 2 batch entries each
  EXPECT_GT(statistics.last_inference(), 0U);
  const inference::InferStatistics& times = statistics.inference_stats();
  EXPECT_EQ(times.success().count(), 2U);
  EXPECT_EQ(times.fail().count(), 1U);
  EXPECT_EQ(times.queue().count(), 2U);
  EXPECT_GT(times.compute_infer().ns(), 0U);
  EXPECT_GE(times.success().ns(),
            times.queue().ns() + times.compute_input().ns() +
                times.compute_infer().ns() + times.compute_output().ns());
}

TEST_F(InferenceModelsTest, StatisticsOfAllModels) {
  EXPECT_EQ(Get<inference::ModelStatisticsResponse>(
                "ModelStatistics", inference::ModelStatisticsRequest())
                .model_stats_size(),
            4);
}

TEST_F(InferenceModelsTest, SettingsCanBeReadButNotSet) {
  EXPECT_EQ(Get<inference::TraceSettingResponse>(
                "TraceSetting", inference::TraceSettingRequest())
                .settings()
                .at("trace_level")
                .value(0),
            "OFF");
  EXPECT_TRUE(Get<inference::LogSettingsResponse>(
                  "LogSettings", inference::LogSettingsRequest())
                  .settings()
                  .contains("log_info"));
  inference::LogSettingsRequest set;
  (*set.mutable_settings())["log_info"].set_bool_param(false);
  EXPECT_EQ(
      CallInference<inference::LogSettingsResponse>(client_, "LogSettings", set)
          .status()
          .code(),
      StatusCode::kUnimplemented);
}

TEST(LogSettingsTest, FollowTheLevel) {
  server::ServerOptions options = TestOptions();
  options.log_level = "warning";
  const auto server = StartServer(options);
  WireClient client(server->address());
  const auto response = CallInference<inference::LogSettingsResponse>(
      client, "LogSettings", inference::LogSettingsRequest());
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_FALSE(response->settings().at("log_info").bool_param());
  EXPECT_TRUE(response->settings().at("log_warning").bool_param());
}

}  // namespace
}  // namespace attention::test
