#ifndef ATTENTION_SERVER_BASE_TOKEN_BUCKET_H_
#define ATTENTION_SERVER_BASE_TOKEN_BUCKET_H_

#include <algorithm>
#include <chrono>

namespace attention::server {

/// Bounds how much of something there may be: `burst` at once, and `rate` a
/// second for long. What is larger than a burst is taken whole, and paid for by
/// waiting after it. It is full at first. Its user keeps threads apart.
class TokenBucket {
 public:
  using Clock = std::chrono::steady_clock;
  struct Limit {
    double rate;  // > 0
    double burst;
  };

  /// How long until `amount` may be taken; 0: it may be now.
  std::chrono::nanoseconds Wait(double amount, const Limit& limit,
                                Clock::time_point now) const {
    const std::chrono::nanoseconds owed = full_at_ - now;
    const std::chrono::nanoseconds beyond =
        owed + Time(amount, limit) - Time(limit.burst, limit);
    return std::max(std::min(owed, beyond), std::chrono::nanoseconds(0));
  }

  /// Takes it.
  void Take(double amount, const Limit& limit, Clock::time_point now) {
    full_at_ = std::max(full_at_, now) + Time(amount, limit);
  }

  /// Takes one where it may be taken now.
  bool TryTake(const Limit& limit, Clock::time_point now = Clock::now()) {
    if (Wait(1, limit, now).count() > 0) return false;
    Take(1, limit, now);
    return true;
  }

  /// Whether all that was taken is paid for.
  bool IsFull(Clock::time_point now) const { return full_at_ <= now; }

 private:
  static std::chrono::nanoseconds Time(double amount, const Limit& limit) {
    const std::chrono::duration<double> time(
        std::min(amount / limit.rate, kMostSeconds));
    return std::chrono::round<std::chrono::nanoseconds>(time);
  }

  // Keeps times within their type.
  static constexpr double kMostSeconds = 24.0 * 60 * 60;

  Clock::time_point full_at_{};
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_BASE_TOKEN_BUCKET_H_
