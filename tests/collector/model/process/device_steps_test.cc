// A process that drives several GPUs: steps, waiting and totals of each.
#include "collector/model/process/device_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "collector/model/job/job_model.h"
#include "tests/collector/testing/batch_builder.h"

namespace gpuprobe::model {
namespace {

using gpuprobe::testing::BatchBuilder;
using gpuprobe::testing::kMs;
using gpuprobe::testing::kStart;
using gpuprobe::testing::MakeHello;

constexpr uint32_t kGemm = 1;
constexpr uint32_t kAdam = 2;
constexpr uint32_t kReduceKernel = 3;
constexpr uint32_t kReduce = 4;
constexpr uint64_t kStepNs = 40 * kMs;

// Sites 10 * device + kernel.
BatchBuilder Begin(uint64_t sequence, uint32_t devices) {
  BatchBuilder b(sequence);
  if (sequence > 1) return b;
  b.String(kGemm, "gemm").String(kAdam, "FusedAdam").String(kReduceKernel, "ncclDevKernel_AllReduce_Sum_f32");
  b.String(kReduce, "AllReduce").Thread(1, true);
  for (uint32_t device = 0; device < devices; ++device) {
    for (const uint32_t kernel : {kGemm, kAdam, kReduceKernel}) b.Site(10 * device + kernel, kernel, device);
    b.Comm(device + 1, 0xabc, static_cast<int>(device), static_cast<int>(devices));
  }
  return b;
}

class Program {
 public:
  // `rotates`: threads interleave otherwise in every step.
  explicit Program(uint32_t devices, bool rotates = true) : devices_(devices), rotates_(rotates) {}

  // A step, in a batch of its own. `gemm_ns`: of each device; one that reduces ends when the last one does.
  void Step(
      JobModel& job, const std::function<uint64_t(uint32_t)>& gemm_ns, bool reduce = true,
      const std::function<bool(uint32_t)>& updates = [](uint32_t) { return true; }) {
    BatchBuilder b = Begin(++batches_, devices_);
    const uint64_t begin_ns = kStart + batches_ * kStepNs;
    uint64_t reduced_ns = 0;
    for (uint32_t device = 0; device < devices_; ++device)
      reduced_ns = std::max(reduced_ns, begin_ns + gemm_ns(device) + kMs);
    for (uint32_t i = 0; i < devices_; ++i) {
      const auto device = static_cast<uint32_t>((i + (rotates_ ? batches_ : 0)) % devices_);
      const auto launch = [&](uint32_t kernel, uint64_t start_ns, uint64_t end_ns) {
        ++correlation_;
        b.Launch(1, begin_ns - kMs + correlation_, correlation_);
        kernels_.push_back({start_ns, end_ns, 10 * device + kernel, correlation_});
      };
      const uint64_t middle_ns = begin_ns + gemm_ns(device) / 2;
      launch(kGemm, begin_ns, middle_ns);
      launch(kGemm, middle_ns, begin_ns + gemm_ns(device));
      if (reduce) {
        launch(kReduceKernel, begin_ns + gemm_ns(device), reduced_ns);
        b.Collective(kReduce, device + 1, batches_ - 1, 1 << 18, 4, ++plan_, begin_ns);
        b.Plan(plan_, correlation_);
      }
      if (updates(device)) launch(kAdam, reduced_ns, reduced_ns + kMs);
    }
    for (const Kernel& k : kernels_) b.Kernel(k.start_ns, k.end_ns, k.site, k.correlation);
    kernels_.clear();
    Send(job, b);
  }
  // Kernels that belong to no step, one after the other.
  void Kernels(JobModel& job, uint32_t device, int count) {
    BatchBuilder b = Begin(++batches_, devices_);
    for (int i = 0; i < count; ++i) {
      const uint64_t at_ns = kStart + batches_ * kStepNs + static_cast<uint64_t>(i) * kMs;
      b.Launch(1, at_ns, ++correlation_);
      b.Kernel(at_ns, at_ns + kMs / 2, 10 * device + kGemm, correlation_);
    }
    Send(job, b);
  }

 private:
  struct Kernel {
    uint64_t start_ns;
    uint64_t end_ns;
    uint32_t site;
    uint64_t correlation;
  };

  void Send(JobModel& job, const BatchBuilder& b) {
    v1::Batch batch = b.batch();
    for (v1::Communicator& comm : *batch.mutable_communicators())
      comm.set_device(static_cast<int>(comm.id()) - 1);
    ASSERT_TRUE(job.Join(MakeHello(0, 1)).Apply(batch).ok());
  }

  uint32_t devices_;
  bool rotates_;
  uint64_t batches_ = 0;
  uint64_t correlation_ = 0;
  uint64_t plan_ = 0;
  std::vector<Kernel> kernels_;
};

std::vector<uint64_t> StepsOf(const JobModel& job) {
  std::vector<uint64_t> steps;
  for (const Member& member : job.ReportedMembers()) steps.push_back(member.steps().count());
  return steps;
}

constexpr uint64_t kSteps = 30;

uint64_t SlowThird(uint32_t device) { return device == 2 ? 12 * kMs : 8 * kMs; }

TEST(DeviceSteps, EveryDeviceHasTheProcessesStepsAndItsOwnTimes) {
  JobModel job;
  Program program(3);
  for (uint64_t i = 0; i < kSteps; ++i) program.Step(job, SlowThird);
  job.Finish();
  EXPECT_THAT(StepsOf(job), ::testing::ElementsAre(kSteps, kSteps, kSteps));
  EXPECT_EQ(job.processes()[0]->steps().count(), kSteps);
  const Members members = job.ReportedMembers();
  for (uint32_t device = 0; device < members.size(); ++device) {
    EXPECT_EQ(members[device].device(), device);
    const Summary compute = members[device].steps().statistics().compute_ns.Summarize();
    EXPECT_EQ(compute.p50, static_cast<double>(SlowThird(device) + kMs));
    uint64_t calls = 0;
    members[device].ForEachSeries([&](const CollectiveSeries& series) { calls += series.calls; });
    EXPECT_EQ(calls, kSteps);
    uint64_t kernels = 0;
    members[device].ForEachKernel([&](const KernelTotals& k) { kernels += k.time_ns.count(); });
    EXPECT_EQ(kernels, 4 * kSteps);
  }
}

TEST(DeviceSteps, WaitingInCollectivesIsTheDevices) {
  JobModel job;
  Program program(3);
  for (uint64_t i = 0; i < kSteps; ++i) program.Step(job, SlowThird);
  job.Finish();
  const auto& blame = job.comparison().blame();
  for (const Member& member : job.ReportedMembers()) {
    const bool late = member.device() == 2u;
    EXPECT_EQ(blame[member.number].last_arrivals, late ? kSteps : 0);
    EXPECT_EQ(blame[member.number].caused_mean_ns, late ? kSteps * 4 * kMs : 0);
    EXPECT_EQ(blame[member.number].waited_ns, late ? 0 : kSteps * 4 * kMs);
  }
  // One clock.
  EXPECT_TRUE(job.comparison().clocks().empty());
}

TEST(DeviceSteps, ADeviceWithoutStepsOfItsOwnHasTheFirstOnes) {
  JobModel job;
  Program program(2, false);
  for (uint64_t i = 0; i < kSteps; ++i)
    program.Step(
        job, [](uint32_t) { return 8 * kMs; }, false, [](uint32_t device) { return device == 0; });
  job.Finish();
  EXPECT_THAT(StepsOf(job), ::testing::ElementsAre(kSteps, kSteps));
  const Members members = job.ReportedMembers();
  EXPECT_FALSE(members[0].Follows());
  EXPECT_TRUE(members[1].Follows());
  EXPECT_EQ(job.processes()[0]->steps().count(), kSteps);  // of the one that shows them
  EXPECT_EQ(members[1].steps().statistics().compute_ns.Summarize().p50, static_cast<double>(8 * kMs));
}

TEST(DeviceSteps, AFewKernelsOnAnotherDeviceDoNotMakeItDriven) {
  JobModel job;
  Program program(2);
  program.Kernels(job, 0, 2);  // it loads a checkpoint
  constexpr uint64_t kMany = 200;
  for (uint64_t i = 0; i < kMany; ++i) program.Kernels(job, 1, 3);
  program.Kernels(job, 0, 1);
  job.Finish();
  const DeviceSteps& devices = job.processes()[0]->device_steps();
  EXPECT_EQ(devices.At(0).ordinal, 1u);
  EXPECT_EQ(devices.Driven(), 1u);
  EXPECT_THAT(job.ReportedMembers(), ::testing::SizeIs(1));
}

TEST(DeviceSteps, AProcessWithOneDeviceIsOneMember) {
  JobModel job;
  Program program(1);
  for (uint64_t i = 0; i < kSteps; ++i) program.Step(job, SlowThird);
  job.Finish();
  ASSERT_EQ(job.members().size(), 1u);
  EXPECT_FALSE(job.members()[0].device().has_value());
  EXPECT_THAT(StepsOf(job), ::testing::ElementsAre(kSteps));
}

TEST(DeviceSteps, SurviveBeingSavedInTheMiddle) {
  JobModel straight;
  Program of_straight(3);
  JobModel before;
  Program program(3);
  for (uint64_t i = 0; i < kSteps / 2; ++i) {
    of_straight.Step(straight, SlowThird);
    program.Step(before, SlowThird);
  }
  JobModel after;
  ASSERT_TRUE(after.LoadState(before.SaveState()).ok());
  for (uint64_t i = kSteps / 2; i < kSteps; ++i) {
    of_straight.Step(straight, SlowThird);
    program.Step(after, SlowThird);
  }
  straight.Finish();
  after.Finish();
  EXPECT_EQ(StepsOf(after), StepsOf(straight));
  ASSERT_EQ(after.members().size(), straight.members().size());
  for (size_t i = 0; i < after.members().size(); ++i) {
    EXPECT_EQ(after.members()[i].device(), straight.members()[i].device());
    EXPECT_EQ(after.comparison().blame()[i].caused_ns, straight.comparison().blame()[i].caused_ns);
  }
}

}  // namespace
}  // namespace gpuprobe::model
