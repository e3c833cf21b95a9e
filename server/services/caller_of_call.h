#ifndef ATTENTION_SERVER_SERVICES_CALLER_OF_CALL_H_
#define ATTENTION_SERVER_SERVICES_CALLER_OF_CALL_H_

#include <grpcpp/server_context.h>

#include <memory>

#include "absl/status/statusor.h"
#include "server/callers/callers.h"
#include "server/memory/shared_memory_registry.h"
#include "server/options/options.h"

namespace attention::server {

/// A caller; null where there is no callers file: then everybody may call.
using CallerPtr = std::shared_ptr<const Caller>;

/// Who makes a gRPC call: by its token, or by the certificate of its
/// connection. UNAUTHENTICATED where nobody is known by it; null where
/// `callers` is.
absl::StatusOr<CallerPtr> CallerOfCall(const Callers* callers,
                                       const grpc::ServerContextBase& context);

/// PERMISSION_DENIED where the caller has not the right. Null has all.
absl::Status CheckRight(const Caller* caller, Right right);

/// The regions that a request of the caller may use.
SharedMemoryAccess SharedMemoryOf(const Caller* caller,
                                  const SharedMemoryRegistry& regions,
                                  const ServerOptions& options);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SERVICES_CALLER_OF_CALL_H_
