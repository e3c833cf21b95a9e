#include "server/http/inference_bodies.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/strict_json.h"

namespace attention::server {
namespace {

constexpr int kDeepest = 4;

// What a body says, an empty one nothing; `known` keys alone.
absl::StatusOr<nlohmann::json> BodyOf(const HttpRequest& request,
                                      const std::vector<std::string>& known) {
  if (request.body.size() == 0) return nlohmann::json::object();
  absl::StatusOr<nlohmann::json> json =
      ParseStrictJson(request.body.view(), kDeepest);
  if (!json.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("body: ", json.status().message()));
  }
  if (absl::Status keys = CheckKeys("", *json, known); !keys.ok()) return keys;
  return json;
}

absl::Status Read(const nlohmann::json& json, const char* key,
                  std::string& value) {
  const auto found = json.find(key);
  if (found == json.end()) return absl::OkStatus();
  if (!found->is_string()) return KeyError(key, "no string");
  value = found->get<std::string>();
  return absl::OkStatus();
}

absl::Status Read(const nlohmann::json& json, const char* key,
                  uint64_t& value) {
  const auto found = json.find(key);
  if (found == json.end()) return absl::OkStatus();
  if (!found->is_number_unsigned()) {
    return KeyError(key, "no integer of at least 0");
  }
  value = found->get<uint64_t>();
  return absl::OkStatus();
}

absl::Status Read(const nlohmann::json& json, const char* key, bool& value) {
  const auto found = json.find(key);
  if (found == json.end()) return absl::OkStatus();
  if (!found->is_boolean()) return KeyError(key, "no boolean");
  value = found->get<bool>();
  return absl::OkStatus();
}

// Keys of `parameters`.
template <typename Request>
absl::StatusOr<Request> OfRepository(const HttpRequest& http,
                                     const InferenceRoute& route) {
  const auto json = BodyOf(http, {"parameters"});
  if (!json.ok()) return json.status();
  Request request;
  request.set_model_name(route.name);
  if (const auto found = json->find("parameters"); found != json->end()) {
    if (!found->is_object()) return KeyError("parameters", "no object");
    for (const auto& [key, value] : found->items()) {
      (*request.mutable_parameters())[key].set_string_param(value.dump());
    }
  }
  return request;
}

// Every key of the body with its value as text, for `set`.
template <typename Set>
absl::Status ReadSettings(const HttpRequest& http, const Set& set) {
  if (http.body.size() == 0) return absl::OkStatus();
  const auto json = ParseStrictJson(http.body.view(), kDeepest);
  if (!json.ok()) return json.status();
  for (const auto& [key, value] : json->items()) set(key, value.dump());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<inference::RepositoryIndexRequest> IndexRequest(
    const HttpRequest& http) {
  const auto json = BodyOf(http, {"ready"});
  if (!json.ok()) return json.status();
  bool ready = false;
  if (absl::Status status = Read(*json, "ready", ready); !status.ok()) {
    return status;
  }
  inference::RepositoryIndexRequest request;
  request.set_ready(ready);
  return request;
}

absl::StatusOr<inference::RepositoryModelLoadRequest> LoadRequest(
    const HttpRequest& http, const InferenceRoute& route) {
  return OfRepository<inference::RepositoryModelLoadRequest>(http, route);
}

absl::StatusOr<inference::RepositoryModelUnloadRequest> UnloadRequest(
    const HttpRequest& http, const InferenceRoute& route) {
  return OfRepository<inference::RepositoryModelUnloadRequest>(http, route);
}

absl::StatusOr<inference::SystemSharedMemoryRegisterRequest>
SystemRegisterRequest(const HttpRequest& http, const InferenceRoute& route) {
  const auto json = BodyOf(http, {"key", "offset", "byte_size"});
  if (!json.ok()) return json.status();
  std::string key;
  uint64_t offset = 0;
  uint64_t byte_size = 0;
  absl::Status status = Read(*json, "key", key);
  if (status.ok()) status = Read(*json, "offset", offset);
  if (status.ok()) status = Read(*json, "byte_size", byte_size);
  if (!status.ok()) return status;
  inference::SystemSharedMemoryRegisterRequest request;
  request.set_name(route.name);
  request.set_key(key);
  request.set_offset(offset);
  request.set_byte_size(byte_size);
  return request;
}

absl::StatusOr<inference::CudaSharedMemoryRegisterRequest> CudaRegisterRequest(
    const HttpRequest& http, const InferenceRoute& route) {
  const auto json = BodyOf(http, {"raw_handle", "device_id", "byte_size"});
  if (!json.ok()) return json.status();
  uint64_t device = 0;
  uint64_t byte_size = 0;
  absl::Status status = Read(*json, "device_id", device);
  if (status.ok()) status = Read(*json, "byte_size", byte_size);
  if (!status.ok()) return status;
  std::string handle;
  const auto raw = json->find("raw_handle");
  if (raw != json->end()) {
    const bool text =
        raw->is_object() && raw->contains("b64") && (*raw)["b64"].is_string();
    if (!text ||
        !absl::Base64Unescape((*raw)["b64"].get<std::string>(), &handle)) {
      return KeyError("raw_handle", "(expected {\"b64\": BASE64})");
    }
  }
  inference::CudaSharedMemoryRegisterRequest request;
  request.set_name(route.name);
  request.set_raw_handle(handle);
  request.set_device_id(static_cast<int64_t>(device));
  request.set_byte_size(byte_size);
  return request;
}

absl::StatusOr<inference::TraceSettingRequest> TraceRequest(
    const HttpRequest& http, const InferenceRoute& route) {
  inference::TraceSettingRequest request;
  request.set_model_name(route.name);
  absl::Status status =
      ReadSettings(http, [&](const std::string& key, const std::string& value) {
        (*request.mutable_settings())[key].add_value(value);
      });
  if (!status.ok()) return status;
  return request;
}

absl::StatusOr<inference::LogSettingsRequest> LogRequest(
    const HttpRequest& http) {
  inference::LogSettingsRequest request;
  absl::Status status =
      ReadSettings(http, [&](const std::string& key, const std::string& value) {
        (*request.mutable_settings())[key].set_string_param(value);
      });
  if (!status.ok()) return status;
  return request;
}

}  // namespace attention::server
