#include "collector/model/step_tracker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collector/model/job_model.h"
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

}  // namespace
}  // namespace gpuprobe::model
