#include "server/telemetry/rate_limit.h"

#include <algorithm>
#include <utility>

namespace attention::server {

RateLimit::Decision RateLimit::Ask(std::chrono::steady_clock::time_point now) {
  const std::lock_guard lock(mutex_);
  const double seconds = std::chrono::duration<double>(now - last_).count();
  // Threads may come here in another order than that of their times.
  if (seconds > 0) {
    tokens_ = std::min(burst_, tokens_ + seconds * per_second_);
    last_ = now;
  }
  if (tokens_ < 1) {
    ++left_out_;
    return {};
  }
  tokens_ -= 1;
  return {true, std::exchange(left_out_, 0)};
}

int64_t RateLimit::TakeLeftOut() {
  const std::lock_guard lock(mutex_);
  return std::exchange(left_out_, 0);
}

}  // namespace attention::server
