#include "server/http/inference_calls.h"

#include <grpcpp/client_context.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "server/http/http_status.h"
#include "server/http/inference_bodies.h"
#include "server/http/inference_replies.h"
#include "server/http/proto_json.h"
#include "server/telemetry/trace_context.h"

namespace attention::server {
namespace {

using inference::GRPCInferenceService;
using Json = nlohmann::ordered_json;
using Async = GRPCInferenceService::Stub::async_interface;

Json NothingToSay(const google::protobuf::Message& /*response*/) {
  return Json::object();
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
    auto request = IndexRequest(http);
    if (!request.ok()) return request.status();
    ATTENTION_ASK(RepositoryIndex, *request, Says([](const auto& response) {
                    return ToJson(response)["models"];
                  }));
    return absl::OkStatus();
  }
  if (context.route.method == InferenceMethod::kRepositoryModelLoad) {
    auto request = LoadRequest(http, context.route);
    if (!request.ok()) return request.status();
    ATTENTION_ASK(RepositoryModelLoad, *request, Says(NothingToSay));
    return absl::OkStatus();
  }
  auto request = UnloadRequest(http, context.route);
  if (!request.ok()) return request.status();
  ATTENTION_ASK(RepositoryModelUnload, *request, Says(NothingToSay));
  return absl::OkStatus();
}

absl::Status InferenceCalls::AskAboutSystemMemory(const Context& context) {
  if (context.route.method == InferenceMethod::kSystemSharedMemoryStatus) {
    ATTENTION_ASK(
        SystemSharedMemoryStatus,
        OfRegion<inference::SystemSharedMemoryStatusRequest>(context.route),
        Says([](const auto& all) { return RegionsJson(all); }));
    return absl::OkStatus();
  }
  if (context.route.method == InferenceMethod::kSystemSharedMemoryUnregister) {
    ATTENTION_ASK(
        SystemSharedMemoryUnregister,
        OfRegion<inference::SystemSharedMemoryUnregisterRequest>(context.route),
        Says(NothingToSay));
    return absl::OkStatus();
  }
  auto request =
      SystemRegisterRequest(context.exchange->request(), context.route);
  if (!request.ok()) return request.status();
  ATTENTION_ASK(SystemSharedMemoryRegister, *request, Says(NothingToSay));
  return absl::OkStatus();
}

absl::Status InferenceCalls::AskAboutCudaMemory(const Context& context) {
  if (context.route.method == InferenceMethod::kCudaSharedMemoryStatus) {
    ATTENTION_ASK(
        CudaSharedMemoryStatus,
        OfRegion<inference::CudaSharedMemoryStatusRequest>(context.route),
        Says([](const auto& all) { return RegionsJson(all); }));
    return absl::OkStatus();
  }
  if (context.route.method == InferenceMethod::kCudaSharedMemoryUnregister) {
    ATTENTION_ASK(
        CudaSharedMemoryUnregister,
        OfRegion<inference::CudaSharedMemoryUnregisterRequest>(context.route),
        Says(NothingToSay));
    return absl::OkStatus();
  }
  auto request =
      CudaRegisterRequest(context.exchange->request(), context.route);
  if (!request.ok()) return request.status();
  ATTENTION_ASK(CudaSharedMemoryRegister, *request, Says(NothingToSay));
  return absl::OkStatus();
}

absl::Status InferenceCalls::AskAboutSettings(const Context& context) {
  const HttpRequest& http = context.exchange->request();
  if (context.route.method == InferenceMethod::kTraceSetting) {
    auto request = TraceRequest(http, context.route);
    if (!request.ok()) return request.status();
    ATTENTION_ASK(TraceSetting, *request, Says(TraceSettingsJson));
    return absl::OkStatus();
  }
  auto request = LogRequest(http);
  if (!request.ok()) return request.status();
  ATTENTION_ASK(LogSettings, *request, Says(SettingsJson));
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
