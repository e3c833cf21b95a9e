#ifndef ATTENTION_SERVER_TRANSPORT_BURST_H_
#define ATTENTION_SERVER_TRANSPORT_BURST_H_

#include <chrono>
#include <cstdint>
#include <mutex>
#include <utility>

namespace attention::server {

/// Keeps an event that comes in bursts from filling the log: the first is told
/// at once, those of the next seconds with a later one as a count.
class Burst {
 public:
  using Clock = std::chrono::steady_clock;
  explicit Burst(Clock::duration pause = std::chrono::seconds(5))
      : pause_(pause) {}

  /// Counts one event. How many there were since the last line where a line is
  /// due, this one included; else 0.
  int64_t Count(Clock::time_point now = Clock::now()) {
    const std::lock_guard lock(mutex_);
    ++events_;
    if (now < next_line_) return 0;
    next_line_ = now + pause_;
    return std::exchange(events_, 0);
  }

 private:
  const Clock::duration pause_;
  std::mutex mutex_;
  Clock::time_point next_line_ = Clock::time_point::min();
  int64_t events_ = 0;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TRANSPORT_BURST_H_
