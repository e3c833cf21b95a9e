#ifndef ATTENTION_SERVER_TELEMETRY_LOG_LIMIT_H_
#define ATTENTION_SERVER_TELEMETRY_LOG_LIMIT_H_

#include <cstdint>
#include <mutex>
#include <utility>

#include "server/base/token_bucket.h"

namespace attention::server {

/// Keeps events that come in bursts from filling the log: so many have a line
/// each, those after them are counted and told with a later one. May be used
/// from several threads at once.
class LogLimit {
 public:
  using Clock = TokenBucket::Clock;
  /// A line every 5 s at most.
  LogLimit() : LogLimit({.rate = 0.2, .burst = 1}) {}
  explicit LogLimit(const TokenBucket::Limit& lines) : lines_(lines) {}

  /// Counts one event. How many there were since the last line where a line is
  /// due, this one included; else 0.
  int64_t Count(Clock::time_point now = Clock::now()) {
    const std::lock_guard lock(mutex_);
    ++events_;
    return bucket_.TryTake(lines_, now) ? std::exchange(events_, 0) : 0;
  }

  /// Events that no line has told.
  int64_t TakeUntold() {
    const std::lock_guard lock(mutex_);
    return std::exchange(events_, 0);
  }

 private:
  const TokenBucket::Limit lines_;
  std::mutex mutex_;
  TokenBucket bucket_;
  int64_t events_ = 0;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TELEMETRY_LOG_LIMIT_H_
