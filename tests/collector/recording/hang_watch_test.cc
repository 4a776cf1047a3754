// The watch as `run` and `collect` use it, with the limit that they have when nobody sets one, in a time of
// its own.
#include "collector/recording/hang_watch.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "collector/analysis/hangs/hang_verdicts.h"
#include "collector/recording/options.h"
#include "tests/collector/analysis/hangs_fixture.h"

namespace gpuprobe::recording {
namespace {

using testing::BatchBuilder;
using testing::kMs;
using testing::kSecond;
using testing::kStart;

constexpr uint64_t kDefaultNs = 60 * kSecond;

class HangWatchTest : public analysis::HangsFixture {
 protected:
  static constexpr int kRanks = 4;
  static constexpr int kOdd = 2;

  HangWatchTest() : HangsFixture(kRanks) { EXPECT_EQ(HangOptions().after_ns(), kDefaultNs); }
  // All issue the first call, and all but the odd one the second, at 1 s.
  void Begin() {
    for (int rank = 0; rank < kRanks; ++rank) {
      BatchBuilder b = HangsFixture::Begin(rank);
      Call(rank, b, 0, 100 * kMs, true);
      if (rank != kOdd) Call(rank, b, 1, kSecond, false);
      Send(rank, b, kSecond + 500 * kMs);
    }
  }
  // Every rank reports every half second, and the watch looks as often as the recorder's loop lets it.
  // Returns when a hang was first reported, 0: never.
  template <typename OddRank>
  uint64_t Watch(uint64_t until_ns, OddRank odd_rank) {
    uint64_t said_ns = 0;
    for (uint64_t at_ns = 2 * kSecond; at_ns <= until_ns; at_ns += 500 * kMs) {
      for (int rank = 0; rank < kRanks; ++rank) {
        BatchBuilder b = HangsFixture::Begin(rank);
        v1::Batch batch = b.Clock(kStart + at_ns, kSecond + at_ns).batch();
        if (rank == kOdd) odd_rank(at_ns, batch);
        EXPECT_TRUE(processes_[static_cast<size_t>(rank)]->Apply(batch).ok());
      }
      watch_.Tick(job_, kStart + at_ns, at_ns);
      if (said_ns == 0 && !said_.empty()) said_ns = at_ns;
    }
    return said_ns;
  }

  std::string said_;
  std::vector<v1::HangVerdict> written_;
  HangWatch watch_{HangOptions().after_ns(), [this](const std::string& text) { said_ += text; },
                   [this](const v1::HangVerdict& verdict) {
                     written_.push_back(verdict);
                     job_.ApplyVerdict(verdict);
                   }};
};

TEST_F(HangWatchTest, TheVerdictFallsWithinFiveSecondsOfTheDefaultLimit) {
  Begin();
  const uint64_t said_ns = Watch(70 * kSecond, [](uint64_t, v1::Batch&) {});
  EXPECT_GE(said_ns, kSecond + kDefaultNs);
  EXPECT_LE(said_ns, kSecond + kDefaultNs + 5 * kSecond);
  EXPECT_NE(said_.find("HANG  AllReduce seq 1"), std::string::npos) << said_;
  EXPECT_NE(said_.find("Rank 2 did not"), std::string::npos) << said_;
}

TEST_F(HangWatchTest, WhatWasToldStandsWhenTheJobIsKilledBeforeItsLastRecordsCome) {
  Begin();
  Watch(58 * kSecond, [](uint64_t, v1::Batch&) {});
  // From here on only the odd rank reports.
  for (uint64_t at_ns = 59 * kSecond; at_ns <= 63 * kSecond; at_ns += kSecond) {
    BatchBuilder b = HangsFixture::Begin(kOdd);
    Send(kOdd, b, at_ns);
    watch_.Tick(job_, kStart + at_ns, at_ns);
  }
  ASSERT_EQ(written_.size(), 1U) << said_;
  for (model::ProcessModel* process : processes_) process->MarkCutOff();
  watch_.Tick(job_, kStart + 64 * kSecond, 64 * kSecond);
  EXPECT_EQ(said_.find("HANG over"), std::string::npos) << said_;
  job_.Finish();
  std::vector<analysis::Hang> hangs = analysis::HangsOf(job_, analysis::JobEndNs(job_), kDefaultNs);
  EXPECT_TRUE(hangs.empty());  // what is left of the records is too short
  EXPECT_TRUE(analysis::TakeVerdicts(job_, hangs).empty());
  ASSERT_EQ(hangs.size(), 1U);
  EXPECT_EQ(hangs[0].seq, 1U);
  EXPECT_GE(hangs[0].waiting_ns, kDefaultNs);
  ASSERT_EQ(hangs[0].ranks.size(), 1U);
  EXPECT_EQ(hangs[0].ranks[0].rank, kOdd);
  EXPECT_EQ(hangs[0].waiting.size(), 3U);
}

TEST_F(HangWatchTest, WhatWasToldAndIsFoundAtTheEndStandsOnce) {
  Begin();
  Watch(65 * kSecond, [](uint64_t, v1::Batch&) {});
  ASSERT_EQ(written_.size(), 1U);
  model::JobModel again;
  ASSERT_TRUE(again.LoadState(job_.SaveState()).ok());
  again.Finish();
  std::vector<analysis::Hang> hangs = analysis::HangsOf(again, analysis::JobEndNs(again), kDefaultNs);
  ASSERT_EQ(hangs.size(), 1U);
  EXPECT_TRUE(analysis::TakeVerdicts(again, hangs).empty());
  EXPECT_EQ(hangs.size(), 1U);
  EXPECT_EQ(again.verdicts().all().size(), 1U);
}

TEST_F(HangWatchTest, WhatWentOnAfterAllIsToldWithItsTimes) {
  Begin();
  Watch(65 * kSecond, [](uint64_t, v1::Batch&) {});
  for (int rank = 0; rank < kRanks; ++rank) {
    BatchBuilder b = HangsFixture::Begin(rank);
    if (rank == kOdd) Call(rank, b, 1, 66 * kSecond, true);
    Call(rank, b, 2, 66 * kSecond + 10 * kMs, true);
    Send(rank, b, 67 * kSecond);
  }
  watch_.Tick(job_, kStart + 67 * kSecond, 67 * kSecond);
  EXPECT_NE(said_.find("HANG over"), std::string::npos) << said_;
  ASSERT_EQ(written_.size(), 2U);
  job_.Finish();
  std::vector<analysis::Hang> hangs = analysis::HangsOf(job_, analysis::JobEndNs(job_), kDefaultNs);
  const std::vector<analysis::PastHang> past = analysis::TakeVerdicts(job_, hangs);
  EXPECT_TRUE(hangs.empty());
  ASSERT_EQ(past.size(), 1U);
  EXPECT_EQ(past[0].since_ns, kStart + kSecond);
  EXPECT_EQ(past[0].until_ns, kStart + 67 * kSecond);
}

// A host's collector knows its own ranks; who reads all hosts' logs knows better.
TEST_F(HangWatchTest, WhatWasToldOfFewerRanksGivesWayToWhatAllShow) {
  Begin();
  Watch(65 * kSecond, [](uint64_t, v1::Batch&) {});
  ASSERT_EQ(written_.size(), 1U);
  v1::HangVerdict of_one_host = written_[0];
  of_one_host.set_key("another");
  of_one_host.set_seq(7);
  of_one_host.set_since_ns(kStart);
  of_one_host.set_not_heard(2);
  job_.ApplyVerdict(of_one_host);
  job_.Finish();
  std::vector<analysis::Hang> hangs = analysis::HangsOf(job_, analysis::JobEndNs(job_), kDefaultNs);
  EXPECT_TRUE(analysis::TakeVerdicts(job_, hangs).empty());
  ASSERT_EQ(hangs.size(), 1U);
  EXPECT_EQ(hangs[0].seq, 1U);
  EXPECT_EQ(hangs[0].not_heard, 0);
}

// If the collector died before it could say that the job went on, the records show it.
TEST_F(HangWatchTest, WhatWentOnAfterItsCollectorDiedIsOver) {
  Begin();
  Watch(65 * kSecond, [](uint64_t, v1::Batch&) {});
  for (int rank = 0; rank < kRanks; ++rank) {
    BatchBuilder b = HangsFixture::Begin(rank);
    if (rank == kOdd) Call(rank, b, 1, 66 * kSecond, true);
    Call(rank, b, 2, 66 * kSecond + 10 * kMs, true);
    Send(rank, b, 67 * kSecond);
  }
  job_.Finish();
  std::vector<analysis::Hang> hangs = analysis::HangsOf(job_, analysis::JobEndNs(job_), kDefaultNs);
  EXPECT_EQ(analysis::TakeVerdicts(job_, hangs).size(), 1U);
  EXPECT_TRUE(hangs.empty());
}

TEST_F(HangWatchTest, EverythingOfAVerdictIsReadBack) {
  Begin();
  Watch(65 * kSecond, [](uint64_t, v1::Batch&) {});
  ASSERT_EQ(written_.size(), 1U);
  v1::HangVerdict full = written_[0];
  full.mutable_transfer()->set_rank(3);
  full.mutable_transfer()->set_peer(-1);
  full.mutable_transfer()->set_counterpart("Send");
  full.mutable_replay()->set_number(7);
  v1::HangRank& rank = *full.mutable_ranks(0);
  rank.set_graph_launches(2);
  rank.mutable_halt()->set_signal(19);
  rank.mutable_halt()->set_exit_code(-1);
  rank.mutable_load()->set_cpus(0.5);
  full.set_key(analysis::HangKey(analysis::HangOf(full)));
  const v1::HangVerdict again = analysis::VerdictOf(analysis::HangOf(full), full.seen_ns(), full.until_ns());
  EXPECT_EQ(again.SerializeAsString(), full.SerializeAsString());
}

TEST_F(HangWatchTest, AllIssuedIsSaidWithinFiveSecondsOfTheDefaultLimit) {
  for (int rank = 0; rank < kRanks; ++rank) {
    BatchBuilder b = HangsFixture::Begin(rank);
    Call(rank, b, 0, kSecond, false);
    Send(rank, b, kSecond + 500 * kMs);
  }
  const uint64_t said_ns = Watch(70 * kSecond, [](uint64_t, v1::Batch&) {});
  EXPECT_GE(said_ns, kSecond + kDefaultNs);
  EXPECT_LE(said_ns, kSecond + kDefaultNs + 5 * kSecond);
}

TEST_F(HangWatchTest, AClockThatIsSetForwardIsNoHang) {
  Begin();
  watch_.Tick(job_, kStart + 2 * kSecond, 2 * kSecond);
  constexpr uint64_t kForward = 300 * kSecond;
  for (uint64_t at_ns = 3 * kSecond; at_ns < 50 * kSecond; at_ns += kSecond) {
    for (int rank = 0; rank < kRanks; ++rank) {
      BatchBuilder b = HangsFixture::Begin(rank);
      b.Clock(kStart + at_ns + kForward, kSecond + at_ns);
      ASSERT_TRUE(processes_[static_cast<size_t>(rank)]->Apply(b.batch()).ok());
    }
    watch_.Tick(job_, kStart + at_ns + kForward, at_ns);
  }
  EXPECT_EQ(said_, "");
}

TEST_F(HangWatchTest, AKernelThatRunsForFiftySecondsIsNoHang) {
  Begin();
  // The odd rank waits for its kernel, which is not reported until it ends; then it goes on.
  const uint64_t correlation = ++correlation_[kOdd];
  EXPECT_EQ(Watch(70 * kSecond,
                  [&](uint64_t at_ns, v1::Batch& batch) {
                    BatchBuilder own(batch.sequence(), kStart);
                    if (at_ns == 2 * kSecond) own.Launch(1, kStart + 2 * kSecond, correlation);
                    if (at_ns == 52 * kSecond)
                      own.Kernel(kStart + 2 * kSecond + kMs, kStart + 52 * kSecond - kMs, 2, correlation);
                    const v1::ClockPair clock = batch.clock();
                    batch = own.batch();
                    *batch.mutable_clock() = clock;
                  }),
            0)
      << said_;
}

TEST_F(HangWatchTest, ACheckpointOfFiftySecondsIsNoHang) {
  Begin();
  uint64_t written = 0;
  EXPECT_EQ(Watch(70 * kSecond,
                  [&](uint64_t at_ns, v1::Batch& batch) {
                    if (at_ns <= 51 * kSecond) written += 64 << 20;
                    batch.mutable_host_state()->set_io_bytes(written);
                  }),
            0)
      << said_;
}

TEST_F(HangWatchTest, ADeathIsSaidOnceAndOnlyWhileOthersGoOn) {
  const auto end = [this](int rank, uint32_t signal, uint32_t code) {
    v1::ProcessObservation seen;
    seen.mutable_clock()->set_realtime_ns(kStart + 2 * kSecond);
    seen.mutable_end()->set_known(true);
    seen.mutable_end()->set_signal(signal);
    seen.mutable_end()->set_exit_code(code);
    processes_[static_cast<size_t>(rank)]->ApplyObservation(seen);
    processes_[static_cast<size_t>(rank)]->MarkCutOff();
  };
  Begin();
  end(1, 0, 0);
  end(kOdd, 9, 0);
  watch_.Tick(job_, kStart + 2 * kSecond, 2 * kSecond);
  EXPECT_EQ(said_, "");  // the others may be ended with it
  watch_.Tick(job_, kStart + 4 * kSecond, 4 * kSecond);
  EXPECT_EQ(said_, "DEAD  Rank 2 was killed by SIGKILL at 22:13:22 UTC; 2 other processes keep running.\n");
  watch_.Tick(job_, kStart + 6 * kSecond, 6 * kSecond);
  EXPECT_EQ(said_.size(), said_.find('\n') + 1);
  said_.clear();
  end(0, 15, 0);
  end(3, 15, 0);
  watch_.Tick(job_, kStart + 9 * kSecond, 9 * kSecond);
  EXPECT_EQ(said_, "");
}

// Ranks that train, and then launch nothing more.
class WorklessWatchTest : public HangWatchTest {
 protected:
  // One look; the hosts are idle, and in this system call.
  void LookAt(uint64_t at_ns, const std::string& waits_for) {
    Heartbeat(at_ns);
    for (int rank = 0; rank < kRanks; ++rank) Observe(rank, at_ns, 0.01, waits_for);
    watch_.Tick(job_, kStart + at_ns, at_ns);
  }
};

TEST_F(WorklessWatchTest, HostsThatAreIdleAreToldOfWhenTheyAreSeenSoTwice) {
  Train();
  LookAt(3 * kSecond, "futex");
  LookAt(64 * kSecond, "futex");
  EXPECT_EQ(said_, "");
  LookAt(66 * kSecond, "futex");
  EXPECT_NE(said_.find("HANG  No rank has given its GPU work"), std::string::npos) << said_;
}

TEST_F(WorklessWatchTest, HostsThatHaveJustComeOutOfAWaitForAChildAreNot) {
  Train();
  for (uint64_t at_ns = 3 * kSecond; at_ns < 100 * kSecond; at_ns += 2 * kSecond)
    LookAt(at_ns, at_ns / kSecond == 71 ? "futex" : "wait4");
  EXPECT_EQ(said_, "");
}

}  // namespace
}  // namespace gpuprobe::recording
