// What a hub's metrics are made of: a run's metrics, of each job, and the hub's own.
#include "collector/http/hub_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace gpuprobe::http {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

HubJobMoment JobOf(const std::string& name) {
  auto numbers = std::make_shared<analysis::JobNumbers>();
  for (const char* rank : {"0", "1"}) {
    analysis::RankNumbers& each = numbers->ranks.emplace_back();
    each.rank = rank;
    each.host = "n1";
    each.caused_wait_ns = 2'500'000'000;
    each.devices = {{.device = 3, .uuid = absl::StrCat("GPU-", rank)}};
  }
  HubJobMoment job;
  job.name = name;
  job.attempt = 2;
  job.numbers = numbers;
  job.status = std::make_shared<analysis::LiveStatus>();
  return job;
}

TEST(HubMetrics, OnlyChosenRanksHaveSeries) {
  HubMoment moment;
  moment.jobs.push_back(JobOf("a"));
  moment.jobs[0].ranks = {1};
  const std::string text = HubMetricsText(moment, MetricsFormat::kPrometheus);
  EXPECT_THAT(text,
              HasSubstr("\ngpuprobe_rank_caused_wait_seconds_total{job=\"a\",attempt=\"2\",host=\"n1\",rank="
                        "\"1\"} 2.5\n"));
  EXPECT_THAT(text,
              HasSubstr("\ngpuprobe_rank_info{job=\"a\",attempt=\"2\",host=\"n1\",rank=\"1\",device=\"3\","
                        "UUID=\"GPU-1\"} 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("rank=\"0\"")));
}

TEST(HubMetrics, AFamilyHasTheSeriesOfAllJobs) {
  HubMoment moment;
  moment.jobs.push_back(JobOf("a"));
  moment.jobs.push_back(JobOf("b\x1b"));
  moment.jobs.push_back(JobOf("b\x1b"));
  const std::string text = HubMetricsText(moment, MetricsFormat::kOpenMetrics);
  EXPECT_THAT(
      text,
      HasSubstr("gpuprobe_hangs{job=\"a\",attempt=\"2\"} 0\ngpuprobe_hangs{job=\"b?\",attempt=\"2\"} 0\n#"));
  EXPECT_THAT(text, HasSubstr("gpuprobe_step_seconds_count{job=\"b?\",attempt=\"2\"} 0\n"
                              "gpuprobe_step_seconds_sum{job=\"b?\",attempt=\"2\"} 0\n#"))
      << "a series that is there twice makes a scraper drop everything";
}

TEST(HubMetrics, JobsOfSeveralUsersHaveTheirNameAndAUserReadsNothingOfTheHub) {
  HubMoment moment;
  for (const char* user : {"alice", "bob"}) {
    moment.jobs.push_back(JobOf("a"));
    moment.jobs.back().user = user;
  }
  const std::string all = HubMetricsText(moment, MetricsFormat::kPrometheus);
  EXPECT_THAT(all, HasSubstr("\ngpuprobe_hangs{job=\"a\",attempt=\"2\",user=\"alice\"} 0\n"
                             "gpuprobe_hangs{job=\"a\",attempt=\"2\",user=\"bob\"} 0\n"));
  EXPECT_THAT(all, HasSubstr("gpuprobe_hub_posts_total"));
  moment.of_user = true;
  const std::string his = HubMetricsText(moment, MetricsFormat::kPrometheus);
  for (const char* name :
       {"posts", "received", "refused", "fullest", "disk", "clickhouse", "rows", "spool", "cpu", "resident"})
    EXPECT_THAT(his, Not(HasSubstr(absl::StrCat("gpuprobe_hub_", name))));
  EXPECT_THAT(his, HasSubstr("gpuprobe_hub_jobs{state=\"open\"} 2\n"));
}

TEST(HubMetrics, SilentHostsAreNamedAndBounded) {
  HubMoment moment;
  moment.jobs.push_back(JobOf("a"));
  for (int i = 10; i < 40; ++i) moment.jobs[0].silent_hosts.insert(absl::StrCat("n", i));
  const std::string text = HubMetricsText(moment, MetricsFormat::kPrometheus);
  EXPECT_THAT(text, HasSubstr("\ngpuprobe_job_hosts{job=\"a\",attempt=\"2\",state=\"silent\"} 30\n"));
  EXPECT_THAT(text, HasSubstr("\ngpuprobe_host_silent{job=\"a\",attempt=\"2\",host=\"n25\"} 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("host=\"n26\"")));
}

TEST(HubMetrics, RowsAreThereWhereTheyAreWritten) {
  HubMoment moment;
  EXPECT_THAT(HubMetricsText(moment, MetricsFormat::kPrometheus),
              Not(HasSubstr("\ngpuprobe_hub_spool_bytes ")));
  moment.rows = {
      .written = 1, .waiting = 2, .lost = 3, .spool_bytes = 4, .most_spool_bytes = 5, .answers = false};
  const std::string text = HubMetricsText(moment, MetricsFormat::kPrometheus);
  for (const char* line : {"\ngpuprobe_hub_rows_written_total 1\n", "\ngpuprobe_hub_rows_waiting 2\n",
                           "\ngpuprobe_hub_rows_lost_total 3\n", "\ngpuprobe_hub_spool_bytes 4\n",
                           "\ngpuprobe_hub_spool_limit_bytes 5\n", "\ngpuprobe_hub_clickhouse_up 0\n"})
    EXPECT_THAT(text, HasSubstr(line));
}

}  // namespace
}  // namespace gpuprobe::http
