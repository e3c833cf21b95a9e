#ifndef ATTENTION_SERVER_SCHEDULING_SERIAL_QUEUE_H_
#define ATTENTION_SERVER_SCHEDULING_SERIAL_QUEUE_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"

namespace attention::server {

/// Does what reads or writes files, one task after the other in the order in
/// which they came, on a thread of its own: a disk may be slow and a file
/// large, and the threads that take requests must not wait for either. Safe for
/// several threads at once.
class SerialQueue {
 public:
  /// Called exactly once, without a lock: with OK on the queue's thread when it
  /// is the task's turn, else with why its turn never comes. Throws nothing.
  using Task = std::function<void(const absl::Status& turn)>;

  /// Why nobody waits for the task any more, for good; OK while somebody does.
  /// Asked until the task is called, also under the queue's lock.
  using StillWanted = std::function<absl::Status()>;

  /// `subject` is what the tasks are about, as a refusal names it: "the model
  /// repository". `most_waiting` tasks at most wait beside the one that runs.
  explicit SerialQueue(std::string subject, size_t most_waiting = 64);
  /// Stops.
  ~SerialQueue();
  SerialQueue(const SerialQueue&) = delete;
  SerialQueue& operator=(const SerialQueue&) = delete;

  /// Who waits for a task.
  struct Waiter {
    /// A caller's name, or an address. Empty: nobody's own.
    std::string party = {};
    StillWanted wanted = [] { return absl::OkStatus(); };
  };

  /// Where a task may wait: in any place; in half of them, which leaves some to
  /// others; or beyond them, however many wait. One party's tasks have half of
  /// those at most.
  enum class Places : uint8_t { kAll, kHalf, kUnbounded };

  /// Where the queue is full the task is told RESOURCE_EXHAUSTED, with a time
  /// after which to try again, and once it drains UNAVAILABLE, both before this
  /// returns. Before that, those that nobody waits for give up their places,
  /// and are told why. So is one that nobody waits for in its turn.
  void Add(Task task, Places places, Waiter waiter);
  void Add(Task task, Places places = Places::kAll) {
    Add(std::move(task), places, Waiter());
  }

  /// From now on no task has its turn: those that wait are told UNAVAILABLE
  /// before this returns. The one that runs goes on.
  void StartDraining();

  /// True as soon as no task runs or waits, false where one does at `deadline`.
  bool WaitUntilIdle(std::chrono::steady_clock::time_point deadline);

  /// Drains, and returns when the task that runs has returned.
  void Stop();

 private:
  struct Waiting {
    Task task;
    Waiter waiter;
    absl::Status why = {};  // nobody waits for it; as IsWanted() was told

    bool IsWanted();
  };

  void Work();
  // OK where one more may wait; mutex_ is held.
  absl::Status CheckPlace(Places places, const std::string& party) const;
  std::list<Waiting> TakeUnwanted();  // mutex_ is held

  const std::string subject_;
  const size_t most_waiting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Waiting> waiting_;
  bool running_ = false;
  bool draining_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SCHEDULING_SERIAL_QUEUE_H_
