#ifndef ATTENTION_PROTO_STATUS_DETAILS_H_
#define ATTENTION_PROTO_STATUS_DETAILS_H_

#include <chrono>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

/// The payloads of a status on the wire: google.rpc.Status and
/// google.rpc.RetryInfo (google/rpc/status.proto and error_details.proto of
/// googleapis), which gRPC sends as grpc-status-details-bin. Their types are
/// not generated: Debian has no package with them, and own ones would clash in
/// a program that links googleapis.
namespace attention {

/// `status`'s payloads in a google.rpc.Status with that code and message. Empty
/// where there are none.
std::string StatusDetails(const absl::Status& status, int code,
                          const std::string& message);

/// Gives `status` the payloads of such a message. What is none adds nothing.
void TakeStatusDetails(const std::string& details, absl::Status& status);

/// Gives `status` a google.rpc.RetryInfo: `time`, but 1 ms to a year.
void SetRetryTime(std::chrono::milliseconds time, absl::Status& status);

/// The time that the status's google.rpc.RetryInfo tells, at most a year; what
/// is between two milliseconds becomes the longer one. None where it has none,
/// or a negative one.
std::optional<std::chrono::milliseconds> RetryTimeOf(
    const absl::Status& status);

}  // namespace attention

#endif  // ATTENTION_PROTO_STATUS_DETAILS_H_
