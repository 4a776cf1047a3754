// Calls, plans and kernels joined within a process, and compared across ranks.
#include "collector/report/collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "collector/analysis/communication/bus_bandwidth.h"
#include "collector/analysis/communication/collective_report.h"
#include "collector/model/job/job_model.h"
#include "collector/records/collective_kernels.h"
#include "tests/collector/testing/batch_builder.h"

namespace gpuprobe::model {
namespace {

using analysis::CollectiveReport;
using analysis::CollectivesOf;
using gpuprobe::testing::BatchBuilder;
using gpuprobe::testing::kStart;
using gpuprobe::testing::MakeHello;

std::vector<CollectiveReport> CollectivesOf(const ProcessModel& process) {
  return analysis::CollectivesOf(Member{.process = &process});
}
// Against the other ranks, too.
std::vector<CollectiveReport> CollectivesOf(const JobModel& job, size_t process) {
  return analysis::CollectivesOf(job.FirstMember(static_cast<uint32_t>(process)));
}

constexpr uint32_t kKernelName = 1;
constexpr uint32_t kAllReduce = 2;
constexpr uint32_t kSend = 3;
constexpr uint32_t kRecv = 4;
constexpr uint32_t kAllGather = 5;

BatchBuilder Begin(int rank, int ranks, uint64_t hash = 0x9c1e) {
  BatchBuilder b;
  b.String(kKernelName, "ncclDevKernel")
      .String(kAllReduce, "AllReduce")
      .String(kSend, "Send")
      .String(kRecv, "Recv");
  b.String(kAllGather, "AllGather").Site(1, kKernelName).Thread(1, true).Comm(1, hash, rank, ranks);
  return b;
}

// One all-reduce of 1,000,000 x 4 bytes that takes `duration` ns.
BatchBuilder& OneAllReduce(BatchBuilder& b, uint64_t seq, uint64_t duration) {
  const uint64_t plan = seq + 1;
  b.Collective(kAllReduce, 1, seq, 1'000'000, 4, plan).Plan(plan, 100 + seq).Launch(1, kStart, 100 + seq);
  return b.Kernel(kStart + seq * 1000000, kStart + seq * 1000000 + duration, 1, 100 + seq);
}

TEST(BusBandwidth, TableOfNcclTests) {
  using analysis::MovedBytesOf;
  constexpr uint64_t kBytes = 1000;  // count x element size
  const auto both = [](const char* op, int n) {
    const analysis::MovedBytes m = MovedBytesOf(op, kBytes, n);
    return std::pair(m.algorithm, m.bus);
  };
  EXPECT_EQ(both("AllReduce", 4), std::pair(1000.0, 1500.0));
  EXPECT_EQ(both("AllReduce", 1), std::pair(1000.0, 0.0));
  EXPECT_EQ(both("AllGather", 4), std::pair(4000.0, 3000.0));
  EXPECT_EQ(both("ReduceScatter", 4), std::pair(4000.0, 3000.0));
  EXPECT_EQ(both("AlltoAll", 8), std::pair(8000.0, 7000.0));
  EXPECT_EQ(both("Gather", 2), std::pair(2000.0, 1000.0));
  EXPECT_EQ(both("Scatter", 2), std::pair(2000.0, 1000.0));
  for (const char* op : {"Broadcast", "Bcast", "Reduce", "Send", "Recv"}) {
    EXPECT_EQ(both(op, 8), std::pair(1000.0, 1000.0)) << op;
  }
}

// src/sendrecv.cu, alltoall.cu and alltoallv.cu: one direction counts, the larger one.
TEST(BusBandwidth, SendsAndReceivesOfAPlanOverlap) {
  using analysis::MovedBytesOf;
  using Plan = std::vector<analysis::PlanPart>;
  const auto both = [](const Plan& plan, bool to_all) {
    const analysis::MovedBytes m = MovedBytesOf(plan, 4, to_all);
    return std::pair(m.algorithm, m.bus);
  };
  EXPECT_EQ(both({{"Send", 1000}, {"Recv", 1000}}, false), std::pair(1000.0, 1000.0)) << "sendrecv";
  EXPECT_EQ(both({{"Send", 1000}, {"Recv", 600}}, false), std::pair(1000.0, 1000.0));
  EXPECT_EQ(both({{"Recv", 1000}}, false), std::pair(1000.0, 1000.0));
  EXPECT_EQ(both({{"Send", 4000}, {"Recv", 4000}}, true), std::pair(4000.0, 3000.0)) << "alltoall";
  EXPECT_EQ(both({{"AllReduce", 1000}, {"Send", 200}, {"Recv", 100}}, false), std::pair(1200.0, 1700.0));
  EXPECT_EQ(both({}, false), std::pair(0.0, 0.0));
}

TEST(Collectives, BandwidthOfOneRank) {
  JobModel job;
  ProcessModel& process = job.Join(MakeHello(0));
  BatchBuilder b = Begin(0, 4);
  OneAllReduce(b, 0, 400'000);
  OneAllReduce(b, 1, 100'000);
  OneAllReduce(b, 2, 300'000);
  ASSERT_TRUE(process.Apply(b.batch()).ok());
  job.Finish();
  const auto reports = CollectivesOf(process);
  ASSERT_EQ(reports.size(), 1u);
  const CollectiveReport& r = reports[0];
  EXPECT_EQ(r.op, "AllReduce");
  EXPECT_EQ(r.comm, "0000000000009c1e");
  EXPECT_EQ(r.comm_ranks, 4);
  EXPECT_EQ(r.calls, 3u);
  EXPECT_EQ(r.bytes, 12'000'000u);
  EXPECT_EQ(r.size_bytes, 4'000'000u);
  EXPECT_DOUBLE_EQ(r.time_ns.total, 800'000) << "the first call counts";
  EXPECT_NEAR(*r.algbw, 20.0, 1e-9) << "but not here: 4 MB in 200 us";
  EXPECT_NEAR(*r.busbw, 30.0, 1e-9);
  EXPECT_FALSE(r.wait_ns.has_value()) << "no other rank was heard";
}

TEST(Collectives, WaitIsWhatARankTakesLongerThanTheShortest) {
  JobModel job;
  const uint64_t durations[] = {100'000, 150'000, 400'000};
  for (int rank = 0; rank < 3; ++rank) {
    BatchBuilder b = Begin(rank, 3);
    OneAllReduce(b, 0, durations[rank]);
    ASSERT_TRUE(job.Join(MakeHello(rank, 3)).Apply(b.batch()).ok());
  }
  job.Finish();
  const uint64_t waits[] = {0, 50'000, 300'000};
  for (size_t rank = 0; rank < 3; ++rank) {
    const auto reports = CollectivesOf(job, rank);
    ASSERT_EQ(reports.size(), 1u);
    ASSERT_TRUE(reports[0].wait_ns.has_value());
    EXPECT_EQ(*reports[0].wait_ns, waits[rank]);
    EXPECT_DOUBLE_EQ(*reports[0].transfer_mean_ns, 100'000);
    EXPECT_NEAR(*reports[0].transfer_busbw, 40.0 * 4 / 3, 1e-9);
  }
  const auto all = CollectivesOf(job);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].calls, 3u);
  EXPECT_EQ(*all[0].wait_ns, 350'000u);
}

TEST(Collectives, OnlyTheSameCallOfTheSameCommunicatorIsCompared) {
  JobModel job;
  BatchBuilder a = Begin(0, 2, 0x1);
  OneAllReduce(a, 0, 100'000);
  BatchBuilder b = Begin(1, 2, 0x2);
  OneAllReduce(b, 0, 500'000);
  ASSERT_TRUE(job.Join(MakeHello(0)).Apply(a.batch()).ok());
  ASSERT_TRUE(job.Join(MakeHello(1)).Apply(b.batch()).ok());
  job.Finish();
  EXPECT_FALSE(CollectivesOf(job, 0)[0].wait_ns.has_value());
}

TEST(Collectives, AProgramRunTwiceIsNotComparedWithItself) {
  JobModel job;
  for (uint32_t run = 0; run < 2; ++run) {
    for (int rank = 0; rank < 2; ++rank) {
      BatchBuilder b = Begin(rank, 2);
      OneAllReduce(b, 0, 100'000 + 1000 * static_cast<uint64_t>(rank) + 500'000 * run);
      ASSERT_TRUE(
          job.Join(MakeHello(rank, 2, 100 * (run + 1) + static_cast<uint32_t>(rank))).Apply(b.batch()).ok());
    }
  }
  job.Finish();
  for (size_t i = 0; i < job.processes().size(); ++i) {
    const uint64_t wait = *CollectivesOf(job, i)[0].wait_ns;
    EXPECT_EQ(wait, job.processes()[i]->identity().rank() == 0 ? 0u : 1000u);
  }
}

TEST(Collectives, AFusedPlanIsTimedAsOneAndItsBandwidthIsTheSum) {
  JobModel job;
  ProcessModel& process = job.Join(MakeHello(0));
  BatchBuilder b = Begin(0, 4);
  for (uint64_t seq = 0; seq < 3; ++seq) b.Collective(kAllReduce, 1, seq, 1'000'000, 4, 7);
  b.Collective(kAllGather, 1, 3, 1'000'000, 4, 7);
  b.Plan(7, 100).Launch(1, kStart, 100).Kernel(kStart, kStart + 1'000'000, 1, 100);
  ASSERT_TRUE(process.Apply(b.batch()).ok());
  job.Finish();
  const auto reports = CollectivesOf(process);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].op, "AllGather+AllReduce");
  EXPECT_TRUE(reports[0].fused);
  EXPECT_EQ(reports[0].calls, 4u);
  EXPECT_EQ(reports[0].calls_per_plan, 4u);
  EXPECT_EQ(reports[0].time_ns.count, 1u);
  EXPECT_NEAR(*reports[0].algbw, (3 * 4e6 + 16e6) / 1e6, 1e-9);
  EXPECT_NEAR(*reports[0].busbw, (3 * 6e6 + 12e6) / 1e6, 1e-9);
}

TEST(Collectives, APlanOfSeveralKernelsLastsFromTheFirstToTheLast) {
  JobModel job;
  ProcessModel& process = job.Join(MakeHello(0));
  BatchBuilder b = Begin(0, 4);
  b.Collective(kAllReduce, 1, 0, 1000, 4, 1).Plan(1, 100).Plan(1, 101);
  b.Launch(1, kStart, 100).Launch(1, kStart, 101);
  b.Kernel(kStart + 50, kStart + 90, 1, 101).Kernel(kStart, kStart + 40, 1, 100);
  ASSERT_TRUE(process.Apply(b.batch()).ok());
  job.Finish();
  EXPECT_EQ(CollectivesOf(process)[0].time_ns.total, 90u);
}

TEST(Collectives, OrderOfDeliveryDoesNotMatter) {
  std::vector<int> order{0, 1, 2, 3};
  do {
    JobModel job;
    ProcessModel& process = job.Join(MakeHello(0));
    ASSERT_TRUE(process.Apply(Begin(0, 4).batch()).ok());
    uint64_t sequence = 2;
    for (const int part : order) {
      BatchBuilder b(sequence++);
      if (part == 0) b.Collective(kAllReduce, 1, 0, 1000, 4, 1);
      if (part == 1) b.Plan(1, 100);
      if (part == 2) b.Launch(1, kStart, 100);
      if (part == 3) b.Kernel(kStart, kStart + 500, 1, 100);
      ASSERT_TRUE(process.Apply(b.batch()).ok());
    }
    job.Finish();
    ASSERT_EQ(CollectivesOf(process).size(), 1u);
    EXPECT_EQ(CollectivesOf(process)[0].time_ns.total, 500u);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(Collectives, CallsThatLaunchedNothingAreCountedWithoutTime) {
  JobModel job;
  ProcessModel& process = job.Join(MakeHello(0));
  BatchBuilder b = Begin(0, 1);
  b.Collective(kAllReduce, 1, 0, 1000, 4, 0);
  ASSERT_TRUE(process.Apply(b.batch()).ok());
  job.Finish();
  const auto reports = CollectivesOf(process);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].calls, 1u);
  EXPECT_EQ(reports[0].untimed_calls, 1u);
  EXPECT_EQ(reports[0].unlaunched_calls, 1u) << "its plan is 0: it had nothing to launch";
  EXPECT_FALSE(reports[0].busbw.has_value());
}

TEST(Collectives, SendAndRecvAreNotComparedAcrossRanks) {
  JobModel job;
  for (int rank = 0; rank < 2; ++rank) {
    BatchBuilder b = Begin(rank, 2);
    b.Collective(rank == 0 ? kSend : kRecv, 1, 0, 1000, 4, 1).Plan(1, 100).Launch(1, kStart, 100);
    b.Kernel(kStart, kStart + 500, 1, 100);
    ASSERT_TRUE(job.Join(MakeHello(rank, 2)).Apply(b.batch()).ok());
  }
  job.Finish();
  EXPECT_FALSE(CollectivesOf(job, 0)[0].wait_ns.has_value());
}

TEST(Collectives, ACommunicatorThatIsKnownLaterStillGivesBandwidth) {
  JobModel job;
  ProcessModel& process = job.Join(MakeHello(0));
  BatchBuilder b = Begin(0, 0, 0);
  OneAllReduce(b, 0, 100'000);
  ASSERT_TRUE(process.Apply(b.batch()).ok());
  ASSERT_TRUE(process.Apply(BatchBuilder(2).Comm(1, 0xabc, 0, 2).batch()).ok());
  job.Finish();
  const auto reports = CollectivesOf(process);
  EXPECT_EQ(reports[0].comm, "0000000000000abc");
  EXPECT_NEAR(*reports[0].busbw, 40.0, 1e-9);
}

// One captured all-reduce and all-gather in a plan, on node 70 and its copy 71.
BatchBuilder& Capture(BatchBuilder& b) {
  b.String(8, "_Z10ncclDevKernel_AllReduce_RING_LLv").Site(2, 8);
  b.Collective(kAllReduce, 1, 4, 1'000'000, 4, 9).Collective(kAllGather, 1, 5, 1000, 4, 9);
  return b.CapturedPlan(9, 70).CapturedPlan(9, 71);
}

TEST(CapturedCollectives, EveryReplayIsACallOfItsOwn) {
  JobModel job;
  const uint64_t first_duration[] = {100, 140};
  for (int rank = 0; rank < 2; ++rank) {
    BatchBuilder b = Begin(rank, 2);
    Capture(b);
    // The record of the second launch comes first, and one of the graphs is the copy.
    b.Kernel(kStart + 5000, kStart + 5500, 2, 301, 71);
    b.Kernel(kStart + 1000, kStart + 1000 + first_duration[rank], 2, 300, 70);
    ASSERT_TRUE(job.Join(MakeHello(rank, 2)).Apply(b.batch()).ok());
  }
  job.Finish();
  for (size_t rank = 0; rank < 2; ++rank) {
    const auto reports = CollectivesOf(job, rank);
    ASSERT_EQ(reports.size(), 1u);
    EXPECT_EQ(reports[0].op, "AllGather+AllReduce");
    EXPECT_EQ(reports[0].calls, 4u) << "two calls, twice; the capture itself ran nothing";
    EXPECT_EQ(reports[0].untimed_calls, 0u);
    EXPECT_EQ(reports[0].time_ns.total, 500 + first_duration[rank]);
    ASSERT_TRUE(reports[0].wait_ns.has_value());
    EXPECT_EQ(*reports[0].wait_ns, rank == 1 ? 40u : 0u) << "first with first, second with second";
  }
}

// As one-sided calls do. One of the two copies in the graph is the program's own.
TEST(CapturedCollectives, CopiesCarryCallsToo) {
  for (const bool told_late : {false, true}) {
    JobModel job;
    ProcessModel& process = job.Join(MakeHello(0));
    v1::Batch records = BatchBuilder(told_late ? 1 : 2)
                            .Copy(kStart + 1000, kStart + 1070, 4000, v1::COPY_DIRECTION_D2D, 300)
                            .Copy(kStart + 1100, kStart + 1200, 64, v1::COPY_DIRECTION_D2D, 300)
                            .batch();
    records.mutable_copies()->add_graph_node_delta(70);
    records.mutable_copies()->add_graph_node_delta(1);
    BatchBuilder calls = Begin(0, 2);
    calls.Collective(kSend, 1, 4, 1000, 4, 9).CapturedPlan(9, 70).GraphLaunch(1, kStart + 500, 300, 1);
    v1::Batch told = calls.batch();
    told.set_sequence(told_late ? 2 : 1);
    ASSERT_TRUE(process.Apply(told_late ? records : told).ok());
    ASSERT_TRUE(process.Apply(told_late ? told : records).ok());
    job.Finish();
    const auto reports = CollectivesOf(process);
    ASSERT_EQ(reports.size(), 1u) << told_late;
    EXPECT_EQ(reports[0].calls, 1u);
    EXPECT_EQ(reports[0].untimed_calls, 0u);
    EXPECT_EQ(reports[0].time_ns.total, 70u);
  }
}

// The graph was put into another one twice, with nodes 80 and 81, 90 and 91 for the kernels of its plan.
TEST(CapturedCollectives, EachCopyInALaunchIsACallOfItsOwn) {
  JobModel job;
  for (int rank = 0; rank < 2; ++rank) {
    const uint64_t shift = rank == 0 ? 0 : 7;
    BatchBuilder b = Begin(rank, 2);
    Capture(b).CapturedPlan(9, 80, 1, 5).CapturedPlan(9, 81, 1, 5);
    b.CapturedPlan(9, 90, 1, 3).CapturedPlan(9, 91, 1, 3);  // the tag says nothing about the order
    for (uint64_t launch = 0; launch < 2; ++launch) {
      const uint64_t at = kStart + launch * 10'000 + shift;
      b.Kernel(at + 100, at + 150, 2, 300 + launch, 80).Kernel(at + 150, at + 200, 2, 300 + launch, 81);
      b.Kernel(at + 300, at + 350, 2, 300 + launch, 90)
          .Kernel(at + 350, at + 430 + shift, 2, 300 + launch, 91);
    }
    ASSERT_TRUE(job.Join(MakeHello(rank, 2)).Apply(b.batch()).ok());
  }
  job.Finish();
  for (size_t rank = 0; rank < 2; ++rank) {
    const auto reports = CollectivesOf(job, rank);
    ASSERT_EQ(reports.size(), 1u);
    EXPECT_EQ(reports[0].calls, 8u) << "two calls, in two copies, twice";
    EXPECT_EQ(reports[0].time_ns.count, 4u);
    EXPECT_EQ(reports[0].time_ns.total, 2 * (100u + 130u + (rank == 0 ? 0 : 7)));
    EXPECT_EQ(reports[0].wait_ns.value_or(99), rank == 0 ? 0u : 14u) << "first copy with first copy";
  }
}

// A send and its receive in a graph; one rank is far ahead when the other's records arrive.
TEST(CapturedCollectives, ReplaysOfASendAreComparedWithThoseOfItsReceive) {
  JobModel job;
  for (int rank = 0; rank < 2; ++rank) {
    BatchBuilder b = Begin(rank, 2);
    b.String(8, "_Z10ncclDevKernel_SendRecv").Site(2, 8);
    b.Transfer(rank == 0 ? kSend : kRecv, 1, 0, 1 - rank, 9, kStart).CapturedPlan(9, 70, 1);
    for (uint64_t launch = 0; launch < 4; ++launch) {
      const uint64_t at = kStart + launch * 10'000;
      b.Kernel(at + (rank == 0 ? 0 : 30), at + 100, 2, 300 + launch, 70);  // the receiver is late
    }
    ASSERT_TRUE(job.Join(MakeHello(rank, 2)).Apply(b.batch()).ok());
  }
  job.Finish();
  const auto sends = CollectivesOf(job, 0);
  ASSERT_EQ(sends.size(), 1u);
  EXPECT_EQ(sends[0].op, "Send");
  EXPECT_EQ(sends[0].calls, 4u);
  EXPECT_EQ(sends[0].time_ns.total, 400u);
  EXPECT_EQ(sends[0].wait_ns.value_or(0), 120u) << "30 in each of four replays";
}

// NCCL 2.29's one-sided calls: no other rank's call is waited for, however many others there are.
TEST(Collectives, OneSidedCallsAreTimedByTheirCopiesAndMatchedWithNothing) {
  JobModel job;
  constexpr uint32_t kPutSignal = 20;
  constexpr uint32_t kWaitSignal = 21;
  BatchBuilder b = Begin(0, 2);
  b.String(kPutSignal, "PutSignal").String(kWaitSignal, "WaitSignal");
  b.Transfer(kPutSignal, 1, 0, 1, 9, kStart).Transfer(kWaitSignal, 1, 1, 1, 0, kStart + 10);
  b.Plan(9, 100).Launch(1, kStart, 100);
  b.Copy(kStart + 50, kStart + 250, 4096, v1::COPY_DIRECTION_P2P, 100);
  ASSERT_TRUE(job.Join(MakeHello(0, 2)).Apply(b.batch()).ok());
  const auto& tracker = job.processes()[0]->collectives();
  EXPECT_TRUE(tracker.transfers().peers().empty()) << "nobody can make it hang by not calling something";
  job.Finish();
  for (const CollectiveReport& report : CollectivesOf(job, 0)) {
    EXPECT_EQ(report.calls, 1u);
    EXPECT_EQ(report.time_ns.total, report.op == "PutSignal" ? 200u : 0u);
    EXPECT_EQ(report.unlaunched_calls, report.op == "PutSignal" ? 0u : 1u);
    EXPECT_FALSE(report.wait_ns.has_value());
  }
}

TEST(CapturedCollectives, OrderOfDeliveryDoesNotMatter) {
  std::vector<int> order{0, 1, 2};
  do {
    JobModel job;
    ProcessModel& process = job.Join(MakeHello(0));
    BatchBuilder begin = Begin(0, 4);
    ASSERT_TRUE(process.Apply(begin.String(8, "ncclDevKernel_AllReduce_RING_LL").Site(2, 8).batch()).ok());
    uint64_t sequence = 2;
    for (const int part : order) {
      BatchBuilder b(sequence++);
      if (part == 0) b.Collective(kAllReduce, 1, 0, 1000, 4, 1);
      if (part == 1) b.CapturedPlan(1, 70);
      if (part == 2) b.Kernel(kStart, kStart + 500, 2, 300, 70);
      ASSERT_TRUE(process.Apply(b.batch()).ok());
    }
    job.Finish();
    ASSERT_EQ(CollectivesOf(process).size(), 1u);
    EXPECT_EQ(CollectivesOf(process)[0].calls, 1u);
    EXPECT_EQ(CollectivesOf(process)[0].time_ns.total, 500u);
    EXPECT_EQ(process.collectives().calls(), 1u);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(CapturedCollectives, ACaptureThatNeverRanIsNoCall) {
  JobModel job;
  ProcessModel& process = job.Join(MakeHello(0));
  BatchBuilder b = Begin(0, 2);
  Capture(b);
  b.Kernel(kStart, kStart + 10, 1, 300, 70);  // of the program's own, by its name
  ASSERT_TRUE(process.Apply(b.batch()).ok());
  job.Finish();
  EXPECT_TRUE(CollectivesOf(process).empty());
  EXPECT_EQ(process.collectives().calls(), 0u);
}

TEST(CapturedCollectives, ReplaysBeyondWhatWaitsSettleInOrder) {
  JobModel job;
  ProcessModel& process = job.Join(MakeHello(0));
  BatchBuilder b = Begin(0, 2);
  Capture(b);
  ASSERT_TRUE(process.Apply(b.batch()).ok());
  const uint64_t replays = CollectiveTracker::kMaxWaiting + 1000;
  BatchBuilder kernels(2);
  for (uint64_t i = 0; i < replays; ++i) {
    kernels.Launch(1, kStart + i * 100, 300 + i);
    kernels.Kernel(kStart + i * 100, kStart + i * 100 + 50, 2, 300 + i, 70);
  }
  ASSERT_TRUE(process.Apply(kernels.batch()).ok());
  EXPECT_EQ(process.collectives().calls(), 2 * 1000u);
  job.Finish();
  EXPECT_EQ(process.collectives().calls(), 2 * replays);
  EXPECT_EQ(CollectivesOf(process)[0].time_ns.total, 50 * replays);
}

TEST(CapturedCollectives, AnUpdatedNodeCarriesOtherCallsFromThenOn) {
  JobModel job;
  ProcessModel& process = job.Join(MakeHello(0));
  BatchBuilder b = Begin(0, 2);
  b.String(8, "_Z10ncclDevKernel_AllReduce_RING_LLv").Site(2, 8);
  b.Collective(kAllReduce, 1, 4, 1000, 4, 9).CapturedPlan(9, 70);
  b.Collective(kAllGather, 1, 5, 2000, 4, 10).CapturedPlan(10, 90);
  ASSERT_TRUE(process.Apply(b.batch()).ok());
  BatchBuilder kernels(2);
  kernels.Launch(1, kStart, 300).Kernel(kStart, kStart + 50, 2, 300, 70);
  kernels.Kernel(kStart + 1000, kStart + 1070, 2, 400,
                 70);  // its launch, and the update before it, come later
  ASSERT_TRUE(process.Apply(kernels.batch()).ok());
  v1::Batch update = BatchBuilder(3).Launch(1, kStart + 500, 400).batch();
  update.mutable_plans()->add_plan_delta(10);
  update.mutable_plans()->add_graph_node_delta(70);
  update.mutable_plans()->add_from_correlation(350);
  ASSERT_TRUE(process.Apply(update).ok());
  job.Finish();
  const auto reports = CollectivesOf(process);
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].op == "AllReduce" ? reports[0].time_ns.total : reports[1].time_ns.total, 50u);
  EXPECT_EQ(reports[0].op == "AllGather" ? reports[0].time_ns.total : reports[1].time_ns.total, 70u);
  EXPECT_EQ(process.collectives().calls(), 2u);
}

TEST(KernelNames, SayTheOperation) {
  EXPECT_EQ(
      OperationOfKernel("_Z38ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE"),
      "AllReduce");
  EXPECT_EQ(OperationOfKernel("ncclDevKernel_Reduce_Sum_f32_RING_LL"), "Reduce");
  EXPECT_EQ(OperationOfKernel("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL"), "ReduceScatter");
  EXPECT_EQ(OperationOfKernel("_Z22ncclDevKernel_SendRecv24ncclDevKernelArgsStorageILm4096EE"), "SendRecv");
  EXPECT_EQ(OperationOfKernel("ncclSymkDevKernel_AllGather_LL(ncclSymkDevWorkArgs)"), "AllGather");
  EXPECT_EQ(OperationOfKernel("ncclKernel_Broadcast_RING_LL_Sum_int8_t"), "Broadcast");
  EXPECT_EQ(OperationOfKernel("ncclDevKernel_Generic_1"), "Generic");
  EXPECT_EQ(OperationOfKernel("ncclDevKernel_SomethingNew"), "Generic");
  for (const char* name : {"", "_Z", "_Z12", "nccl", "ncclTestKernel", "my_ncclDevKernel_AllReduce"})
    EXPECT_EQ(OperationOfKernel(name), "") << name;
}

TEST(CollectiveKernels, WhatLaunchedAKernelDecidesWhetherItCommunicatesAndItsNameOnlyWithoutThat) {
  constexpr auto kCompute = KernelNature::kCompute;
  constexpr auto kNccl = KernelNature::kNccl;
  constexpr auto kOwn = KernelNature::kOwnExchange;
  constexpr uint32_t kNotSaid = v1::KERNEL_OWNER_NOT_SAID;
  struct Row {
    const char* name;
    uint64_t plan;
    uint32_t owner;
    KernelNature expected;
  };
  constexpr Row kRows[] = {
      {"ncclDevKernel_AllReduce_Sum_f32_RING_LL", 7, kNotSaid, kNccl},
      {"ncclDevKernel_AllReduce_Sum_f32_RING_LL", 0, kNotSaid, kNccl},
      {"ncclDevKernel_AllReduce_Sum_f32_RING_LL", 0, v1::KERNEL_OWNER_NCCL, kNccl},
      {"ncclDevKernel_AllReduce_Sum_f32_RING_LL", 0, v1::KERNEL_OWNER_OTHER, kCompute},
      {"triton_per_fused_native_layer_norm_0", 7, kNotSaid, kNccl},
      {"triton_per_fused_native_layer_norm_0", 7, v1::KERNEL_OWNER_NCCL, kNccl},
      {"triton_per_fused_native_layer_norm_0", 0, v1::KERNEL_OWNER_NCCL, kNccl},
      {"triton_per_fused_native_layer_norm_0", 0, v1::KERNEL_OWNER_OTHER, kCompute},
      {"triton_per_fused_native_layer_norm_0", 0, kNotSaid, kCompute},
      {"pack_for_ncclDevKernel_AllReduce", 0, kNotSaid, kCompute},
      {"ncclPackBuffers", 0, kNotSaid, kCompute},
      {"void vllm::cross_device_reduce_1stage<float, 2>(vllm::RankData*)", 0, kNotSaid, kOwn},
      {"void vllm::cross_device_reduce_1stage<float, 2>(vllm::RankData*)", 0, v1::KERNEL_OWNER_OTHER, kOwn},
      {"void one_shot_all_reduce_kernel<c10::BFloat16, 4>(c10::BFloat16**)", 0, kNotSaid, kOwn},
      {"void elementwise_kernel<cross_device_reduce>(int)", 0, kNotSaid, kCompute},
  };
  for (const Row& row : kRows) {
    const KernelNature named = NatureByName(row.name);
    EXPECT_EQ(NatureOf({.named = named, .plan = row.plan, .owner = row.owner}), row.expected)
        << row.name << ", plan " << row.plan << ", owner " << row.owner;
  }
}

TEST(Collectives, AKernelThatNoCallExplainsIsARecordOfItsOwn) {
  JobModel job;
  ProcessModel& process = job.Join(MakeHello(0));
  BatchBuilder b = Begin(0, 2);
  b.String(8, "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL").Site(2, 8);
  b.Launch(1, kStart, 300).Launch(1, kStart, 301).Launch(1, kStart, 302);
  b.Kernel(kStart, kStart + 100, 2, 300).Kernel(kStart + 200, kStart + 250, 2, 301);
  b.Kernel(kStart + 300, kStart + 350, 2, 302, 77);  // in a graph
  ASSERT_TRUE(process.Apply(b.batch()).ok());
  // The second one's call comes late.
  BatchBuilder late(2);
  late.Collective(kAllGather, 1, 0, 1000, 4, 3).Plan(3, 301);
  ASSERT_TRUE(process.Apply(late.batch()).ok());
  job.Finish();
  const auto reports = CollectivesOf(process);
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].op, "ReduceScatter");
  EXPECT_EQ(reports[0].comm, "unknown");
  EXPECT_EQ(reports[0].calls, 2u);
  EXPECT_EQ(reports[0].untimed_calls, 0u);
  EXPECT_EQ(reports[0].time_ns.total, 150u);
  EXPECT_FALSE(reports[0].busbw.has_value());
  EXPECT_FALSE(reports[0].wait_ns.has_value());
  EXPECT_EQ(reports[1].op, "AllGather");
  EXPECT_EQ(reports[1].time_ns.total, 50u);
  EXPECT_EQ(process.collectives().calls(), 3u);
}

TEST(Collectives, TooManySizesShareOneEntryAndKeepTheirSums) {
  JobModel job;
  ProcessModel& process = job.Join(MakeHello(0));
  BatchBuilder b = Begin(0, 2);
  const uint64_t calls = CollectiveTracker::kMaxSeries + 100;
  for (uint64_t i = 0; i < calls; ++i) {
    b.Collective(kAllReduce, 1, i, i + 1, 4, i + 1).Plan(i + 1, i + 1).Launch(1, kStart, i + 1);
    b.Kernel(kStart + i * 100, kStart + i * 100 + 50, 1, i + 1);
  }
  ASSERT_TRUE(process.Apply(b.batch()).ok());
  job.Finish();
  uint64_t bytes = 0;
  uint64_t seen = 0;
  for (const CollectiveReport& r : CollectivesOf(process)) {
    bytes += r.bytes;
    seen += r.calls;
  }
  EXPECT_EQ(seen, calls);
  EXPECT_EQ(bytes, calls * (calls + 1) / 2 * 4);
  EXPECT_LE(process.collectives().series().size(), CollectiveTracker::kMaxSeries + 1);
}

}  // namespace
}  // namespace gpuprobe::model
