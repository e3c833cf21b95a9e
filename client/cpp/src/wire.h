#ifndef ATTENTION_CLIENT_WIRE_H_
#define ATTENTION_CLIENT_WIRE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attention/v1/attention.pb.h"
#include "attention_client/client.h"

/// Between the client's structs and the messages of proto/attention/v1. Nothing
/// here checks what the server checks.
namespace attention::client {

/// OK where `request` can be put into a message at all: INVALID_ARGUMENT,
/// naming the field, for an element type that the wire has no name for;
/// RESOURCE_EXHAUSTED where its tensors alone pass `max_bytes`.
absl::Status CheckSendable(const AttendRequest& request, int64_t max_bytes);

/// The message of a request that CheckSendable() let pass.
v1::AttendRequest ToProto(const AttendRequest& request);

/// INTERNAL, naming the field, where a tensor of the reply is missing although
/// `request` asked for it, or does not fit its own shape.
absl::StatusOr<AttendResult> FromProto(const AttendRequest& request,
                                       const v1::AttendResponse& response);

ServerInfo FromProto(const v1::GetServerInfoResponse& response);

/// A status from a gRPC code as a number; one that is not in the list becomes
/// UNKNOWN.
absl::Status StatusFromCode(int code, absl::string_view message);

}  // namespace attention::client

#endif  // ATTENTION_CLIENT_WIRE_H_
