#include "server/telemetry/model_statistics.h"

namespace attention::server {

void ModelCounters::Count(const RequestFacts& facts) {
  const auto now = std::chrono::system_clock::now();
  const std::lock_guard lock(mutex_);
  const std::chrono::nanoseconds all = WholeTime(facts);
  series_.Count(facts);
  if (!facts.status.ok()) {
    statistics_.fail.Add(all);
    return;
  }
  statistics_.success.Add(all);
  statistics_.compute_input.Add(facts.decode_time + facts.gather_time);
  statistics_.queue.Add(facts.queue_time - facts.decode_time);
  statistics_.compute_infer.Add(facts.compute_time);
  statistics_.compute_output.Add(facts.encode_time);
  statistics_.batch_entries += static_cast<uint64_t>(facts.batch_entries);
  statistics_.last_inference = now;
}

ModelStatistics ModelCounters::Read() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

RequestSeries ModelCounters::ReadSeries() const {
  const std::lock_guard lock(mutex_);
  return series_;
}

}  // namespace attention::server
