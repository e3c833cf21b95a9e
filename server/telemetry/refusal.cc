#include "server/telemetry/refusal.h"

namespace attention::server {

const char* NameOf(Refusal refusal) {
  switch (refusal) {
    case Refusal::kNone:
      return "none";
    case Refusal::kInvalid:
      return "invalid";
    case Refusal::kTooLarge:
      return "too_large";
    case Refusal::kServerRequests:
      return "server_requests";
    case Refusal::kServerMemory:
      return "server_memory";
    case Refusal::kCallerRequests:
      return "caller_requests";
    case Refusal::kCallerMemory:
      return "caller_memory";
    case Refusal::kCallerRate:
      return "caller_rate";
    case Refusal::kTooLate:
      return "too_late";
    case Refusal::kDraining:
      return "draining";
    case Refusal::kDeadline:
      return "deadline";
    case Refusal::kCancelled:
      return "cancelled";
    case Refusal::kOther:
      return "other";
  }
  return "";
}

Refusal RefusalOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return Refusal::kNone;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
      return Refusal::kInvalid;
    case absl::StatusCode::kResourceExhausted:
      return Refusal::kTooLarge;
    case absl::StatusCode::kDeadlineExceeded:
      return Refusal::kDeadline;
    case absl::StatusCode::kCancelled:
      return Refusal::kCancelled;
    default:
      return Refusal::kOther;
  }
}

}  // namespace attention::server
