#ifndef ATTENTION_SERVER_SCHEDULING_REQUEST_QUEUE_H_
#define ATTENTION_SERVER_SCHEDULING_REQUEST_QUEUE_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "core/worker_pool.h"

namespace attention::server {

class Turn;
using RequestQueueClock = std::chrono::steady_clock;

/// What waits in a RequestQueue.
class QueuedWork {
 public:
  virtual ~QueuedWork() = default;
  /// Does it, on a worker. Must not throw.
  virtual void RunQueued(Turn& turn) = 0;
};

/// What the queue needs to know of a request.
struct QueueEntry {
  std::string caller;             // whose share of the workers it takes
  std::chrono::nanoseconds cost;  // time of one thread that it will take
  std::chrono::system_clock::time_point deadline =
      std::chrono::system_clock::time_point::max();
};

/// Requests that wait for a worker, in the order of start-time fair queuing
/// (Goyal, Vin, Cheng: "Start-time Fair Queueing", SIGCOMM 1996): those of
/// one caller and about one cost are a flow, in order of arrival, and flows
/// that wait get equal shares of the workers' time. So neither a caller with
/// many requests nor one with large ones keeps others waiting.
///
/// A request that would spend half of its time until its deadline waiting, or
/// could not end by then at all, is refused at once. A large one
/// that runs gives way between its tiles to those that cost an eighth of it or
/// less, as far as their share goes.
///
/// May be used from several threads at once.
class RequestQueue {
 public:
  explicit RequestQueue(WorkerPool& workers);
  /// Waits for what waits and runs.
  ~RequestQueue();
  RequestQueue(const RequestQueue&) = delete;
  RequestQueue& operator=(const RequestQueue&) = delete;

  /// `work` runs when its turn comes. RESOURCE_EXHAUSTED, with the time after
  /// which to try again, where what is in front of it would take until after
  /// its deadline; an idle queue tries whatever comes.
  absl::Status Add(std::shared_ptr<QueuedWork> work, const QueueEntry& entry);

  /// True where it was still waiting: it will not run then.
  bool Remove(const QueuedWork* work);

  int64_t waiting() const;
  /// Time of one thread that what waits and runs has still to take.
  std::chrono::nanoseconds Backlog() const;

 private:
  friend class Turn;
  struct Item {
    std::shared_ptr<QueuedWork> work;
    double cost = 0;       // nanoseconds of one thread
    double start_tag = 0;  // in virtual time, nanoseconds too
    int cost_class = 0;
  };
  struct Flow {
    std::deque<Item> items;
    double last_finish_tag = 0;
    double cost = 0;  // of its items
  };
  using FlowKey = std::pair<std::string, int>;  // the caller, the cost's class
  using Flows = std::map<FlowKey, Flow>;

  // mutex_ is held for all of these.
  absl::Status CheckInTime(
      const Flow& flow, const Item& item,
      std::chrono::system_clock::time_point deadline) const;
  std::chrono::nanoseconds Wait(const Flow& own, const Item& item) const;
  std::chrono::nanoseconds Alone(double cost) const;
  Item Take(Flows::iterator flow);
  void NoteLowestClass();
  void ForgetOldFlows();

  void RunNext();
  void GiveWay(Turn& turn);
  void Run(const Item& item, bool given_way,
           std::unique_lock<std::mutex>& lock);

  WorkerPool& workers_;
  mutable std::mutex mutex_;
  Flows flows_;
  // Flows with items, by the tag of their first: the next one in front.
  struct ByTag {
    bool operator()(const Flows::iterator& a, const Flows::iterator& b) const;
  };
  std::set<Flows::iterator, ByTag> waiting_flows_;
  std::unordered_map<const QueuedWork*, Flows::iterator> waiting_;
  std::set<const Turn*> running_;
  int64_t posted_ = 0;  // to the workers, and not back yet
  std::condition_variable idle_;
  double virtual_time_ = 0;
  std::atomic<int> lowest_class_;  // of what waits, or kNoClass
};

/// A request's time on the workers.
class Turn {
 public:
  Turn(RequestQueue& queue, double cost, double start_tag, int cost_class,
       bool in_place, int64_t others);
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  /// To be called between parts of the work, from any worker: runs a request
  /// that should not wait for the end of this one.
  void GiveWay();

  /// Time that this request took so far of all threads together, if it has
  /// `parts` that may run at once.
  std::chrono::nanoseconds ThreadTime(int64_t parts) const;

 private:
  friend class RequestQueue;

  bool GivesWayTo(double cost) const;  // nanoseconds

  RequestQueue& queue_;
  const double cost_;
  double start_tag_;  // guarded by the queue's mutex
  const int cost_class_;
  const bool in_place_;
  const int64_t others_;  // that ran when it began
  const RequestQueueClock::time_point begin_;
  std::atomic<int64_t> given_away_{0};  // nanoseconds of threads
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SCHEDULING_REQUEST_QUEUE_H_
