#ifndef ATTENTION_SERVER_SCHEDULING_REQUEST_QUEUE_H_
#define ATTENTION_SERVER_SCHEDULING_REQUEST_QUEUE_H_

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "absl/status/status.h"
#include "core/worker_pool.h"
#include "server/scheduling/fair_queue.h"

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
  /// Whose share of the workers it takes: the caller, and its connection.
  FairQueue::Path path;
  std::chrono::nanoseconds cost;  // time of one thread that it will take
  std::chrono::system_clock::time_point deadline =
      std::chrono::system_clock::time_point::max();
  /// The turn that ends with its being added: nobody waits for that.
  const Turn* within = nullptr;
};

/// Requests that wait for a worker. Callers get equal shares of the workers'
/// time, and so do the connections of one caller (FairQueue).
///
/// A request that would spend half of its time until its deadline waiting, or
/// could not end by then at all, is refused at once. A large one
/// that runs gives way between its tiles to those that cost an eighth of it or
/// less, as far as their share goes.
///
/// May be used from several threads at once.
class RequestQueue {
 public:
  using Clock = RequestQueueClock;
  /// `now` says how long requests take.
  explicit RequestQueue(WorkerPool& workers,
                        std::function<Clock::time_point()> now = Clock::now);
  /// Waits for what waits and runs.
  ~RequestQueue();
  RequestQueue(const RequestQueue&) = delete;
  RequestQueue& operator=(const RequestQueue&) = delete;

  /// `work` runs when its turn comes. RESOURCE_EXHAUSTED, with the time after
  /// which to try again, where what is in front of it would take until after
  /// its deadline; an idle queue tries whatever comes. Where it throws
  /// std::bad_alloc, `work` does not run.
  absl::Status Add(std::shared_ptr<QueuedWork> work, const QueueEntry& entry);

  /// True where it was still waiting: it will not run then.
  bool Remove(const QueuedWork* work);

  int64_t waiting() const;
  /// Time of one thread that what waits and runs has still to take.
  std::chrono::nanoseconds Backlog() const;

 private:
  friend class Turn;

  // mutex_ is held for all of these.
  absl::Status CheckInTime(const QueueEntry& entry, double cost) const;
  std::chrono::nanoseconds Wait(const QueueEntry& entry, double cost) const;
  std::chrono::nanoseconds Alone(double cost) const;
  double Remaining(const Turn& turn) const;
  void NoteTaken(const FairQueue::Taken& taken);

  void NoteReturned();
  void RunNext();
  void GiveWay(Turn& turn);
  void Run(FairQueue::Taken& taken, bool given_way,
           std::unique_lock<std::mutex>& lock);

  WorkerPool& workers_;
  const std::function<Clock::time_point()> now_;
  mutable std::mutex mutex_;
  FairQueue fair_;
  std::unordered_map<const QueuedWork*, FairQueue::Share*> waiting_;
  std::list<const Turn*> running_;
  // For those that wait, at least: to begin takes no memory.
  std::list<const Turn*> places_;
  int64_t posted_ = 0;  // to the workers, and not back yet
  std::condition_variable idle_;
  std::atomic<int> lowest_class_;  // of what waits
};

/// A request's time on the workers.
class Turn {
 public:
  Turn(RequestQueue& queue, const FairQueue::Taken& taken, bool in_place,
       int64_t others);
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  /// To be called between parts of the work, from any worker: runs a request
  /// that should not wait for the end of this one.
  void GiveWay();

  /// So many of its parts may run at once; all workers take part where nobody
  /// says so.
  void SetParts(int64_t parts) { parts_ = parts; }
  /// Time that this request took so far of all threads together.
  std::chrono::nanoseconds ThreadTime() const;
  /// How long it has run, but for the time in which all workers gave way in it:
  /// never less than one of them has worked for it.
  std::chrono::nanoseconds OwnTime() const;

 private:
  friend class RequestQueue;

  bool GivesWayTo(double cost) const;  // nanoseconds

  RequestQueue& queue_;
  const FairQueue::Taken& taken_;
  const int cost_class_;
  const bool in_place_;
  const int64_t others_;  // that ran when it began
  const RequestQueueClock::time_point begin_;
  std::atomic<int64_t> parts_;
  std::atomic<int64_t> given_away_{0};  // nanoseconds of threads
  // Of these, by whose they were; guarded by the queue's mutex.
  std::array<double, FairQueue::kLevels> given_{};
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SCHEDULING_REQUEST_QUEUE_H_
