#include "server/http/inference_calls.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/strip.h"
#include "inference/grpc_service.pb.h"
#include "server/http/http_status.h"
#include "server/http/proto_json.h"
#include "server/strict_json.h"

namespace attention::server {
namespace {

using Json = nlohmann::ordered_json;
using Management = InferenceManagement;

HttpReply JsonReply(int status, const Json& json) {
  return {.status = status,
          .body = json.dump(-1, ' ', /*ensure_ascii=*/false,
                            Json::error_handler_t::replace) +
                  "\n"};
}

// How responses are written, with 200 where it is JSON alone: as ToJson() has
// them, or as follows.
HttpReply ToReply(const Json& json) { return JsonReply(200, json); }
HttpReply ToReply(HttpReply reply) { return reply; }
const auto kAsItIs = [](const auto& response) { return ToJson(response); };
const auto kNothing = [](const auto& /*response*/) { return Json::object(); };

// The regions of a status, in a list.
const auto kRegions = [](const auto& response) {
  Json list = Json::array();
  for (const auto& [name, region] : response.regions()) {
    list.push_back(ToJson(region));
  }
  return list;
};

// Of each setting's value the one member that is set.
Json LogSettingsJson(const inference::LogSettingsResponse& response) {
  Json all = Json::object();
  for (const auto& [key, value] : response.settings()) {
    const Json members = ToJson(value);
    all[key] = members.empty() ? Json() : members.begin().value();
  }
  return all;
}

// Triton's form: a list of levels, all others as one text.
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

template <typename Request>
Request OfModel(const InferenceRoute& route) {
  Request request;
  request.set_name(route.name);
  request.set_version(route.version);
  return request;
}

template <typename Request>
Request OfRegion(const InferenceRoute& route) {
  Request request;
  request.set_name(route.name);
  return request;
}

// Calls `set` with each key of the body and its value's text. Keys and values
// are refused by whoever is asked.
template <typename Set>
absl::Status ReadSettings(absl::string_view body, const Set& set) {
  const auto json = ReadBody(body);
  if (!json.ok()) return json.status();
  for (const auto& [key, value] : json->items()) set(key, value.dump());
  return absl::OkStatus();
}

// Parameters likewise.
template <typename Request>
absl::StatusOr<Request> OfRepository(const InferenceCalls::Call& call) {
  const auto json = ReadBody(call.body);
  if (!json.ok()) return json.status();
  absl::Status keys = CheckKeys("", *json, {"parameters"});
  if (!keys.ok()) return keys;
  Request request;
  request.set_model_name(call.route.name);
  const auto found = json->find("parameters");
  if (found == json->end()) return request;
  if (!found->is_object()) return KeyError("parameters", "no object");
  for (const auto& [key, value] : found->items()) {
    (*request.mutable_parameters())[key].set_string_param(value.dump());
  }
  return request;
}

// Begins to count a call of the RPC that has such a request.
template <typename Request>
std::shared_ptr<CallCounter::Call> Count(CallCounter& counter) {
  const std::string& request = Request::descriptor()->name();
  std::shared_ptr<CallCounter::Call> counted = counter.Begin(
      "inference.GRPCInferenceService",
      static_cast<std::string>(absl::StripSuffix(request, "Request")));
  counted->NoteReceived();
  return counted;
}

template <typename Response, typename Write>
HttpReply Written(const absl::StatusOr<Response>& response, const Write& write,
                  CallCounter::Call& counted) {
  if (response.ok()) counted.NoteSent();
  counted.End(static_cast<grpc::StatusCode>(response.status().code()));
  if (!response.ok()) return ErrorReply(response.status());
  return ToReply(write(*response));
}

}  // namespace

template <typename Request, typename Method, typename Write>
void InferenceCalls::AskNow(const Call& call, const Reply& reply,
                            const Request& request, Method method,
                            Write write) {
  const auto counted = Count<Request>(counter_);
  reply(Written((management_.*method)(call.caller, request), write, *counted));
}

template <typename Response, typename Request, typename Method, typename Write>
void InferenceCalls::AskInTurn(const Call& call, const Reply& reply,
                               const Request& request, Method method,
                               Write write) {
  (management_.*method)(call.caller, request, call.wanted,
                        [reply, write, counted = Count<Request>(counter_)](
                            const absl::StatusOr<Response>& response) {
                          reply(Written(response, write, *counted));
                        });
}

void InferenceCalls::AskAboutModels(const Call& call, const Reply& reply) {
  const InferenceRoute& route = call.route;
  switch (route.method) {
    case InferenceMethod::kModelReady:
      return AskNow(call, reply, OfModel<inference::ModelReadyRequest>(route),
                    &Management::ModelReady, [&route](const auto& response) {
                      return JsonReply(
                          response.ready() ? 200 : 404,
                          {{"name", route.name}, {"ready", response.ready()}});
                    });
    case InferenceMethod::kModelMetadata:
      return AskNow(call, reply,
                    OfModel<inference::ModelMetadataRequest>(route),
                    &Management::ModelMetadata, kAsItIs);
    case InferenceMethod::kModelConfig:
      return AskNow(call, reply, OfModel<inference::ModelConfigRequest>(route),
                    &Management::ModelConfig, [](const auto& response) {
                      return ToJson(response.config());
                    });
    case InferenceMethod::kModelStatistics:
      return AskNow(call, reply,
                    OfModel<inference::ModelStatisticsRequest>(route),
                    &Management::ModelStatistics, kAsItIs);
    default:
      return AskNow(call, reply, inference::ServerMetadataRequest(),
                    &Management::ServerMetadata, kAsItIs);
  }
}

absl::Status InferenceCalls::AskAboutRepository(const Call& call,
                                                const Reply& reply) {
  if (call.route.method == InferenceMethod::kRepositoryIndex) {
    inference::RepositoryIndexRequest request;
    absl::Status read = ReadFields(call.body, {"ready"}, request);
    if (!read.ok()) return read;
    AskInTurn<inference::RepositoryIndexResponse>(
        call, reply, request, &Management::RepositoryIndex,
        [](const auto& response) { return ToJson(response)["models"]; });
    return absl::OkStatus();
  }
  if (call.route.method == InferenceMethod::kRepositoryModelLoad) {
    const auto load = OfRepository<inference::RepositoryModelLoadRequest>(call);
    if (!load.ok()) return load.status();
    AskInTurn<inference::RepositoryModelLoadResponse>(
        call, reply, *load, &Management::RepositoryModelLoad, kNothing);
    return absl::OkStatus();
  }
  const auto unload =
      OfRepository<inference::RepositoryModelUnloadRequest>(call);
  if (!unload.ok()) return unload.status();
  AskInTurn<inference::RepositoryModelUnloadResponse>(
      call, reply, *unload, &Management::RepositoryModelUnload, kNothing);
  return absl::OkStatus();
}

absl::Status InferenceCalls::AskAboutSystemMemory(const Call& call,
                                                  const Reply& reply) {
  const InferenceRoute& route = call.route;
  if (route.method == InferenceMethod::kSystemSharedMemoryStatus) {
    AskNow(call, reply,
           OfRegion<inference::SystemSharedMemoryStatusRequest>(route),
           &Management::SystemSharedMemoryStatus, kRegions);
  } else if (route.method == InferenceMethod::kSystemSharedMemoryUnregister) {
    AskNow(call, reply,
           OfRegion<inference::SystemSharedMemoryUnregisterRequest>(route),
           &Management::SystemSharedMemoryUnregister, kNothing);
  } else {
    auto request =
        OfRegion<inference::SystemSharedMemoryRegisterRequest>(route);
    absl::Status read =
        ReadFields(call.body, {"key", "offset", "byte_size"}, request);
    if (!read.ok()) return read;
    AskNow(call, reply, request, &Management::SystemSharedMemoryRegister,
           kNothing);
  }
  return absl::OkStatus();
}

absl::Status InferenceCalls::AskAboutCudaMemory(const Call& call,
                                                const Reply& reply) {
  const InferenceRoute& route = call.route;
  if (route.method == InferenceMethod::kCudaSharedMemoryStatus) {
    AskNow(call, reply,
           OfRegion<inference::CudaSharedMemoryStatusRequest>(route),
           &Management::CudaSharedMemoryStatus, kRegions);
  } else if (route.method == InferenceMethod::kCudaSharedMemoryUnregister) {
    AskNow(call, reply,
           OfRegion<inference::CudaSharedMemoryUnregisterRequest>(route),
           &Management::CudaSharedMemoryUnregister, kNothing);
  } else {
    auto request = OfRegion<inference::CudaSharedMemoryRegisterRequest>(route);
    absl::Status read = ReadFields(
        call.body, {"raw_handle", "device_id", "byte_size"}, request);
    if (!read.ok()) return read;
    AskNow(call, reply, request, &Management::CudaSharedMemoryRegister,
           kNothing);
  }
  return absl::OkStatus();
}

absl::Status InferenceCalls::AskAboutSettings(const Call& call,
                                              const Reply& reply) {
  if (call.route.method == InferenceMethod::kTraceSetting) {
    inference::TraceSettingRequest request;
    request.set_model_name(call.route.name);
    absl::Status read = ReadSettings(
        call.body, [&](const std::string& key, const std::string& value) {
          (*request.mutable_settings())[key].add_value(value);
        });
    if (!read.ok()) return read;
    AskNow(call, reply, request, &Management::TraceSetting, TraceSettingsJson);
    return absl::OkStatus();
  }
  inference::LogSettingsRequest request;
  absl::Status read = ReadSettings(
      call.body, [&](const std::string& key, const std::string& value) {
        (*request.mutable_settings())[key].set_string_param(value);
      });
  if (!read.ok()) return read;
  AskNow(call, reply, request, &Management::LogSettings, LogSettingsJson);
  return absl::OkStatus();
}

absl::Status InferenceCalls::Ask(const Call& call, const Reply& reply) {
  switch (call.route.method) {
    case InferenceMethod::kRepositoryIndex:
    case InferenceMethod::kRepositoryModelLoad:
    case InferenceMethod::kRepositoryModelUnload:
      return AskAboutRepository(call, reply);
    case InferenceMethod::kSystemSharedMemoryStatus:
    case InferenceMethod::kSystemSharedMemoryRegister:
    case InferenceMethod::kSystemSharedMemoryUnregister:
      return AskAboutSystemMemory(call, reply);
    case InferenceMethod::kCudaSharedMemoryStatus:
    case InferenceMethod::kCudaSharedMemoryRegister:
    case InferenceMethod::kCudaSharedMemoryUnregister:
      return AskAboutCudaMemory(call, reply);
    case InferenceMethod::kTraceSetting:
    case InferenceMethod::kLogSettings:
      return AskAboutSettings(call, reply);
    default:
      AskAboutModels(call, reply);
      return absl::OkStatus();
  }
}

}  // namespace attention::server
