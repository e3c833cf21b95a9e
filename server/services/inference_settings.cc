// The settings that Triton's tools read. They describe this server in Triton's
// words; it is set up by its options, not over the wire.
#include <string>

#include "absl/strings/str_cat.h"
#include "server/services/answer.h"
#include "server/services/caller_of_call.h"
#include "server/services/inference_service.h"

namespace attention::server {
namespace {

absl::Status CannotBeSet(const std::string& key, const char* instead) {
  return absl::UnimplementedError(absl::StrCat(
      key.substr(0, 64), ": cannot be set over the wire (", instead, ")"));
}

}  // namespace

InferenceService::Reactor* InferenceService::TraceSetting(
    Context* context, const inference::TraceSettingRequest* request,
    inference::TraceSettingResponse* response) {
  if (absl::Status status = CheckCall(services_.callers, *context);
      !status.ok()) {
    return Answer(context, status);
  }
  if (!request->model_name().empty()) {
    const auto model = models_.Find(request->model_name(), "");
    if (!model.ok()) return Answer(context, model.status());
  }
  if (!request->settings().empty()) {
    return Answer(context, CannotBeSet(request->settings().begin()->first,
                                       "this server does not trace"));
  }
  const auto set = [response](const char* key, const char* value) {
    (*response->mutable_settings())[key].add_value(value);
  };
  set("trace_file", "");
  set("trace_level", "OFF");
  set("trace_rate", "1000");
  set("trace_count", "-1");
  set("log_frequency", "0");
  return Answer(context, absl::OkStatus());
}

InferenceService::Reactor* InferenceService::LogSettings(
    Context* context, const inference::LogSettingsRequest* request,
    inference::LogSettingsResponse* response) {
  if (absl::Status status = CheckCall(services_.callers, *context);
      !status.ok()) {
    return Answer(context, status);
  }
  if (!request->settings().empty()) {
    return Answer(context,
                  CannotBeSet(request->settings().begin()->first,
                              "the server's --log-level and --log-format do"));
  }
  const std::string& level = options_.log_level;
  const bool verbose = level == "debug" || level == "trace";
  const bool info = verbose || level == "info";
  const bool warning = info || level == "warn";
  auto& settings = *response->mutable_settings();
  settings["log_file"].set_string_param("");
  settings["log_info"].set_bool_param(info);
  settings["log_warning"].set_bool_param(warning);
  settings["log_error"].set_bool_param(warning || level == "error");
  settings["log_verbose_level"].set_uint32_param(verbose ? 1 : 0);
  settings["log_format"].set_string_param("default");
  return Answer(context, absl::OkStatus());
}

}  // namespace attention::server
