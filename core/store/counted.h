#ifndef ATTENTION_CORE_STORE_COUNTED_H_
#define ATTENTION_CORE_STORE_COUNTED_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace attention::store {

/// An object that counts who holds it, in itself. What std::shared_ptr does
/// not give: it is made without an exception where memory is out, a pointer is
/// one word, and HeldByAtMost() may be relied on.
class Counted {
 public:
  Counted() = default;
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

  /// Where this is true for those that the caller knows of, nobody else reads
  /// the object any more, and what others did with it has happened before. A
  /// new holder can only come from one of those.
  bool HeldByAtMost(int64_t holders) const {
    return holders_.load(std::memory_order_acquire) <= holders;
  }

 protected:
  ~Counted() = default;

 private:
  template <typename T>
  friend class CountedPtr;

  void Hold() const { holders_.fetch_add(1, std::memory_order_relaxed); }
  /// True for the last one, who deletes it.
  bool LetGo() const {
    return holders_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }

  mutable std::atomic<int64_t> holders_{1};  // who makes it holds it
};

/// Holds a T, which derives from Counted, or nothing. As std::shared_ptr, one
/// pointer is for one thread at a time.
template <typename T>
class CountedPtr {
 public:
  CountedPtr() = default;
  /// Takes what `new` has made, or null.
  explicit CountedPtr(T* made) : held_(made) {}
  CountedPtr(const CountedPtr& other) : held_(other.held_) {
    if (held_ != nullptr) held_->Hold();
  }
  CountedPtr(CountedPtr&& other) noexcept
      : held_(std::exchange(other.held_, nullptr)) {}
  /// Also holds it as a const T.
  operator CountedPtr<const T>() const {  // NOLINT(google-explicit-constructor)
    if (held_ != nullptr) held_->Hold();
    return CountedPtr<const T>(held_);
  }
  // By value: both assignments, and to itself.
  CountedPtr& operator=(CountedPtr other) noexcept {
    std::swap(held_, other.held_);
    return *this;
  }
  ~CountedPtr() {
#ifndef __clang_analyzer__  // it does not know what the count says
    if (held_ != nullptr && held_->LetGo()) delete held_;
#endif
  }

  T* get() const { return held_; }
  T& operator*() const { return *held_; }
  T* operator->() const { return held_; }
  bool operator==(std::nullptr_t) const { return held_ == nullptr; }

 private:
  T* held_ = nullptr;
};

}  // namespace attention::store

#endif  // ATTENTION_CORE_STORE_COUNTED_H_
