// When ranks at level calls are recorded in full, and when not, in a time of its own.
#include "collector/recording/detail_watch.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/collector/testing/batch_builder.h"

namespace gpuprobe::recording {
namespace {

using testing::BatchBuilder;
using testing::kMs;
using testing::kSecond;
using testing::kStart;

class DetailWatchTest : public ::testing::Test {
 protected:
  static constexpr int kRanks = 6;

  DetailWatchTest() {
    for (int rank = 0; rank < kRanks; ++rank) {
      v1::Hello hello;
      hello.set_protocol_major(1);
      hello.set_level(v1::RECORDING_LEVEL_CALLS);
      hello.mutable_identity()->set_rank(rank);
      hello.mutable_identity()->set_world_size(kRanks);
      hello.mutable_identity()->set_rank_source(v1::RANK_SOURCE_TORCHRUN);
      hello.mutable_identity()->set_host("n1");
      hello.mutable_identity()->set_pid(static_cast<uint32_t>(100 + rank));
      processes_.push_back(&job_.Join(hello));
    }
  }

  // A second of 50 steps of 20 ms with one collective each, at which `late` (-1: none) comes last by
  // `late_ns`.
  void Second(int late, uint64_t late_ns, uint64_t step_ns = 20 * kMs) {
    for (int rank = 0; rank < kRanks; ++rank) {
      BatchBuilder b(++sequence_, kStart + now_ns_);
      if (now_ns_ == 0) b.Comm(1, 0xc0de, rank, kRanks);
      v1::Batch batch = b.batch();
      const uint64_t calls = kSecond / step_ns;
      for (uint64_t i = 0; i < calls; ++i) {
        v1::TracedCalls& traced = *batch.mutable_traced_calls();
        traced.add_issue_delta(static_cast<int64_t>(step_ns));
        traced.add_host_duration(0);
        traced.add_op(0);
        traced.add_comm(1);
        traced.add_seq_delta(i == 0 ? static_cast<int64_t>(number_) : 1);
        traced.add_bytes(0);
        v1::CallTimes& times = *batch.mutable_call_times();
        times.add_seen_delta(static_cast<int64_t>(step_ns));
        times.add_comm(1);
        times.add_number_delta(i == 0 ? static_cast<int64_t>(number_) : 1);
        times.add_gpu_ns(kMs / 10 + (rank == late ? 0 : late_ns));
        if (!has_marker_) continue;
        v1::TracedSteps& steps = *batch.mutable_traced_steps();
        steps.add_begin_delta(static_cast<int64_t>(step_ns));
        steps.add_index_delta(i == 0 ? static_cast<int64_t>(number_) : 1);
      }
      batch.set_sequence(++sequences_[static_cast<size_t>(rank)]);
      EXPECT_TRUE(processes_[static_cast<size_t>(rank)]->Apply(batch).ok());
    }
    number_ += kSecond / step_ns;
    now_ns_ += kSecond;
  }
  // So many seconds of it; what was decided.
  std::vector<DetailWatch::Decision> Watch(int seconds, int late, uint64_t late_ns, bool may_raise = true,
                                           uint64_t step_ns = 20 * kMs) {
    std::vector<DetailWatch::Decision> decisions;
    for (int i = 0; i < seconds; ++i) {
      Second(late, late_ns, step_ns);
      std::optional<DetailWatch::Decision> decision =
          watch_.Look(job_, may_raise, kSecond + now_ns_, kStart + now_ns_);
      if (decision.has_value()) decisions.push_back(*std::move(decision));
    }
    return decisions;
  }

  bool has_marker_ = true;
  model::JobModel job_;
  std::vector<model::ProcessModel*> processes_;
  std::vector<uint64_t> sequences_ = std::vector<uint64_t>(kRanks);
  uint64_t sequence_ = 0;
  uint64_t number_ = 0;
  uint64_t now_ns_ = 0;
  DetailWatch watch_;
};

TEST_F(DetailWatchTest, ALateRankItsNeighboursAndAHealthyOneAreCapturedOnce) {
  EXPECT_TRUE(Watch(20, -1, 0).empty());
  const std::vector<DetailWatch::Decision> decisions = Watch(300, 0, 4 * kMs);
  ASSERT_EQ(decisions.size(), 1U) << "it stays late";
  const v1::CaptureRequest& request = decisions[0].request;
  EXPECT_EQ(std::vector<uint32_t>(request.ranks().begin(), request.ranks().end()),
            (std::vector<uint32_t>{0, 1, 2, 5}));
  EXPECT_EQ(request.steps(), DetailWatch::kSteps);
  EXPECT_EQ(decisions[0].raise.rank(), 0);
  EXPECT_EQ(decisions[0].raise.reason(), "rank 0 was late at collectives for 20.0 % of 3.00 s");
}

TEST_F(DetailWatchTest, AHealthyJobIsNeverCaptured) {
  EXPECT_TRUE(Watch(600, 3, 20 * kMs / 25).empty()) << "4 % late: less than it is worth";
}

TEST_F(DetailWatchTest, ARankThatIsLateForASecondIsNot) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(Watch(1, 1, 10 * kMs).empty());
    EXPECT_TRUE(Watch(8, -1, 0).empty());
  }
}

TEST_F(DetailWatchTest, AroundTheLimitIsOneEvent) {
  size_t decisions = 0;
  for (int i = 0; i < 30; ++i) {
    decisions += Watch(9, 1, 20 * kMs / 12).size();  // 8 %
    decisions += Watch(9, 1, 20 * kMs / 25).size();  // 4 %: not on time again
  }
  EXPECT_EQ(decisions, 1U);
}

TEST_F(DetailWatchTest, OnTimeForAWhileAndLateAgainIsAnother) {
  EXPECT_EQ(Watch(60, 1, 4 * kMs).size(), 1U);
  EXPECT_EQ(Watch(30, -1, 0).size(), 0U);
  EXPECT_EQ(Watch(60, 1, 4 * kMs).size(), 1U);
}

TEST_F(DetailWatchTest, AtMostOneAMinuteAndSixAnHour) {
  size_t decisions = 0;
  uint64_t last_ns = 0;
  for (int i = 0; i < 50; ++i) {  // 50 minutes, a new late rank every 30 s
    for (int second = 0; second < 60; ++second) {
      if (Watch(1, second / 30 + 2 * (i % 3), 4 * kMs).empty()) continue;
      EXPECT_TRUE(last_ns == 0 || now_ns_ - last_ns >= DetailWatch::kApartNs);
      last_ns = now_ns_;
      ++decisions;
    }
    if (i % 3 == 2) {
      EXPECT_TRUE(Watch(10, -1, 0).empty());
    }
  }
  EXPECT_EQ(decisions, DetailWatch::kMostInHour);
}

TEST_F(DetailWatchTest, NothingIsDecidedWhileItMayNot) {
  EXPECT_TRUE(Watch(60, 1, 4 * kMs, /*may_raise=*/false).empty());
}

TEST_F(DetailWatchTest, NothingIsDecidedWhileNoCollectiveEnds) {
  Watch(5, 1, 4 * kMs);
  for (int i = 0; i < 20; ++i) {
    now_ns_ += kSecond;
    EXPECT_FALSE(watch_.Look(job_, true, kSecond + now_ns_, kStart + now_ns_).has_value());
  }
}

TEST_F(DetailWatchTest, StepsThatBecomeLongerAreCapturedOnAllRanksOnce) {
  EXPECT_TRUE(Watch(60, -1, 0).empty());
  const std::vector<DetailWatch::Decision> decisions = Watch(200, -1, 0, true, 40 * kMs);
  ASSERT_EQ(decisions.size(), 1U);
  EXPECT_EQ(decisions[0].request.ranks_size(), 0);
  EXPECT_EQ(decisions[0].raise.rank(), -1);
  EXPECT_EQ(decisions[0].raise.reason(), "steps took 40.0 ms, usually 20.0 ms");
}

TEST_F(DetailWatchTest, WithoutAMarkerTheTimeBetweenCollectivesTellsThatStepsBecameLonger) {
  has_marker_ = false;
  EXPECT_TRUE(Watch(60, -1, 0).empty());
  const std::vector<DetailWatch::Decision> decisions = Watch(200, -1, 0, true, 40 * kMs);
  ASSERT_EQ(decisions.size(), 1U);
  EXPECT_EQ(decisions[0].request.ranks_size(), 0);
  EXPECT_EQ(decisions[0].raise.reason(), "collectives came every 40.0 ms, usually every 20.0 ms");
}

TEST_F(DetailWatchTest, WhereALookEndsInAStepTellsNothing) {
  has_marker_ = false;
  // Steps of 7 s: 100 collectives in 2 s, and 5 s without any.
  for (int step = 0; step < 100; ++step) {
    EXPECT_TRUE(Watch(2, -1, 0).empty());
    for (int i = 0; i < 5; ++i) {
      now_ns_ += kSecond;
      EXPECT_FALSE(watch_.Look(job_, true, kSecond + now_ns_, kStart + now_ns_).has_value());
    }
  }
}

TEST_F(DetailWatchTest, FewCollectivesAreLookedAtTogether) {
  const std::vector<DetailWatch::Decision> decisions = Watch(40, 2, 100 * kMs, true, kSecond / 5);
  ASSERT_EQ(decisions.size(), 1U);
  EXPECT_EQ(decisions[0].raise.rank(), 2);
  EXPECT_EQ(decisions[0].raise.reason(), "rank 2 was late at collectives for 50.0 % of 6.00 s");
}

}  // namespace
}  // namespace gpuprobe::recording
