#ifndef ATTENTION_SERVER_SERVICES_GRPC_CALL_H_
#define ATTENTION_SERVER_SERVICES_GRPC_CALL_H_

#include <grpcpp/server_context.h>

#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "server/scheduling/call_origin.h"
#include "server/scheduling/task.h"
#include "server/telemetry/rpc.h"

/// What gRPC's calls have in common, unary ones and streams.
namespace attention::server {

/// Whose call it is. A trace that the caller says it is part of (W3C's
/// traceparent) goes back to it with the call's end.
CallOrigin OriginOf(grpc::CallbackServerContext& context,
                    std::shared_ptr<const Caller> caller);

/// How a call begins: its caller is found, and `make` makes what answers it.
/// What fails is counted as turned away: UNAUTHENTICATED where nobody is known
/// by the call, RESOURCE_EXHAUSTED without memory, or what `make` returns.
absl::Status JoinCall(const TaskServices& services, Rpc rpc,
                      grpc::CallbackServerContext& context,
                      absl::FunctionRef<absl::Status(CallOrigin)> make);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SERVICES_GRPC_CALL_H_
