// What people see while a job runs: what a rank's host is in, from its newest sample, unless it has launched
// since; and who is late in its steps.
#include "collector/analysis/live_status.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "collector/model/job/job_model.h"
#include "tests/collector/testing/batch_builder.h"

namespace gpuprobe::analysis {
namespace {

using testing::BatchBuilder;
using testing::MakeHello;

class LiveHost : public ::testing::Test {
 protected:
  LiveHost() {
    BatchBuilder first = Next();
    first.Thread(1, true)
        .String(10, "/data/shard-7")
        .String(11, "load")
        .String(12, "train.py")
        .Launch(1, testing::kStart + 100 * testing::kMs, 1);
    v1::Batch batch = first.batch();
    v1::HostFrame& frame = *batch.add_host_frames();
    frame.set_id(1);
    frame.set_function(11);
    frame.set_file(12);
    frame.set_line(88);
    Apply(batch);
  }

  BatchBuilder Next() { return BatchBuilder(++sequence_); }
  void Apply(const v1::Batch& batch) { ASSERT_TRUE(process_->Apply(batch).ok()); }
  void LaunchAt(uint64_t time_ns) { Apply(Next().Launch(1, time_ns, ++correlation_).batch()); }
  void SampleAt(uint64_t time_ns, bool in_gap) {
    v1::Batch batch = Next().batch();
    v1::HostSamples& rows = *batch.mutable_host_samples();
    rows.add_time_delta(static_cast<int64_t>(time_ns - batch.base_ns()));
    rows.add_stands_for(10 * testing::kMs);
    rows.add_thread(1);
    if (in_gap) rows.add_in_gap(1);
    rows.add_state(v1::THREAD_STATE_SLEEPING);
    rows.add_system_call(SYS_read + 1);
    rows.add_file(10);
    rows.add_frame(1);
    rows.add_stack(v1::STACK_STATE_WHOLE);
    Apply(batch);
  }
  LiveRank Look(uint64_t now_ns) { return LiveWatch().Look(job_, now_ns).ranks.at(0); }

  model::JobModel job_;
  model::ProcessModel* process_ = &job_.Join(MakeHello(0, 1));
  uint64_t sequence_ = 0;
  uint64_t correlation_ = 1;
};

TEST_F(LiveHost, IsWhereTheNewestSampleOfTheSilenceFoundIt) {
  SampleAt(testing::kStart + 900 * testing::kMs, true);
  const LiveRank r = Look(testing::kStart + 1100 * testing::kMs);
  EXPECT_EQ(r.host_in, "read of /data/shard-7, called from load (train.py:88)");
  EXPECT_EQ(r.host_in_ago_ns, 200 * testing::kMs);
  EXPECT_EQ(r.silent_ns, 800 * testing::kMs) << "until it was last heard";
}

TEST_F(LiveHost, IsNotSaidOnceItHasLaunchedAgain) {
  SampleAt(testing::kStart + 900 * testing::kMs, true);
  LaunchAt(testing::kStart + 950 * testing::kMs);
  const LiveRank r = Look(testing::kStart + 1100 * testing::kMs);
  EXPECT_EQ(r.host_in, "");
  EXPECT_EQ(r.silent_ns + r.host_in_ago_ns, 0U);
}

TEST_F(LiveHost, IsNotSaidFromASampleBetweenLaunches) {
  SampleAt(testing::kStart + 900 * testing::kMs, false);
  EXPECT_EQ(Look(testing::kStart + 1100 * testing::kMs).host_in, "");
}

TEST_F(LiveHost, IsNotSaidWithoutSamples) {
  EXPECT_EQ(Look(testing::kStart + 1100 * testing::kMs).host_in, "");
}

// Two ranks, a batch a step: each computes, meets the other, and updates.
class LiveWaiting : public ::testing::Test {
 protected:
  static constexpr uint64_t kStepNs = 40 * testing::kMs;

  void Step(uint64_t compute0_ns, uint64_t compute1_ns) {
    const uint64_t begin_ns = testing::kStart + ++steps_ * kStepNs;
    const uint64_t met_ns = begin_ns + std::max(compute0_ns, compute1_ns) + testing::kMs;
    for (const int rank : {0, 1}) {
      BatchBuilder b(steps_);
      if (steps_ == 1) {
        b.String(1, "gemm").String(2, "FusedAdam").String(3, "ncclDevKernel_AllReduce_Sum_f32");
        b.String(4, "AllReduce")
            .String(5, "step")
            .Thread(1, true)
            .Site(1, 1)
            .Site(2, 2)
            .Site(3, 3)
            .Comm(1, 0xabc, rank, 2);
      }
      const uint64_t ready_ns = begin_ns + (rank == 0 ? compute0_ns : compute1_ns);
      const uint64_t first = 3 * steps_;
      for (uint64_t i = 0; i < 3; ++i) b.Launch(1, begin_ns - testing::kMs + i, first + i, steps_);
      b.Range(steps_, 0, 5, 1, begin_ns - 2 * testing::kMs, begin_ns);
      b.Collective(4, 1, steps_ - 1, 1 << 18, 4, steps_, begin_ns).Plan(steps_, first + 1);
      b.Kernel(begin_ns, ready_ns, 1, first);
      b.Kernel(ready_ns, met_ns, 3, first + 1);
      b.Kernel(met_ns, met_ns + testing::kMs, 2, first + 2);
      if (rank == 1 && is_second_unread_) {
        unread_.push_back(b.batch());
      } else {
        ASSERT_TRUE(job_.Join(MakeHello(rank, 2)).Apply(b.batch()).ok());
      }
    }
  }
  void ReadSecond() {
    for (const v1::Batch& batch : unread_) ASSERT_TRUE(job_.Join(MakeHello(1, 2)).Apply(batch).ok());
  }
  LiveStatus Look() { return watch_.Look(job_, testing::kStart + (steps_ + 1) * kStepNs); }

  model::JobModel job_;
  LiveWatch watch_;
  uint64_t steps_ = 0;
  bool is_second_unread_ = false;
  std::vector<v1::Batch> unread_;
};

TEST_F(LiveWaiting, NamesWhoIsLateInItsSteps) {
  for (int i = 0; i < 10; ++i) Step(8 * testing::kMs, 12 * testing::kMs);
  const LiveStatus status = Look();
  ASSERT_EQ(status.ranks.size(), 2U);
  EXPECT_EQ(status.slowest, 1U);
  EXPECT_NEAR(status.ranks[1].late_ns, 4 * testing::kMs, 0.4 * testing::kMs);
  EXPECT_NEAR(status.ranks[0].waited_ns, 4 * testing::kMs, 0.4 * testing::kMs);
}

// As `gpuprobe top` reads logs: rank 0's first steps are forgotten when its calls are compared.
TEST_F(LiveWaiting, NamesWhoIsLateIfTheRanksAreReadOneAfterAnother) {
  is_second_unread_ = true;
  constexpr int kMoreThanAreKept = 3000;
  for (int i = 0; i < kMoreThanAreKept; ++i) Step(8 * testing::kMs, 12 * testing::kMs);
  ASSERT_GT(job_.processes().front()->steps().steps().front().index, 0U);
  ReadSecond();
  const LiveStatus status = Look();
  EXPECT_EQ(status.slowest, 1U);
  EXPECT_NEAR(status.ranks[1].late_ns, 4 * testing::kMs, 0.4 * testing::kMs);
  EXPECT_NEAR(status.ranks[0].waited_ns, 4 * testing::kMs, 0.4 * testing::kMs);
}

// However late somebody looks first.
TEST_F(LiveWaiting, DoesNotCountTheStart) {
  Step(38 * testing::kMs, 8 * testing::kMs);
  Look();
  for (int i = 0; i < 5; ++i) Step(8 * testing::kMs, 8 * testing::kMs);
  EXPECT_EQ(Look().slowest, std::nullopt);
  EXPECT_EQ(LiveWatch().Look(job_, testing::kStart + 7 * kStepNs).slowest, std::nullopt);
  for (int i = 0; i < 5; ++i) Step(8 * testing::kMs, 20 * testing::kMs);
  EXPECT_EQ(Look().slowest, 1U);
}

}  // namespace
}  // namespace gpuprobe::analysis
