#include "server/telemetry/rate_limit.h"

#include <utility>

namespace attention::server {

RateLimit::Decision RateLimit::Ask(std::chrono::steady_clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (!bucket_.Take(now)) {
    ++left_out_;
    return {};
  }
  return {true, std::exchange(left_out_, 0)};
}

int64_t RateLimit::TakeLeftOut() {
  const std::lock_guard lock(mutex_);
  return std::exchange(left_out_, 0);
}

}  // namespace attention::server
