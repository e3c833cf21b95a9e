#include "server/scheduling/request_queue.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "absl/strings/str_cat.h"
#include "server/scheduling/retry_after.h"

namespace attention::server {
namespace {

using std::chrono::nanoseconds;

constexpr int kNoClass = std::numeric_limits<int>::max();
// Flows that nobody waits in, kept so that who has had his share is known.
constexpr size_t kMostFlows = 1024;
// Less is not worth the handing over: the worker that takes it does all of it
// where enough others wait to keep every worker busy.
constexpr double kSmallCost = 2e6;

// What costs so many times less does not wait for the end of what runs.
constexpr double kCostRatio = 8;

// Costs of one class are within a factor of eight.
int ClassOf(double cost) {
  return static_cast<int>(std::bit_width(static_cast<uint64_t>(cost))) / 3;
}

double Nanoseconds(RequestQueueClock::duration time) {
  return static_cast<double>(nanoseconds(time).count());
}

std::string Milliseconds(nanoseconds time) {
  return absl::StrCat(
      std::chrono::duration_cast<std::chrono::milliseconds>(time).count(),
      " ms");
}

}  // namespace

// ---------------------------------------------------------------- Turn

Turn::Turn(RequestQueue& queue, double cost, double start_tag, int cost_class,
           bool in_place, int64_t others)
    : queue_(queue),
      cost_(cost),
      start_tag_(start_tag),
      cost_class_(cost_class),
      in_place_(in_place),
      others_(others),
      begin_(RequestQueueClock::now()) {}

bool Turn::GivesWayTo(double cost) const { return cost * kCostRatio <= cost_; }

void Turn::GiveWay() {
  // What costs so much less is of another class.
  if (queue_.lowest_class_.load(std::memory_order_relaxed) < cost_class_) {
    queue_.GiveWay(*this);
  }
}

nanoseconds Turn::ThreadTime(int64_t parts) const {
  const int64_t share =
      std::max<int64_t>(queue_.workers_.threads() / (others_ + 1), 1);
  const int64_t threads = in_place_ ? 1 : std::clamp<int64_t>(parts, 1, share);
  const nanoseconds elapsed = RequestQueueClock::now() - begin_;
  return std::max(elapsed * threads - nanoseconds(given_away_.load()),
                  nanoseconds(0));
}

// ---------------------------------------------------------------- the queue

RequestQueue::RequestQueue(WorkerPool& workers)
    : workers_(workers), lowest_class_(kNoClass) {}

RequestQueue::~RequestQueue() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return posted_ == 0; });
}

bool RequestQueue::ByTag::operator()(const Flows::iterator& a,
                                     const Flows::iterator& b) const {
  const double tag_a = a->second.items.front().start_tag;
  const double tag_b = b->second.items.front().start_tag;
  return tag_a != tag_b ? tag_a < tag_b : a->first < b->first;
}

absl::Status RequestQueue::Add(std::shared_ptr<QueuedWork> work,
                               const QueueEntry& entry) {
  const QueuedWork* const key = work.get();
  Item item;
  item.work = std::move(work);
  item.cost = static_cast<double>(std::max<int64_t>(entry.cost.count(), 1));
  item.cost_class = ClassOf(item.cost);
  {
    const std::lock_guard lock(mutex_);
    const auto flow = flows_.try_emplace({entry.caller, item.cost_class}).first;
    item.start_tag = std::max(virtual_time_, flow->second.last_finish_tag);
    if (absl::Status late = CheckInTime(flow->second, item, entry.deadline);
        !late.ok()) {
      return late;
    }
    waiting_.emplace(key, flow);
    flow->second.cost += item.cost;
    flow->second.last_finish_tag = item.start_tag + item.cost;
    flow->second.items.push_back(std::move(item));
    if (flow->second.items.size() == 1) waiting_flows_.insert(flow);
    NoteLowestClass();
    ++posted_;
  }
  workers_.Post([this] {
    RunNext();
    // Notified under the lock: the queue may be gone the moment it is released.
    const std::lock_guard lock(mutex_);
    if (--posted_ == 0) idle_.notify_all();
  });
  return absl::OkStatus();
}

absl::Status RequestQueue::CheckInTime(
    const Flow& flow, const Item& item,
    std::chrono::system_clock::time_point deadline) const {
  if (running_.empty() && waiting_.empty()) return absl::OkStatus();
  if (deadline == std::chrono::system_clock::time_point::max()) {
    return absl::OkStatus();
  }
  const nanoseconds wait = Wait(flow, item);
  const nanoseconds left = deadline - std::chrono::system_clock::now();
  // What waits longer is not served more often, only later; and the caller's
  // clock began before ours.
  if (wait * 2 + Alone(item.cost) <= left) return absl::OkStatus();
  return RetryAfter(
      absl::ResourceExhaustedError(absl::StrCat(
          "the server is busy: the request would wait for about ",
          Milliseconds(wait), " and take ", Milliseconds(Alone(item.cost)),
          ", its deadline is in ", Milliseconds(left),
          " (at most half of that may be waiting)")),
      wait);
}

// Until it begins: what comes before it by its share, and what runs and does
// not give way to it.
nanoseconds RequestQueue::Wait(const Flow& own, const Item& item) const {
  double before = own.cost;
  const double share = own.cost + item.cost;
  for (const auto& flow : waiting_flows_) {
    if (&flow->second != &own) before += std::min(flow->second.cost, share);
  }
  for (const Turn* turn : running_) {
    if (turn->GivesWayTo(item.cost)) continue;
    before += std::max(
        turn->cost_ - Nanoseconds(RequestQueueClock::now() - turn->begin_),
        0.0);
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
  const Flows::iterator flow = found->second;
  waiting_.erase(found);
  auto& items = flow->second.items;
  const auto item =
      std::find_if(items.begin(), items.end(),
                   [work](const Item& i) { return i.work.get() == work; });
  waiting_flows_.erase(flow);
  removed = std::move(item->work);
  flow->second.cost -= item->cost;
  items.erase(item);
  if (!items.empty()) waiting_flows_.insert(flow);
  NoteLowestClass();
  return true;
}

// The first of a flow that waits. mutex_ is held.
RequestQueue::Item RequestQueue::Take(Flows::iterator flow) {
  waiting_flows_.erase(flow);
  auto& items = flow->second.items;
  Item item = std::move(items.front());
  items.pop_front();
  if (!items.empty()) waiting_flows_.insert(flow);
  waiting_.erase(item.work.get());
  flow->second.cost -= item.cost;
  virtual_time_ = std::max(virtual_time_, item.start_tag);
  NoteLowestClass();
  ForgetOldFlows();
  return item;
}

void RequestQueue::NoteLowestClass() {
  int lowest = kNoClass;
  for (const auto& flow : waiting_flows_) {
    lowest = std::min(lowest, flow->first.second);
  }
  lowest_class_.store(lowest, std::memory_order_relaxed);
}

void RequestQueue::ForgetOldFlows() {
  if (flows_.size() <= kMostFlows + waiting_flows_.size()) return;
  for (auto flow = flows_.begin(); flow != flows_.end();) {
    flow = flow->second.items.empty() ? flows_.erase(flow) : std::next(flow);
  }
}

void RequestQueue::RunNext() {
  std::unique_lock lock(mutex_);
  // What this was posted for may have gone, or run while something gave way.
  if (waiting_flows_.empty()) return;
  Run(Take(*waiting_flows_.begin()), /*given_way=*/false, lock);
}

void RequestQueue::GiveWay(Turn& turn) {
  const auto begin = RequestQueueClock::now();
  std::unique_lock lock(mutex_);
  // What large requests have had by now, in virtual time: others may have as
  // much.
  double had = 0;
  for (const Turn* running : running_) {
    had =
        std::max(had, running->start_tag_ +
                          Nanoseconds(running->ThreadTime(workers_.threads())));
  }
  if (had < virtual_time_) {
    // Another large one began after this one and has ended: this one is not to
    // be waited for until it has had as much.
    turn.start_tag_ =
        virtual_time_ - Nanoseconds(turn.ThreadTime(workers_.threads()));
    had = virtual_time_;
  }
  const auto flow = std::find_if(
      waiting_flows_.begin(), waiting_flows_.end(), [&turn](const auto& f) {
        return turn.GivesWayTo(f->second.items.front().cost);
      });
  if (flow == waiting_flows_.end() ||
      (*flow)->second.items.front().start_tag > had) {
    return;
  }
  // It may give way in its turn, a few times at most: each time to what costs
  // an eighth or less.
  Run(Take(*flow), /*given_way=*/true, lock);
  turn.given_away_ +=
      std::chrono::duration_cast<nanoseconds>(RequestQueueClock::now() - begin)
          .count();
}

// `lock` holds mutex_, and does not afterwards.
void RequestQueue::Run(const Item& item, bool given_way,
                       std::unique_lock<std::mutex>& lock) {
  const auto others = static_cast<int64_t>(running_.size());
  const auto threads = static_cast<size_t>(workers_.threads());
  const bool in_place =
      given_way || (item.cost < kSmallCost && waiting_.size() >= threads);
  Turn turn(*this, item.cost, item.start_tag, item.cost_class, in_place,
            others);
  running_.insert(&turn);
  lock.unlock();
  {
    std::optional<WorkerPool::InPlace> alone;
    if (in_place) alone.emplace();
    item.work->RunQueued(turn);
  }
  lock.lock();
  running_.erase(&turn);
  lock.unlock();
}

std::chrono::nanoseconds RequestQueue::Backlog() const {
  const std::lock_guard lock(mutex_);
  double cost = 0;
  for (const auto& flow : waiting_flows_) cost += flow->second.cost;
  for (const Turn* turn : running_) {
    const auto taken = turn->ThreadTime(workers_.threads());
    cost += std::max(turn->cost_ - Nanoseconds(taken), 0.0);
  }
  return nanoseconds(static_cast<int64_t>(cost));
}

int64_t RequestQueue::waiting() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(waiting_.size());
}

}  // namespace attention::server
