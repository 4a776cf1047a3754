#include "collector/tables/record_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nlohmann/json.hpp"
#include "proto/cupti_versions.h"
#include "tests/collector/testing/batch_builder.h"

namespace gpuprobe::tables {
namespace {

using gpuprobe::testing::BatchBuilder;
using gpuprobe::testing::kStart;
using gpuprobe::testing::MakeHello;
using Json = nlohmann::json;

std::vector<Json> Lines(const std::vector<v1::Batch>& batches) {
  RecordLines lines;
  lines.LearnHello(MakeHello(2, 4, 77));
  for (const v1::Batch& batch : batches) EXPECT_TRUE(lines.Learn(batch).ok());
  std::vector<Json> out;
  for (const v1::Batch& batch : batches) {
    EXPECT_TRUE(lines.Write(batch, [&](const std::string& line) { out.push_back(Json::parse(line)); }).ok());
  }
  return out;
}

TEST(RecordLines, EveryKindInTheTruthLogsNames) {
  BatchBuilder b;
  b.String(1, "_Z4gemmPfS_i").String(2, "step \"x\"").Site(1, 1, 3, 13).Thread(1, true, "python");
  b.Kernel(kStart + 10, kStart + 20, 1, 100, 5);
  b.Copy(kStart, kStart + 5, 4096, v1::COPY_DIRECTION_H2D, 101);
  b.Memset(kStart + 1, kStart + 2, 64, 102);
  b.Sync(kStart, kStart + 9, v1::SYNC_KIND_STREAM);
  b.Overhead(kStart + 1, kStart + 8, v1::OVERHEAD_KIND_BUFFER_FLUSH);
  b.Alloc(kStart + 3, 256, 0x7f00, 0).Free(kStart + 4, 256, 0x7f00);
  b.Alloc(kStart + 5, 1 << 20, 0, 0, v1::MEMORY_KIND_PINNED, true);
  b.Range(1, 0, 2, 1, kStart, kStart + 30);
  b.Launch(1, kStart + 2, 100, 1);
  const std::vector<Json> lines = Lines({b.batch()});
  ASSERT_EQ(lines.size(), 10u);
  const Json who = {{"rank", 2}, {"pid", 77}};
  for (const Json& line : lines) {
    EXPECT_EQ(line.at("rank"), 2);
    EXPECT_EQ(line.at("pid"), 77);
  }
  EXPECT_EQ(lines[0], Json::parse(R"({"kind":"kernel","rank":2,"pid":77,"device":3,"stream":13,
      "start_ns":1700000000000000010,"end_ns":1700000000000000020,"correlation":100,"name":"_Z4gemmPfS_i",
      "graph_node":5,"grid":[64,1,1],"block":[256,1,1]})"));
  EXPECT_EQ(lines[1].at("kind"), "memcpy");
  EXPECT_EQ(lines[1].at("direction"), "h2d");
  EXPECT_EQ(lines[1].at("src_memory"), "pinned");
  EXPECT_EQ(lines[1].at("dst_memory"), "device");
  EXPECT_EQ(lines[1].at("bytes"), 4096);
  EXPECT_EQ(lines[2].at("kind"), "memset");
  EXPECT_EQ(lines[2].at("correlation"), 102);
  EXPECT_EQ(lines[3].at("what"), "stream");
  EXPECT_EQ(lines[4], Json::parse(R"({"kind":"overhead","rank":2,"pid":77,"start_ns":1700000000000000001,
      "end_ns":1700000000000000008,"correlation":0,"what":"buffer_flush"})"));
  EXPECT_EQ(lines[5],
            Json::parse(R"({"kind":"alloc","rank":2,"pid":77,"device":0,"memory":"device","bytes":256,
      "address":32512,"time_ns":1700000000000000003})"));
  EXPECT_EQ(lines[6].at("kind"), "free");
  EXPECT_EQ(lines[7].at("failed"), true);
  EXPECT_EQ(lines[8].at("kind"), "range");
  EXPECT_EQ(lines[8].at("name"), "step \"x\"");
  EXPECT_EQ(lines[9].at("kind"), "launch");
  EXPECT_EQ(lines[9].at("tid"), 9001);
  EXPECT_EQ(lines[9].at("thread"), "python");
  EXPECT_EQ(lines[9].at("time_ns"), kStart + 2);
}

TEST(RecordLines, ACollectiveGetsTheTimesOfItsPlansKernels) {
  BatchBuilder call(1);
  call.String(1, "ncclDevKernel_AllReduce").String(2, "AllReduce").Site(1, 1, 1, 13).Comm(1, 0, 2, 0);
  call.Collective(2, 1, 7, 1000, 4, 3, kStart).Collective(2, 1, 8, 500, 4, 3, kStart + 1);
  BatchBuilder later(2);
  later.Comm(1, 0xbeef, 2, 4).Plan(3, 100).Plan(3, 101);
  later.Kernel(kStart + 50, kStart + 60, 1, 101).Kernel(kStart + 40, kStart + 55, 1, 100);
  std::vector<Json> collectives;
  for (const Json& line : Lines({call.batch(), later.batch()})) {
    if (line.at("kind") == "collective") collectives.push_back(line);
  }
  ASSERT_EQ(collectives.size(), 2u);
  for (const Json& line : collectives) {
    EXPECT_EQ(line.at("op"), "AllReduce");
    EXPECT_EQ(line.at("comm"), "000000000000beef");
    EXPECT_EQ(line.at("comm_ranks"), 4);
    EXPECT_EQ(line.at("comm_rank"), 2);
    EXPECT_EQ(line.at("start_ns"), kStart + 40);
    EXPECT_EQ(line.at("end_ns"), kStart + 60);
    EXPECT_EQ(line.at("device"), 1);
    EXPECT_EQ(line.at("stream"), 13);
    EXPECT_EQ(line.at("correlation"), 100);
    EXPECT_EQ(line.at("plan"), 3);
    EXPECT_EQ(line.at("root"), -1);
  }
  EXPECT_EQ(collectives[0].at("seq"), 7);
  EXPECT_EQ(collectives[0].at("bytes"), 4000);
  EXPECT_EQ(collectives[1].at("bytes"), 2000);
}

TEST(RecordLines, AKernelThatEndedBeforeItsCallReturnedIsTheCallsUnderAnyName) {
  BatchBuilder kernel(1);
  kernel.String(1, "triton_per_fused_gelu_0").Site(1, 1, 1, 13).Kernel(kStart + 40, kStart + 55, 1, 100);
  v1::Batch first = kernel.batch();
  first.mutable_versions()->set_cupti_precautions(cupti::kNamesUncertain);
  BatchBuilder call(2);
  call.String(2, "AllReduce").Comm(1, 0xbeef, 2, 4).Collective(2, 1, 7, 1000, 4, 3, kStart).Plan(3, 100);
  std::vector<Json> collectives;
  for (const Json& line : Lines({first, call.batch()})) {
    if (line.at("kind") == "collective") collectives.push_back(line);
  }
  ASSERT_EQ(collectives.size(), 1u);
  EXPECT_EQ(collectives[0].value("start_ns", uint64_t{0}), kStart + 40);
  EXPECT_EQ(collectives[0].value("correlation", 0), 100);
}

TEST(RecordLines, WhatBecomesOfACommunicatorIsALineEachWithAllThatIsKnown) {
  BatchBuilder early(1);
  early.Comm(1, 0xa, 2, 4).Comm(2, 0, 1, 0);
  v1::Batch later = BatchBuilder(2).Comm(2, 0xb, 1, 2).batch();
  v1::Communicator* revoked = later.add_communicators();
  *revoked = later.communicators(0);
  revoked->set_parent(1);
  revoked->set_state(v1::COMMUNICATOR_STATE_REVOKED);
  revoked->set_time_ns(kStart + 9);
  std::vector<Json> told;
  for (const Json& line : Lines({early.batch(), later})) {
    if (line.at("kind") == "communicator") told.push_back(line);
  }
  ASSERT_EQ(told.size(), 3u) << "that more became known of the second is no event";
  EXPECT_EQ(told[0].at("comm"), "000000000000000a");
  EXPECT_FALSE(told[0].contains("parent"));
  for (size_t i = 1; i < 3; ++i) {
    EXPECT_EQ(told[i].at("comm"), "000000000000000b");
    EXPECT_EQ(told[i].at("parent"), "000000000000000a");
    EXPECT_EQ(told[i].at("comm_rank"), 1);
    EXPECT_EQ(told[i].at("comm_ranks"), 2);
  }
  EXPECT_EQ(told[1].at("state"), "created");
  EXPECT_EQ(told[2].at("state"), "revoked");
  EXPECT_EQ(told[2].at("time_ns"), kStart + 9);
}

TEST(RecordLines, ACapturedCallHasALineForEachReplay) {
  BatchBuilder early(1);  // the kernel's record may come before the graph's node is named
  early.String(1, "ncclDevKernel_AllReduce_RING_LL")
      .String(2, "AllReduce")
      .Site(1, 1, 1, 13)
      .Comm(1, 7, 2, 4);
  early.Kernel(kStart + 40, kStart + 55, 1, 100, 70).Kernel(kStart + 41, kStart + 42, 1, 100, 99);
  BatchBuilder call(2);
  call.Collective(2, 1, 3, 1000, 4, 5, kStart).CapturedPlan(5, 70);
  call.Launch(1, kStart + 30, 100).Launch(1, kStart + 60, 101);
  BatchBuilder later(3);
  later.Kernel(kStart + 70, kStart + 75, 1, 101, 70);
  std::vector<Json> collectives;
  std::vector<Json> unexplained;
  for (const Json& line : Lines({early.batch(), call.batch(), later.batch()})) {
    if (line.at("kind") != "collective") continue;
    (line.at("source") == "kernel_name" ? unexplained : collectives).push_back(line);
  }
  ASSERT_EQ(unexplained.size(), 1u) << "node 99 is nobody's";
  EXPECT_EQ(unexplained[0].at("op"), "AllReduce");
  EXPECT_EQ(unexplained[0].at("comm"), "unknown");
  EXPECT_EQ(unexplained[0].at("start_ns"), kStart + 41);
  ASSERT_EQ(collectives.size(), 3u);
  EXPECT_EQ(collectives[0].at("captured"), true);
  EXPECT_EQ(collectives[0].at("issue_ns"), kStart);
  EXPECT_FALSE(collectives[0].contains("start_ns"));
  for (size_t i = 1; i < 3; ++i) {
    EXPECT_EQ(collectives[i].at("replay"), i);
    EXPECT_EQ(collectives[i].at("seq"), 3);
    EXPECT_EQ(collectives[i].at("bytes"), 4000);
    EXPECT_EQ(collectives[i].at("stream"), 13);
  }
  EXPECT_EQ(collectives[1].at("start_ns"), kStart + 40);
  EXPECT_EQ(collectives[1].at("end_ns"), kStart + 55);
  EXPECT_EQ(collectives[1].at("issue_ns"), kStart + 30);
  EXPECT_EQ(collectives[2].at("start_ns"), kStart + 70);
  EXPECT_EQ(collectives[2].at("issue_ns"), kStart + 60);
}

TEST(RecordLines, RefusesARaggedBatch) {
  v1::Batch ragged;
  ragged.mutable_kernels()->add_duration(1);
  ragged.mutable_kernels()->add_duration(1);
  ragged.mutable_kernels()->add_site(1);
  RecordLines lines;
  EXPECT_FALSE(lines.Learn(ragged).ok());
}

}  // namespace
}  // namespace gpuprobe::tables
