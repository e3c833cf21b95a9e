#ifndef ATTENTION_SERVER_SERVICES_CALLER_OF_CALL_H_
#define ATTENTION_SERVER_SERVICES_CALLER_OF_CALL_H_

#include <grpcpp/server_context.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/callers/callers.h"
#include "server/memory/shared_memory_registry.h"
#include "server/options.h"

namespace attention::server {

/// A caller; null where there is no callers file: then everybody may call.
using CallerPtr = std::shared_ptr<const Caller>;

/// The metadata with a pass: this process calls its own service for a caller
/// whom it has found already.
inline constexpr char kCallerPass[] = "attention-caller-pass";
/// Its value: the caller's name, and a key that only this process knows.
std::string PassOf(const Caller& caller);

/// Who makes a gRPC call: by its pass, by its token, or by the certificate of
/// its connection. UNAUTHENTICATED where nobody is known by it; null where
/// `callers` is. A pass that this process did not make says nothing.
absl::StatusOr<CallerPtr> CallerOfCall(const Callers* callers,
                                       const grpc::ServerContextBase& context);

/// PERMISSION_DENIED where the caller has not the right. Null has all.
absl::Status CheckRight(const Caller* caller, Right right);

/// The regions that a request of the caller may use.
SharedMemoryAccess SharedMemoryOf(const Caller* caller,
                                  const SharedMemoryRegistry& regions,
                                  const ServerOptions& options);

/// Both: of a call that needs `right` and nothing else of its caller.
absl::Status CheckCall(const Callers* callers,
                       const grpc::ServerContextBase& context, Right right);
/// Of a call that every caller may make.
absl::Status CheckCall(const Callers* callers,
                       const grpc::ServerContextBase& context);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SERVICES_CALLER_OF_CALL_H_
