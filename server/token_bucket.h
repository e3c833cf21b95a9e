#ifndef ATTENTION_SERVER_TOKEN_BUCKET_H_
#define ATTENTION_SERVER_TOKEN_BUCKET_H_

#include <algorithm>
#include <chrono>

namespace attention::server {

/// Bounds how often something may happen: `burst` times at once, and `rate`
/// times a second for long.
class TokenBucket {
 public:
  using Clock = std::chrono::steady_clock;
  /// Both above 0.
  TokenBucket(double burst, double rate, Clock::time_point now = Clock::now())
      : burst_(burst), rate_(rate), tokens_(burst), filled_(now) {}

  /// Whether it may happen once more.
  bool Take(Clock::time_point now = Clock::now()) {
    const std::chrono::duration<double> passed = now - filled_;
    // Threads may come here in another order than that of their times.
    if (passed.count() > 0) {
      tokens_ = std::min(burst_, tokens_ + passed.count() * rate_);
      filled_ = now;
    }
    if (tokens_ < 1) return false;
    tokens_ -= 1;
    return true;
  }

 private:
  double burst_;
  double rate_;
  double tokens_;
  Clock::time_point filled_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TOKEN_BUCKET_H_
