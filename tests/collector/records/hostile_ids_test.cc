// Ids as large as they get, in every kind of definition and in records: each reader of a log leaves them out,
// keeps what is defined properly, and does not make room for what could be in between.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "collector/analysis/trust/clock_alignment.h"
#include "collector/model/job/job_model.h"
#include "collector/page/log_slicer.h"
#include "collector/records/bounds.h"
#include "collector/records/definitions.h"
#include "collector/tables/record_lines.h"
#include "collector/timeline/process_timeline.h"
#include "nlohmann/json.hpp"
#include "tests/collector/testing/batch_builder.h"

namespace gpuprobe {
namespace {

using testing::BatchBuilder;
using testing::kStart;
using testing::MakeHello;

constexpr uint32_t kSite = 1;

class EventNames : public timeline::EventSink {
 public:
  void DescribeTrack(const timeline::TrackKey&, const std::string&) override {}
  void DescribeCounter(const timeline::Counter&, const std::string&, timeline::Unit) override {}
  void OnEvent(const timeline::Event& event) override { names.emplace_back(event.name); }
  void OnCounter(const timeline::Counter&, uint64_t, double) override {}
  bool full() const override { return false; }
  std::vector<std::string> names;
};

// Defines `id` in every way, "gemm" properly, and runs a kernel of each.
v1::Batch Hostile(uint32_t id) {
  BatchBuilder b;
  b.String(1, "gemm").Site(kSite, 1);
  b.String(id, "hostile").Thread(id, false, "hostile").Site(id, id, id, id).Comm(id, 0xabc, 0, 2);
  b.Launch(id, kStart, 100).Kernel(kStart + 10, kStart + 20, kSite, 100);
  b.Kernel(kStart + 20, kStart + 30, id, 101, id).Range(id, id, id, id, kStart, kStart + 30);
  b.Collective(id, id, 1, 8, 4, id).Plan(id, id);
  v1::Batch batch = b.batch();
  v1::ObjectName& object = *batch.add_object_names();
  object.set_kind(v1::NAMED_OBJECT_STREAM);
  object.set_context(id);
  object.set_id(id);
  object.set_name(id);
  v1::RangeCategory& category = *batch.add_range_categories();
  category.set_domain(id);
  category.set_category(id);
  category.set_name(id);
  return batch;
}

class HostileIds : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ids, HostileIds,
                         ::testing::Values(uint32_t{model::kMaxId}, UINT32_MAX / 2, UINT32_MAX));

TEST_P(HostileIds, AreLeftOutOfDefinitions) {
  model::Definitions definitions;
  definitions.Learn(Hostile(GetParam()));
  EXPECT_EQ(definitions.String(1), "gemm");
  EXPECT_NE(definitions.FindSite(kSite), nullptr);
  EXPECT_EQ(definitions.String(GetParam()), "");
  EXPECT_EQ(definitions.FindSite(GetParam()), nullptr);
  EXPECT_EQ(definitions.FindThread(GetParam()), nullptr);
}

TEST_P(HostileIds, EndTheirClientInTheModel) {
  model::JobModel job;
  EXPECT_EQ(job.Join(MakeHello(0)).Apply(Hostile(GetParam())).code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(HostileIds, AreNoNamesInTheTimeline) {
  EventNames sink;
  const model::ProcessClock clock;
  const timeline::Process process;
  const timeline::GroupRanks groups;
  timeline::ProcessTimeline events(process, groups, analysis::AlignedClock(clock, {}, 0), {}, sink);
  EXPECT_TRUE(events.Add(Hostile(GetParam())).ok());
  events.Finish({});
  EXPECT_EQ(std::count(sink.names.begin(), sink.names.end(), "gemm"), 1);
  EXPECT_EQ(std::count(sink.names.begin(), sink.names.end(), "hostile"), 0);
  EXPECT_EQ(events.left_out(), 1U) << "the other kernel";
}

TEST_P(HostileIds, AreNoNamesInTheTables) {
  tables::RecordLines lines;
  lines.LearnHello(MakeHello(0));
  const v1::Batch batch = Hostile(GetParam());
  ASSERT_TRUE(lines.Learn(batch).ok());
  std::vector<std::string> kernels;
  ASSERT_TRUE(lines
                  .Write(batch,
                         [&](const std::string& line) {
                           const nlohmann::json json = nlohmann::json::parse(line);
                           EXPECT_EQ(line.find("hostile"), std::string::npos) << line;
                           if (json.at("kind") == "kernel") kernels.push_back(json.at("name"));
                         })
                  .ok());
  EXPECT_EQ(kernels, (std::vector<std::string>{"gemm", ""}));
}

TEST_P(HostileIds, AreNoSlicesOfThePage) {
  page::NameTable names;
  const model::ProcessClock clock;
  page::LogSlicer slicer({{.start_ns = kStart, .end_ns = kStart + 100}}, analysis::AlignedClock(clock, {}, 0),
                         names);
  EXPECT_TRUE(slicer.Apply(Hostile(GetParam())).ok());
  std::vector<std::string> shown;
  for (const page::RankSlices& window : slicer.Take()) {
    for (const page::Slice& slice : window.slices) shown.push_back(names.names()[slice.name]);
  }
  EXPECT_EQ(shown, (std::vector<std::string>{"?", "gemm"}));
}

}  // namespace
}  // namespace gpuprobe
