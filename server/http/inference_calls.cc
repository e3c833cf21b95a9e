#include "server/http/inference_calls.h"

#include <grpcpp/client_context.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/http/http_status.h"
#include "server/http/proto_json.h"
#include "server/strict_json.h"
#include "server/telemetry/trace_context.h"

namespace attention::server {
namespace {

using inference::GRPCInferenceService;
using Json = nlohmann::ordered_json;
using Async = GRPCInferenceService::Stub::async_interface;

constexpr int kDeepest = 4;

Json NothingToSay(const google::protobuf::Message& /*response*/) {
  return Json::object();
}

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

// Keys of `parameters`, which the service refuses by name whatever they say.
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

// The regions of a status, in a list.
template <typename Response>
Json Regions(const Response& response) {
  Json list = Json::array();
  for (const auto& [name, region] : response.regions()) {
    list.push_back(ToJson(region));
  }
  return list;
}

// The one member of each value that is set.
template <typename Response>
Json Settings(const Response& response) {
  Json all = Json::object();
  for (const auto& [key, value] : response.settings()) {
    const Json members = ToJson(value);
    all[key] = members.empty() ? Json() : members.begin().value();
  }
  return all;
}

// Triton's form: a list of levels, all others as one text.
Json TraceSettings(const inference::TraceSettingResponse& response) {
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

absl::StatusOr<inference::TraceSettingRequest> TraceRequest(
    const HttpRequest& http, const InferenceRoute& route) {
  inference::TraceSettingRequest request;
  request.set_model_name(route.name);
  if (http.body.size() == 0) return request;
  const auto json = ParseStrictJson(http.body.view(), kDeepest);
  if (!json.ok()) return json.status();
  for (const auto& [key, value] : json->items()) {
    (*request.mutable_settings())[key].add_value(value.dump());
  }
  return request;
}

absl::StatusOr<inference::LogSettingsRequest> LogRequest(
    const HttpRequest& http) {
  inference::LogSettingsRequest request;
  if (http.body.size() == 0) return request;
  const auto json = ParseStrictJson(http.body.view(), kDeepest);
  if (!json.ok()) return json.status();
  for (const auto& [key, value] : json->items()) {
    (*request.mutable_settings())[key].set_string_param(value.dump());
  }
  return request;
}

HttpReply JsonReply(int status, const Json& json) {
  return {.status = status,
          .body = json.dump(-1, ' ', /*ensure_ascii=*/false,
                            Json::error_handler_t::replace) +
                  "\n"};
}

}  // namespace

struct InferenceCalls::Context {
  const std::shared_ptr<HttpExchange>& exchange;
  const InferenceRoute& route;
  const std::map<std::string, std::string>& metadata;
  std::chrono::system_clock::time_point deadline;
};

template <typename Request, typename Response>
struct InferenceCalls::Call {
  std::shared_ptr<HttpExchange> exchange;
  grpc::ClientContext context;
  Request request;
  Response response;
};

InferenceCalls::InferenceCalls(const std::shared_ptr<grpc::Channel>& channel)
    : stub_(GRPCInferenceService::NewStub(channel)) {}

InferenceCalls::~InferenceCalls() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return open_ == 0; });
}

template <typename Request, typename Response, typename Method, typename Write>
void InferenceCalls::Start(const Context& context, Method method,
                           Request request, Write write) {
  const auto call = std::make_shared<Call<Request, Response>>();
  call->exchange = context.exchange;
  call->request = std::move(request);
  call->context.set_deadline(context.deadline);
  std::string trace;
  for (const auto& [key, value] : context.metadata) {
    call->context.AddMetadata(key, value);
    if (key == kTraceParent) trace = value;
  }
  {
    const std::lock_guard lock(mutex_);
    ++open_;
  }
  // Not the call itself, which has the exchange.
  context.exchange->OnGone([weak = std::weak_ptr(call)] {
    if (const auto same = weak.lock()) same->context.TryCancel();
  });
  (stub_->async()->*method)(
      &call->context, &call->request, &call->response,
      [this, call, write, trace](const grpc::Status& status) {
        HttpReply reply =
            status.ok()
                ? write(call->response)
                : ErrorReply(
                      {static_cast<absl::StatusCode>(status.error_code()),
                       status.error_message()});
        if (!trace.empty()) reply.headers.emplace_back(kTraceParent, trace);
        call->exchange->Reply(std::move(reply));
        const std::lock_guard lock(mutex_);
        if (--open_ == 0) ended_.notify_all();
      });
}

namespace {

// One of the overloads of a method of the stub.
template <typename Request, typename Response>
using Method = void (Async::*)(grpc::ClientContext*, const Request*, Response*,
                               std::function<void(grpc::Status)>);

// A writer of 200 with what `to_json` makes of the response.
template <typename ToText>
auto Says(ToText to_json) {
  return [to_json](const auto& response) {
    return JsonReply(200, to_json(response));
  };
}

}  // namespace

// The types, the method's overload and the writer, of an RPC.
#define ATTENTION_ASK(rpc, request, write)                                    \
  Start<inference::rpc##Request, inference::rpc##Response>(                   \
      context,                                                                \
      static_cast<Method<inference::rpc##Request, inference::rpc##Response>>( \
          &Async::rpc),                                                       \
      request, write)

absl::Status InferenceCalls::AskAboutModels(const Context& context) {
  const InferenceRoute& route = context.route;
  switch (route.method) {
    case InferenceMethod::kModelReady:
      ATTENTION_ASK(ModelReady, OfModel<inference::ModelReadyRequest>(route),
                    [name = route.name](const auto& response) {
                      return JsonReply(
                          response.ready() ? 200 : 404,
                          {{"name", name}, {"ready", response.ready()}});
                    });
      break;
    case InferenceMethod::kModelMetadata:
      ATTENTION_ASK(ModelMetadata,
                    OfModel<inference::ModelMetadataRequest>(route),
                    Says(ToJson));
      break;
    case InferenceMethod::kModelConfig:
      ATTENTION_ASK(
          ModelConfig, OfModel<inference::ModelConfigRequest>(route),
          Says([](const auto& response) { return ToJson(response.config()); }));
      break;
    case InferenceMethod::kModelStatistics:
      ATTENTION_ASK(ModelStatistics,
                    OfModel<inference::ModelStatisticsRequest>(route),
                    Says(ToJson));
      break;
    default:
      ATTENTION_ASK(ServerMetadata, inference::ServerMetadataRequest(),
                    Says(ToJson));
  }
  return absl::OkStatus();
}

absl::Status InferenceCalls::AskAboutRepository(const Context& context) {
  const HttpRequest& http = context.exchange->request();
  if (context.route.method == InferenceMethod::kRepositoryIndex) {
    const auto json = BodyOf(http, {"ready"});
    if (!json.ok()) return json.status();
    bool ready = false;
    if (absl::Status status = Read(*json, "ready", ready); !status.ok()) {
      return status;
    }
    inference::RepositoryIndexRequest request;
    request.set_ready(ready);
    ATTENTION_ASK(RepositoryIndex, request, Says([](const auto& response) {
                    return ToJson(response)["models"];
                  }));
    return absl::OkStatus();
  }
  if (context.route.method == InferenceMethod::kRepositoryModelLoad) {
    auto request = OfRepository<inference::RepositoryModelLoadRequest>(
        http, context.route);
    if (!request.ok()) return request.status();
    ATTENTION_ASK(RepositoryModelLoad, *request, Says(NothingToSay));
    return absl::OkStatus();
  }
  auto request = OfRepository<inference::RepositoryModelUnloadRequest>(
      http, context.route);
  if (!request.ok()) return request.status();
  ATTENTION_ASK(RepositoryModelUnload, *request, Says(NothingToSay));
  return absl::OkStatus();
}

absl::Status InferenceCalls::AskAboutSystemMemory(const Context& context) {
  if (context.route.method == InferenceMethod::kSystemSharedMemoryStatus) {
    ATTENTION_ASK(
        SystemSharedMemoryStatus,
        OfRegion<inference::SystemSharedMemoryStatusRequest>(context.route),
        Says([](const auto& all) { return Regions(all); }));
    return absl::OkStatus();
  }
  if (context.route.method == InferenceMethod::kSystemSharedMemoryUnregister) {
    ATTENTION_ASK(
        SystemSharedMemoryUnregister,
        OfRegion<inference::SystemSharedMemoryUnregisterRequest>(context.route),
        Says(NothingToSay));
    return absl::OkStatus();
  }
  const auto json =
      BodyOf(context.exchange->request(), {"key", "offset", "byte_size"});
  if (!json.ok()) return json.status();
  std::string key;
  uint64_t offset = 0;
  uint64_t byte_size = 0;
  absl::Status status = Read(*json, "key", key);
  if (status.ok()) status = Read(*json, "offset", offset);
  if (status.ok()) status = Read(*json, "byte_size", byte_size);
  if (!status.ok()) return status;
  auto request =
      OfRegion<inference::SystemSharedMemoryRegisterRequest>(context.route);
  request.set_key(key);
  request.set_offset(offset);
  request.set_byte_size(byte_size);
  ATTENTION_ASK(SystemSharedMemoryRegister, request, Says(NothingToSay));
  return absl::OkStatus();
}

absl::Status InferenceCalls::AskAboutCudaMemory(const Context& context) {
  if (context.route.method == InferenceMethod::kCudaSharedMemoryStatus) {
    ATTENTION_ASK(
        CudaSharedMemoryStatus,
        OfRegion<inference::CudaSharedMemoryStatusRequest>(context.route),
        Says([](const auto& all) { return Regions(all); }));
    return absl::OkStatus();
  }
  if (context.route.method == InferenceMethod::kCudaSharedMemoryUnregister) {
    ATTENTION_ASK(
        CudaSharedMemoryUnregister,
        OfRegion<inference::CudaSharedMemoryUnregisterRequest>(context.route),
        Says(NothingToSay));
    return absl::OkStatus();
  }
  const auto json = BodyOf(context.exchange->request(),
                           {"raw_handle", "device_id", "byte_size"});
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
  auto request =
      OfRegion<inference::CudaSharedMemoryRegisterRequest>(context.route);
  request.set_raw_handle(handle);
  request.set_device_id(static_cast<int64_t>(device));
  request.set_byte_size(byte_size);
  ATTENTION_ASK(CudaSharedMemoryRegister, request, Says(NothingToSay));
  return absl::OkStatus();
}

absl::Status InferenceCalls::AskAboutSettings(const Context& context) {
  const HttpRequest& http = context.exchange->request();
  if (context.route.method == InferenceMethod::kTraceSetting) {
    auto request = TraceRequest(http, context.route);
    if (!request.ok()) return request.status();
    ATTENTION_ASK(TraceSetting, *request, Says(TraceSettings));
    return absl::OkStatus();
  }
  auto request = LogRequest(http);
  if (!request.ok()) return request.status();
  ATTENTION_ASK(LogSettings, *request,
                Says([](const auto& all) { return Settings(all); }));
  return absl::OkStatus();
}

#undef ATTENTION_ASK

absl::Status InferenceCalls::Ask(
    const std::shared_ptr<HttpExchange>& exchange, const InferenceRoute& route,
    const std::map<std::string, std::string>& metadata,
    std::chrono::system_clock::time_point deadline) {
  const Context context{exchange, route, metadata, deadline};
  switch (route.method) {
    case InferenceMethod::kRepositoryIndex:
    case InferenceMethod::kRepositoryModelLoad:
    case InferenceMethod::kRepositoryModelUnload:
      return AskAboutRepository(context);
    case InferenceMethod::kSystemSharedMemoryStatus:
    case InferenceMethod::kSystemSharedMemoryRegister:
    case InferenceMethod::kSystemSharedMemoryUnregister:
      return AskAboutSystemMemory(context);
    case InferenceMethod::kCudaSharedMemoryStatus:
    case InferenceMethod::kCudaSharedMemoryRegister:
    case InferenceMethod::kCudaSharedMemoryUnregister:
      return AskAboutCudaMemory(context);
    case InferenceMethod::kTraceSetting:
    case InferenceMethod::kLogSettings:
      return AskAboutSettings(context);
    default:
      return AskAboutModels(context);
  }
}

}  // namespace attention::server
