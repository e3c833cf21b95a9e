#include "client/python-engine/native/turns.h"

namespace attention::python {
namespace {

// Whether this thread has a turn, of whichever engine.
thread_local bool has_turn = false;

}  // namespace

Turn::Turn(Turns& turns, absl::FunctionRef<bool()> goes_on)
    : turns_(turns), is_nested_(has_turn), has_come_(is_nested_) {
  if (is_nested_) return;
  std::unique_lock lock(turns_.mutex_);
  while (!turns_.freed_.wait_for(lock, kBetweenLooks,
                                 [this] { return turns_.free_ > 0; })) {
    lock.unlock();
    if (!goes_on()) return;
    lock.lock();
  }
  --turns_.free_;
  has_come_ = has_turn = true;
}

Turn::~Turn() {
  if (is_nested_ || !has_come_) return;
  has_turn = false;
  {
    const std::lock_guard lock(turns_.mutex_);
    ++turns_.free_;
  }
  turns_.freed_.notify_one();
}

}  // namespace attention::python
