#ifndef ATTENTION_SERVER_TELEMETRY_RATE_LIMIT_H_
#define ATTENTION_SERVER_TELEMETRY_RATE_LIMIT_H_

#include <chrono>
#include <cstdint>
#include <mutex>

#include "server/token_bucket.h"

namespace attention::server {

/// Lets so many events pass in a second, after a burst, and counts the others.
/// May be used from several threads at once.
class RateLimit {
 public:
  struct Decision {
    bool pass = false;
    /// Where it passes: events since the last one that did not.
    int64_t left_out = 0;
  };

  /// Both at least 1.
  RateLimit(double burst, double per_second)
      : bucket_(burst, per_second, std::chrono::steady_clock::time_point()) {}

  /// Whether an event passes that happens at `now`.
  Decision Ask(std::chrono::steady_clock::time_point now);
  /// Events left out that no Decision has told.
  int64_t TakeLeftOut();

 private:
  std::mutex mutex_;
  TokenBucket bucket_;
  int64_t left_out_ = 0;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TELEMETRY_RATE_LIMIT_H_
