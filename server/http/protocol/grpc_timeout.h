#ifndef ATTENTION_SERVER_HTTP_PROTOCOL_GRPC_TIMEOUT_H_
#define ATTENTION_SERVER_HTTP_PROTOCOL_GRPC_TIMEOUT_H_

#include <chrono>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace attention::server {

/// The header that says how long a caller waits, here as in gRPC.
inline constexpr char kGrpcTimeout[] = "grpc-timeout";

/// When a caller that says `value`, and waits since `begin`, has waited long
/// enough: at most 8 digits and H, M, S, m, u or n. Never where it is empty;
/// INVALID_ARGUMENT where it is something else.
absl::StatusOr<std::chrono::system_clock::time_point> DeadlineOf(
    absl::string_view value, std::chrono::system_clock::time_point begin);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_PROTOCOL_GRPC_TIMEOUT_H_
