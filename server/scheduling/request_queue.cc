#include "server/scheduling/request_queue.h"

#include <algorithm>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "server/scheduling/retry_after.h"

namespace attention::server {
namespace {

using std::chrono::nanoseconds;

// Less is not worth the handing over: the worker that takes it does all of it
// where enough others wait to keep every worker busy.
constexpr double kSmallCost = 2e6;

// What costs so many times less does not wait for the end of what runs.
constexpr double kCostRatio = 8;

double Nanoseconds(nanoseconds time) {
  return static_cast<double>(time.count());
}

std::string Milliseconds(nanoseconds time) {
  return absl::StrCat(
      std::chrono::duration_cast<std::chrono::milliseconds>(time).count(),
      " ms");
}

}  // namespace

// ---------------------------------------------------------------- Turn

Turn::Turn(RequestQueue& queue, const FairQueue::Taken& taken, bool in_place,
           int64_t others)
    : queue_(queue),
      taken_(taken),
      cost_class_(FairQueue::ClassOf(taken.item.cost)),
      in_place_(in_place),
      others_(others),
      begin_(queue.now_()),
      parts_(queue.workers_.threads()) {}

bool Turn::GivesWayTo(double cost) const {
  return cost * kCostRatio <= taken_.item.cost;
}

void Turn::GiveWay() {
  // What costs so much less is of another class.
  if (queue_.lowest_class_.load(std::memory_order_relaxed) < cost_class_) {
    queue_.GiveWay(*this);
  }
}

nanoseconds Turn::ThreadTime() const {
  const int64_t share =
      std::max<int64_t>(queue_.workers_.threads() / (others_ + 1), 1);
  const int64_t threads =
      in_place_ ? 1 : std::clamp<int64_t>(parts_.load(), 1, share);
  const nanoseconds elapsed = queue_.now_() - begin_;
  return std::max(elapsed * threads - nanoseconds(given_away_.load()),
                  nanoseconds(0));
}

nanoseconds Turn::OwnTime() const {
  return queue_.now_() - begin_ -
         nanoseconds(given_away_.load()) /
             (in_place_ ? 1 : queue_.workers_.threads());
}

// ---------------------------------------------------------------- the queue

RequestQueue::RequestQueue(WorkerPool& workers,
                           std::function<Clock::time_point()> now)
    : workers_(workers),
      now_(std::move(now)),
      lowest_class_(fair_.lowest_class()) {}

RequestQueue::~RequestQueue() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return posted_ == 0; });
}

absl::Status RequestQueue::Add(std::shared_ptr<QueuedWork> work,
                               const QueueEntry& entry) {
  const QueuedWork* const key = work.get();
  const auto cost =
      static_cast<double>(std::max<int64_t>(entry.cost.count(), 1));
  {
    const std::lock_guard lock(mutex_);
    if (absl::Status late = CheckInTime(entry, cost); !late.ok()) return late;
    const auto place = waiting_.emplace(key, nullptr).first;
    absl::Cleanup forget = [&] { waiting_.erase(place); };
    if (places_.size() < waiting_.size()) places_.push_back(nullptr);
    place->second = fair_.Add(entry.path, std::move(work), cost);
    std::move(forget).Cancel();
    lowest_class_.store(fair_.lowest_class(), std::memory_order_relaxed);
    ++posted_;
  }
  try {
    workers_.Post([this] {
      RunNext();
      NoteReturned();
    });
  } catch (const std::bad_alloc&) {
    const bool waits = Remove(key);
    // A turn that was posted for another one has come to it: that one's is due.
    if (!waits) RunNext();
    NoteReturned();
    if (waits) throw;
  }
  return absl::OkStatus();
}

void RequestQueue::NoteReturned() {
  // Notified under the lock: the queue may be gone the moment it is released.
  const std::lock_guard lock(mutex_);
  if (--posted_ == 0) idle_.notify_all();
}

absl::Status RequestQueue::CheckInTime(const QueueEntry& entry,
                                       double cost) const {
  const size_t own = entry.within != nullptr ? 1 : 0;
  if (running_.size() == own && fair_.empty()) return absl::OkStatus();
  if (entry.deadline == std::chrono::system_clock::time_point::max()) {
    return absl::OkStatus();
  }
  const nanoseconds wait = Wait(entry, cost);
  const nanoseconds left = entry.deadline - std::chrono::system_clock::now();
  // What waits longer is not served more often, only later; and the caller's
  // clock began before ours.
  if (wait * 2 + Alone(cost) <= left) return absl::OkStatus();
  return RetryAfter(
      absl::ResourceExhaustedError(absl::StrCat(
          "the server is busy: the request would wait for about ",
          Milliseconds(wait), " and take ", Milliseconds(Alone(cost)),
          ", its deadline is in ", Milliseconds(left),
          " (at most half of that may be waiting)")),
      wait);
}

// Until it begins: what comes before it by its share, and what runs and does
// not give way to it.
nanoseconds RequestQueue::Wait(const QueueEntry& entry, double cost) const {
  double before = fair_.CostBefore(entry.path, cost);
  for (const Turn* turn : running_) {
    if (turn == entry.within || turn->GivesWayTo(cost)) continue;
    before += std::max(
        turn->taken_.item.cost - Nanoseconds(now_() - turn->begin_), 0.0);
  }
  return nanoseconds(static_cast<int64_t>(before / workers_.threads()));
}

// Once it has begun, if all workers take part in what is large.
nanoseconds RequestQueue::Alone(double cost) const {
  return nanoseconds(static_cast<int64_t>(
      cost < kSmallCost ? cost : cost / workers_.threads()));
}

bool RequestQueue::Remove(const QueuedWork* work) {
  std::shared_ptr<QueuedWork> removed;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  const auto found = waiting_.find(work);
  if (found == waiting_.end()) return false;
  removed = fair_.Remove(found->second, work);
  waiting_.erase(found);
  lowest_class_.store(fair_.lowest_class(), std::memory_order_relaxed);
  return true;
}

void RequestQueue::NoteTaken(const FairQueue::Taken& taken) {
  waiting_.erase(taken.item.work.get());
  lowest_class_.store(fair_.lowest_class(), std::memory_order_relaxed);
}

void RequestQueue::RunNext() {
  std::unique_lock lock(mutex_);
  // What this was posted for may have gone, or run while something gave way.
  if (fair_.empty()) return;
  FairQueue::Taken next = fair_.Take();
  NoteTaken(next);
  Run(next, /*given_way=*/false, lock);
}

void RequestQueue::GiveWay(Turn& turn) {
  std::unique_lock lock(mutex_);
  size_t level = 0;
  FairQueue::Taken next =
      fair_.TakeWithin(*turn.taken_.share, turn.taken_.item.cost / kCostRatio,
                       {Nanoseconds(turn.ThreadTime()), turn.given_}, level);
  if (next.item.work == nullptr) return;
  NoteTaken(next);
  const double cost = next.item.cost;
  turn.given_[level] += cost;  // until it is known
  const Clock::time_point begin = now_();
  // It may give way in its turn, a few times at most: each time to what costs
  // an eighth or less.
  Run(next, /*given_way=*/true, lock);
  const nanoseconds took = now_() - begin;
  turn.given_away_ += took.count();
  lock.lock();
  turn.given_[level] += Nanoseconds(took) - cost;
}

// `lock` holds mutex_, and does not afterwards.
void RequestQueue::Run(FairQueue::Taken& taken, bool given_way,
                       std::unique_lock<std::mutex>& lock) {
  const auto others = static_cast<int64_t>(running_.size());
  const auto threads = static_cast<size_t>(workers_.threads());
  const bool in_place =
      given_way || (taken.item.cost < kSmallCost && waiting_.size() >= threads);
  Turn turn(*this, taken, in_place, others);
  const auto place = places_.begin();
  *place = &turn;
  running_.splice(running_.end(), places_, place);
  lock.unlock();
  {
    std::optional<WorkerPool::InPlace> alone;
    if (in_place) alone.emplace();
    taken.item.work->RunQueued(turn);
    taken.item.work.reset();  // without the lock
  }
  const nanoseconds took = turn.ThreadTime();
  lock.lock();
  places_.splice(places_.end(), running_, place);
  fair_.End(taken, Nanoseconds(took));
  lock.unlock();
}

double RequestQueue::Remaining(const Turn& turn) const {
  return std::max(turn.taken_.item.cost - Nanoseconds(turn.ThreadTime()), 0.0);
}

std::chrono::nanoseconds RequestQueue::Backlog() const {
  const std::lock_guard lock(mutex_);
  double cost = fair_.cost();
  for (const Turn* turn : running_) cost += Remaining(*turn);
  return nanoseconds(static_cast<int64_t>(cost));
}

int64_t RequestQueue::waiting() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(waiting_.size());
}

}  // namespace attention::server
