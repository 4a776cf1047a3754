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
    EXPECT_EQ(step.phase_ns[static_cast<size_t>(StepPhase::kForward)], 1'900'000);
    EXPECT_EQ(step.phase_ns[static_cast<size_t>(StepPhase::kBackward)], 2'900'000);
    EXPECT_EQ(step.phase_ns[static_cast<size_t>(StepPhase::kOptimizer)], 900'000);
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

}  // namespace
}  // namespace gpuprobe::model
