#include "collector/model/process/process_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "tests/collector/testing/batch_builder.h"

namespace gpuprobe::model {
namespace {

using gpuprobe::testing::BatchBuilder;
using gpuprobe::testing::kMs;
using gpuprobe::testing::kStart;
using gpuprobe::testing::MakeHello;

ProcessModel Model() { return {MakeHello(0), ProcessEvents{}}; }

BatchBuilder WithKernels(uint64_t sequence = 1) {
  BatchBuilder b(sequence);
  b.String(1, "kernel_a")
      .String(2, "kernel_b")
      .Site(1, 1)
      .Site(2, 2)
      .Site(3, 1, 1)
      .Thread(1, true)
      .Thread(2, false);
  return b;
}

const PhaseNode* Child(const PhaseNode& node, uint32_t name) {
  const auto found = node.children.find({0, name});
  return found == node.children.end() ? nullptr : found->second.get();
}

TEST(ProcessModel, DriverCallsByFunctionAndThoseBeforeATime) {
  ProcessModel model = Model();
  ASSERT_TRUE(model
                  .Apply(BatchBuilder()
                             .String(1, "cuModuleLoadData")
                             .String(2, "cuMemAlloc_v2")
                             .Thread(1, true)
                             .DriverCall(kStart, kStart + kMs, 1)
                             .DriverCall(kStart + 2 * kMs, kStart + 5 * kMs, 1)
                             .DriverCall(kStart + 6 * kMs, kStart + 7 * kMs, 2, 1, 2)
                             .DriverCall(kStart + 9 * kMs, kStart + 8 * kMs, 2)  // ends before it begins
                             .batch())
                  .ok());
  model.Finish();
  const DriverCalls::Sums& all = model.driver_calls().sums();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all.at(1).calls, 2u);
  EXPECT_EQ(all.at(1).total_ns, 4 * kMs);
  EXPECT_EQ(all.at(1).longest_ns, 3 * kMs);
  EXPECT_EQ(all.at(1).longest_start_ns, kStart + 2 * kMs);
  EXPECT_EQ(all.at(2).calls, 1u);
  EXPECT_EQ(all.at(2).failed, 1u);
  const DriverCalls::Sums before = model.driver_calls().SumsBefore(kStart + 2 * kMs);
  ASSERT_EQ(before.size(), 1u);
  EXPECT_EQ(before.at(1).total_ns, kMs);
  EXPECT_EQ(model.totals().records, 0u) << "which of them are slow, chance decides";
}

TEST(ProcessModel, KernelsByNameAndDeviceAndBusyByDevice) {
  ProcessModel model = Model();
  ASSERT_TRUE(model
                  .Apply(WithKernels()
                             .Kernel(kStart + 100, kStart + 200, 1)
                             .Kernel(kStart + 150, kStart + 300, 2)  // overlaps: busy is a union
                             .Kernel(kStart + 50, kStart + 80, 1)    // out of order
                             .Kernel(kStart + 100, kStart + 200, 3)  // another device
                             .batch())
                  .ok());
  model.Finish();
  EXPECT_EQ(model.totals().kernels, 4u);
  EXPECT_EQ(model.devices().at(0).busy.TotalNs(), 230u);
  EXPECT_EQ(model.devices().at(1).busy.TotalNs(), 100u);
  ASSERT_EQ(model.kernels().size(), 3u);
  EXPECT_EQ(model.kernels()[0]->time_ns.count(), 2u);
  EXPECT_EQ(model.kernels()[0]->time_ns.total(), 130u);
  EXPECT_EQ(model.kernels()[2]->device, 1u);
  EXPECT_EQ(model.kernels()[2]->time_ns.total(), 100u);
  EXPECT_EQ(model.totals().first_ns, kStart + 50);
  EXPECT_EQ(model.totals().last_ns, kStart + 300);
}

TEST(ProcessModel, OverheadsAreAddedUpByKindAndAreNoPartOfTheRun) {
  ProcessModel model = Model();
  ASSERT_TRUE(model
                  .Apply(WithKernels()
                             .Kernel(kStart + 100, kStart + 200, 1)
                             .Overhead(kStart, kStart + 40, v1::OVERHEAD_KIND_BUFFER_FLUSH)
                             .Overhead(kStart + 900, kStart + 910, v1::OVERHEAD_KIND_FUNCTION_LOADING, 7)
                             .Overhead(kStart + 300, kStart + 305, v1::OVERHEAD_KIND_BUFFER_FLUSH)
                             .Overhead(kStart + 50, kStart + 40, v1::OVERHEAD_KIND_RESOURCE)
                             .Overhead(kStart, kStart + 3, static_cast<v1::OverheadKind>(77))
                             .batch())
                  .ok());
  model.Finish();
  const auto& overheads = model.totals().overheads;
  EXPECT_EQ(overheads[v1::OVERHEAD_KIND_BUFFER_FLUSH].count, 2u);
  EXPECT_EQ(overheads[v1::OVERHEAD_KIND_BUFFER_FLUSH].duration_ns, 45u);
  EXPECT_EQ(overheads[v1::OVERHEAD_KIND_FUNCTION_LOADING].duration_ns, 10u);
  EXPECT_EQ(overheads[v1::OVERHEAD_KIND_RESOURCE].count, 0u) << "it ends before it starts";
  EXPECT_EQ(overheads[v1::OVERHEAD_KIND_UNKNOWN].duration_ns, 3u) << "a newer minor version's";
  EXPECT_EQ(model.totals().records, 1u);
  EXPECT_EQ(model.totals().first_ns, kStart + 100);
  EXPECT_EQ(model.totals().last_ns, kStart + 200);
}

TEST(ProcessModel, CopiesByDirection) {
  ProcessModel model = Model();
  BatchBuilder b;
  b.Copy(kStart, kStart + 100, 1000, v1::COPY_DIRECTION_H2D);
  b.Copy(kStart + 50, kStart + 150, 3000, v1::COPY_DIRECTION_H2D);
  b.Copy(kStart, kStart + 10, 7, v1::COPY_DIRECTION_D2H);
  ASSERT_TRUE(model.Apply(b.batch()).ok());
  const CopyTotals& h2d = model.totals().copies[v1::COPY_DIRECTION_H2D];
  EXPECT_EQ(h2d.count, 2u);
  EXPECT_EQ(h2d.bytes, 4000u);
  EXPECT_EQ(h2d.duration_ns, 200u);
  EXPECT_EQ(h2d.busy.TotalNs(), 150u);
  EXPECT_EQ(model.totals().copies[v1::COPY_DIRECTION_D2H].bytes, 7u);
}

TEST(ProcessModel, WorkBelongsToTheRangeOpenAtItsLaunchAndToItsParents) {
  ProcessModel model = Model();
  BatchBuilder b = WithKernels();
  b.String(10, "step").String(11, "forward");
  b.Launch(1, kStart + 10, 100, 2);  // in forward
  b.Launch(1, kStart + 60, 101, 1);  // in step, after forward
  b.Range(2, 1, 11, 1, kStart + 5, kStart + 50);
  b.Range(1, 0, 10, 1, kStart, kStart + 90);
  // They run long after both ranges have closed on the host.
  b.Kernel(kStart + 1000, kStart + 1300, 1, 100).Kernel(kStart + 1200, kStart + 1400, 2, 101);
  ASSERT_TRUE(model.Apply(b.batch()).ok());
  model.Finish();
  const PhaseNode* step = Child(model.ranges().root(), 10);
  ASSERT_NE(step, nullptr);
  const PhaseNode* forward = Child(*step, 11);
  ASSERT_NE(forward, nullptr);
  EXPECT_EQ(forward->gpu_ns.total(), 300u);
  EXPECT_EQ(forward->host_ns.total(), 45u);
  EXPECT_EQ(step->gpu_ns.total(), 400u);  // union of both
  EXPECT_EQ(step->host_ns.total(), 90u);
  EXPECT_EQ(model.joins().unattributed, 0u);
}

TEST(ProcessModel, BackwardOnItsOwnThreadBelongsToTheRangeOfTheThreadThatWaits) {
  ProcessModel model = Model();
  BatchBuilder b = WithKernels();
  b.String(10, "backward");
  b.Launch(2, kStart + 10, 100, 0, 1);
  b.Range(1, 0, 10, 1, kStart, kStart + 90);
  b.Kernel(kStart + 20, kStart + 70, 1, 100);
  ASSERT_TRUE(model.Apply(b.batch()).ok());
  model.Finish();
  ASSERT_NE(Child(model.ranges().root(), 10), nullptr);
  EXPECT_EQ(Child(model.ranges().root(), 10)->gpu_ns.total(), 50u);
}

TEST(ProcessModel, ARangeOfAnotherThreadIsInsideTheMainThreadsRangeAroundIt) {
  ProcessModel model = Model();
  BatchBuilder b = WithKernels();
  b.String(10, "backward").String(11, "MulBackward").String(12, "forward");
  b.Launch(2, kStart + 110, 100, 3);
  b.Range(1, 0, 12, 1, kStart, kStart + 90);
  b.Range(3, 0, 11, 2, kStart + 105, kStart + 120);
  b.Range(2, 0, 10, 1, kStart + 100, kStart + 200);
  b.Kernel(kStart + 115, kStart + 165, 1, 100);
  ASSERT_TRUE(model.Apply(b.batch()).ok());
  model.Finish();
  const PhaseNode* backward = Child(model.ranges().root(), 10);
  ASSERT_NE(backward, nullptr);
  EXPECT_EQ(backward->gpu_ns.total(), 50u);
  ASSERT_NE(Child(*backward, 11), nullptr);
  EXPECT_EQ(Child(model.ranges().root(), 12)->gpu_ns.total(), 0u);
}

// Any of launch, range and kernel may be delivered first.
TEST(ProcessModel, OrderOfDeliveryDoesNotMatter) {
  std::vector<int> order{0, 1, 2};
  do {
    ProcessModel model = Model();
    uint64_t sequence = 1;
    ASSERT_TRUE(model.Apply(WithKernels(sequence++).String(10, "r").batch()).ok());
    for (const int part : order) {
      BatchBuilder b(sequence++);
      if (part == 0) b.Launch(1, kStart, 100, 1);
      if (part == 1) b.Range(1, 0, 10, 1, kStart, kStart + 5);
      if (part == 2) b.Kernel(kStart + 20, kStart + 70, 1, 100);
      ASSERT_TRUE(model.Apply(b.batch()).ok());
    }
    model.Finish();
    ASSERT_NE(Child(model.ranges().root(), 10), nullptr);
    EXPECT_EQ(Child(model.ranges().root(), 10)->gpu_ns.total(), 50u) << order[0] << order[1] << order[2];
    EXPECT_EQ(model.joins().joined, 1u);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(ProcessModel, AGraphLaunchTakesAllItsKernels) {
  ProcessModel model = Model();
  BatchBuilder b = WithKernels();
  b.String(10, "replay").Launch(1, kStart, 100, 1).Range(1, 0, 10, 1, kStart, kStart + 5);
  for (uint64_t i = 0; i < 10; ++i) b.Kernel(kStart + i * 20, kStart + i * 20 + 10, 1, 100, i + 1);
  ASSERT_TRUE(model.Apply(b.batch()).ok());
  model.Finish();
  EXPECT_EQ(Child(model.ranges().root(), 10)->gpu_ns.total(), 100u);
  EXPECT_EQ(model.totals().graph_kernels, 10u);
}

TEST(ProcessModel, LaunchDelayOfKernelsThatWereLaunchedByThemselves) {
  ProcessModel model = Model();
  BatchBuilder b = WithKernels();
  b.Launch(1, kStart + 10, 100, 0).Launch(1, kStart + 20, 101, 0).Launch(1, kStart + 30, 102, 0);
  b.Kernel(kStart + 110, kStart + 200, 1, 100);
  b.Kernel(kStart + 320, kStart + 400, 1, 101);
  b.Kernel(kStart + 500, kStart + 600, 1, 102, 7);  // of a graph
  b.Copy(kStart + 600, kStart + 700, 8, v1::COPY_DIRECTION_H2D, 102);
  ASSERT_TRUE(model.Apply(b.batch()).ok());
  EXPECT_EQ(model.joins().launch_delay_ns.count(), 2u);
  EXPECT_EQ(model.joins().launch_delay_ns.total(), 400u);
}

TEST(ProcessModel, DeviceRecordsWithoutLaunchAreCountedAsSuch) {
  ProcessModel model = Model();
  ASSERT_TRUE(model.Apply(WithKernels().Kernel(kStart, kStart + 1, 1, 55).batch()).ok());
  model.Finish();
  EXPECT_EQ(model.totals().kernels, 1u);
  EXPECT_EQ(model.joins().unattributed, 1u);
}

TEST(ProcessModel, ManyInstancesStayBoundedAndExact) {
  ProcessModel model = Model();
  const uint64_t instances = RangeTracker::kMaxWaiting + 5000;
  ASSERT_TRUE(model.Apply(WithKernels().String(10, "outer").String(11, "inner").batch()).ok());
  for (uint64_t i = 0; i < instances; i += 1000) {
    BatchBuilder b(2 + i / 1000);
    for (uint64_t j = i; j < i + 1000; ++j) {
      const uint64_t t = kStart + j * 100;
      b.Launch(1, t + 1, j + 1, j + 2).Range(j + 2, 1, 11, 1, t, t + 50).Kernel(t + 10, t + 40, 1, j + 1);
    }
    ASSERT_TRUE(model.Apply(b.batch()).ok());
  }
  const uint64_t rounded = (instances + 999) / 1000 * 1000;
  // The range around them all closes last, long after most of its children were settled.
  ASSERT_TRUE(
      model.Apply(BatchBuilder(9999).Range(1, 0, 10, 1, kStart, kStart + rounded * 100).batch()).ok());
  model.Finish();
  const PhaseNode* outer = Child(model.ranges().root(), 10);
  ASSERT_NE(outer, nullptr);
  ASSERT_NE(Child(*outer, 11), nullptr);
  EXPECT_EQ(Child(*outer, 11)->gpu_ns.count(), rounded);
  EXPECT_EQ(Child(*outer, 11)->gpu_ns.total(), rounded * 30);
  EXPECT_EQ(outer->gpu_ns.total(), rounded * 30);
}

TEST(ProcessModel, ALongRunHasNoMorePhasesThanNames) {
  ProcessModel model = Model();
  constexpr uint64_t kSteps = RangeTracker::kMaxPhases + 1000;
  ASSERT_TRUE(model.Apply(WithKernels().String(10, "step").String(11, "forward").batch()).ok());
  for (uint64_t i = 0; i < kSteps; ++i) {
    const uint64_t t = kStart + i * 100;
    const uint64_t id = 2 * i + 1;
    BatchBuilder b(2 + i);
    b.Launch(1, t + 1, i + 1, id + 1).Kernel(t + 10, t + 40, 1, i + 1);
    b.Range(id + 1, id, 11, 1, t, t + 50).Range(id, 0, 10, 1, t, t + 60);
    ASSERT_TRUE(model.Apply(b.batch()).ok());
  }
  model.Finish();
  const PhaseNode* step = Child(model.ranges().root(), 10);
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->gpu_ns.count(), kSteps);
  ASSERT_EQ(step->children.size(), 1u) << "one name, however many instances";
  EXPECT_EQ(Child(*step, 11)->gpu_ns.count(), kSteps);
}

// Applies a batch a second in which one kernel is launched outside of any range.
void Pass(ProcessModel& model, uint64_t from_s, uint64_t until_s) {
  for (uint64_t s = from_s; s < until_s; ++s) {
    const uint64_t t = kStart + s * 1'000'000'000;
    ASSERT_TRUE(
        model
            .Apply(
                BatchBuilder(1000 + s).Launch(1, t, 1000 + s, 0).Kernel(t + 10, t + 20, 1, 1000 + s).batch())
            .ok());
  }
}

TEST(ProcessModel, ARangeIsSettledOnceItsWorkIsKnown) {
  ProcessModel model = Model();
  BatchBuilder b = WithKernels();
  b.String(10, "step")
      .Launch(1, kStart + 1, 5, 1)
      .Launch(1, kStart + 2, 6, 1)
      .Kernel(kStart + 10, kStart + 40, 1, 5);
  b.Range(1, 0, 10, 1, kStart, kStart + 50);
  ASSERT_TRUE(model.Apply(b.batch()).ok());
  Pass(model, 1, 8);
  EXPECT_EQ(Child(model.ranges().root(), 10), nullptr) << "a record of it is still to come";
  ASSERT_TRUE(model.Apply(BatchBuilder(2000).Kernel(kStart + 50, kStart + 60, 1, 6).batch()).ok());
  Pass(model, 8, 11);
  ASSERT_NE(Child(model.ranges().root(), 10), nullptr) << "long before the run is over";
  EXPECT_EQ(Child(model.ranges().root(), 10)->gpu_ns.total(), 40u);
  model.Finish();
  EXPECT_EQ(Child(model.ranges().root(), 10)->gpu_ns.count(), 1u);
}

TEST(ProcessModel, ARangeOfAnotherThreadWaitsForALongRangeAroundIt) {
  ProcessModel model = Model();
  BatchBuilder b = WithKernels();
  b.String(10, "epoch").String(11, "load").String(12, "step").Thread(1, true).Thread(2, false);
  b.Launch(2, kStart + 11, 5, 3).Kernel(kStart + 20, kStart + 50, 1, 5);
  b.Range(3, 0, 11, 2, kStart + 10, kStart + 60);
  b.Launch(1, kStart + 71, 6, 4).Kernel(kStart + 75, kStart + 80, 1, 6);
  b.Range(4, 1, 12, 1, kStart + 70, kStart + 90);
  ASSERT_TRUE(model.Apply(b.batch()).ok());
  Pass(model, 1, 30);
  EXPECT_TRUE(model.ranges().root().children.empty()) << "it is not known yet what they belong to";
  const uint64_t end = kStart + 30'000'000'000;
  ASSERT_TRUE(model.Apply(BatchBuilder(5000).Range(1, 0, 10, 1, kStart, end).batch()).ok());
  Pass(model, 31, 50);
  const PhaseNode* epoch = Child(model.ranges().root(), 10);
  ASSERT_NE(epoch, nullptr);
  EXPECT_EQ(epoch->gpu_ns.total(), 35u);
  ASSERT_NE(Child(*epoch, 11), nullptr);
  EXPECT_EQ(Child(*epoch, 11)->gpu_ns.total(), 30u);
  ASSERT_NE(Child(*epoch, 12), nullptr);
  EXPECT_EQ(model.ranges().root().children.size(), 1u);
  model.Finish();
  EXPECT_EQ(epoch->gpu_ns.total(), 35u);
}

TEST(ProcessModel, HighWaterMarkWithTimeAndRange) {
  ProcessModel model = Model();
  BatchBuilder b;
  b.String(10, "forward").String(11, "backward").Thread(1, true);
  b.Alloc(kStart + 10, 100, 0xa0).Alloc(kStart + 20, 50, 0xb0, 1);
  b.Free(kStart + 30, 100, 0xa0);
  b.Alloc(kStart + 40, 120, 0xc0, 2);
  b.Alloc(kStart + 50, 10, 0xd0, 0, v1::MEMORY_KIND_PINNED);
  b.Alloc(kStart + 60, 1 << 30, 0, 0, v1::MEMORY_KIND_DEVICE, true);
  b.Free(kStart + 70, 120, 0xc0);
  b.Range(1, 0, 10, 1, kStart, kStart + 25).Range(2, 0, 11, 1, kStart + 35, kStart + 45);
  ASSERT_TRUE(model.Apply(b.batch()).ok());
  model.Finish();
  const MemoryLedger::Kind& device = model.memory()[v1::MEMORY_KIND_DEVICE];
  EXPECT_EQ(device.high_water_bytes, 170u);
  EXPECT_EQ(device.high_water_at_ns, kStart + 40);
  EXPECT_EQ(device.live_bytes, 50u);
  EXPECT_EQ(device.failed, 1u);
  EXPECT_EQ(device.largest_failed_bytes, 1u << 30);
  EXPECT_EQ(model.HighWaterRange(v1::MEMORY_KIND_DEVICE), "backward");
  EXPECT_EQ(model.memory()[v1::MEMORY_KIND_PINNED].high_water_bytes, 10u);
}

TEST(ProcessModel, AllocationsOfTwoThreadsAreAppliedByTime) {
  ProcessModel model = Model();
  // The second batch brings a free that happened before the first batch's allocation.
  ASSERT_TRUE(model
                  .Apply(BatchBuilder(1)
                             .Alloc(kStart + 10, 100, 0xa0)
                             .Alloc(kStart + 40, 100, 0xb0)
                             .Clock(kStart + 45, 45)
                             .batch())
                  .ok());
  ASSERT_TRUE(model.Apply(BatchBuilder(2).Free(kStart + 30, 100, 0xa0).Clock(kStart + 90, 90).batch()).ok());
  model.Finish();
  EXPECT_EQ(model.memory()[v1::MEMORY_KIND_DEVICE].high_water_bytes, 100u);
}

TEST(ProcessModel, LossesAreCumulativeAndGapsAreCounted) {
  ProcessModel model = Model();
  ASSERT_TRUE(model.Apply(BatchBuilder(1).Loss(v1::LOSS_SEND_QUEUE_FULL, 5).batch()).ok());
  ASSERT_TRUE(model.Apply(BatchBuilder(4).Loss(v1::LOSS_SEND_QUEUE_FULL, 9).batch()).ok());
  EXPECT_EQ(model.totals().losses.at(v1::LOSS_SEND_QUEUE_FULL), 9u);
  EXPECT_EQ(model.totals().batches_missing, 2u);
}

// A batch of a process that can resume: it holds `here` records, and the process has sent `sent` with it.
v1::Batch Counted(uint64_t sequence, uint64_t here, uint64_t sent) {
  v1::Batch batch = BatchBuilder(sequence).batch();
  batch.set_records(here);
  batch.mutable_self()->set_records(sent);
  return batch;
}

v1::Hello Resumable(uint64_t first_sequence = 1, uint64_t records_before = 0) {
  v1::Hello hello = MakeHello(0);
  hello.set_instance(7);
  hello.set_first_sequence(first_sequence);
  hello.set_records_before(records_before);
  return hello;
}

TEST(ProcessModel, AGapIsANumberOfRecords) {
  ProcessModel model(Resumable(), ProcessEvents{});
  ASSERT_TRUE(model.Apply(Counted(1, 10, 10)).ok());
  ASSERT_TRUE(model.Apply(Counted(2, 0, 10)).ok());
  EXPECT_EQ(model.totals().records_missing, 0u);
  ASSERT_TRUE(model.Apply(Counted(4, 5, 22)).ok());
  EXPECT_EQ(model.totals().records_missing, 7u);
  v1::Bye bye;
  bye.set_batches(5);
  bye.set_records(25);
  model.ApplyBye(bye);
  EXPECT_EQ(model.totals().records_missing, 10u);
  EXPECT_EQ(model.totals().batches_missing, 2u);
}

TEST(ProcessModel, WhatAnotherCollectorRecordedIsNotMissing) {
  ProcessModel model(Resumable(31, 900), ProcessEvents{});
  ASSERT_TRUE(model.Apply(Counted(31, 10, 910)).ok());
  EXPECT_EQ(model.totals().records_missing, 0u);
  EXPECT_EQ(model.totals().batches_missing, 0u);
  EXPECT_EQ(model.totals().records_elsewhere, 900u);
}

TEST(ProcessModel, ABatchThatComesTwiceIsKnown) {
  ProcessModel model(Resumable(), ProcessEvents{});
  ASSERT_TRUE(model.Apply(Counted(1, 0, 0)).ok());
  EXPECT_TRUE(model.Knows(Counted(1, 0, 0)));
  EXPECT_FALSE(model.Knows(Counted(2, 0, 0)));
  ProcessModel older = Model();
  ASSERT_TRUE(older.Apply(Counted(1, 0, 0)).ok());
  EXPECT_FALSE(older.Knows(Counted(1, 0, 0))) << "an older probe sends nothing twice";
}

TEST(ProcessModel, LaunchesThatMustHaveARecordAreMissedAtTheEnd) {
  ProcessModel model(Resumable(), ProcessEvents{});
  BatchBuilder b = WithKernels();
  b.Launch(1, kStart + 1, 11, 0).Launch(1, kStart + 2, 12, 0).Launch(1, kStart + 3, 13, 0);
  b.Launch(1, kStart + 4, 14, 0).Kernel(kStart + 5, kStart + 6, 1, 11).CapturedLaunch(12, 900);
  v1::Batch batch = b.batch();
  for (const uint32_t may : {0, 0, 0, 1}) batch.mutable_launches(0)->add_may_lack_record(may);
  ASSERT_TRUE(model.Apply(batch).ok());
  model.ApplyBye({});
  EXPECT_EQ(model.joins().without_record, 1u) << "13: 11 has one, 12 was captured, 14 may lack it";
  BatchBuilder late(2);
  ASSERT_TRUE(model.Apply(late.Kernel(kStart + 7, kStart + 8, 1, 13).batch()).ok());
  EXPECT_EQ(model.joins().without_record, 0u);
}

// By name, and whether it is NCCL's: calls and their time.
std::map<std::pair<std::string, bool>, std::pair<uint64_t, uint64_t>> KernelsOf(const ProcessModel& model) {
  std::map<std::pair<std::string, bool>, std::pair<uint64_t, uint64_t>> out;
  for (const auto& kernel : model.kernels()) {
    if (kernel->time_ns.count() == 0) continue;
    out[{model.String(kernel->name), kernel->nature == KernelNature::kNccl}] = {kernel->time_ns.count(),
                                                                                kernel->time_ns.total()};
  }
  return out;
}

TEST(ProcessModel, AKernelIsWhatItsLaunchSaysWhateverItsName) {
  ProcessModel model = Model();
  BatchBuilder b;
  b.String(1, "triton_per_fused_0")
      .String(2, "ncclDevKernel_AllReduce_Sum_f32_RING_LL")
      .String(3, "AllReduce");
  b.Site(1, 1).Site(2, 2).Thread(1, true).Comm(1, 0xabc, 0, 2);
  const auto launch = [&b](uint64_t correlation, v1::KernelOwner owner) {
    b.Launch(1, kStart + correlation, correlation).Owner(owner);
  };
  launch(11, v1::KERNEL_OWNER_OTHER);
  launch(12, v1::KERNEL_OWNER_NCCL);
  launch(13, v1::KERNEL_OWNER_OTHER);
  launch(14, v1::KERNEL_OWNER_NCCL);
  b.Collective(3, 1, 0, 1024, 4, 77).Plan(77, 12);
  b.Kernel(kStart + 100, kStart + 110, 1, 11);  // as it says
  b.Kernel(kStart + 120, kStart + 150, 1, 12);  // an all-reduce
  b.Kernel(kStart + 160, kStart + 161, 2, 13);  // the program's
  b.Kernel(kStart + 170, kStart + 172, 2, 14);  // a call that nobody saw
  ASSERT_TRUE(model.Apply(b.batch()).ok());
  model.Finish();
  const std::map<std::pair<std::string, bool>, std::pair<uint64_t, uint64_t>> expected = {
      {{"triton_per_fused_0", false}, {1, 10}},
      {{"triton_per_fused_0", true}, {1, 30}},
      {{"ncclDevKernel_AllReduce_Sum_f32_RING_LL", false}, {1, 1}},
      {{"ncclDevKernel_AllReduce_Sum_f32_RING_LL", true}, {1, 2}}};
  EXPECT_EQ(KernelsOf(model), expected);
  EXPECT_EQ(model.misnamed_kernels(), 2u);
  EXPECT_EQ(model.totals().kernels, 4u);
  uint64_t unknown = 0;
  for (const auto& series : model.collectives().series()) unknown += series->comm == 0 ? series->calls : 0;
  EXPECT_EQ(unknown, 1u) << "14 alone: 13 is no call";
}

TEST(ProcessModel, AKernelIsNamedByItsPlanAlsoIfThatComesWithALaterBatch) {
  ProcessModel model = Model();
  BatchBuilder b;
  b.String(1, "triton_per_fused_0").Site(1, 1).Kernel(kStart + 100, kStart + 130, 1, 12);
  ASSERT_TRUE(model.Apply(b.batch()).ok());
  BatchBuilder later(2);
  later.String(3, "AllReduce").Thread(1, true).Comm(1, 0xabc, 0, 2);
  later.Launch(1, kStart + 12, 12).Collective(3, 1, 0, 1024, 4, 77).Plan(77, 12);
  ASSERT_TRUE(model.Apply(later.batch()).ok());
  model.Finish();
  const std::map<std::pair<std::string, bool>, std::pair<uint64_t, uint64_t>> expected = {
      {{"triton_per_fused_0", true}, {1, 30}}};
  EXPECT_EQ(KernelsOf(model), expected);
}

TEST(ProcessModel, AClockStepIsNoticed) {
  ProcessModel model = Model();
  ASSERT_TRUE(model.Apply(BatchBuilder(1).Clock(kStart, 1000 * kMs).batch()).ok());
  ASSERT_TRUE(model.Apply(BatchBuilder(2).Clock(kStart + 100 * kMs, 1100 * kMs).batch()).ok());
  EXPECT_EQ(model.totals().clock_step_ns, 0);
  ASSERT_TRUE(model.Apply(BatchBuilder(3).Clock(kStart + 150 * kMs, 1200 * kMs).batch()).ok());
  EXPECT_EQ(model.totals().clock_step_ns, -50 * static_cast<int64_t>(kMs));
}

TEST(ProcessModel, RefusesWhatContradictsTheSchema) {
  ProcessModel model = Model();
  EXPECT_FALSE(model.Apply(BatchBuilder().Kernel(kStart, kStart + 1, 5).batch()).ok())
      << "site without definition";
  v1::Batch ragged;
  ragged.mutable_kernels()->add_start_delta(1);
  ragged.mutable_kernels()->add_start_delta(1);
  ragged.mutable_kernels()->add_site(1);
  EXPECT_FALSE(model.Apply(ragged).ok()) << "columns of unequal length";
  EXPECT_FALSE(model.Apply(BatchBuilder().String(4'000'000'000u, "x").batch()).ok())
      << "an id that is out of all proportion";
}

TEST(ProcessModel, EndsAsItSaid) {
  ProcessModel model = Model();
  EXPECT_EQ(model.end_state(), EndState::kConnected);
  v1::Bye bye;
  bye.set_reason(v1::BYE_REASON_EXIT_INCOMPLETE);
  model.ApplyBye(bye);
  model.MarkCutOff();
  EXPECT_EQ(model.end_state(), EndState::kSaidByeIncomplete);
  ProcessModel other = Model();
  other.MarkCutOff();
  EXPECT_EQ(other.end_state(), EndState::kCutOff);
}

TEST(ProcessModel, GoesOnWithoutNamesBeyondTheLimit) {
  ProcessModel model({}, {});
  uint64_t sequence = 1;
  for (uint32_t id = 60000; id < kMaxId; id += 60000) {
    BatchBuilder b(sequence++);
    ASSERT_TRUE(model.Apply(b.String(id, "n").batch()).ok()) << id;
  }
  BatchBuilder b(sequence++);
  ASSERT_TRUE(model.Apply(b.String(kMaxId - 1, "last").String(kMaxId, "beyond").batch()).ok());
  EXPECT_EQ(model.String(kMaxId - 1), "last");
  EXPECT_EQ(model.String(kMaxId), "other names");
}

}  // namespace
}  // namespace gpuprobe::model
