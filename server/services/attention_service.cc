#include "server/services/attention_service.h"

#include <memory>

#include "server/request/attention_operation.h"
#include "server/services/request_stream.h"
#include "server/services/server_info.h"
#include "server/services/unary_call.h"
#include "server/wire/attend_wire.h"

namespace attention::server {

AttentionService::AttentionService(const ServerOptions& options,
                                   const Engine& engine,
                                   const TaskServices& services,
                                   ActiveCalls& calls,
                                   const ModelRepository& models)
    : options_(options),
      engine_(engine),
      services_(services),
      calls_(calls),
      models_(models) {}

std::unique_ptr<Operation> AttentionService::NewOperation(
    bool on_stream) const {
  return std::make_unique<AttentionOperation>(
      std::make_unique<AttendWire>(on_stream, models_), engine_,
      options_.max_response_bytes);
}

grpc::ServerUnaryReactor* AttentionService::Attend(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  // gRPC keeps the request until the call is done. The buffer is this call's
  // own and not constant, so its memory can go as soon as it has been read.
  auto& message = const_cast<grpc::ByteBuffer&>(*request);
  return UnaryCall::Begin(services_, calls_, NewOperation(/*on_stream=*/false),
                          *context, message, *response);
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>*
AttentionService::AttendStream(grpc::CallbackServerContext* context) {
  return RequestStream::Begin(
      services_, calls_,
      {.rpc = Rpc::kAttendStream,
       .max_in_flight = options_.max_stream_requests_in_flight,
       .new_operation = [this] { return NewOperation(/*on_stream=*/true); },
       .encode_error = EncodeStreamError},
      *context);
}

grpc::ServerUnaryReactor* AttentionService::GetServerInfo(
    grpc::CallbackServerContext* context, const v1::GetServerInfoRequest*,
    v1::GetServerInfoResponse* response) {
  FillServerInfo(options_, engine_, *response);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace attention::server
