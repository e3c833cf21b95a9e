#ifndef ATTENTION_SERVER_SERVICES_GRPC_CALL_H_
#define ATTENTION_SERVER_SERVICES_GRPC_CALL_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <vector>

#include "server/scheduling/call_origin.h"

/// What gRPC's calls have in common, unary ones and streams.
namespace attention::server {

/// The slices of a message that gRPC has handed over; `message` is empty after
/// it.
std::vector<grpc::Slice> TakeSlices(grpc::ByteBuffer& message);

/// Whose call it is. A trace that the caller says it is part of (W3C's
/// traceparent) goes back to it with the call's end.
CallOrigin OriginOf(grpc::CallbackServerContext& context,
                    std::shared_ptr<const Caller> caller);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SERVICES_GRPC_CALL_H_
