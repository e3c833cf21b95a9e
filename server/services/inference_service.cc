#include "server/services/inference_service.h"

#include <memory>
#include <utility>

#include "server/request/attention_operation.h"
#include "server/services/request_stream.h"
#include "server/services/unary_call.h"
#include "server/wire/infer_wire.h"
#include "server/wire/sequence_steps.h"

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
    InferenceManagement& management, ModelTable& models,
    SharedMemoryRegistry& regions, ResidentStore& resident,
    std::function<bool()> ready)
    : options_(options),
      engine_(engine),
      services_(services),
      calls_(calls),
      management_(management),
      models_(models),
      regions_(regions),
      resident_(resident),
      ready_(std::move(ready)) {}

std::unique_ptr<Operation> InferenceService::NewOperation(
    const Caller* caller, bool on_stream) const {
  return std::make_unique<AttentionOperation>(
      std::make_unique<InferWire>(models_,
                                  SharedMemoryOf(caller, regions_, options_),
                                  on_stream, engine_.pinned()),
      engine_, LimitsOfRequest(options_, caller), resident_.AccessOf(caller));
}

InferenceService::Reactor* InferenceService::ModelInfer(
    Context* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  return UnaryCall::Begin(
      services_, calls_, Rpc::kModelInfer,
      [this](const Caller* caller) {
        return NewOperation(caller, /*on_stream=*/false);
      },
      context, request, response);
}

InferenceService::StreamReactor* InferenceService::ModelStreamInfer(
    Context* context) {
  return RequestStream::Begin(
      services_, calls_,
      {.rpc = Rpc::kModelStreamInfer,
       .max_in_flight = options_.max_stream_requests_in_flight,
       .new_operation =
           [this](const Caller* caller_now) {
             return NewOperation(caller_now, /*on_stream=*/true);
           },
       .step_of = StepOfInfer,
       .encode_error = EncodeInferStreamError,
       .in_order = true,
       .ends_with_error = AsksForGrpcErrors(*context)},
      *context);
}

InferenceService::Reactor* InferenceService::ServerLive(
    Context* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  const auto message = ReadSmallMessage<inference::ServerLiveRequest>(*request);
  inference::ServerLiveResponse reply;
  reply.set_live(true);
  if (message.ok()) WriteMessage(reply, *response);
  return Answer(context, message.status());
}

InferenceService::Reactor* InferenceService::ServerReady(
    Context* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  const auto message =
      ReadSmallMessage<inference::ServerReadyRequest>(*request);
  inference::ServerReadyResponse reply;
  reply.set_ready(ready_());
  if (message.ok()) WriteMessage(reply, *response);
  return Answer(context, message.status());
}

}  // namespace attention::server
