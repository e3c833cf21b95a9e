#ifndef ATTENTION_BENCHMARKS_LOAD_SAMPLES_H_
#define ATTENTION_BENCHMARKS_LOAD_SAMPLES_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/status/status.h"

namespace attention::bench {

using Clock = std::chrono::steady_clock;

/// The q-quantile, 0 <= q <= 1, of values in any order; 0 where there is none.
double Quantile(std::vector<double>& values, double q);

/// What was measured of one kind of call.
class Samples {
 public:
  /// Bytes of one request's and one reply's tensors, for the rate.
  explicit Samples(int64_t bytes_each) : bytes_each_(bytes_each) {}

  /// A call that took `latency`, of which the server says that it computed for
  /// `compute` and that the request waited for `queue`.
  void Add(std::chrono::nanoseconds latency,
           std::chrono::nanoseconds compute = {},
           std::chrono::nanoseconds queue = {});
  void AddError(absl::StatusCode code) { ++errors_[code]; }

  /// Rates over `elapsed`, and quantiles in microseconds; "transport" is the
  /// latency without the time that the server computed.
  nlohmann::json ToJson(Clock::duration elapsed);

  bool empty() const { return latency_.empty(); }

 private:
  const int64_t bytes_each_;
  std::vector<double> latency_;  // microseconds, as those below
  std::vector<double> transport_;
  std::vector<double> compute_;
  std::vector<double> queue_;
  std::map<absl::StatusCode, int64_t> errors_;
};

}  // namespace attention::bench

#endif  // ATTENTION_BENCHMARKS_LOAD_SAMPLES_H_
