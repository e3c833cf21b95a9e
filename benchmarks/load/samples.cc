#include "benchmarks/load/samples.h"

#include <algorithm>
#include <cmath>

namespace attention::bench {
namespace {

double Microseconds(std::chrono::nanoseconds time) {
  return static_cast<double>(time.count()) / 1000;
}

nlohmann::json Quantiles(std::vector<double>& values) {
  return {{"p50", Quantile(values, 0.5)},
          {"p90", Quantile(values, 0.9)},
          {"p99", Quantile(values, 0.99)}};
}

}  // namespace

double Quantile(std::vector<double>& values, double q) {
  if (values.empty()) return 0;
  const auto last = static_cast<double>(values.size() - 1);
  const auto at = values.begin() + std::lround(q * last);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

void Samples::Add(std::chrono::nanoseconds latency,
                  std::chrono::nanoseconds compute,
                  std::chrono::nanoseconds queue) {
  latency_.push_back(Microseconds(latency));
  transport_.push_back(Microseconds(latency - compute));
  compute_.push_back(Microseconds(compute));
  queue_.push_back(Microseconds(queue));
}

nlohmann::json Samples::ToJson(Clock::duration elapsed) {
  const double seconds = std::chrono::duration<double>(elapsed).count();
  const double rate = static_cast<double>(latency_.size()) / seconds;
  int64_t errors = 0;
  nlohmann::json codes = nlohmann::json::object();
  for (const auto& [code, count] : errors_) {
    errors += count;
    codes[absl::StatusCodeToString(code)] = count;
  }
  return {{"calls", latency_.size()},
          {"errors", errors},
          {"errors_by_code", codes},
          {"seconds", seconds},
          {"calls_per_second", rate},
          {"bytes_per_second", rate * static_cast<double>(bytes_each_)},
          {"latency_us", Quantiles(latency_)},
          {"transport_us", Quantiles(transport_)},
          {"compute_us", Quantiles(compute_)},
          {"queue_us", Quantiles(queue_)}};
}

}  // namespace attention::bench
