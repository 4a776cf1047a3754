// What a rank's host is in now: from its newest sample, unless it has launched since.
#include "collector/analysis/live_status.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>

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

}  // namespace
}  // namespace gpuprobe::analysis
