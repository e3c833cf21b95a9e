#ifndef ATTENTION_SERVER_WIRE_STATUS_TABLE_H_
#define ATTENTION_SERVER_WIRE_STATUS_TABLE_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace attention::server {

/// Longest message that a status carries over the wire, in bytes: it travels in
/// the trailers, where proxies allow little.
inline constexpr size_t kMostStatusMessageBytes = 1024;

/// The one place where a status of ours becomes one of gRPC: the same code, the
/// message as UTF-8, cut to kMostStatusMessageBytes, the payloads as its
/// details. The code alone where there is no memory for them: nothing is
/// thrown.
grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_WIRE_STATUS_TABLE_H_
