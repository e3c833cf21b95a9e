#ifndef ATTENTION_CLIENT_STATUS_H_
#define ATTENTION_CLIENT_STATUS_H_

#include "absl/status/status.h"

namespace grpc {
class Status;
}

namespace attention::client {

/// The same code and message; gRPC and Abseil number their codes alike. A code
/// that neither knows becomes UNKNOWN.
absl::Status ToAbslStatus(const grpc::Status& status);

}  // namespace attention::client

#endif  // ATTENTION_CLIENT_STATUS_H_
