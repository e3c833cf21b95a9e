#ifndef ATTENTION_CLIENT_WIRE_H_
#define ATTENTION_CLIENT_WIRE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attention/v1/attention.pb.h"
#include "attention_client/client.h"
#include "client/cpp/src/request_encoder.h"

/// Between the client's structs and the messages of proto/attention/v1, those
/// with tensors aside (request_encoder.h, reply_decoder.h). Nothing here checks
/// what the server checks.
namespace attention::client {

/// OK where `request` can be put into a message at all: INVALID_ARGUMENT,
/// naming the field, for an element type that the wire has no name for, or keys
/// beside sequences; RESOURCE_EXHAUSTED where its tensors alone pass
/// `max_bytes`.
absl::Status CheckSendable(const AttendRequest& request, int64_t max_bytes);

/// Likewise of keys and values that are appended.
absl::Status CheckSendable(const RowsToSend& rows, int64_t max_bytes);

ServerInfo FromProto(const v1::GetServerInfoResponse& response);

/// A status from a gRPC code as a number; one that is not in the list becomes
/// UNKNOWN.
absl::Status StatusFromCode(int code, absl::string_view message);

}  // namespace attention::client

#endif  // ATTENTION_CLIENT_WIRE_H_
