#include "benchmarks/load/pacer.h"

#include <grpc/support/time.h>

namespace attention::bench {

Pacer::Pacer(grpc::CompletionQueue& queue, Clock::time_point first,
             Clock::duration interval)
    : queue_(queue),
      interval_(interval),
      thread_([this, first] { Run(first); }) {}

void Pacer::Stop() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void Pacer::Run(Clock::time_point due) {
  while (!stop_) {
    std::this_thread::sleep_until(due);
    due += interval_;
    if (!rung_.exchange(true)) {
      // Long ago: "now" would be rounded up to the next millisecond.
      alarm_.Set(&queue_, gpr_time_0(GPR_CLOCK_REALTIME), this);
    }
  }
}

bool Pacer::Owns(const void* tag) {
  if (tag != this) return false;
  rung_ = false;
  return true;
}

}  // namespace attention::bench
