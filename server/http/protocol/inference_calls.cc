#include "server/http/protocol/inference_calls.h"

#include <google/protobuf/message.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/strip.h"
#include "inference/grpc_service.grpc.pb.h"
#include "server/base/json.h"
#include "server/base/out_of_memory.h"
#include "server/http/port/http_status.h"
#include "server/http/protocol/proto_json.h"
#include "server/scheduling/retry_after.h"

namespace attention::server {
namespace {

using Management = InferenceManagement;
using Keys = std::vector<std::string>;

HttpReply JsonReply(int status, const OrderedJson& json) {
  return {.status = status, .body = JsonLine(json) + "\n"};
}

// How responses are written, with 200 where it is JSON alone.
HttpReply ToReply(const OrderedJson& json) { return JsonReply(200, json); }
HttpReply ToReply(HttpReply reply) { return reply; }

const auto kAsItIs = [](const auto& response, const std::string& /*name*/) {
  return ToJson(response);
};
const auto kNothing = [](const auto& /*response*/,
                         const std::string& /*name*/) {
  return OrderedJson::object();
};
const auto kReady = [](const auto& response, const std::string& name) {
  return JsonReply(response.ready() ? 200 : 404,
                   {{"name", name}, {"ready", response.ready()}});
};
const auto kConfig = [](const auto& response, const std::string& /*name*/) {
  return ToJson(response.config());
};
const auto kModels = [](const auto& response, const std::string& /*name*/) {
  return ToJson(response)["models"];
};

// The regions of a status, in a list.
const auto kRegions = [](const auto& response, const std::string& /*name*/) {
  OrderedJson list = OrderedJson::array();
  for (const auto& [name, region] : response.regions()) {
    list.push_back(ToJson(region));
  }
  return list;
};

// Of each setting's value the one member that is set.
const auto kLogSettings = [](const auto& response,
                             const std::string& /*name*/) {
  OrderedJson all = OrderedJson::object();
  for (const auto& [key, value] : response.settings()) {
    const OrderedJson members = ToJson(value);
    all[key] = members.empty() ? OrderedJson() : members.begin().value();
  }
  return all;
};

// Triton's form: a list of levels, all others as one text.
const auto kTraceSettings = [](const auto& response,
                               const std::string& /*name*/) {
  OrderedJson all = OrderedJson::object();
  for (const auto& [key, value] : response.settings()) {
    if (key != "trace_level" && value.value_size() == 1) {
      all[key] = value.value(0);
    } else {
      all[key] = ToJson(value)["value"];
    }
  }
  return all;
};

// Sets a field where the message has it.
void SetText(const char* field, const std::string& text,
             google::protobuf::Message& message) {
  const auto* found = message.GetDescriptor()->FindFieldByName(field);
  if (found != nullptr) {
    message.GetReflection()->SetString(&message, found, text);
  }
}

// The request of a route, with what the body says of `keys`.
absl::Status FillRequest(const InferenceCalls::Call& call, const Keys& keys,
                         google::protobuf::Message& request) {
  SetText("name", call.route.name, request);
  SetText("model_name", call.route.name, request);
  SetText("version", call.route.version, request);
  absl::Status read = ReadFields(call.body, keys, request);
  if (read.ok()) call.counted->NoteReceived();
  return read;
}

template <typename Response, typename Write>
HttpReply Written(const absl::StatusOr<Response>& response, const Write& write,
                  const std::string& name, CallCounter::Call& counted) {
  // Also on the thread of those that wait for their turn.
  absl::StatusOr<HttpReply> reply = WithoutBadAlloc(
      [&]() -> absl::StatusOr<HttpReply> {
        if (!response.ok()) return response.status();
        return ToReply(write(*response, name));
      },
      OutOfMemoryForNow);
  if (reply.ok()) counted.NoteSent();
  counted.End(static_cast<grpc::StatusCode>(reply.status().code()));
  return reply.ok() ? *std::move(reply) : ErrorReply(reply.status());
}

struct Handler {
  std::string rpc;
  std::function<absl::Status(Management&, const InferenceCalls::Call&,
                             const InferenceCalls::Reply&)>
      ask;
};

// The RPC that has such a request.
template <typename Request>
std::string RpcOf() {
  return static_cast<std::string>(
      absl::StripSuffix(Request::descriptor()->name(), "Request"));
}

// What is known at once. `keys` are those that a body may have.
template <typename Request, typename Response, typename Write>
Handler Now(absl::StatusOr<Response> (Management::*method)(const Caller*,
                                                           const Request&),
            const Write& write, const Keys& keys = {}) {
  return {RpcOf<Request>(),
          [=](Management& management, const InferenceCalls::Call& call,
              const InferenceCalls::Reply& reply) {
            Request request;
            absl::Status filled = FillRequest(call, keys, request);
            if (!filled.ok()) return filled;
            reply(Written((management.*method)(call.caller, request), write,
                          call.route.name, *call.counted));
            return absl::OkStatus();
          }};
}

// What may have to wait for its turn.
template <typename Request, typename Response, typename Write>
Handler InTurn(void (Management::*method)(const Caller*, const Request&,
                                          Management::Waiter,
                                          Management::Reply<Response>),
               const Write& write, const Keys& keys) {
  return {RpcOf<Request>(),
          [=](Management& management, const InferenceCalls::Call& call,
              const InferenceCalls::Reply& reply) {
            Request request;
            absl::Status filled = FillRequest(call, keys, request);
            if (!filled.ok()) return filled;
            (management.*method)(
                call.caller, request, call.waiter,
                [reply, write, name = call.route.name, counted = call.counted](
                    const absl::StatusOr<Response>& response) {
                  reply(Written(response, write, name, *counted));
                });
            return absl::OkStatus();
          }};
}

const Handler& HandlerOf(InferenceMethod method) {
  using M = InferenceMethod;
  static const auto& handlers = *new std::map<M, Handler>{
      {M::kServerMetadata, Now(&Management::ServerMetadata, kAsItIs)},
      {M::kModelMetadata, Now(&Management::ModelMetadata, kAsItIs)},
      {M::kModelReady, Now(&Management::ModelReady, kReady)},
      {M::kModelConfig, Now(&Management::ModelConfig, kConfig)},
      {M::kModelStatistics, Now(&Management::ModelStatistics, kAsItIs)},
      {M::kRepositoryIndex,
       InTurn(&Management::RepositoryIndex, kModels, {"ready"})},
      {M::kRepositoryModelLoad,
       InTurn(&Management::RepositoryModelLoad, kNothing, {"parameters"})},
      {M::kRepositoryModelUnload,
       InTurn(&Management::RepositoryModelUnload, kNothing, {"parameters"})},
      {M::kSystemSharedMemoryStatus,
       Now(&Management::SystemSharedMemoryStatus, kRegions)},
      {M::kSystemSharedMemoryRegister,
       Now(&Management::SystemSharedMemoryRegister, kNothing,
           {"key", "offset", "byte_size"})},
      {M::kSystemSharedMemoryUnregister,
       Now(&Management::SystemSharedMemoryUnregister, kNothing)},
      {M::kCudaSharedMemoryStatus,
       Now(&Management::CudaSharedMemoryStatus, kRegions)},
      {M::kCudaSharedMemoryRegister,
       Now(&Management::CudaSharedMemoryRegister, kNothing,
           {"raw_handle", "device_id", "byte_size"})},
      {M::kCudaSharedMemoryUnregister,
       Now(&Management::CudaSharedMemoryUnregister, kNothing)},
      {M::kTraceSetting,
       Now(&Management::TraceSetting, kTraceSettings, {kAllSettings})},
      {M::kLogSettings,
       Now(&Management::LogSettings, kLogSettings, {kAllSettings})},
  };
  return handlers.at(method);
}

}  // namespace

std::shared_ptr<CallCounter::Call> InferenceCalls::Begin(
    InferenceMethod method) const {
  if (method == InferenceMethod::kModelInfer) return nullptr;
  return counter_.Begin(inference::GRPCInferenceService::service_full_name(),
                        HandlerOf(method).rpc);
}

absl::Status InferenceCalls::Ask(const Call& call, const Reply& reply) {
  return HandlerOf(call.route.method).ask(management_, call, reply);
}

}  // namespace attention::server
