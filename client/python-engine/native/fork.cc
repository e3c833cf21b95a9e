#include "client/python-engine/native/fork.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "absl/status/status.h"
#include "client/python-engine/native/python.h"

namespace attention::python {
namespace {

std::atomic<bool> lacks_threads = false;

// Of exit(), when Python has ended: before the destructors of oneTBB, in which
// a child could wait for a thread that it lacks.
void EndChild(int status, void*) {
  if (!LacksThreads()) return;
  std::fflush(nullptr);
  _exit(status);
}

bool Register() {
  pthread_atfork(nullptr, nullptr, [] { lacks_threads.store(true); });
  on_exit(EndChild, nullptr);
  return true;
}

}  // namespace

void NoteThreads() { [[maybe_unused]] static const bool once = Register(); }

bool LacksThreads() { return lacks_threads.load(std::memory_order_relaxed); }

void CheckHasThreads() {
  if (!LacksThreads()) return;
  Check(absl::FailedPreconditionError(
      "the engine's threads are not in this process, which was forked after an "
      "Engine was made (expected the start method \"spawn\" or \"forkserver\" "
      "of multiprocessing, or no Engine before the fork)"));
}

void CheckOpen(bool is_open) {
  if (is_open) return;
  Check(absl::FailedPreconditionError(
      "the engine is closed (expected a call before close())"));
}

}  // namespace attention::python
