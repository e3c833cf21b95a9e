#include "server/telemetry/metric_families.h"

#include <prometheus/text_serializer.h>

#include <cstdint>
#include <limits>

namespace attention::server {

using prometheus::ClientMetric;
using prometheus::MetricType;

void MetricFamilies::Family::Add(double value, Labels labels) {
  ClientMetric metric;
  metric.label = std::move(labels);
  metric.counter.value = value;
  metric.gauge.value = value;
  family_.metric.push_back(std::move(metric));
}

template <typename Counted, typename Bounds>
void MetricFamilies::Family::AddHistogram(const Counted& histogram,
                                          const Bounds& bounds, double unit,
                                          Labels labels) {
  ClientMetric metric;
  metric.label = std::move(labels);
  uint64_t count = 0;
  for (size_t i = 0; i < histogram.counts.size(); ++i) {
    count += histogram.counts[i];
    const double bound = i < bounds.size()
                             ? static_cast<double>(bounds[i]) / unit
                             : std::numeric_limits<double>::infinity();
    metric.histogram.bucket.push_back({count, bound});
  }
  metric.histogram.sample_count = count;
  metric.histogram.sample_sum = static_cast<double>(histogram.sum) / unit;
  family_.metric.push_back(std::move(metric));
}

void MetricFamilies::Family::Add(const TimeHistogram& histogram,
                                 Labels labels) {
  AddHistogram(histogram, kTimeBounds, 1e9, std::move(labels));
}

void MetricFamilies::Family::Add(const CountHistogram& histogram,
                                 Labels labels) {
  AddHistogram(histogram, kCountBounds, 1, std::move(labels));
}

MetricFamilies::Family MetricFamilies::Next(std::string name, std::string help,
                                            MetricType type) {
  prometheus::MetricFamily& family = families_.emplace_back();
  family.name = std::move(name);
  family.help = std::move(help);
  family.type = type;
  return Family(family);
}

MetricFamilies::Family MetricFamilies::Counter(std::string name,
                                               std::string help) {
  return Next(std::move(name), std::move(help), MetricType::Counter);
}

MetricFamilies::Family MetricFamilies::Gauge(std::string name,
                                             std::string help) {
  return Next(std::move(name), std::move(help), MetricType::Gauge);
}

MetricFamilies::Family MetricFamilies::Histogram(std::string name,
                                                 std::string help) {
  return Next(std::move(name), std::move(help), MetricType::Histogram);
}

std::string MetricFamilies::Text() const {
  std::vector<prometheus::MetricFamily> told;
  for (const prometheus::MetricFamily& family : families_) {
    if (!family.metric.empty()) told.push_back(family);
  }
  return prometheus::TextSerializer().Serialize(told);
}

}  // namespace attention::server
