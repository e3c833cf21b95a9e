#include "server/scheduling/active_calls.h"

namespace attention::server {

void ActiveCalls::Tell(DrainableCall& call, Phase phase) {
  if (phase == Phase::kDraining) call.OnDrain();
  if (phase == Phase::kEnding) call.OnDrainEnd();
}

void ActiveCalls::Add(const std::shared_ptr<DrainableCall>& call) {
  Phase phase;
  {
    const std::lock_guard lock(mutex_);
    calls_.emplace(call.get(), call);
    phase = phase_;
  }
  // A phase that begins between the two tells the call once more, which is
  // harmless; missing it would not be.
  if (phase == Phase::kEnding) call->OnDrain();
  Tell(*call, phase);
}

void ActiveCalls::Remove(const DrainableCall* call) {
  std::shared_ptr<DrainableCall> last;  // destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  const auto found = calls_.find(call);
  if (found == calls_.end()) return;
  last = std::move(found->second);
  calls_.erase(found);
  if (calls_.empty()) none_.notify_all();
}

void ActiveCalls::Enter(Phase phase) {
  {
    const std::lock_guard lock(mutex_);
    phase_ = phase;
  }
  ForEach([phase](DrainableCall& call) { Tell(call, phase); });
}

void ActiveCalls::TellCallersChanged() {
  ForEach([](DrainableCall& call) { call.OnCallersChanged(); });
}

void ActiveCalls::ForEach(absl::FunctionRef<void(DrainableCall&)> tell) {
  const DrainableCall* last = nullptr;
  while (true) {
    std::shared_ptr<DrainableCall> next;  // destroyed without the lock
    {
      const std::lock_guard lock(mutex_);
      const auto found = calls_.upper_bound(last);
      if (found == calls_.end()) return;
      next = found->second;
    }
    last = next.get();
    tell(*next);
  }
}

void ActiveCalls::StartDrain() { Enter(Phase::kDraining); }

void ActiveCalls::EndDrain() { Enter(Phase::kEnding); }

bool ActiveCalls::WaitUntilNone(
    std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return none_.wait_until(lock, deadline, [this] { return calls_.empty(); });
}

}  // namespace attention::server
