// The same families in both formats, and who gets which.
#include "collector/http/open_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "collector/http/metrics.h"

namespace gpuprobe::http {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(OpenMetrics, ACountersFamilyHasNoTotalAndItsSamplesHave) {
  MetricFamily family{"calls_total", "Calls.", MetricType::Counter, {}};
  family.metric.emplace_back().counter.value = 3;
  family.metric.back().label = {{"kind", "a\"b\\c\nd"}};
  EXPECT_EQ(OpenMetricsText({family}),
            "# TYPE calls counter\n# HELP calls Calls.\ncalls_total{kind=\"a\\\"b\\\\c\\nd\"} 3\n");
}

TEST(OpenMetrics, SaysUnitsAndConstantFacts) {
  MetricFamily family{"cpu_seconds_total", "Time.", MetricType::Counter, {}};
  family.metric.emplace_back().counter.value = 0.125;
  EXPECT_EQ(OpenMetricsText({family}),
            "# TYPE cpu_seconds counter\n# UNIT cpu_seconds seconds\n# HELP cpu_seconds "
            "Time.\ncpu_seconds_total 0.125\n");
  MetricFamily info{"build_info", "Always 1.", MetricType::Gauge, {}};
  info.metric.emplace_back().gauge.value = 1;
  EXPECT_EQ(OpenMetricsText({info}), "# TYPE build info\n# HELP build Always 1.\nbuild_info 1\n");
}

TEST(OpenMetrics, BoundsOfAHistogramHaveAPoint) {
  MetricFamily family{"step_seconds", "Time.", MetricType::Histogram, {}};
  family.metric.emplace_back().histogram = {
      .sample_count = 3,
      .sample_sum = 2.5,
      .bucket = {{1, 0.5}, {2, 1}, {3, std::numeric_limits<double>::infinity()}}};
  EXPECT_EQ(OpenMetricsText({family}),
            "# TYPE step_seconds histogram\n# UNIT step_seconds seconds\n# HELP step_seconds Time.\n"
            "step_seconds_bucket{le=\"0.5\"} 1\nstep_seconds_bucket{le=\"1.0\"} "
            "2\nstep_seconds_bucket{le=\"+Inf\"} 3\n"
            "step_seconds_count 3\nstep_seconds_sum 2.5\n");
}

TEST(OpenMetrics, IsPreferredOnlyByWhoAsksForIt) {
  for (const char* accept :
       {"application/openmetrics-text", "application/openmetrics-text; version=1.0.0; charset=utf-8",
        "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
        "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"})
    EXPECT_TRUE(PrefersOpenMetrics(accept)) << accept;
  for (const char* accept :
       {"", "*/*", "text/plain;version=0.0.4", "application/openmetrics-text;version=0.0.1",
        "application/openmetrics-text;q=0", "application/openmetrics-text;q=0.3,text/plain;q=0.5",
        "application/openmetrics-text;q=much"})
    EXPECT_FALSE(PrefersOpenMetrics(accept)) << accept;
}

TEST(Metrics, BothFormatsAreOfOneTable) {
  Moment moment;
  analysis::RankNumbers& rank = moment.job.ranks.emplace_back();
  rank.rank = "0";
  rank.host = "n1";
  rank.records = 7;
  const std::string prometheus = MetricsText(moment, MetricsFormat::kPrometheus);
  const std::string open = MetricsText(moment, MetricsFormat::kOpenMetrics);
  for (const std::string& text : {prometheus, open})
    EXPECT_THAT(text, HasSubstr("\ngpuprobe_records_total{host=\"n1\",rank=\"0\"} 7\n"));
  EXPECT_THAT(prometheus, HasSubstr("# TYPE gpuprobe_records_total counter\n"));
  EXPECT_THAT(open, HasSubstr("# TYPE gpuprobe_records counter\n"));
  EXPECT_THAT(open, Not(HasSubstr("# EOF"))) << "the server's own follow";
}

}  // namespace
}  // namespace gpuprobe::http
