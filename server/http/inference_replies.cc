#include "server/http/inference_replies.h"

namespace attention::server {

using Json = nlohmann::ordered_json;

Json SettingsJson(const inference::LogSettingsResponse& response) {
  Json all = Json::object();
  for (const auto& [key, value] : response.settings()) {
    const Json members = ToJson(value);
    all[key] = members.empty() ? Json() : members.begin().value();
  }
  return all;
}

Json TraceSettingsJson(const inference::TraceSettingResponse& response) {
  Json all = Json::object();
  for (const auto& [key, value] : response.settings()) {
    if (key != "trace_level" && value.value_size() == 1) {
      all[key] = value.value(0);
    } else {
      all[key] = ToJson(value)["value"];
    }
  }
  return all;
}

}  // namespace attention::server
