#ifndef ATTENTION_SERVER_SERVICES_GRPC_CALL_H_
#define ATTENTION_SERVER_SERVICES_GRPC_CALL_H_

#include <grpcpp/server_context.h>

#include <memory>

#include "server/scheduling/call_origin.h"

/// What gRPC's calls have in common, unary ones and streams.
namespace attention::server {

/// Whose call it is. A trace that the caller says it is part of (W3C's
/// traceparent) goes back to it with the call's end.
CallOrigin OriginOf(grpc::CallbackServerContext& context,
                    std::shared_ptr<const Caller> caller);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SERVICES_GRPC_CALL_H_
