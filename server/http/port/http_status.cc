#include "server/http/port/http_status.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/base/json.h"
#include "server/base/out_of_memory.h"
#include "server/base/utf8.h"
#include "server/scheduling/retry_after.h"
#include "server/wire/status_table.h"

namespace attention::server {
namespace {

constexpr char kOwnStatus[] = "attention/http-status";

}  // namespace

HttpReply HttpError(int status, const std::string& message) {
  // No object of JSON, whose end takes memory.
  return {.status = status,
          .body = absl::StrCat(R"({"error":)", JsonLine(Json(message)), "}\n")};
}

absl::Status WithHttpStatus(absl::Status status, int http_status) {
  status.SetPayload(kOwnStatus, absl::Cord(absl::StrCat(http_status)));
  return status;
}

int HttpStatusOf(const absl::Status& status) {
  int own = 0;
  if (const auto payload = status.GetPayload(kOwnStatus);
      payload && absl::SimpleAtoi(static_cast<std::string>(*payload), &own)) {
    return own;
  }
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kFailedPrecondition:
      return 409;
    case absl::StatusCode::kResourceExhausted:
      return RetryTimeOf(status) ? 429 : 413;
    case absl::StatusCode::kCancelled:
      return 499;  // nginx's; nobody is there to read it
    case absl::StatusCode::kUnimplemented:
      return 501;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

HttpReply ErrorReply(const absl::Status& status) {
  const auto with_message = [&] {
    HttpReply reply =
        HttpError(HttpStatusOf(status),
                  TruncateUtf8(status.message(), kMostStatusMessageBytes));
    if (const auto time = RetryTimeOf(status)) {
      const auto seconds =
          std::chrono::ceil<std::chrono::seconds>(*time).count();
      reply.headers.emplace_back("Retry-After", absl::StrCat(seconds));
    }
    if (absl::IsUnauthenticated(status)) {
      reply.headers.emplace_back("WWW-Authenticate", "Bearer");
    }
    return reply;
  };
  return WithoutBadAlloc(with_message, [] {
    return HttpReply{.status = 429, .content_type = ""};
  });
}

}  // namespace attention::server
