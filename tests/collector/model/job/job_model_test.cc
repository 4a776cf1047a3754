// What is the same for all ranks of a job: the warm-up.
#include "collector/model/job/job_model.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/collector/testing/batch_builder.h"

namespace gpuprobe::model {
namespace {

using gpuprobe::testing::BatchBuilder;
using gpuprobe::testing::kMs;
using gpuprobe::testing::kSecond;
using gpuprobe::testing::kStart;

constexpr uint64_t kStepMs = 10;

// A rank with so many steps, of which the first `slow` take so many milliseconds.
void Replay(JobModel& job, int rank, uint64_t steps, uint64_t slow, uint64_t slow_ms) {
  ProcessModel& process = job.Join(gpuprobe::testing::MakeHello(rank, 2));
  BatchBuilder b;
  b.String(1, "MatmulForward").String(2, "AdamUpdate").Site(1, 1).Site(2, 2);
  uint64_t at_ns = kStart + kMs;
  uint64_t correlation = 0;
  for (uint64_t step = 0; step < steps; ++step) {
    const uint64_t ms = step < slow ? slow_ms : kStepMs;
    b.Launch(1, at_ns, ++correlation);
    b.Kernel(at_ns, at_ns + (ms - 2) * kMs, 1, correlation);
    b.Launch(1, at_ns + kMs, ++correlation);
    b.Kernel(at_ns + (ms - 2) * kMs, at_ns + ms * kMs, 2, correlation);
    at_ns += ms * kMs;
  }
  b.Clock(at_ns, kSecond + at_ns - kStart);
  ASSERT_TRUE(process.Apply(b.batch()).ok());
}

struct Rank {
  uint64_t steps = 40;
  uint64_t slow = 0;
  uint64_t slow_ms = 0;
};

void Replay(JobModel& job, const std::vector<Rank>& ranks) {
  for (size_t i = 0; i < ranks.size(); ++i)
    Replay(job, static_cast<int>(i), ranks[i].steps, ranks[i].slow, ranks[i].slow_ms);
  job.Finish();
}

// The first five steps are about twice as long as the rest: a little more on one rank, a little less on the
// other, which waits for it.
const std::vector<Rank> kNearlyTwice = {{.slow = 5, .slow_ms = 22}, {.slow = 5, .slow_ms = 19}};

TEST(JobModel, TheWarmupIsTheJobsAndNotEachRanks) {
  JobModel job;
  Replay(job, kNearlyTwice);
  EXPECT_EQ(job.members()[0].steps().warmup_count(), 5u);
  EXPECT_EQ(job.members()[1].steps().warmup_count(), 0u);
  ASSERT_TRUE(job.LearnedOfSteps());
  job.BeginAgain();
  Replay(job, kNearlyTwice);
  EXPECT_FALSE(job.LearnedOfSteps());
  for (const Member& member : job.ReportedMembers()) {
    const StepTracker& steps = member.steps();
    EXPECT_EQ(steps.count(), 40u);
    EXPECT_EQ(steps.warmup_count(), 5u);
    EXPECT_EQ(steps.statistics().total_ns.count(), 35u);
    EXPECT_EQ(steps.statistics().total_ns.Summarize().max, kStepMs * kMs);
    EXPECT_TRUE(steps.steps()[4].warmup);
    EXPECT_FALSE(steps.steps()[5].warmup);
    EXPECT_EQ(steps.steady_runs().from_ns(), steps.steps()[5].start_ns);
    EXPECT_EQ(steps.work().steps(), 35u);
  }
}

TEST(JobModel, WhatRanksAgreeOnNeedsNoOtherReplay) {
  JobModel job;
  Replay(job, {{.slow = 3, .slow_ms = 40}, {.slow = 3, .slow_ms = 50}});
  EXPECT_FALSE(job.LearnedOfSteps());
}

TEST(JobModel, AWarmupThatWouldLeaveFewStepsOfARankIsNotTheJobs) {
  JobModel job;
  Replay(job, {{.slow = 12, .slow_ms = 40}, {.steps = 20}});
  EXPECT_FALSE(job.LearnedOfSteps());
}

TEST(JobModel, OneStepOfALongRunIsNotWorthAnotherReplay) {
  JobModel job;
  Replay(job, {{.steps = 150, .slow = 1, .slow_ms = 40}, {.steps = 150}});
  EXPECT_FALSE(job.LearnedOfSteps());
}

}  // namespace
}  // namespace gpuprobe::model
