// Ranks that cannot run, as the kernel says: when a hang is put down to them, and when not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <vector>

#include "collector/analysis/finding_rules.h"
#include "collector/analysis/hangs/hang.h"
#include "collector/analysis/hangs/process_state.h"
#include "collector/report/report.h"
#include "tests/collector/analysis/hangs_fixture.h"

namespace gpuprobe::analysis {
namespace {

using gpuprobe::testing::BatchBuilder;
using gpuprobe::testing::kMs;
using gpuprobe::testing::kSecond;
using gpuprobe::testing::kStart;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class HaltedRanksTest : public HangsFixture {
 protected:
  static constexpr int kRanks = 4;
  static constexpr int kOdd = 2;

  HaltedRanksTest() : HangsFixture(kRanks) {}
  // All issue call 0, which ends; all but the odd one, which launches something else, wait in call 1.
  void OddOneDoesNotIssue() {
    for (int rank = 0; rank < kRanks; ++rank) {
      BatchBuilder b = Begin(rank);
      Call(rank, b, 0, 100 * kMs, true);
      if (rank != kOdd) Call(rank, b, 1, kSecond, false);
      if (rank == kOdd) b.Launch(1, kStart + kSecond, ++correlation_[rank]);
      Send(rank, b, kSecond + kMs);
    }
  }
  void Others(uint64_t at_ns) {
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == kOdd) continue;
      BatchBuilder b = Begin(rank);
      Send(rank, b, at_ns);
    }
  }
  void See(uint64_t at_ns, char state, const v1::ProcessObservation& more = {}) {
    v1::ProcessObservation seen = more;
    seen.mutable_clock()->set_realtime_ns(kStart + at_ns);
    seen.set_state(static_cast<uint8_t>(state));
    seen.set_interval_ns(kSecond);
    processes_[kOdd]->ApplyObservation(seen);
  }
  // Once a second, from and to.
  void See(uint64_t from_s, uint64_t to_s, char state, const v1::ProcessObservation& more = {}) {
    for (uint64_t at_s = from_s; at_s <= to_s; ++at_s) See(at_s * kSecond, state, more);
  }
  void ExpectBlamed(const std::vector<Hang>& hangs, const char* words) {
    ASSERT_THAT(hangs, SizeIs(1));
    EXPECT_EQ(hangs[0].kind, Hang::Kind::kMissingRank);
    ASSERT_THAT(hangs[0].ranks, SizeIs(1));
    EXPECT_EQ(hangs[0].ranks[0].rank, kOdd);
    EXPECT_EQ(hangs[0].ranks[0].state, HangRank::State::kHalted);
    EXPECT_EQ(hangs[0].issued, kRanks - 1);
    EXPECT_THAT(HangStatement(hangs[0]), HasSubstr(words));
  }
};

TEST_F(HaltedRanksTest, AStoppedRankIsToBlameAtTheLimitWhateverItLaunchedLast) {
  OddOneDoesNotIssue();
  v1::ProcessObservation stopped;
  stopped.set_stop_signal(SIGSTOP);
  See(2, 63, 'T', stopped);
  Others(62 * kSecond - kMs);
  EXPECT_THAT(At(62 * kSecond - kMs), IsEmpty());
  Others(63 * kSecond);
  ExpectBlamed(At(63 * kSecond), "Rank 2 has been stopped (SIGSTOP) since 22:13:22 UTC; AllReduce seq 1 on");
  EXPECT_THAT(HangAdvice(At(63 * kSecond)[0]), HasSubstr("kill -CONT"));
}

TEST_F(HaltedRanksTest, WhatItIssuedLastNeedNotHaveBeenHeard) {
  for (int rank = 0; rank < kRanks; ++rank) {
    BatchBuilder b = Begin(rank);
    Call(rank, b, 0, 100 * kMs, true);
    if (rank != kOdd) {
      Call(rank, b, 1, 200 * kMs, true);  // so all issued it
      Call(rank, b, 2, kSecond, false);
    }
    Send(rank, b, kSecond + kMs);
  }
  See(1, 70, 'T');
  Others(70 * kSecond);
  const std::vector<Hang> hangs = At(70 * kSecond);
  ExpectBlamed(hangs, "Rank 2 has been stopped (by a signal)");
  EXPECT_EQ(hangs[0].seq, 2u);
}

TEST_F(HaltedRanksTest, ItMayHaveIssuedTheCall) {
  for (int rank = 0; rank < kRanks; ++rank) {
    BatchBuilder b = Begin(rank);
    b.Launch(1, kStart + 500 * kMs, ++correlation_[rank]);  // whose records are held back
    Call(rank, b, 0, kSecond, false);
    Send(rank, b, kSecond + kMs);
  }
  See(2, 70, 'T');
  Others(70 * kSecond);
  ExpectBlamed(At(70 * kSecond), "Rank 2 has been stopped");
}

// When a call ends is not known at this level.
TEST_F(HaltedRanksTest, AtLevelCallsACallThatAllIssuedMayWaitForTheStoppedOne) {
  const auto all_issue = [&](uint64_t seq, uint64_t at_ns) {
    for (int rank = 0; rank < kRanks; ++rank) {
      BatchBuilder b = Begin(rank);
      b.TracedCall(kAllReduce, kWorld, seq, 4096, kStart + at_ns);
      Send(rank, b, at_ns + kMs);
    }
  };
  all_issue(0, kSecond);
  all_issue(1, 2 * kSecond);
  Others(100 * kSecond);
  EXPECT_THAT(At(100 * kSecond), IsEmpty()) << "nobody is stopped: the job may pause";
  See(101, 140, 'T');
  Others(140 * kSecond);
  EXPECT_THAT(At(140 * kSecond), IsEmpty()) << "not for so long";
  See(141, 170, 'T');
  Others(170 * kSecond);
  const std::vector<Hang> hangs = At(170 * kSecond);
  ExpectBlamed(hangs, "Rank 2 has been stopped");
  EXPECT_EQ(hangs[0].seq, 1u);
  See(171, 172, 'S');
  all_issue(2, 172 * kSecond);
  EXPECT_THAT(At(172 * kSecond), IsEmpty());
}

TEST_F(HaltedRanksTest, AtLevelCallsOthersMayHaveGoneOn) {
  constexpr uint32_t kPair = 2;
  for (int rank = 0; rank < kRanks; ++rank) {
    BatchBuilder b = Begin(rank);
    if (rank < 2) b.Comm(kPair, 0x77, rank, 2);
    b.TracedCall(kAllReduce, kWorld, 0, 4096, kStart + kSecond);
    if (rank < 2) b.TracedCall(kAllReduce, kPair, 0, 64, kStart + 2 * kSecond);
    if (rank == 3) b.TracedCall(kAllReduce, kWorld, 1, 4096, kStart + 2 * kSecond);
    Send(rank, b, 3 * kSecond);
  }
  See(4, 100, 'T');
  Others(100 * kSecond);
  const std::vector<Hang> hangs = At(100 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(hangs[0].seq, 1u) << "rank 3 waits in this one";
  ASSERT_THAT(hangs[0].ranks, SizeIs(1));
  EXPECT_EQ(hangs[0].ranks[0].rank, kOdd);
}

TEST_F(HaltedRanksTest, WhatWasStoppedAndThenKilledIsToBlameSinceItWasStopped) {
  OddOneDoesNotIssue();
  See(2, 70, 'T');
  v1::ProcessObservation killed;
  killed.mutable_end()->set_known(true);
  killed.mutable_end()->set_signal(SIGKILL);
  See(71, 71, 0, killed);
  processes_[kOdd]->MarkCutOff();
  Others(76 * kSecond);
  ExpectBlamed(At(76 * kSecond), "Rank 2 was killed by SIGKILL at 22:14:31 UTC");
}

TEST_F(HaltedRanksTest, AFrozenATracedAndADeadRankAreToBlame) {
  OddOneDoesNotIssue();
  v1::ProcessObservation more;
  more.set_frozen(true);
  See(2, 70, 'S', more);
  Others(70 * kSecond);
  ExpectBlamed(At(70 * kSecond), "Rank 2 has been frozen by its cgroup since");
  more.Clear();
  more.set_tracer("gdb");
  See(71, 140, 't', more);
  Others(140 * kSecond);
  ExpectBlamed(At(140 * kSecond), "Rank 2 has been stopped by a debugger (gdb) since");
  more.Clear();
  more.mutable_end()->set_known(true);
  more.mutable_end()->set_signal(SIGKILL);
  See(141, 141, 0, more);
  processes_[kOdd]->MarkCutOff();
  Others(210 * kSecond);
  ExpectBlamed(At(210 * kSecond), "Rank 2 was killed by SIGKILL at 22:15:41 UTC");
}

TEST_F(HaltedRanksTest, AStoppedRankThatNobodyWaitsForIsNoHang) {
  for (int rank = 0; rank < kRanks; ++rank) {
    BatchBuilder b = Begin(rank);
    Call(rank, b, 0, 100 * kMs, true);
    Send(rank, b, kSecond);
  }
  See(2, 300, 'T');
  Others(300 * kSecond);
  EXPECT_THAT(At(300 * kSecond), IsEmpty());
}

TEST_F(HaltedRanksTest, AShortStopIsNoHang) {
  OddOneDoesNotIssue();
  See(2, 10, 'T');
  See(11, 100, 'S');
  Heartbeat(100 * kSecond);
  EXPECT_THAT(At(100 * kSecond), IsEmpty());
}

TEST_F(HaltedRanksTest, ADebuggerThatLooksForAMomentIsNoHang) {
  OddOneDoesNotIssue();
  for (uint64_t at_s = 2; at_s <= 100; ++at_s) See(at_s * kSecond, at_s % 10 == 0 ? 't' : 'S');
  Others(100 * kSecond);
  EXPECT_THAT(At(100 * kSecond), IsEmpty());
}

TEST_F(HaltedRanksTest, UninterruptibleSleepAloneStopsNobody) {
  OddOneDoesNotIssue();
  See(2, 100, 'D');
  Heartbeat(100 * kSecond);
  EXPECT_THAT(At(100 * kSecond), IsEmpty());
}

TEST_F(HaltedRanksTest, ARankThatIsHeardAgainIsNotHalted) {
  OddOneDoesNotIssue();
  See(2, 99, 'T');
  Heartbeat(100 * kSecond);
  EXPECT_FALSE(HaltOf(*processes_[kOdd], kStart + 100 * kSecond).has_value());
  EXPECT_THAT(At(100 * kSecond), IsEmpty());
}

TEST_F(HaltedRanksTest, ARankThatGoesOnHasTheLimitAnewToCatchUp) {
  OddOneDoesNotIssue();
  See(2, 99, 'T');
  See(100, 170, 'S');
  BatchBuilder b = Begin(kOdd);  // what it launched before it was stopped is over
  b.Kernel(kStart + kSecond + kMs, kStart + kSecond + 2 * kMs, 2, correlation_[kOdd]);
  Send(kOdd, b, 100 * kSecond);
  Heartbeat(101 * kSecond);
  EXPECT_THAT(At(101 * kSecond), IsEmpty());
  Heartbeat(160 * kSecond);
  const std::vector<Hang> hangs = At(160 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(hangs[0].ranks[0].rank, kOdd);
  EXPECT_EQ(hangs[0].ranks[0].state, HangRank::State::kNotIssued);
}

TEST_F(HaltedRanksTest, OldObservationsSayNothing) {
  OddOneDoesNotIssue();
  See(2, 20, 'T');
  EXPECT_TRUE(HaltOf(*processes_[kOdd], kStart + 24 * kSecond).has_value());
  EXPECT_FALSE(HaltOf(*processes_[kOdd], kStart + 26 * kSecond).has_value());
}

TEST_F(HaltedRanksTest, WhatTheKernelSaysOfARankThatDoesNotIssueStandsInTheEvidence) {
  for (int rank = 0; rank < kRanks; ++rank) {
    BatchBuilder b = Begin(rank);
    Call(rank, b, 0, 100 * kMs, true);
    if (rank != kOdd) Call(rank, b, 1, kSecond, false);
    Send(rank, b, kSecond + kMs);
  }
  v1::ProcessObservation more;
  more.set_waits_for("read /data/pipe");
  See(2, 70, 'S', more);
  Heartbeat(70 * kSecond);
  std::vector<Hang> hangs = At(70 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(hangs[0].ranks[0].state, HangRank::State::kNotIssued);
  EXPECT_THAT(HangEvidence(hangs[0]),
              HasSubstr("its main thread is blocked in the system call read /data/pipe"));
  EXPECT_THAT(HangAdvice(hangs[0]), HasSubstr("read /data/pipe"));
  more.Clear();
  more.set_cpu_ns(kSecond);
  more.set_run_delay_ns(kSecond / 100 * 38);
  See(71, 200, 'R', more);
  Heartbeat(200 * kSecond);
  hangs = At(200 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_THAT(HangEvidence(hangs[0]), HasSubstr("it is busy on the host, using 1.0 CPUs"));
  EXPECT_THAT(HangEvidence(hangs[0]), HasSubstr("its threads wait for a CPU 38.0 % of the time"));
}

TEST_F(HaltedRanksTest, ASavedStateSaysTheSame) {
  OddOneDoesNotIssue();
  See(2, 70, 'T');
  Others(70 * kSecond);
  model::JobModel loaded;
  ASSERT_TRUE(loaded.LoadState(job_.SaveState()).ok());
  const std::vector<Hang> hangs = HangsOf(loaded, kStart + 70 * kSecond, kLimit);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(HangStatement(hangs[0]), HangStatement(At(70 * kSecond)[0]));
}

// --- Which death is the first finding ---------------------------------------------------------------------

Report Ended(const std::vector<Halt>& ends) {
  Report report;
  report.conditions.start_ns = kStart;
  for (size_t i = 0; i < ends.size(); ++i) {
    RankReport& rank = report.ranks.emplace_back();
    rank.rank = static_cast<int>(i);
    rank.label = std::to_string(i);
    rank.host = "n1";
    rank.pid = 100 + static_cast<uint32_t>(i);
    rank.end = ends[i];
    rank.cut_off = !ends[i].exit_code.has_value();
  }
  return report;
}
Halt Signalled(uint32_t signal, uint64_t at_ns) {
  return {.kind = Halt::Kind::kEnded, .since_ns = kStart + at_ns, .signal = signal};
}
Halt Exited(uint32_t code, uint64_t at_ns) {
  return {.kind = Halt::Kind::kEnded, .since_ns = kStart + at_ns, .exit_code = code};
}
Halt Unknown(uint64_t at_ns) { return {.kind = Halt::Kind::kEnded, .since_ns = kStart + at_ns}; }

std::string Died(const Report& report) {
  std::vector<Finding> out;
  RuleOf("rank-died").find(report, out);
  return out.empty() ? "" : out.front().statement;
}

TEST(RankDiedTest, TheOneThatWasKilledBeforeTheLauncherEndedTheOthers) {
  const Report report = Ended(
      {Signalled(SIGTERM, 5010 * kMs), Signalled(SIGKILL, 5 * kSecond), Signalled(SIGTERM, 5010 * kMs)});
  EXPECT_THAT(
      Died(report),
      HasSubstr("Rank 1 was killed by SIGKILL at 22:13:25 UTC, 5.00 s into the run, while 2 other ranks"));
}

TEST(RankDiedTest, ExitCodesCrashesAndOutOfMemory) {
  EXPECT_THAT(Died(Ended({Exited(3, kSecond), Signalled(SIGTERM, kSecond + kMs)})),
              HasSubstr("Rank 0 exited with code 3"));
  EXPECT_THAT(Died(Ended({Exited(0, 9 * kSecond), Signalled(SIGSEGV, kSecond)})),
              HasSubstr("Rank 1 crashed with SIGSEGV"));
  Halt killed = Signalled(SIGKILL, kSecond);
  killed.out_of_memory = true;
  EXPECT_THAT(Died(Ended({killed, Exited(0, 9 * kSecond)})), HasSubstr("ran out of memory"));
  EXPECT_THAT(Died(Ended({Unknown(kSecond), Exited(0, 9 * kSecond)})),
              HasSubstr("Rank 0 ended without notice"));
}

TEST(RankDiedTest, RanksThatAreStartedAgainDidNotOutliveIt) {
  Report report = Ended({Signalled(SIGTERM, kSecond + kMs), Exited(1, kSecond), Exited(0, 9 * kSecond),
                         Exited(0, 9 * kSecond)});
  for (size_t i = 2; i < 4; ++i) report.ranks[i].start_ns = kStart + 2 * kSecond;
  EXPECT_THAT(Died(report), HasSubstr("while 1 other rank was running"));
}

TEST(RankDiedTest, RanksThatAreEndedTogetherSayNothing) {
  EXPECT_EQ(Died(Ended({Signalled(SIGTERM, kSecond), Signalled(SIGTERM, kSecond + 300 * kMs)})), "");
  EXPECT_EQ(Died(Ended({Signalled(SIGINT, kSecond), Exited(130, kSecond + 300 * kMs)})), "");
  EXPECT_EQ(Died(Ended({Signalled(SIGINT, kSecond), Exited(1, kSecond + 100 * kMs)})), "");
  EXPECT_EQ(Died(Ended({Signalled(SIGKILL, kSecond), Signalled(SIGKILL, kSecond + kMs)})), "");
  EXPECT_EQ(Died(Ended({Exited(0, kSecond), Exited(0, 60 * kSecond)})), "");
  EXPECT_EQ(Died(Ended({Exited(1, kSecond), Exited(1, kSecond + kMs)})), "");
  EXPECT_EQ(Died(Ended({Unknown(kSecond), Unknown(kSecond + kMs)})), "");
  EXPECT_EQ(Died(Ended({Signalled(SIGKILL, kSecond)})), "");
}

TEST(RankDiedTest, WhatDiesAfterAHangIsNoCause) {
  Report report = Ended({Signalled(SIGABRT, 90 * kSecond), Signalled(SIGTERM, 91 * kSecond)});
  Hang& hang = report.hangs.emplace_back();
  hang.since_ns = kStart + 10 * kSecond;
  EXPECT_EQ(Died(report), "");
  // It did not issue the call, and died when the others had long waited for it.
  HangRank& rank = hang.ranks.emplace_back();
  rank.host = "n1";
  rank.pid = 100;
  rank.state = HangRank::State::kNotIssued;
  rank.halt = Signalled(SIGABRT, 90 * kSecond);
  EXPECT_EQ(Died(report), "");
  rank.state = HangRank::State::kHalted;
  EXPECT_NE(Died(report), "");
  hang.ranks.clear();
  hang.since_ns = kStart + 90 * kSecond;
  EXPECT_NE(Died(report), "");
}

}  // namespace
}  // namespace gpuprobe::analysis
