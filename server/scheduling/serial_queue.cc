#include "server/scheduling/serial_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/out_of_memory.h"
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

// Once, for a clock may go back; and what want of memory leaves open is
// refused.
bool SerialQueue::Waiting::IsWanted() {
  why = WithoutBadAlloc([this] { return waiter.wanted(); }, OutOfMemoryForNow);
  return why.ok();
}

void SerialQueue::Add(Task task, Places places, Waiter waiter) {
  std::list<Waiting> added;  // of one, until it waits
  added.push_back({std::move(task), std::move(waiter)});
  const std::string& party = added.front().waiter.party;
  std::list<Waiting> unwanted;  // told without the lock, as is what is refused
  absl::Status refusal;
  {
    const std::lock_guard lock(mutex_);
    const auto check = [&] { return CheckPlace(places, party); };
    refusal = WithoutBadAlloc(check, OutOfMemoryForNow);
    if (!refusal.ok()) {
      unwanted = TakeUnwanted();
      refusal = WithoutBadAlloc(check, OutOfMemoryForNow);
    }
    if (draining_) refusal = WithoutBadAlloc(Draining);
    if (refusal.ok()) {
      waiting_.splice(waiting_.end(), added);
      changed_.notify_all();
    }
  }
  for (const Waiting& one : unwanted) one.task(one.why);
  for (const Waiting& one : added) one.task(refusal);
}

absl::Status SerialQueue::CheckPlace(Places places,
                                     const std::string& party) const {
  if (places == Places::kUnbounded) return absl::OkStatus();
  const size_t most =
      places == Places::kHalf ? most_waiting_ / 2 : most_waiting_;
  const size_t most_own = std::max<size_t>(most / 2, 1);
  const auto own = static_cast<size_t>(
      std::count_if(waiting_.begin(), waiting_.end(), [&](const Waiting& one) {
        return !party.empty() && one.waiter.party == party;
      }));
  if (waiting_.size() < most && own < most_own) return absl::OkStatus();
  const std::string calls =
      waiting_.size() < most
          ? absl::StrCat(own, " calls of this caller wait for it (at most ",
                         most_own, ")")
          : absl::StrCat(waiting_.size(), " calls wait for it (at most ", most,
                         ")");
  return OrTryAgain(absl::ResourceExhaustedError(
      absl::StrCat(subject_, " is busy: ", calls)));
}

std::list<SerialQueue::Waiting> SerialQueue::TakeUnwanted() {
  std::list<Waiting> unwanted;
  for (auto one = waiting_.begin(); one != waiting_.end();) {
    const auto next = std::next(one);
    if (!one->IsWanted()) unwanted.splice(unwanted.end(), waiting_, one);
    one = next;
  }
  return unwanted;
}

void SerialQueue::StartDraining() {
  std::list<Waiting> refused;
  const absl::Status draining = WithoutBadAlloc(Draining);
  {
    const std::lock_guard lock(mutex_);
    draining_ = true;
    refused.swap(waiting_);
    changed_.notify_all();
  }
  for (const Waiting& one : refused) one.task(draining);
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
    std::list<Waiting> next;
    next.splice(next.end(), waiting_, waiting_.begin());
    running_ = true;
    lock.unlock();
    next.front().IsWanted();
    next.front().task(next.front().why);
    next.clear();  // what it holds ends here, and not under the lock
    lock.lock();
    running_ = false;
    changed_.notify_all();
  }
}

}  // namespace attention::server
