#ifndef ATTENTION_CORE_WORKER_POOL_H_
#define ATTENTION_CORE_WORKER_POOL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>

#include "absl/functional/function_ref.h"
#include "core/control_groups.h"

namespace attention {

/// The threads that compute: a oneTBB arena of a fixed size, kept behind this
/// class so that the sanitizers can be told, in one place, what synchronises
/// with what.
class WorkerPool {
 public:
  /// `threads` >= 1; 0 means one per processor that the process may use, by its
  /// affinity and by the quota of its control groups. The machine may have
  /// fewer: the pool still runs that many.
  /// `for_callers`: as many threads as the pool has may call ParallelFor() at
  /// once that are not its own, and none of them waits: each computes what it
  /// has brought. There is one thread less for that, so that a caller alone
  /// makes up the number. Without it, a caller sleeps while all of the pool's
  /// threads are busy, even if they compute what it has brought.
  explicit WorkerPool(int threads = 0, bool for_callers = false);
  ~WorkerPool();  // waits for posted work
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int threads() const { return threads_; }

  /// What threads() of a pool is that is made with `threads`. Takes no memory.
  static int ThreadsFor(int threads, const ControlGroups& groups = {});

  /// Calls body(0) ... body(count - 1), each once, on the pool's threads, and
  /// returns when all have returned. Once `stop` is requested, calls that have
  /// not begun are left out. May be called from within a task of the pool,
  /// which then takes part and nothing else meanwhile. body must not throw.
  void ParallelFor(int64_t count, std::stop_token stop,
                   absl::FunctionRef<void(int64_t)> body);

  /// While it lives, ParallelFor() of the thread that made it calls body on
  /// that thread alone. For small jobs while others wait: all threads are busy
  /// without it.
  class InPlace {
   public:
    InPlace();
    ~InPlace();
    InPlace(const InPlace&) = delete;
    InPlace& operator=(const InPlace&) = delete;

   private:
    const bool before_;
  };

  /// Makes all threads now, which are otherwise made when they are first
  /// needed. Where there is none to be had, then is too late: that ends the
  /// process.
  void StartThreads();

  /// Runs `task` on the pool some time later; tasks begin in order. It must not
  /// throw. std::bad_alloc where there is no memory: then it does not run.
  void Post(std::function<void()> task);

 private:
  struct Impl;
  int threads_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace attention

#endif  // ATTENTION_CORE_WORKER_POOL_H_
