#include "server/services/attention_service.h"

#include <memory>

#include "server/services/request_stream.h"
#include "server/services/server_info.h"
#include "server/services/unary_call.h"
#include "server/wire/attend_wire.h"
#include "server/wire/reply_encoder.h"

namespace attention::server {

AttentionService::AttentionService(const ServerOptions& options,
                                   const Engine& engine, Admission& admission,
                                   ActiveCalls& calls,
                                   const ModelRepository& models)
    : options_(options),
      services_{engine, admission, options.max_response_bytes},
      calls_(calls),
      models_(models) {}

grpc::ServerUnaryReactor* AttentionService::Attend(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  // gRPC keeps the request until the call is done. The buffer is this call's
  // own and not constant, so its memory can go as soon as it has been read.
  auto& message = const_cast<grpc::ByteBuffer&>(*request);
  return UnaryCall::Begin(
      services_, calls_,
      std::make_unique<AttendWire>(/*on_stream=*/false, models_), *context,
      message, *response);
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>*
AttentionService::AttendStream(grpc::CallbackServerContext* context) {
  return RequestStream::Begin(
      services_, calls_,
      {.max_in_flight = options_.max_stream_requests_in_flight,
       .new_request =
           [this] {
             return std::make_unique<AttendWire>(/*on_stream=*/true, models_);
           },
       .encode_error = EncodeStreamError},
      *context);
}

grpc::ServerUnaryReactor* AttentionService::GetServerInfo(
    grpc::CallbackServerContext* context, const v1::GetServerInfoRequest*,
    v1::GetServerInfoResponse* response) {
  FillServerInfo(options_, services_.engine, *response);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace attention::server
