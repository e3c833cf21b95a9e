#include "server/telemetry/request_series.h"

#include <algorithm>
#include <numeric>

namespace attention::server {

std::chrono::nanoseconds WholeTime(const RequestFacts& facts) {
  // One that was refused may never have reached the queue.
  return std::max(facts.decode_time, facts.queue_time) + facts.gather_time +
         facts.compute_time + facts.encode_time;
}

void RequestSeries::Count(const RequestFacts& facts) {
  ++by_code[static_cast<size_t>(facts.status.code()) % kStatusCodes];
  request_bytes += static_cast<uint64_t>(facts.request_bytes);
  reply_bytes += static_cast<uint64_t>(facts.reply_bytes);
  if (facts.queue_time.count() == 0) return;  // it never waited
  queue.Observe((facts.queue_time - facts.decode_time).count());
  if (facts.compute_time.count() == 0) return;  // it was stopped before
  compute.Observe(facts.compute_time.count());
  transfer.Observe(
      (facts.decode_time + facts.gather_time + facts.encode_time).count());
  batch.Observe(facts.batch_entries);
}

uint64_t RequestSeries::requests() const {
  return std::accumulate(by_code.begin(), by_code.end(), uint64_t{0});
}

}  // namespace attention::server
