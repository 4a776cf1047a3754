// The report as every rendering shows it, from a synthetic job.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_split.h"
#include "collector/analysis/build_report.h"
#include "collector/analysis/finding_rules.h"
#include "collector/analysis/units.h"
#include "collector/render/html_report.h"
#include "collector/render/json_report.h"
#include "collector/render/text_report.h"
#include "nlohmann/json.hpp"
#include "tests/collector/testing/batch_builder.h"

namespace gpuprobe::render {
namespace {

using analysis::Bytes;
using analysis::Count;
using analysis::Duration;
using analysis::KernelName;
using analysis::Rate;

using gpuprobe::testing::BatchBuilder;
using gpuprobe::testing::ByeFrame;
using gpuprobe::testing::HelloFrame;
using gpuprobe::testing::kMs;
using gpuprobe::testing::kSecond;
using gpuprobe::testing::kStart;
using gpuprobe::testing::MakeHello;
using gpuprobe::testing::TrainingRank;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

void Feed(model::JobModel& job, const std::vector<v1::Frame>& frames) {
  model::ProcessModel* process = nullptr;
  for (const v1::Frame& frame : frames) {
    if (frame.has_hello()) process = &job.Join(frame.hello());
    if (frame.has_batch()) {
      ASSERT_TRUE(process->Apply(frame.batch()).ok());
    }
    if (frame.has_bye()) process->ApplyBye(frame.bye());
  }
}

analysis::Report TrainingReport(int ranks = 4, int heard = 4) {
  model::JobModel job;
  for (int rank = heard - 1; rank >= 0; --rank) Feed(job, TrainingRank(rank, ranks, 10));
  job.Finish();
  analysis::ReportInput input;
  input.collector_version = "0.1.0";
  return analysis::BuildReport(job, input);
}

const Json* Find(const Json& list, const std::string& key, const std::string& value) {
  for (const Json& item : list) {
    if (item.at(key) == value) return &item;
  }
  return nullptr;
}

void ExpectStatistics(const Json& s) {
  for (const char* field : {"mean", "std", "min", "p50", "p95", "p99", "max"}) {
    EXPECT_TRUE(s.contains(field) && s.at(field).is_number()) << field << " in " << s;
  }
}

// Every field that the public interface promises, with its type.
TEST(JsonReport, HasTheFieldsThatToolsMayRelyOn) {
  const Json json = Json::parse(JsonReport(TrainingReport()));
  EXPECT_EQ(json.at("schema_version"), 1);
  const Json& conditions = json.at("conditions");
  EXPECT_EQ(conditions.at("hosts"), Json::array({"n1"}));
  EXPECT_EQ(conditions.at("world_size"), 4);
  EXPECT_EQ(conditions.at("command_line"), Json::array({"ddp_train", "--steps"}));
  const Json& trust = json.at("trust");
  EXPECT_TRUE(trust.at("records").is_number_unsigned());
  EXPECT_EQ(trust.at("lost"), Json::object());
  EXPECT_EQ(trust.at("coverage"), 1.0);
  EXPECT_EQ(trust.at("timing_source"), "cupti_activity");
  EXPECT_TRUE(trust.at("overhead_fraction").is_null()) << "not measured, so not claimed";
  ASSERT_EQ(json.at("ranks").size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const Json& rank = json.at("ranks")[i];
    EXPECT_EQ(rank.at("rank"), i);
    EXPECT_EQ(rank.at("host"), "n1");
    EXPECT_EQ(rank.at("pid"), 1000 + i);
    EXPECT_EQ(rank.at("device"), 0);
    EXPECT_EQ(rank.at("kernels").at("count"), 40);
    EXPECT_TRUE(rank.at("kernels").at("busy_ns").is_number_unsigned());
    for (const char* direction : {"h2d", "d2h", "d2d", "p2p"}) {
      const Json& copy = rank.at("copies").at(direction);
      for (const char* field : {"count", "bytes", "busy_ns", "gbytes_per_s"})
        EXPECT_TRUE(copy.at(field).is_number());
    }
    for (const char* kind : {"device", "host_pinned", "managed", "pool"}) {
      const Json& memory = rank.at("memory").at(kind);
      EXPECT_TRUE(memory.at("high_water_bytes").is_number_unsigned());
      EXPECT_TRUE(memory.contains("high_water_at_ns"));
      EXPECT_TRUE(memory.at("live_bytes").is_number_unsigned());
    }
    ASSERT_EQ(rank.at("collectives").size(), 1u);
    const Json& collective = rank.at("collectives")[0];
    EXPECT_EQ(collective.at("op"), "AllReduce");
    EXPECT_EQ(collective.at("comm"), "0000000000009c1e");
    EXPECT_EQ(collective.at("calls"), 10);
    EXPECT_EQ(collective.at("bytes"), 10 << 20);
    ExpectStatistics(collective.at("time_ns"));
    EXPECT_TRUE(collective.at("algbw_gbytes_per_s").is_number());
    EXPECT_TRUE(collective.at("busbw_gbytes_per_s").is_number());
    EXPECT_TRUE(collective.at("wait_ns").is_number_unsigned());
    for (const char* phase : {"forward", "backward", "optimizer"}) {
      EXPECT_TRUE(json.at("stragglers").is_array());
      const Json* found = Find(rank.at("phases"), "name", phase);
      ASSERT_NE(found, nullptr) << phase;
      ExpectStatistics(found->at("time_ns"));
    }
  }
  EXPECT_TRUE(json.at("findings").is_array());
  EXPECT_TRUE(json.at("hangs").is_array() && json.at("hangs").empty());
}

TEST(JsonReport, NumbersAreThoseOfTheRecords) {
  const Json json = Json::parse(JsonReport(TrainingReport()));
  const Json& rank0 = json.at("ranks")[0];
  EXPECT_NEAR(rank0.at("copies").at("h2d").at("gbytes_per_s").get<double>(), (1 << 20) / 40000.0, 1e-9);
  EXPECT_EQ(rank0.at("memory").at("device").at("high_water_bytes"), 64 << 20);
  EXPECT_EQ(rank0.at("memory").at("device").at("high_water_at_ns"), kStart + kSecond);
  EXPECT_EQ(Find(rank0.at("phases"), "name", "optimizer")->at("time_ns").at("mean"), 900000);
  EXPECT_EQ(Find(rank0.at("phases"), "name", "backward")->at("path"), "step/backward");
  const Json& rank1 = json.at("ranks")[1];
  EXPECT_EQ(rank0.at("collectives")[0].at("wait_ns"), 0) << "rank 0 came last";
  EXPECT_EQ(rank1.at("collectives")[0].at("wait_ns"), 10 * kMs);
  EXPECT_NEAR(rank1.at("collectives")[0].at("busbw_gbytes_per_s").get<double>(), 1.5 * (1 << 20) / 1.5e6,
              1e-9);
  EXPECT_NEAR(rank1.at("collectives")[0].at("transfer_busbw_gbytes_per_s").get<double>(),
              1.5 * (1 << 20) / 5e5, 1e-9);
}

TEST(JsonReport, NamesThatAreNoUtf8DoNotBreakIt) {
  model::JobModel job;
  Feed(job, {[] {
               v1::Frame f;
               *f.mutable_hello() = MakeHello(0);
               return f;
             }(),
             BatchBuilder().String(1, "bad \xff\xfe name").Site(1, 1).Kernel(kStart, kStart + 5, 1).Frame()});
  job.Finish();
  EXPECT_FALSE(Json::parse(JsonReport(analysis::BuildReport(job, {}))).empty());
}

TEST(Findings, NothingWrongIsSaid) {
  model::JobModel job;
  Feed(job, {HelloFrame(MakeHello(0, 1)),
             BatchBuilder().String(1, "k").Site(1, 1).Kernel(kStart, kStart + 5, 1).Frame(), ByeFrame(1)});
  job.Finish();
  const analysis::Report report = analysis::BuildReport(job, {});
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_EQ(report.findings[0].id, "healthy");
  EXPECT_THAT(TextReport(report, ""), HasSubstr(" -  Nothing stands out"));
}

// The ranks of the synthetic training launch a few kernels, and then nothing for a third of each step.
TEST(Findings, ASilenceOfAllRanksWithoutACauseIsAPause) {
  const analysis::Report report = TrainingReport();
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].id, "host-pause");
  EXPECT_NEAR(report.findings[0].cost_ns_per_step.value_or(0), report.steps->pause_ns.mean,
              0.01 * report.steps->pause_ns.mean);
}

TEST(Findings, TheirIdsAreInTheTable) {
  std::set<std::string> ids;
  for (const analysis::FindingRule& rule : analysis::FindingRules()) EXPECT_TRUE(ids.insert(rule.id).second);
  EXPECT_TRUE(ids.contains("healthy"));
}

TEST(Findings, WhatIsMissingIsSaid) {
  model::JobModel job;
  std::vector<v1::Frame> frames = TrainingRank(1, 4, 3);
  frames.pop_back();  // no Bye
  frames.push_back(BatchBuilder(4)
                       .Loss(v1::LOSS_SEND_QUEUE_FULL, 500)
                       .Alloc(kStart, 1 << 30, 0, 0, v1::MEMORY_KIND_DEVICE, true)
                       .Clock(kStart + 20 * kSecond, 5 * kSecond)
                       .Frame());
  Feed(job, frames);
  job.Finish();
  analysis::ReportInput input;
  input.damaged_logs = {"rank-1.gpr is damaged"};
  const analysis::Report report = analysis::BuildReport(job, input);
  std::vector<std::string> ids;
  for (const analysis::Finding& f : report.findings) {
    ids.push_back(f.id);
    EXPECT_FALSE(f.statement.empty() || f.evidence.empty() || f.advice.empty()) << f.id;
  }
  EXPECT_THAT(ids,
              ::testing::UnorderedElementsAre("rank-cut-off", "records-lost", "ranks-missing",
                                              "capture-incomplete", "clock-stepped", "allocation-failed"))
      << "three of four ranks are not heard: nothing is concluded from transfers";
  EXPECT_EQ(report.trust.lost.at("send_queue_full"), 500u);
  EXPECT_LT(*report.trust.coverage, 1.0);
  const std::string text = TextReport(report, "");
  EXPECT_THAT(text, HasSubstr("500 records LOST"));
  EXPECT_THAT(text, HasSubstr("1 of 4 ranks reported"));
  EXPECT_THAT(text, HasSubstr("Missing: ranks 0, 2-3"));
}

TEST(TextReport, AnswersInOrderWithUnitsAndFitsTheScreen) {
  const std::string text = TextReport(TrainingReport(), "runs/x/report.html");
  EXPECT_THAT(text, ::testing::StartsWith("gpuprobe: 4 ranks on n1 in "));
  EXPECT_THAT(text, HasSubstr("0 records lost"));
  size_t last = 0;
  for (const char* wanted : {"exposed comm", "memory peak", "instances", "busbw", "gemm(float*, float*, int)",
                             "page: runs/x/report.html"}) {
    const size_t at = text.find(wanted);
    ASSERT_NE(at, std::string::npos) << wanted << "\n" << text;
    EXPECT_GT(at, last) << wanted;
    last = at;
  }
  EXPECT_THAT(text, HasSubstr("26.2 GB/s"));
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    EXPECT_LE(end - begin, 120u) << text.substr(begin, end - begin);
    begin = end + 1;
  }
}

TEST(TextReport, FitsAnyTerminalFromSixtyColumns) {
  const analysis::Report report = TrainingReport();
  for (const size_t width : {60, 80, 100, 160}) {
    const Layout layout(Screen{.width = width, .colors = false, .is_terminal = true});
    const std::string text = TextReport(report, "", layout);
    const std::vector<std::string> lines = absl::StrSplit(text, '\n');
    for (const std::string& line : lines) EXPECT_LE(line.size(), width) << line;
    // Nothing is lost by the width: each column's header is there.
    for (const char* wanted : {"memory peak", "caused wait", "busbw", "of kernel time", "GPU mean"})
      EXPECT_THAT(text, HasSubstr(wanted)) << width;
  }
}

TEST(HtmlReport, IsOnePageThatNeedsNothingElse) {
  analysis::Report report = TrainingReport();
  report.conditions.command_line = {"<script>alert(1)</script>"};
  const std::string page = HtmlReport(report);
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;"));
  for (const char* never : {"<script", "http://", "https://", "src=", "@import"})
    EXPECT_THAT(page, Not(HasSubstr(never)));
  for (const char* wanted : {"AllReduce", "backward", "0 records lost", "</html>"})
    EXPECT_THAT(page, HasSubstr(wanted));
}

TEST(Units, AsPeopleReadThem) {
  EXPECT_EQ(Count(0), "0");
  EXPECT_EQ(Count(40113152), "40,113,152");
  EXPECT_EQ(Duration(812), "812 ns");
  EXPECT_EQ(Duration(2200), "2.20 us");
  EXPECT_EQ(Duration(38.1e6), "38.1 ms");
  EXPECT_EQ(Duration(84.1e9), "84.1 s");
  EXPECT_EQ(Bytes(512), "512 B");
  EXPECT_EQ(Bytes(25 << 20), "25.0 MiB");
  EXPECT_EQ(Rate(20.9), "20.9 GB/s");
  EXPECT_EQ(Rate(0.00063), "0.63 MB/s");
  EXPECT_EQ(KernelName("gemm(float*, int)", 48), "gemm(float*, int)");
  EXPECT_EQ(KernelName("a::(anonymous namespace)::Forward<f(int)>(float*, int)", 44),
            "a::(anonymous namespace)::Forward<f(int)>");
  EXPECT_EQ(KernelName("a::(anonymous namespace)::Forward<x::y>(float*)", 20), "Forward<x::y>");
  EXPECT_EQ(KernelName(std::string(60, 'k') + "()", 20), std::string(17, 'k') + "...");
}

}  // namespace
}  // namespace gpuprobe::render
