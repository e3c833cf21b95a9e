#ifndef ATTENTION_CORE_CUDA_WAIT_AND_LOOK_H_
#define ATTENTION_CORE_CUDA_WAIT_AND_LOOK_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>

namespace attention::cuda {

/// Waits until `done`, with the lock, and calls `look`, where set, now and then
/// without it: a job that waits for others is looked at (AttentionJob::look) as
/// one that waits for a device. False once a stop was requested.
template <typename Done>
bool WaitAndLook(std::condition_variable_any& changed,
                 std::unique_lock<std::mutex>& lock,
                 const std::stop_token& stop, const std::function<void()>& look,
                 const Done& done) {
  if (!look) return changed.wait(lock, stop, done);
  constexpr auto kLookEvery = std::chrono::milliseconds(100);
  while (!changed.wait_for(lock, stop, kLookEvery, done)) {
    if (stop.stop_requested()) return false;
    lock.unlock();
    look();
    lock.lock();
  }
  return true;
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_WAIT_AND_LOOK_H_
