#ifndef ATTENTION_BENCHMARKS_LOAD_PACER_H_
#define ATTENTION_BENCHMARKS_LOAD_PACER_H_

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>

#include <atomic>
#include <thread>

#include "benchmarks/load/samples.h"

namespace attention::bench {

/// Wakes whoever waits on a completion queue when a call is due. A queue's own
/// deadlines are rounded to milliseconds, which is longer than many calls take.
class Pacer {
 public:
  Pacer(grpc::CompletionQueue& queue, Clock::time_point first,
        Clock::duration interval);
  ~Pacer() { Stop(); }
  Pacer(const Pacer&) = delete;
  Pacer& operator=(const Pacer&) = delete;

  /// The queue may still give one event after it. The pacer must live until the
  /// queue has given its last.
  void Stop();

  /// True where an event was this pacer's: something is due.
  bool Owns(const void* tag);

 private:
  void Run(Clock::time_point due);

  grpc::CompletionQueue& queue_;
  const Clock::duration interval_;
  grpc::Alarm alarm_;
  std::atomic<bool> rung_ = false;  // and the event not yet seen
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace attention::bench

#endif  // ATTENTION_BENCHMARKS_LOAD_PACER_H_
