#include "core/worker_pool.h"

#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "core/control_groups.h"

// The thread sanitizer does not see what an uninstrumented libtbb synchronises,
// so this file, the only one that includes TBB, is compiled without
// instrumentation (CMakeLists.txt) and states the edges that TBB guarantees:
// what precedes a task's spawn happens before the task, and a task happens
// before its wait returns.
#ifdef ATTENTION_THREAD_SANITIZER
extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier): the sanitizer's own names
void __tsan_acquire(void* address);
void __tsan_release(void* address);
// libtbb frees what other threads of its own have read, in calls that the
// sanitizer intercepts, and a thread of its own may end, when the process does,
// before libtbb has let go of it. Left out are such calls and threads of libtbb
// itself, and no race in the tasks that it runs.
const char* __tsan_default_suppressions() {
  return "called_from_lib:libtbb.so\nthread:libtbb.so\n";
}
// NOLINTEND(bugprone-reserved-identifier)
}
#endif

namespace attention {
namespace {

// What precedes HappensBefore(x) comes before what follows HappensAfter(x).
void HappensBefore([[maybe_unused]] void* address) {
#ifdef ATTENTION_THREAD_SANITIZER
  __tsan_release(address);
#endif
}
void HappensAfter([[maybe_unused]] void* address) {
#ifdef ATTENTION_THREAD_SANITIZER
  __tsan_acquire(address);
#endif
}

// For the threads of a pool to start, on a machine that is busy.
constexpr std::chrono::seconds kMostStartTime{2};

thread_local bool in_place = false;

}  // namespace

struct WorkerPool::Impl {
  Impl(int threads, int callers)
      // The limit counts a thread that is not a worker, too.
      : limit(tbb::global_control::max_allowed_parallelism,
              static_cast<size_t>(threads) + 1),
        own_threads(callers > 0 ? threads - 1 : threads),
        arena(own_threads + callers, static_cast<unsigned>(callers)) {
    arena.initialize();
  }

  tbb::global_control limit;
  const int own_threads;
  tbb::task_arena arena;
  std::mutex mutex;
  std::condition_variable idle;
  int64_t posted = 0;  // tasks posted and not finished
};

int WorkerPool::ThreadsFor(int threads, const ControlGroups& groups) {
  if (threads > 0) return threads;
  // oneTBB follows the affinity; it knows of no quota.
  return ProcessorsWithin(groups, tbb::this_task_arena::max_concurrency());
}

WorkerPool::WorkerPool(int threads, bool for_callers)
    : threads_(ThreadsFor(threads)),
      impl_(std::make_unique<Impl>(threads_, for_callers ? threads_ : 0)) {}

WorkerPool::~WorkerPool() {
  std::unique_lock lock(impl_->mutex);
  impl_->idle.wait(lock, [this] { return impl_->posted == 0; });
}

void WorkerPool::ParallelFor(int64_t count, std::stop_token stop,
                             absl::FunctionRef<void(int64_t)> body) {
  if (count <= 0 || stop.stop_requested()) return;
  if (count == 1) return body(0);
  if (in_place) {
    for (int64_t index = 0; index < count && !stop.stop_requested(); ++index) {
      body(index);
    }
    return;
  }
  // Their addresses name the loop's edges. Two, so that none runs from one call
  // of body to another: calls that race must be reported.
  char spawn = 0;
  char join = 0;
  HappensBefore(&spawn);
  tbb::task_group_context group;
  const auto run = [&](int64_t index) {
    HappensAfter(&spawn);
    if (stop.stop_requested()) {
      group.cancel_group_execution();
    } else {
      body(index);
    }
    HappensBefore(&join);
  };
  impl_->arena.execute([&] {
    // Isolated: while it waits, a thread must not pick up another request's
    // task and make this one wait for all of that.
    tbb::this_task_arena::isolate(
        [&] { tbb::parallel_for(int64_t{0}, count, run, group); });
  });
  HappensAfter(&join);
}

WorkerPool::InPlace::InPlace() : before_(std::exchange(in_place, true)) {}
WorkerPool::InPlace::~InPlace() { in_place = before_; }

void WorkerPool::StartThreads() {
  // Each task waits for the others, so that no thread runs two. There may be
  // fewer threads in the end than were asked for: pools that live at once share
  // as many as the smallest limit allows.
  struct Meeting {
    std::mutex mutex;
    std::condition_variable arrived;
    int missing;
  };
  const size_t most = tbb::global_control::active_value(
      tbb::global_control::max_allowed_parallelism);
  const int threads = std::min(impl_->own_threads, static_cast<int>(most) - 1);
  const auto meeting = std::make_shared<Meeting>();
  meeting->missing = threads;
  const auto end = std::chrono::steady_clock::now() + kMostStartTime;
  const auto meet = [meeting, end](int arriving) {
    std::unique_lock lock(meeting->mutex);
    meeting->missing -= arriving;
    if (meeting->missing == 0) meeting->arrived.notify_all();
    meeting->arrived.wait_until(lock, end,
                                [&] { return meeting->missing == 0; });
  };
  for (int i = 0; i < threads; ++i) Post([meet] { meet(1); });
  meet(0);
}

void WorkerPool::Post(std::function<void()> task) {
  Impl* impl = impl_.get();
  auto owned = std::make_unique<std::function<void()>>(std::move(task));
  {
    const std::lock_guard lock(impl->mutex);
    ++impl->posted;
  }
  const auto note_end = [impl] {
    // Notified under the lock: the pool may be gone the moment it is released.
    const std::lock_guard lock(impl->mutex);
    if (--impl->posted == 0) impl->idle.notify_all();
  };
  absl::Cleanup not_posted = note_end;
  HappensBefore(owned.get());
  impl->arena.enqueue([note_end, run = owned.get()] {
    HappensAfter(run);
    (*run)();
    delete run;
    note_end();
  });
  std::move(not_posted).Cancel();
  // It is the lambda's, which may have run by now.
  [[maybe_unused]] const auto* const given = owned.release();
}

}  // namespace attention
