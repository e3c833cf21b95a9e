#include "server/services/inference_service.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/request/attention_operation.h"
#include "server/services/answer.h"
#include "server/services/caller_of_call.h"
#include "server/services/model_descriptions.h"
#include "server/services/request_stream.h"
#include "server/services/unary_call.h"
#include "server/version.h"
#include "server/wire/infer_wire.h"

namespace attention::server {
namespace {

// What Triton's clients send where they want a stream to end with an error's
// status.
bool AsksForGrpcErrors(const InferenceService::Context& context) {
  const auto [begin, end] =
      context.client_metadata().equal_range("triton_grpc_error");
  return begin != end && begin->second == "true";
}

}  // namespace

InferenceService::InferenceService(
    const ServerOptions& options, const Engine& engine,
    const TaskServices& services, ActiveCalls& calls,
    ModelRepository& repository, RepositoryQueue& repository_queue,
    ModelTable& models, SharedMemoryRegistry& regions)
    : options_(options),
      engine_(engine),
      services_(services),
      calls_(calls),
      repository_(repository),
      repository_queue_(repository_queue),
      models_(models),
      regions_(regions) {}

std::unique_ptr<Operation> InferenceService::NewOperation(
    const Caller* caller, bool on_stream) const {
  return std::make_unique<AttentionOperation>(
      std::make_unique<InferWire>(
          models_, SharedMemoryOf(caller, regions_, options_), on_stream),
      engine_, LimitsOfRequest(options_, caller));
}

InferenceService::Reactor* InferenceService::ModelInfer(
    Context* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  absl::StatusOr<CallerPtr> caller = CallerOfCall(services_.callers, *context);
  if (!caller.ok()) return Answer(context, caller.status());
  // gRPC keeps the request until the call is done. The buffer is this call's
  // own and not constant, so its memory can go as soon as it has been read.
  auto& message = const_cast<grpc::ByteBuffer&>(*request);
  auto operation = NewOperation(caller->get(), /*on_stream=*/false);
  return UnaryCall::Begin(services_, calls_, *std::move(caller),
                          std::move(operation), *context, message, *response);
}

InferenceService::StreamReactor* InferenceService::ModelStreamInfer(
    Context* context) {
  const absl::StatusOr<CallerPtr> caller =
      CallerOfCall(services_.callers, *context);
  if (!caller.ok()) return RequestStream::Refuse(caller.status());
  return RequestStream::Begin(
      services_, calls_, *caller,
      {.rpc = Rpc::kModelStreamInfer,
       .max_in_flight = options_.max_stream_requests_in_flight,
       .new_operation =
           [this](const Caller* caller_now) {
             return NewOperation(caller_now, /*on_stream=*/true);
           },
       .encode_error = EncodeInferStreamError,
       .in_order = true,
       .ends_with_error = AsksForGrpcErrors(*context)},
      *context);
}

InferenceService::Reactor* InferenceService::ServerLive(
    Context* context, const inference::ServerLiveRequest*,
    inference::ServerLiveResponse* response) {
  response->set_live(true);
  return Answer(context, absl::OkStatus());
}

InferenceService::Reactor* InferenceService::ServerReady(
    Context* context, const inference::ServerReadyRequest*,
    inference::ServerReadyResponse* response) {
  response->set_ready(!calls_.leaving());
  return Answer(context, absl::OkStatus());
}

InferenceService::Reactor* InferenceService::ServerMetadata(
    Context* context, const inference::ServerMetadataRequest*,
    inference::ServerMetadataResponse* response) {
  if (absl::Status status = CheckCall(services_.callers, *context);
      !status.ok()) {
    return Answer(context, status);
  }
  response->set_name("attention-server");
  response->set_version(Version());
  for (const char* extension :
       {"model_configuration", "model_repository", "system_shared_memory",
        "binary_tensor_data", "parameters", "statistics", "trace", "logging"}) {
    response->add_extensions(extension);
  }
  if (engine_.CheckReachesDevices().ok()) {
    response->add_extensions("cuda_shared_memory");
  }
  return Answer(context, absl::OkStatus());
}

InferenceService::Reactor* InferenceService::ModelReady(
    Context* context, const inference::ModelReadyRequest* request,
    inference::ModelReadyResponse* response) {
  if (absl::Status status = CheckCall(services_.callers, *context);
      !status.ok()) {
    return Answer(context, status);
  }
  const auto model = models_.Find(request->name(), request->version());
  response->set_ready(model.ok());
  // An unknown model is not ready; a version that is none is a mistake.
  return Answer(context, model.ok() || absl::IsNotFound(model.status())
                             ? absl::OkStatus()
                             : model.status());
}

InferenceService::Reactor* InferenceService::ModelMetadata(
    Context* context, const inference::ModelMetadataRequest* request,
    inference::ModelMetadataResponse* response) {
  if (absl::Status status = CheckCall(services_.callers, *context);
      !status.ok()) {
    return Answer(context, status);
  }
  const auto model = models_.Find(request->name(), request->version());
  if (model.ok()) FillModelMetadata(**model, *response);
  return Answer(context, model.status());
}

InferenceService::Reactor* InferenceService::ModelConfig(
    Context* context, const inference::ModelConfigRequest* request,
    inference::ModelConfigResponse* response) {
  if (absl::Status status = CheckCall(services_.callers, *context);
      !status.ok()) {
    return Answer(context, status);
  }
  const auto model = models_.Find(request->name(), request->version());
  if (model.ok()) FillModelConfig(**model, *response->mutable_config());
  return Answer(context, model.status());
}

InferenceService::Reactor* InferenceService::ModelStatistics(
    Context* context, const inference::ModelStatisticsRequest* request,
    inference::ModelStatisticsResponse* response) {
  if (absl::Status status = CheckCall(services_.callers, *context);
      !status.ok()) {
    return Answer(context, status);
  }
  return Answer(context,
                FillStatistics(request->name(), request->version(), *response));
}

absl::Status InferenceService::FillStatistics(
    const std::string& name, const std::string& version,
    inference::ModelStatisticsResponse& response) {
  if (name.empty()) {
    for (const auto& model : models_.List()) {
      FillModelStatistics(*model, *response.add_model_stats());
    }
    return absl::OkStatus();
  }
  const auto model = models_.Find(name, version);
  if (model.ok()) FillModelStatistics(**model, *response.add_model_stats());
  return model.status();
}

}  // namespace attention::server
