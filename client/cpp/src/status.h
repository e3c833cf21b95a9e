#ifndef ATTENTION_CLIENT_STATUS_H_
#define ATTENTION_CLIENT_STATUS_H_

#include "absl/status/status.h"

namespace grpc {
class Status;
}
namespace attention::v1 {
class Error;
}

namespace attention::client {

/// The same code and message, and as payloads the details; gRPC and Abseil
/// number their codes alike. A code that neither knows becomes UNKNOWN.
absl::Status ToAbslStatus(const grpc::Status& status);

/// An error on a stream: its code and message, and as a payload the time after
/// which to call again.
absl::Status ToAbslStatus(const v1::Error& error);

}  // namespace attention::client

#endif  // ATTENTION_CLIENT_STATUS_H_
