#include "server/services/attention_service.h"

#include <memory>
#include <utility>

#include "server/base/out_of_memory.h"
#include "server/request/attention_operation.h"
#include "server/scheduling/retry_after.h"
#include "server/services/answer.h"
#include "server/services/caller_of_call.h"
#include "server/services/request_stream.h"
#include "server/services/server_info.h"
#include "server/services/small_message.h"
#include "server/services/unary_call.h"
#include "server/wire/attend_wire.h"
#include "server/wire/sequence_steps.h"

namespace attention::server {

AttentionService::AttentionService(const ServerOptions& options,
                                   const Engine& engine,
                                   const TaskServices& services,
                                   ActiveCalls& calls,
                                   const ModelRepository& models,
                                   ResidentStore& resident)
    : options_(options),
      engine_(engine),
      services_(services),
      calls_(calls),
      models_(models),
      resident_(resident) {}

std::unique_ptr<Operation> AttentionService::NewOperation(
    const Caller* caller, bool on_stream) const {
  return std::make_unique<AttentionOperation>(
      std::make_unique<AttendWire>(on_stream, models_, engine_.pinned()),
      engine_, LimitsOfRequest(options_, caller), resident_.AccessOf(caller));
}

grpc::ServerUnaryReactor* AttentionService::Attend(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  return UnaryCall::Begin(
      services_, calls_, Rpc::kAttend,
      [this](const Caller* caller) {
        return NewOperation(caller, /*on_stream=*/false);
      },
      context, request, response);
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>*
AttentionService::AttendStream(grpc::CallbackServerContext* context) {
  return RequestStream::Begin(
      services_, calls_,
      {.rpc = Rpc::kAttendStream,
       .max_in_flight = options_.max_stream_requests_in_flight,
       .new_operation =
           [this](const Caller* caller_now) {
             return NewOperation(caller_now, /*on_stream=*/true);
           },
       .step_of = StepOfAttend,
       .encode_error = EncodeStreamError},
      *context);
}

grpc::ServerUnaryReactor* AttentionService::GetServerInfo(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  const auto tell = [&] {
    const auto caller = CallerOfCall(services_.callers, *context);
    if (!caller.ok()) return caller.status();
    const auto message = ReadStrictMessage<v1::GetServerInfoRequest>(*request);
    if (!message.ok()) return message.status();
    v1::GetServerInfoResponse info;
    FillServerInfo(options_, engine_, info);
    FillSequenceStore(resident_, ResidentStore::OwnerOf(caller->get()),
                      *info.mutable_sequence_store());
    WriteMessage(info, *response);
    return absl::OkStatus();
  };
  return Answer(context, WithoutBadAlloc(tell, OutOfMemoryForNow));
}

}  // namespace attention::server
