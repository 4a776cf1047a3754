#include "collector/model/steps/step_tracker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "collector/model/job/job_model.h"
#include "tests/collector/testing/batch_builder.h"

namespace gpuprobe::model {
namespace {

using testing::kMs;
using testing::kSecond;
using testing::kStart;

void Feed(JobModel& job, const std::vector<v1::Frame>& frames) {
  ProcessModel& process = job.Join(frames.front().hello());
  for (const v1::Frame& frame : frames) {
    if (frame.has_batch()) {
      ASSERT_TRUE(process.Apply(frame.batch()).ok());
    }
    if (frame.has_bye()) process.ApplyBye(frame.bye());
  }
  job.Finish();
}

TEST(StepTracker, AnnotatedRangesThatLookLikeStepsAreSteps) {
  JobModel job;
  Feed(job, testing::TrainingRank(1, 2, 20));
  const StepTracker& steps = job.processes()[0]->steps();
  EXPECT_EQ(steps.source(), StepSource::kNvtx);
  EXPECT_EQ(steps.count(), 20);
  EXPECT_EQ(steps.warmup_count(), 0);
  ASSERT_EQ(steps.steps().size(), 20);
  for (size_t i = 1; i < 20; ++i) {
    const StepRecord& step = steps.steps()[i];
    const uint64_t t = kStart + kSecond + i * 10 * kMs;
    EXPECT_EQ(step.index, i);
    EXPECT_EQ(step.end_ns, t + 7 * kMs);
    EXPECT_EQ(step.start_ns, t - 10 * kMs + 7 * kMs);
    EXPECT_EQ(step.first_launch_ns, t + 500);
    EXPECT_EQ(step.compute_ns, 1'900'000 + 2'900'000 + 900'000);
    EXPECT_EQ(step.comm_ns, 1'500'000);
    EXPECT_EQ(step.exposed_comm_ns, 500'000);
    EXPECT_EQ(step.copy_ns, 40'000);
    EXPECT_EQ(step.phase_busy_ns(StepPhase::kForward), 1'900'000);
    EXPECT_EQ(step.phase_busy_ns(StepPhase::kBackward), 2'900'000);
    EXPECT_EQ(step.phase_busy_ns(StepPhase::kOptimizer), 900'000);
    EXPECT_EQ(steps.StepAt(t), i);
  }
  EXPECT_EQ(steps.StepAt(kStart), std::nullopt);
  EXPECT_EQ(steps.statistics().total_ns.count(), 20);
  EXPECT_EQ(steps.statistics().nvtx_phases, 20);
}

// A step of two kernels of 100 ns, launched from `begin_ns` on, that run from `start_ns` on.
void AddStep(StepTracker& steps, uint64_t begin_ns, uint64_t start_ns) {
  for (uint64_t i = 0; i < 2; ++i) {
    steps.Add({.start_ns = start_ns + i * 100,
               .end_ns = start_ns + i * 100 + 100,
               .launch_ns = begin_ns + 10 + i,
               .launched = true});
  }
}

RecordedStepRecord Recorded(uint64_t index, uint64_t begin_ns, uint64_t earlier_end_ns) {
  return {.begin_ns = begin_ns,
          .end_ns = begin_ns + 50,
          .index = index,
          .earlier_end_ns = earlier_end_ns,
          .earlier_launch_ns = earlier_end_ns == 0 ? 0 : begin_ns - 20,
          .wait_start_ns = 0,
          .wait_end_ns = 0};
}

TEST(StepTracker, StepsThatTheProbeTellsKeepTheirNumbersAndBeginWhereOtherWorkEnded) {
  StepTracker steps;
  steps.RecordsSome();
  // Steps 2, 3 and 10 of a program; the last one has nothing before it.
  AddStep(steps, 1000, 2000);
  steps.AddRecorded(Recorded(2, 1000, 1900));
  AddStep(steps, 1100, 2300);
  steps.AddRecorded(Recorded(3, 1100, 2250));  // between the two, something else ran
  AddStep(steps, 90'000, 91'000);
  steps.AddRecorded(Recorded(10, 90'000, 0));
  steps.AddRange(1, 0, 1000, 1050, 7, "step");  // of which there would be too few to tell
  steps.Finish();
  EXPECT_EQ(steps.source(), StepSource::kMarker);
  EXPECT_EQ(steps.count(), 3);
  ASSERT_EQ(steps.steps().size(), 3);
  std::vector<std::tuple<uint64_t, uint64_t, uint64_t, uint64_t>> found;
  for (const StepRecord& step : steps.steps())
    found.emplace_back(step.index, step.start_ns, step.end_ns, step.idle_ns);
  EXPECT_THAT(found, ::testing::ElementsAre(std::tuple(2, 1900, 2200, 100), std::tuple(3, 2250, 2500, 50),
                                            std::tuple(10, 91'000, 91'200, 0)));
}

// Each takes 10 ns, one after the other.
class Launcher {
 public:
  explicit Launcher(StepTracker& steps, uint64_t at_ns = 1000) : steps_(steps), at_ns_(at_ns) {}
  void Launch(uint32_t token, WorkClass work = WorkClass::kCompute, uint16_t roles = 0) {
    at_ns_ += 20;
    steps_.Add({.start_ns = at_ns_ + 5,
                .end_ns = at_ns_ + 15,
                .launch_ns = at_ns_,
                .token = token,
                .coarse = token,
                .roles = roles,
                .work = work,
                .launched = true});
  }
  uint64_t next_launch_ns() const { return at_ns_ + 20; }

 private:
  StepTracker& steps_;
  uint64_t at_ns_;
};

TEST(StepTracker, NoStepReachesFromOneWindowOfTimeIntoTheNext) {
  constexpr uint32_t kOptimizer = 100;
  constexpr uint64_t kPause = 1'000'000;
  StepTracker steps;
  RecordedStepRecord window{};
  window.has_no_steps = true;
  for (uint64_t i = 0; i < 2; ++i) {
    window.begin_ns = 1000 + i * kPause;
    window.end_ns = window.begin_ns + 10'000;
    steps.AddRecorded(window);
    Launcher host(steps, window.begin_ns);
    for (uint32_t step = 0; step < 8; ++step) {
      for (uint32_t kernel = 0; kernel < 20; ++kernel) host.Launch(10 + kernel);
      host.Launch(kOptimizer, WorkClass::kCompute, kRoleOptimizer);
    }
  }
  steps.Finish();
  EXPECT_GE(steps.count(), 14u);
  for (const StepRecord& step : steps.steps()) EXPECT_LT(step.total_ns(), kPause / 2);
}

TEST(StepTracker, TheModelThatIsLoadedBeforeTheFirstStepIsNoPartOfIt) {
  constexpr uint32_t kCopy = 1;
  constexpr uint32_t kOptimizer = 100;
  StepTracker steps;
  Launcher host(steps);
  for (int i = 0; i < 3; ++i) host.Launch(kCopy, WorkClass::kCopyToDevice);
  const uint64_t first_ns = host.next_launch_ns();
  for (uint32_t step = 0; step < 8; ++step) {
    host.Launch(kCopy, WorkClass::kCopyToDevice);
    for (uint32_t kernel = 0; kernel < 20; ++kernel) host.Launch(10 + kernel);
    // The first step does more than the others, as PyTorch's data parallelism does.
    for (uint32_t more = 0; step == 0 && more < 2; ++more) host.Launch(50 + more);
    host.Launch(kOptimizer, WorkClass::kCompute, kRoleOptimizer);
  }
  steps.Finish();
  ASSERT_EQ(steps.steps().size(), 8);
  EXPECT_EQ(steps.steps()[0].first_launch_ns, first_ns);
  EXPECT_EQ(steps.steps()[0].operations, 24);
  EXPECT_EQ(steps.steps()[1].operations, 22);
}

// As Lightning's first step, which copies what its metrics count from, after an evaluation.
TEST(StepTracker, TheFirstStepBeginsAsTheOthersThoughMoreIsCopiedInIt) {
  constexpr uint32_t kCopy = 1;
  constexpr uint32_t kOptimizer = 100;
  StepTracker steps;
  Launcher host(steps);
  const auto forward = [&] {
    for (int i = 0; i < 2; ++i) host.Launch(kCopy, WorkClass::kCopyToDevice);
    for (uint32_t kernel = 0; kernel < 10; ++kernel) host.Launch(10 + kernel);
  };
  for (int i = 0; i < 2; ++i) forward();
  host.Launch(90);  // what the evaluation says
  uint64_t first_ns = 0;
  for (uint32_t step = 0; step < 8; ++step) {
    if (step == 0) first_ns = host.next_launch_ns();
    forward();
    for (uint32_t more = 0; step == 0 && more < 5; ++more) host.Launch(kCopy, WorkClass::kCopyToDevice);
    for (uint32_t kernel = 0; kernel < 10; ++kernel) host.Launch(50 + kernel);
    host.Launch(kOptimizer, WorkClass::kCompute, kRoleOptimizer);
  }
  steps.Finish();
  ASSERT_EQ(steps.steps().size(), 8);
  EXPECT_EQ(steps.steps()[0].first_launch_ns, first_ns);
}

}  // namespace
}  // namespace gpuprobe::model
