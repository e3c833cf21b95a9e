#ifndef ATTENTION_SERVER_SERVICES_ANSWER_H_
#define ATTENTION_SERVER_SERVICES_ANSWER_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include "absl/status/status.h"
#include "server/wire/status_table.h"

namespace attention::server {

/// Ends a unary call whose response is filled in, or which failed. The result
/// is what the service's method returns to gRPC.
inline grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context,
                                        const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SERVICES_ANSWER_H_
