#ifndef ATTENTION_SERVER_TELEMETRY_REQUEST_LOG_H_
#define ATTENTION_SERVER_TELEMETRY_REQUEST_LOG_H_

#include <chrono>
#include <string>

#include "absl/status/status.h"

namespace attention::server {

/// What the log says of one request, in one line.
struct RequestRecord {
  std::string id;  // as the caller sent it; Log() quotes and escapes it
  std::string peer;
  std::string shapes;  // of query, key and value
  std::string backend;
  std::string kernel;
  std::chrono::nanoseconds queue_time{0};
  std::chrono::nanoseconds compute_time{0};
  absl::Status status;
  bool refused = false;  // before it was queued

  /// True where the log shows more than refusals: the shapes are then worth
  /// putting together.
  static bool Wanted();

  /// A debug line; a warning where the request was refused.
  void Log() const;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TELEMETRY_REQUEST_LOG_H_
