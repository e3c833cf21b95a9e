#include "tests/benchmarks/load/pacer.h"

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
      alarm_.Set(&queue_, std::chrono::system_clock::now(), this);
    }
  }
}

bool Pacer::Owns(const void* tag) {
  if (tag != this) return false;
  rung_ = false;
  return true;
}

}  // namespace attention::bench
