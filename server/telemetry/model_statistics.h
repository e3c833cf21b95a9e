#ifndef ATTENTION_SERVER_TELEMETRY_MODEL_STATISTICS_H_
#define ATTENTION_SERVER_TELEMETRY_MODEL_STATISTICS_H_

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "server/telemetry/request_facts.h"
#include "server/telemetry/request_series.h"

namespace attention::server {

/// How often something happened, and how long that took together.
struct CountAndTime {
  uint64_t count = 0;
  std::chrono::nanoseconds time{0};

  void Add(std::chrono::nanoseconds more) {
    ++count;
    time += more;
  }
};

/// What became of a model's requests since the server started, with the names
/// of the protocol's statistics extension.
struct ModelStatistics {
  CountAndTime success;  // from arrival to the encoded reply
  CountAndTime fail;     // of any kind, refused requests too
  // Of successful requests:
  CountAndTime compute_input;   // decoding
  CountAndTime queue;           // waiting to be computed
  CountAndTime compute_infer;   // computing
  CountAndTime compute_output;  // encoding
  uint64_t batch_entries = 0;   // computed, all requests together
  std::chrono::system_clock::time_point last_inference{};
};

/// Counts one model's requests; for several threads at once.
class ModelCounters {
 public:
  explicit ModelCounters(std::string name = "") : name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  void Count(const RequestFacts& facts);
  ModelStatistics Read() const;
  /// The same for metrics.
  RequestSeries ReadSeries() const;

 private:
  const std::string name_;
  mutable std::mutex mutex_;
  ModelStatistics statistics_;
  RequestSeries series_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TELEMETRY_MODEL_STATISTICS_H_
