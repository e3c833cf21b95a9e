#ifndef ATTENTION_SERVER_TELEMETRY_METRIC_FAMILIES_H_
#define ATTENTION_SERVER_TELEMETRY_METRIC_FAMILIES_H_

#include <prometheus/metric_family.h>

#include <string>
#include <utility>
#include <vector>

#include "server/telemetry/histogram.h"

namespace attention::server {

/// Metrics as they are scraped, put together anew for each scrape.
class MetricFamilies {
 public:
  using Labels = std::vector<prometheus::ClientMetric::Label>;

  /// One family: a name, and a series for each set of labels.
  class Family {
   public:
    explicit Family(prometheus::MetricFamily& family) : family_(family) {}
    void Add(double value, Labels labels = {});
    void Add(const TimeHistogram& histogram, Labels labels = {});  // as seconds
    void Add(const CountHistogram& histogram, Labels labels = {});

   private:
    // Bounds and the sum divided by `unit`.
    template <typename Counted, typename Bounds>
    void AddHistogram(const Counted& histogram, const Bounds& bounds,
                      double unit, Labels labels);

    prometheus::MetricFamily& family_;
  };

  /// The next one; the result is valid until the next. Names of counters end
  /// in _total.
  Family Counter(std::string name, std::string help);
  Family Gauge(std::string name, std::string help);
  Family Histogram(std::string name, std::string help);

  /// In Prometheus' text form; families without series are left out.
  std::string Text() const;

 private:
  Family Next(std::string name, std::string help, prometheus::MetricType type);

  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TELEMETRY_METRIC_FAMILIES_H_
