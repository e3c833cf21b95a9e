// The server, its models and its settings.
#include "server/services/inference_management.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "server/base/version.h"
#include "server/services/model_descriptions.h"

namespace attention::server {
namespace {

absl::Status CannotBeSet(const std::string& key, const char* instead) {
  return absl::UnimplementedError(absl::StrCat(
      key.substr(0, 64), ": cannot be set over the wire (", instead, ")"));
}

}  // namespace

absl::StatusOr<inference::ServerMetadataResponse>
InferenceManagement::ServerMetadata(
    const Caller* /*caller*/,
    const inference::ServerMetadataRequest& /*request*/) {
  inference::ServerMetadataResponse response;
  response.set_name("attention-server");
  response.set_version(Version());
  for (const char* extension :
       {"model_configuration", "model_repository", "system_shared_memory",
        "binary_tensor_data", "parameters", "statistics", "trace", "logging",
        "sequence"}) {
    response.add_extensions(extension);
  }
  if (engine_.CheckReachesDevices().ok()) {
    response.add_extensions("cuda_shared_memory");
  }
  return response;
}

absl::StatusOr<inference::ModelReadyResponse> InferenceManagement::ModelReady(
    const Caller* /*caller*/, const inference::ModelReadyRequest& request) {
  const auto model = models_.Find(request.name(), request.version());
  if (!model.ok() && !absl::IsNotFound(model.status())) return model.status();
  inference::ModelReadyResponse response;
  response.set_ready(model.ok());
  return response;
}

absl::StatusOr<inference::ModelMetadataResponse>
InferenceManagement::ModelMetadata(
    const Caller* /*caller*/, const inference::ModelMetadataRequest& request) {
  const auto model = models_.Find(request.name(), request.version());
  if (!model.ok()) return model.status();
  inference::ModelMetadataResponse response;
  FillModelMetadata(**model, response);
  return response;
}

absl::StatusOr<inference::ModelConfigResponse> InferenceManagement::ModelConfig(
    const Caller* /*caller*/, const inference::ModelConfigRequest& request) {
  const auto model = models_.Find(request.name(), request.version());
  if (!model.ok()) return model.status();
  inference::ModelConfigResponse response;
  FillModelConfig(**model, *response.mutable_config());
  return response;
}

absl::StatusOr<inference::ModelStatisticsResponse>
InferenceManagement::ModelStatistics(
    const Caller* /*caller*/,
    const inference::ModelStatisticsRequest& request) {
  inference::ModelStatisticsResponse response;
  if (request.name().empty()) {
    for (const auto& model : models_.List()) {
      FillModelStatistics(*model, *response.add_model_stats());
    }
    return response;
  }
  const auto model = models_.Find(request.name(), request.version());
  if (!model.ok()) return model.status();
  FillModelStatistics(**model, *response.add_model_stats());
  return response;
}

absl::StatusOr<inference::TraceSettingResponse>
InferenceManagement::TraceSetting(
    const Caller* /*caller*/, const inference::TraceSettingRequest& request) {
  if (!request.model_name().empty()) {
    const auto model = models_.Find(request.model_name(), "");
    if (!model.ok()) return model.status();
  }
  if (!request.settings().empty()) {
    return CannotBeSet(request.settings().begin()->first,
                       "this server does not trace");
  }
  inference::TraceSettingResponse response;
  auto& settings = *response.mutable_settings();
  settings["trace_file"].add_value("");
  settings["trace_level"].add_value("OFF");
  settings["trace_rate"].add_value("1000");
  settings["trace_count"].add_value("-1");
  settings["log_frequency"].add_value("0");
  return response;
}

absl::StatusOr<inference::LogSettingsResponse> InferenceManagement::LogSettings(
    const Caller* /*caller*/, const inference::LogSettingsRequest& request) {
  if (!request.settings().empty()) {
    return CannotBeSet(request.settings().begin()->first,
                       "the server's --log-level and --log-format do");
  }
  const std::string& level = options_.log_level;
  const bool verbose = level == "debug" || level == "trace";
  const bool info = verbose || level == "info";
  const bool warning = info || level == "warning";
  inference::LogSettingsResponse response;
  auto& settings = *response.mutable_settings();
  settings["log_file"].set_string_param("");
  settings["log_info"].set_bool_param(info);
  settings["log_warning"].set_bool_param(warning);
  settings["log_error"].set_bool_param(warning || level == "error");
  settings["log_verbose_level"].set_uint32_param(verbose ? 1 : 0);
  settings["log_format"].set_string_param("default");
  return response;
}

}  // namespace attention::server
