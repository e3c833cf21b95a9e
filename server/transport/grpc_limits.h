#ifndef ATTENTION_SERVER_TRANSPORT_GRPC_LIMITS_H_
#define ATTENTION_SERVER_TRANSPORT_GRPC_LIMITS_H_

#include <grpcpp/server_builder.h>

#include <cstdint>

#include "server/options/options.h"

namespace attention::server {

/// What gRPC itself bounds: a message's size, `streams` of a connection, idle
/// and old connections, silence, compression, and the memory of messages on
/// their way, `message_memory` bytes (docs/operations.md says what each is
/// for).
void SetGrpcLimits(const ServerOptions& options, int64_t streams,
                   int64_t message_memory, grpc::ServerBuilder& builder);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TRANSPORT_GRPC_LIMITS_H_
