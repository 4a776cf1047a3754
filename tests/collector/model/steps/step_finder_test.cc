// Steps of programs whose kernels' names tell nothing, operation by operation.
#include "collector/model/steps/step_finder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "collector/model/steps/step_tracker.h"
#include "collector/model/steps/work_roles.h"

namespace gpuprobe::model {
namespace {

using ::testing::ElementsAreArray;

// A program that launches one operation after the other, each 10 us long, 2 us apart.
class Program {
 public:
  // `kernel`: what its name stands for; `variant`: of its launch geometry.
  void Kernel(uint32_t kernel, uint32_t variant = 0, uint16_t roles = 0) {
    Launch(WorkClass::kCompute, kernel, variant, roles);
  }
  void Kernels(uint32_t first, uint32_t count, uint32_t variant = 0) {
    for (uint32_t i = 0; i < count; ++i) Kernel(first + i, variant);
  }
  void Collective(uint32_t size) { Launch(WorkClass::kCommunication, 900, size, 0); }
  void CopyIn(uint32_t size = 0) { Launch(WorkClass::kCopyToDevice, 901, size, 0); }
  void CopyOut() { Launch(WorkClass::kCopyFromDevice, 902, 0, 0); }
  void Pause(uint64_t us) { now_ns_ += us * 1000; }
  void Begin() { begins_launch_ns_.push_back(now_ns_ + kLaunchNs); }

  const std::vector<StepOperation>& operations() const { return operations_; }
  const std::vector<uint64_t>& begins_launch_ns() const { return begins_launch_ns_; }

 private:
  static constexpr uint64_t kLaunchNs = 2'000;
  void Launch(WorkClass work, uint32_t name, uint32_t variant, uint16_t roles) {
    now_ns_ += kLaunchNs;
    StepOperation o;
    o.launch_ns = now_ns_;
    o.start_ns = std::max(now_ns_ + 1000, device_ns_);
    o.end_ns = o.start_ns + 10'000;
    device_ns_ = o.end_ns;
    o.coarse = 1 + name;
    o.token = 10'000 + name * 16 + variant;
    o.work = work;
    o.roles = roles;
    o.launched = true;
    operations_.push_back(o);
  }

  uint64_t now_ns_ = 1'000'000;
  uint64_t device_ns_ = 0;
  std::vector<StepOperation> operations_;
  std::vector<uint64_t> begins_launch_ns_;
};

constexpr uint32_t kForward = 100;
constexpr uint32_t kBackward = 200;
constexpr uint32_t kUpdate = 300;

void Forward(Program& p, uint32_t layers, uint32_t variant = 0) {
  for (uint32_t i = 0; i < layers; ++i) p.Kernels(kForward, 4, variant);
  p.Kernel(kForward + 50, variant);
}
void Backward(Program& p, uint32_t layers, uint32_t variant = 0, bool reduce = false) {
  p.Kernel(kBackward + 50, variant);
  for (uint32_t i = 0; i < layers; ++i) {
    p.Kernels(kBackward, 6, variant);
    if (reduce) p.Collective(i % 2);
  }
}
void Train(Program& p, uint32_t variant = 0, bool reduce = false) {
  p.Pause(500);
  p.Begin();
  p.CopyIn();
  Forward(p, 6, variant);
  Backward(p, 6, variant, reduce);
  p.Kernels(kUpdate, 3);
}

std::vector<uint64_t> FirstLaunches(const StepTracker& steps) {
  std::vector<uint64_t> out;
  for (const StepRecord& step : steps.steps()) out.push_back(step.first_launch_ns);
  return out;
}

StepTracker Track(const Program& program) {
  StepTracker steps;
  for (const StepOperation& o : program.operations()) steps.Add(o);
  steps.Finish();
  return steps;
}

// Everything found, and nothing else.
void ExpectExact(const Program& program, StepSource source) {
  const StepTracker steps = Track(program);
  EXPECT_THAT(FirstLaunches(steps), ElementsAreArray(program.begins_launch_ns()));
  EXPECT_EQ(steps.source(), source);
  EXPECT_GT(steps.confidence(), 0.9);
}

TEST(StepFinder, APeriodOfKernelsWithoutAnyName) {
  Program p;
  p.Kernels(500, 40);  // initialisation
  for (int i = 0; i < 40; ++i) Train(p);
  ExpectExact(p, StepSource::kKernels);
}

// NCCL clears and fills what it keeps for each of its channels and ranks, when a communicator is made.
TEST(StepFinder, ACommunicatorThatIsSetUpIsNoStep) {
  for (const uint32_t channels : {6u, 12u, 24u}) {
    SCOPED_TRACE(channels);
    Program p;
    for (uint32_t channel = 0; channel < channels; ++channel) {
      p.Kernel(700, 0, kRoleMemset);
      p.Kernel(701, 0, kRoleMemset);
      for (int rank = 0; rank < 8; ++rank) p.CopyIn(1);
      p.Kernel(702, 0, kRoleMemset);
    }
    for (int i = 0; i < 40; ++i) Train(p, 0, true);
    ExpectExact(p, StepSource::kCollectives);
  }
}

TEST(StepFinder, APeriodOfCollectives) {
  Program p;
  p.Kernels(500, 40);
  for (int i = 0; i < 40; ++i) Train(p, 0, true);
  ExpectExact(p, StepSource::kCollectives);
}

TEST(StepFinder, ABatchThatIsFetchedBeforeBackwardBeginsNoStep) {
  Program p;
  for (int step = 0; step < 30; ++step) {
    p.Pause(20);
    p.Begin();
    Forward(p, 3);
    p.Pause(400);  // the next batch is made
    p.CopyIn(0);
    p.CopyIn(1);
    for (uint32_t k = 0; k < 18; ++k) p.Kernel(kBackward + k, 0, kRoleAutogradThread);
    for (uint32_t k = 0; k < 4; ++k) p.Kernel(kUpdate, k, kRoleOptimizer);
  }
  ExpectExact(p, StepSource::kKernels);
}

// Gradients are clipped after each of four microbatches, with functions for lists of tensors, and updated
// after the last one, by kernels whose names tell nothing.
TEST(StepFinder, ClippedGradientsAreNoUpdate) {
  Program p;
  for (int i = 0; i < 30; ++i) {
    for (int microbatch = 0; microbatch < 4; ++microbatch) {
      p.Pause(100);
      if (microbatch == 0) p.Begin();
      p.CopyIn();
      Forward(p, 6);
      Backward(p, 6, 0, microbatch == 3);
      p.Kernel(400, 0, RolesOfKernel("multi_tensor_apply_kernel<LpNormFunctor>"));
      p.Kernel(401, 0, RolesOfKernel("multi_tensor_apply_kernel<BinaryOpScalarTensorFunctor>"));
    }
    p.Kernels(kUpdate, 3);
  }
  ExpectExact(p, StepSource::kCollectives);
}

// Each rank updates a part of the parameters, and a gather of all of them follows. On a busy machine the host
// may pause longest in the middle of that.
TEST(StepFinder, WhatIsGatheredAfterTheUpdateBelongsToIt) {
  Program p;
  for (int i = 0; i < 40; ++i) {
    p.Pause(100);
    p.Begin();
    p.CopyIn();
    Forward(p, 6);
    Backward(p, 6, 0, true);
    p.Kernel(kUpdate, 0, kRoleOptimizer);
    p.Pause(900);
    p.Kernel(kUpdate + 1);
    p.Collective(5);
  }
  ExpectExact(p, StepSource::kCollectives);
}

TEST(StepFinder, KernelVariantsThatChangeWithTheData) {
  Program p;
  for (uint32_t i = 0; i < 60; ++i) Train(p, i * 7 % 5);
  ExpectExact(p, StepSource::kKernels);
}

TEST(StepFinder, EvaluationsBelongToNoStep) {
  Program p;
  for (int i = 0; i < 60; ++i) {
    Train(p);
    if (i % 10 != 9) continue;
    for (int batch = 0; batch < 7; ++batch) {
      p.Pause(500);
      p.CopyIn();
      Forward(p, 6);
    }
    p.CopyOut();
  }
  ExpectExact(p, StepSource::kKernels);
}

TEST(StepFinder, AccumulatedBatchesAreOneStep) {
  Program p;
  for (int i = 0; i < 40; ++i) {
    for (int batch = 0; batch < 4; ++batch) {
      p.Pause(500);
      if (batch == 0) p.Begin();
      p.CopyIn();
      Forward(p, 6);
      Backward(p, 6);
    }
    p.Kernels(kUpdate, 3);
  }
  ExpectExact(p, StepSource::kKernels);
}

TEST(StepFinder, OptimizersKernelsWhereverLayersRepeat) {
  Program p;
  p.Kernels(500, 300);
  for (int i = 0; i < 30; ++i) {
    p.Pause(20);
    p.Begin();
    Forward(p, 48);
    Backward(p, 48);
    for (int k = 0; k < 12; ++k) {
      p.Kernel(kUpdate, 0, kRoleOptimizer);
      if (k % 4 == 3) p.Kernel(kUpdate + 1);
    }
    p.CopyOut();
  }
  const StepTracker steps = Track(p);
  EXPECT_EQ(steps.source(), StepSource::kKernels);
  EXPECT_EQ(steps.count(), 30);
}

constexpr uint32_t kNorm = 400;

// A training step whose optimizer says its name; the norm of the gradients comes from the same kernels.
void TrainNamed(Program& p, bool first = false) {
  p.Pause(100);
  p.Begin();
  p.CopyIn();
  Forward(p, 6);
  Backward(p, 6);
  p.Kernel(kNorm, 0, kRoleOptimizer);
  p.Kernels(kNorm + 1, 6);
  for (int i = 0; first && i < 60; ++i) p.Kernel(kNorm + 20, 0, kRoleMemset);
  for (int i = 0; i < 3; ++i) p.Kernel(kUpdate, 0, kRoleOptimizer);
}

TEST(StepFinder, TheNormOfTheGradientsAndTheUpdateAreOfOneStep) {
  Program p;
  p.Kernels(500, 40);
  // The first update makes the optimizer's state, and fills it with zeros.
  for (int i = 0; i < 30; ++i) TrainNamed(p, i == 0);
  ExpectExact(p, StepSource::kKernels);
}

TEST(StepFinder, StepsThatDifferByAnOperationMayComeInTurns) {
  Program p;
  for (int i = 0; i < 18; ++i) {
    TrainNamed(p);
    if (i % 3 == 0) p.Kernel(kNorm + 30, 0, kRoleMemset);
  }
  const StepTracker steps = Track(p);
  EXPECT_EQ(steps.count(), 18);
}

TEST(StepFinder, UpdatesWithinTheBackwardPassAreNoSteps) {
  Program p;
  for (int i = 0; i < 30; ++i) {
    p.Pause(100);
    p.Begin();
    p.CopyIn();
    p.Kernels(kForward, 24);
    p.Kernel(kBackward + 50, 0, kRoleLossName);
    for (int layer = 0; layer < 12; ++layer) {
      for (uint32_t k = 0; k < 3; ++k) p.Kernel(kBackward + k, 0, kRoleAutogradThread);
      p.Kernel(kUpdate, 0, kRoleOptimizer | kRoleAutogradThread);
    }
  }
  ExpectExact(p, StepSource::kKernels);
}

// `known`: what an earlier replay learned.
StepTracker TrackKnowing(const Program& program, const StepDefinition& known) {
  StepTracker steps;
  steps.Know(known);
  for (const StepOperation& o : program.operations()) steps.Add(o);
  steps.Finish();
  return steps;
}

// What looked like steps first is given up for what comes later, and known from the start in the next replay.
void ExpectRevised(const Program& program) {
  const StepTracker first = Track(program);
  ASSERT_TRUE(first.learned().has_value());
  const StepTracker steps = TrackKnowing(program, *first.learned());
  EXPECT_THAT(FirstLaunches(steps), ElementsAreArray(program.begins_launch_ns()));
  EXPECT_FALSE(steps.learned().has_value());
  EXPECT_EQ(steps.revisions(), 0);
}

void Evaluate(Program& p, int batches) {
  for (int batch = 0; batch < batches; ++batch) {
    p.Pause(500);
    p.CopyIn();
    Forward(p, 6);
    p.CopyOut();
  }
}

TEST(StepFinder, AnEvaluationBeforeTheFirstStepIsNoStep) {
  for (const int batches : {12, 100, 2000}) {
    SCOPED_TRACE(batches);
    Program p;
    Evaluate(p, batches);
    for (int i = 0; i < 40; ++i) TrainNamed(p, i == 0);
    ExpectRevised(p);
    const StepTracker live = Track(p);
    EXPECT_EQ(live.revisions(), 1);
    // Those that it needed to see are gone, and no more.
    EXPECT_GE(live.count(), 35);
    EXPECT_LE(live.count(), 40);
  }
}

TEST(StepFinder, AnEvaluationBeforeAFewStepsIsKnownAtTheEnd) {
  Program p;
  Evaluate(p, 12);
  for (int i = 0; i < 3; ++i) TrainNamed(p, i == 0);
  ExpectRevised(p);
}

TEST(StepFinder, AnEvaluationBeforeTheFirstStepWhereNothingHasAName) {
  Program p;
  Evaluate(p, 200);
  for (int i = 0; i < 60; ++i) {
    Train(p, 0, true);
    if (i % 10 == 0) p.CopyOut();
  }
  ExpectRevised(p);
}

TEST(StepFinder, LayersThatAreSetUpOneAfterAnotherAreNoSteps) {
  Program p;
  for (int layer = 0; layer < 12; ++layer) {
    p.CopyIn();
    p.Kernels(800, 20);
  }
  for (int i = 0; i < 40; ++i) Train(p);
  ExpectRevised(p);
}

TEST(StepFinder, WhatIsRightFromTheStartIsNotRevised) {
  Program unnamed;
  for (int i = 0; i < 2000; ++i) Train(unnamed);
  EXPECT_EQ(Track(unnamed).revisions(), 0);
  EXPECT_FALSE(Track(unnamed).learned().has_value());
  Program named;
  for (int i = 0; i < 100; ++i) TrainNamed(named);
  EXPECT_EQ(Track(named).revisions(), 0);
}

TEST(StepFinder, LayersAloneAreNoSteps) {
  Program p;
  Forward(p, 400);
  EXPECT_FALSE(FindStepDefinition(p.operations(), false, false).has_value());
}

TEST(StepFinder, TooLittleHistoryTellsNothing) {
  Program p;
  Train(p);
  EXPECT_FALSE(FindStepDefinition(p.operations(), true, false).has_value());
  EXPECT_FALSE(FindStepDefinition({}, true, false).has_value());
}

TEST(StepFinder, AShortRunIsFoundAtItsEnd) {
  Program p;
  for (int i = 0; i < 4; ++i) Train(p);
  const StepTracker steps = Track(p);
  EXPECT_THAT(FirstLaunches(steps), ElementsAreArray(p.begins_launch_ns()));
}

TEST(StepTracker, WarmupIsLeftOutOfTheStatistics) {
  Program p;
  p.Kernels(500, 10);
  for (int i = 0; i < 30; ++i) {
    if (i < 3) p.Pause(50'000);
    Train(p);
  }
  const StepTracker steps = Track(p);
  EXPECT_EQ(steps.count(), 30);
  EXPECT_EQ(steps.warmup_count(), 3);
  EXPECT_TRUE(steps.steps()[2].warmup);
  EXPECT_FALSE(steps.steps()[3].warmup);
  EXPECT_EQ(steps.statistics().total_ns.count(), 27);
  EXPECT_LT(steps.statistics().total_ns.Summarize().max, 2'000'000);
}

TEST(StepTracker, StepsTileTheTime) {
  Program p;
  for (int i = 0; i < 30; ++i) Train(p);
  const StepTracker steps = Track(p);
  for (size_t i = 1; i < steps.steps().size(); ++i) {
    EXPECT_EQ(steps.steps()[i].start_ns, steps.steps()[i - 1].end_ns);
  }
}

// Kernels of optimizers end a step; every third record of the device is lost, in blocks.
TEST(StepTracker, LaunchesWhoseRecordsWereLostKeepTheStepsApart) {
  Program p;
  p.Kernels(500, 20);
  for (int i = 0; i < 40; ++i) {
    p.Pause(500);
    p.Begin();
    p.CopyIn();
    Forward(p, 6);
    Backward(p, 6);
    for (int k = 0; k < 4; ++k) p.Kernel(kUpdate, 0, kRoleOptimizer);
  }
  StepTracker steps;
  steps.NoteLoss(false);
  std::vector<StepOperation> operations = p.operations();
  for (size_t i = 0; i < operations.size(); ++i) {
    StepOperation& o = operations[i];
    if (i > 500 && i / 20 % 3 == 0) {
      o = {.start_ns = o.launch_ns,
           .end_ns = o.launch_ns,
           .launch_ns = o.launch_ns,
           .work = WorkClass::kUnseen,
           .launched = true};
    }
    steps.Add(o);
  }
  steps.Finish();
  EXPECT_THAT(FirstLaunches(steps), ElementsAreArray(p.begins_launch_ns()));
  EXPECT_LT(steps.confidence(), 0.8);
  EXPECT_GT(steps.statistics().incomplete, 20);
}

TEST(StepTracker, AMarkedKernelBeginsAStep) {
  StepTracker steps;
  steps.SetMarker(*StepMarker::Parse("kernel:embedding"));
  Program p;
  p.Kernels(500, 20);
  for (int i = 0; i < 10; ++i) {
    p.Begin();
    p.Kernel(1, 0, kRoleMarker);
    p.Kernel(1, 0, kRoleMarker);
    p.Kernels(kForward, 3 + static_cast<uint32_t>(i) % 4);
  }
  for (const StepOperation& o : p.operations()) steps.Add(o);
  steps.Finish();
  EXPECT_THAT(FirstLaunches(steps), ElementsAreArray(p.begins_launch_ns()));
  EXPECT_EQ(steps.source(), StepSource::kMarker);
}

TEST(StepMarker, SaysWhatIsWrong) {
  EXPECT_TRUE(StepMarker::Parse("nvtx:step")->Matches("step"));
  EXPECT_FALSE(StepMarker::Parse("nvtx:step")->Matches("step 17")) << "the whole name";
  EXPECT_TRUE(StepMarker::Parse("nvtx:step *")->Matches("step 17"));
  EXPECT_FALSE(StepMarker::Parse("nvtx:step *")->Matches("a step 17"));
  EXPECT_TRUE(StepMarker::Parse("kernel:gemm(float*")->Matches("_Z4gemmPfS_i"))
      << "as a person would write it";
  EXPECT_TRUE(StepMarker::Parse("kernel:_Z4gemm*")->Matches("_Z4gemmPfS_i"));
  EXPECT_TRUE(StepMarker::Parse("collective:allreduce")->Matches("AllReduce"));
  EXPECT_EQ(StepMarker::Parse("collective:allreduce")->calls(), 0u);
  EXPECT_EQ(StepMarker::Parse("collective:allreduce/61")->calls(), 61u);
  EXPECT_TRUE(StepMarker::Parse("collective:allreduce/61")->Matches("AllReduce"));
  for (const char* bad :
       {"", "nvtx", "nvtx:", "range:x", "nvtx:*", "nvtx:^step$", "nvtx:step.*", "kernel:fwd|bwd",
        "collective:AllReduce/0", "collective:AllReduce/", "collective:/4", "collective:AllReduce/-1"}) {
    EXPECT_FALSE(StepMarker::Parse(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace gpuprobe::model
