#include "server/wire/status_table.h"

#include <string>

#include "server/wire/utf8.h"

namespace attention::server {
namespace {

struct Row {
  grpc::StatusCode code;
  const char* name;
};

// A switch and not a cast: a code that one side renumbers must not compile into
// another meaning.
Row Lookup(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return {grpc::StatusCode::OK, "OK"};
    case absl::StatusCode::kCancelled:
      return {grpc::StatusCode::CANCELLED, "CANCELLED"};
    case absl::StatusCode::kUnknown:
      return {grpc::StatusCode::UNKNOWN, "UNKNOWN"};
    case absl::StatusCode::kInvalidArgument:
      return {grpc::StatusCode::INVALID_ARGUMENT, "INVALID_ARGUMENT"};
    case absl::StatusCode::kDeadlineExceeded:
      return {grpc::StatusCode::DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED"};
    case absl::StatusCode::kNotFound:
      return {grpc::StatusCode::NOT_FOUND, "NOT_FOUND"};
    case absl::StatusCode::kAlreadyExists:
      return {grpc::StatusCode::ALREADY_EXISTS, "ALREADY_EXISTS"};
    case absl::StatusCode::kPermissionDenied:
      return {grpc::StatusCode::PERMISSION_DENIED, "PERMISSION_DENIED"};
    case absl::StatusCode::kResourceExhausted:
      return {grpc::StatusCode::RESOURCE_EXHAUSTED, "RESOURCE_EXHAUSTED"};
    case absl::StatusCode::kFailedPrecondition:
      return {grpc::StatusCode::FAILED_PRECONDITION, "FAILED_PRECONDITION"};
    case absl::StatusCode::kAborted:
      return {grpc::StatusCode::ABORTED, "ABORTED"};
    case absl::StatusCode::kOutOfRange:
      return {grpc::StatusCode::OUT_OF_RANGE, "OUT_OF_RANGE"};
    case absl::StatusCode::kUnimplemented:
      return {grpc::StatusCode::UNIMPLEMENTED, "UNIMPLEMENTED"};
    case absl::StatusCode::kInternal:
      return {grpc::StatusCode::INTERNAL, "INTERNAL"};
    case absl::StatusCode::kUnavailable:
      return {grpc::StatusCode::UNAVAILABLE, "UNAVAILABLE"};
    case absl::StatusCode::kDataLoss:
      return {grpc::StatusCode::DATA_LOSS, "DATA_LOSS"};
    case absl::StatusCode::kUnauthenticated:
      return {grpc::StatusCode::UNAUTHENTICATED, "UNAUTHENTICATED"};
    case absl::StatusCode::
        kDoNotUseReservedForFutureExpansionUseDefaultInSwitchInstead_:
      break;
  }
  return {grpc::StatusCode::UNKNOWN, "UNKNOWN"};
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {Lookup(status.code()).code,
          TruncateUtf8(status.message(), kMostStatusMessageBytes)};
}

const char* CodeName(absl::StatusCode code) { return Lookup(code).name; }

}  // namespace attention::server
