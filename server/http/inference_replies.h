#ifndef ATTENTION_SERVER_HTTP_INFERENCE_REPLIES_H_
#define ATTENTION_SERVER_HTTP_INFERENCE_REPLIES_H_

#include <nlohmann/json.hpp>

#include "inference/grpc_service.pb.h"
#include "server/http/proto_json.h"

/// The service's responses as the protocol writes them in JSON, where that is
/// not ToJson().
namespace attention::server {

/// The regions of a status, in a list.
template <typename Response>
nlohmann::ordered_json RegionsJson(const Response& response) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& [name, region] : response.regions()) {
    list.push_back(ToJson(region));
  }
  return list;
}

/// Of each setting's value the one member that is set.
nlohmann::ordered_json SettingsJson(
    const inference::LogSettingsResponse& response);

/// Triton's form: a list of levels, all others as one text.
nlohmann::ordered_json TraceSettingsJson(
    const inference::TraceSettingResponse& response);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_INFERENCE_REPLIES_H_
