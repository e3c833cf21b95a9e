#include "server/telemetry/metric_families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/telemetry/process_figures.h"

namespace attention::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(MetricFamiliesTest, WritesPrometheusTextForm) {
  MetricFamilies page;
  page.Counter("a_total", "Counts.").Add(3, {{"code", "OK"}});
  EXPECT_EQ(page.Text(),
            "# HELP a_total Counts.\n"
            "# TYPE a_total counter\n"
            "a_total{code=\"OK\"} 3\n");
}

TEST(MetricFamiliesTest, EscapesLabels) {
  MetricFamilies page;
  page.Gauge("a", "A.").Add(1, {{"model", "x\"\n\\"}});
  EXPECT_THAT(page.Text(), HasSubstr("a{model=\"x\\\"\\n\\\\\"} 1\n"));
}

TEST(MetricFamiliesTest, HistogramsAreCumulativeAndInSeconds) {
  TimeHistogram histogram;
  histogram.Observe(20'000);  // 20 us
  histogram.Observe(2'000'000);
  histogram.Observe(1'000'000'000'000);
  MetricFamilies page;
  page.Histogram("a_seconds", "A.").Add(histogram);
  EXPECT_THAT(page.Text(), AllOf(HasSubstr("a_seconds_bucket{le=\"1e-05\"} 0"),
                                 HasSubstr("a_seconds_bucket{le=\"0.0025\"} 2"),
                                 HasSubstr("a_seconds_bucket{le=\"300\"} 2"),
                                 HasSubstr("a_seconds_bucket{le=\"+Inf\"} 3"),
                                 HasSubstr("a_seconds_count 3"),
                                 HasSubstr("a_seconds_sum 1000.00202")));
}

TEST(MetricFamiliesTest, LeavesOutFamiliesWithoutSeries) {
  MetricFamilies page;
  page.Counter("a_total", "Nothing.");
  page.Gauge("b", "B.").Add(1);
  EXPECT_THAT(page.Text(), Not(HasSubstr("a_total")));
}

TEST(ProcessFiguresTest, AreThoseOfARunningProcess) {
  const ProcessFigures figures = ReadProcessFigures();
  EXPECT_GT(figures.cpu_seconds, 0);
  EXPECT_GT(figures.start_time, 1.5e9);
  EXPECT_GT(figures.resident_bytes, 1 << 20);
  EXPECT_GE(figures.virtual_bytes, figures.resident_bytes);
  EXPECT_GE(figures.threads, 1);
  EXPECT_GE(figures.open_descriptors, 3);
  EXPECT_GT(figures.most_descriptors, figures.open_descriptors);
}

}  // namespace
}  // namespace attention::server
