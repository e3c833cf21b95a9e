#ifndef ATTENTION_SERVER_SCHEDULING_QUOTA_H_
#define ATTENTION_SERVER_SCHEDULING_QUOTA_H_

#include <algorithm>
#include <chrono>

namespace attention::server {

/// Bounds what one caller takes in a second, for long: up to a second's worth
/// at once. What is larger than that is taken whole, and paid for by waiting
/// after it. Its user keeps threads apart.
class Quota {
 public:
  using Clock = std::chrono::steady_clock;

  /// How long until `amount` may be taken of something of which there are
  /// `rate` > 0 a second; 0: it may be now.
  std::chrono::nanoseconds Wait(double amount, double rate,
                                Clock::time_point now) const {
    const std::chrono::nanoseconds owed = paid_at_ - now;
    const std::chrono::nanoseconds beyond = owed + Cost(amount, rate) - kWindow;
    return std::max(std::min(owed, beyond), std::chrono::nanoseconds(0));
  }

  /// Takes it.
  void Take(double amount, double rate, Clock::time_point now) {
    paid_at_ = std::max(paid_at_, now) + Cost(amount, rate);
  }

  /// Whether all that was taken is paid for.
  bool IsPaid(Clock::time_point now) const { return paid_at_ <= now; }

 private:
  static std::chrono::nanoseconds Cost(double amount, double rate) {
    const std::chrono::duration<double> cost(
        std::min(amount / rate, kMostSeconds));
    return std::chrono::duration_cast<std::chrono::nanoseconds>(cost);
  }

  static constexpr std::chrono::nanoseconds kWindow = std::chrono::seconds(1);
  // Of one request; keeps times within their type.
  static constexpr double kMostSeconds = 24.0 * 60 * 60;

  Clock::time_point paid_at_{};
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SCHEDULING_QUOTA_H_
