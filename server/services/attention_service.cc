#include "server/services/attention_service.h"

#include <string>

#include "server/services/attend_call.h"
#include "server/services/attend_stream.h"
#include "server/services/server_info.h"

namespace attention::server {

AttentionService::AttentionService(const ServerOptions& options,
                                   const Engine& engine, Admission& admission,
                                   ActiveCalls& calls)
    : options_(options),
      services_{engine, admission, options.max_response_bytes},
      calls_(calls) {}

grpc::ServerUnaryReactor* AttentionService::Attend(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  // gRPC keeps the request until the call is done. The buffer is this call's
  // own and not constant, so its memory can go as soon as it has been read.
  auto& message = const_cast<grpc::ByteBuffer&>(*request);
  return AttendCall::Begin(services_, calls_, *context, message, *response);
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>*
AttentionService::AttendStream(grpc::CallbackServerContext* context) {
  return server::AttendStream::Begin(
      services_, calls_, options_.max_stream_requests_in_flight, *context);
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
