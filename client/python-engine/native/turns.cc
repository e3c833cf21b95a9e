#include "client/python-engine/native/turns.h"

namespace attention::python {
namespace {

// The last turn that this thread has taken and still has, or null.
thread_local Turn* innermost = nullptr;

}  // namespace

bool Turn::IsWithin(const Turns& turns) const {
  return &turns_ == &turns || (outer_ != nullptr && outer_->IsWithin(turns));
}

Turn::Turn(Turns& turns, absl::FunctionRef<bool()> goes_on)
    : turns_(turns),
      outer_(innermost),
      is_nested_(outer_ != nullptr && outer_->IsWithin(turns)),
      has_come_(is_nested_) {
  if (is_nested_) return;
  std::unique_lock lock(turns_.mutex_);
  while (!turns_.freed_.wait_for(lock, kBetweenLooks,
                                 [this] { return turns_.free_ > 0; })) {
    lock.unlock();
    if (!goes_on()) return;
    lock.lock();
  }
  --turns_.free_;
  has_come_ = true;
  innermost = this;
}

Turn::~Turn() {
  if (is_nested_ || !has_come_) return;
  innermost = outer_;
  {
    const std::lock_guard lock(turns_.mutex_);
    ++turns_.free_;
  }
  turns_.freed_.notify_one();
}

}  // namespace attention::python
