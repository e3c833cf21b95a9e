#include "server/scheduling/serial_queue.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/scheduling/retry_after.h"

namespace attention::server {
namespace {

absl::Status Draining() {
  return absl::UnavailableError("the server is draining");
}

}  // namespace

SerialQueue::SerialQueue(std::string subject, size_t most_waiting)
    : subject_(std::move(subject)),
      most_waiting_(most_waiting),
      thread_([this] { Work(); }) {}

SerialQueue::~SerialQueue() { Stop(); }

void SerialQueue::Stop() {
  StartDraining();
  if (thread_.joinable()) thread_.join();
}

void SerialQueue::Add(Task task, Places places) {
  absl::Status refusal = Draining();
  const size_t most =
      places == Places::kHalf ? most_waiting_ / 2 : most_waiting_;
  {
    const std::lock_guard lock(mutex_);
    if (!draining_ &&
        (places == Places::kUnbounded || waiting_.size() < most)) {
      waiting_.push_back(std::move(task));
      changed_.notify_all();
      return;
    }
    if (!draining_) {
      refusal = RetryAfter(absl::ResourceExhaustedError(absl::StrCat(
                               subject_, " is busy: ", waiting_.size(),
                               " calls wait for it (at most ", most, ")")),
                           kTryAgain);
    }
  }
  task(refusal);
}

void SerialQueue::StartDraining() {
  std::deque<Task> refused;
  {
    const std::lock_guard lock(mutex_);
    draining_ = true;
    refused.swap(waiting_);
    changed_.notify_all();
  }
  for (const Task& task : refused) task(Draining());
}

bool SerialQueue::WaitUntilIdle(
    std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline,
                             [this] { return !running_ && waiting_.empty(); });
}

void SerialQueue::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return draining_ || !waiting_.empty(); });
    if (draining_) return;
    Task task = std::move(waiting_.front());
    waiting_.pop_front();
    running_ = true;
    lock.unlock();
    task(absl::OkStatus());
    task = nullptr;  // what it holds ends here, and not under the lock
    lock.lock();
    running_ = false;
    changed_.notify_all();
  }
}

}  // namespace attention::server
