#include "server/models/model_statistics.h"

#include <algorithm>

namespace attention::server {

void ModelCounters::CountSuccess(const RequestFacts& facts,
                                 int64_t batch_entries) {
  const auto now = std::chrono::system_clock::now();
  const std::lock_guard lock(mutex_);
  statistics_.success.Add(facts.queue_time + facts.gather_time +
                          facts.gather_time + facts.compute_time +
                          facts.encode_time);
  statistics_.compute_input.Add(facts.decode_time + facts.gather_time);
  statistics_.queue.Add(facts.queue_time - facts.decode_time);
  statistics_.compute_infer.Add(facts.compute_time);
  statistics_.compute_output.Add(facts.encode_time);
  statistics_.batch_entries += static_cast<uint64_t>(batch_entries);
  statistics_.last_inference = now;
}

void ModelCounters::CountFailure(const RequestFacts& facts) {
  const std::lock_guard lock(mutex_);
  // One that was refused never reached the queue.
  statistics_.fail.Add(std::max(facts.decode_time, facts.queue_time) +
                       facts.compute_time + facts.encode_time);
}

ModelStatistics ModelCounters::Read() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

}  // namespace attention::server
