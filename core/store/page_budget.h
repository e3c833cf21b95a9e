#ifndef ATTENTION_CORE_STORE_PAGE_BUDGET_H_
#define ATTENTION_CORE_STORE_PAGE_BUDGET_H_

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

namespace attention::store {

/// Counts the memory of keys and values that stay, against a limit of its own:
/// what is held at the moment, pages that several sequences share once. Safe
/// for several threads at once, without a lock.
///
/// Budgets may stand under another: each owner's under that of all. What is
/// reserved counts in both, and must be free in both.
class PageBudget {
 public:
  static constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

  /// `limit` in bytes, >= 0.
  explicit PageBudget(int64_t limit, std::shared_ptr<PageBudget> above = {})
      : limit_(limit), above_(std::move(above)) {}
  PageBudget(const PageBudget&) = delete;
  PageBudget& operator=(const PageBudget&) = delete;

  /// Takes `bytes` (>= 0), of which `pages` pages are made. False, and nothing
  /// has changed, where they are not free.
  bool Reserve(int64_t bytes, int64_t pages);
  /// Takes `bytes` (>= 0) whether they are free or not: for what takes the
  /// place of something no smaller, which is given back next.
  void Take(int64_t bytes);
  /// Gives back what was reserved or taken, also in parts.
  void Release(int64_t bytes, int64_t pages);

  int64_t limit() const { return limit_; }
  /// Bytes that are reserved or taken; above the limit only by the latter.
  int64_t held() const { return held_.load(std::memory_order_relaxed); }
  int64_t pages() const { return pages_.load(std::memory_order_relaxed); }

 private:
  bool ReserveHere(int64_t bytes);

  const int64_t limit_;
  const std::shared_ptr<PageBudget> above_;
  std::atomic<int64_t> held_{0};
  std::atomic<int64_t> pages_{0};
};

/// A reservation without pages that ends with the object.
class Reservation {
 public:
  /// Of nothing.
  Reservation() = default;
  /// Takes over what was reserved of `budget`.
  Reservation(std::shared_ptr<PageBudget> budget, int64_t bytes)
      : budget_(std::move(budget)), bytes_(bytes) {}
  Reservation(Reservation&&) noexcept = default;  // leaves nothing behind
  Reservation& operator=(Reservation&&) = delete;
  ~Reservation() {
    if (budget_ != nullptr) budget_->Release(bytes_, 0);
  }

  int64_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<PageBudget> budget_;
  int64_t bytes_ = 0;
};

}  // namespace attention::store

#endif  // ATTENTION_CORE_STORE_PAGE_BUDGET_H_
