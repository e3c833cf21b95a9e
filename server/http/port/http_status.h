#ifndef ATTENTION_SERVER_HTTP_PORT_HTTP_STATUS_H_
#define ATTENTION_SERVER_HTTP_PORT_HTTP_STATUS_H_

#include "absl/status/status.h"
#include "server/http/port/http_message.h"

namespace attention::server {

/// The one place where a status of ours becomes one of HTTP. RESOURCE_EXHAUSTED
/// is 429 with a time after which to try again, and 413 without one.
int HttpStatusOf(const absl::Status& status);

/// `status`, which HTTP has a number of its own for.
absl::Status WithHttpStatus(absl::Status status, int http_status);

/// What a call that failed is answered with: `{"error": message}`, the message
/// cut as for gRPC; Retry-After in whole seconds where there is a time after
/// which to try again. 429 alone where there is no memory for that: nothing is
/// thrown. `status` is not OK.
HttpReply ErrorReply(const absl::Status& status);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_PORT_HTTP_STATUS_H_
