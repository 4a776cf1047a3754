// Which of several waits is the cause: circles, chains, a call too many, and a hang after a mismatch. The
// situations are those of public bug reports, each with a near miss.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include "collector/analysis/finding_rules.h"
#include "collector/analysis/hangs/hang.h"
#include "collector/analysis/hangs/hang_verdicts.h"
#include "collector/report/report.h"
#include "tests/collector/analysis/hangs_fixture.h"

namespace gpuprobe::analysis {
namespace {

using gpuprobe::testing::BatchBuilder;
using gpuprobe::testing::kMs;
using gpuprobe::testing::kSecond;
using gpuprobe::testing::kStart;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

enum : uint32_t { kRow = 2, kColumn };  // communicators, beside that of all ranks

class HangCausesTest : public HangsFixture {
 protected:
  static constexpr int kRanks = 4;

  HangCausesTest() : HangsFixture(kRanks) {}
  // Send and Recv in one kernel.
  void Exchange(int rank, BatchBuilder& b, int peer, uint64_t at_ns, bool ends) {
    const uint64_t plan = Launched(rank, b, at_ns, ends);
    for (const uint32_t op : {kSend, kRecv})
      b.Transfer(op, kWorld, seq_[{rank, kWorld}]++, peer, plan, kStart + at_ns);
    b.Plan(plan, plan);
  }
  // The communicators of a 2 x 2 mesh.
  void Mesh(int rank, BatchBuilder& b) {
    b.Comm(kRow, 0x2000 + static_cast<uint64_t>(rank / 2), rank % 2, 2);
    b.Comm(kColumn, 0x3000 + static_cast<uint64_t>(rank % 2), rank / 2, 2);
  }
  void Exit(int rank, uint64_t at_ns, uint32_t code = 0, uint32_t signal = 0) {
    v1::ProcessObservation seen;
    seen.mutable_clock()->set_realtime_ns(kStart + at_ns);
    seen.mutable_end()->set_known(true);
    seen.mutable_end()->set_exit_code(code);
    seen.mutable_end()->set_signal(signal);
    processes_[static_cast<size_t>(rank)]->ApplyObservation(seen);
    processes_[static_cast<size_t>(rank)]->MarkCutOff();
  }
  std::vector<Hang> After(uint64_t at_ns) {
    Heartbeat(at_ns);
    return At(at_ns);
  }
  static std::vector<int> Ranks(const Hang& hang) {
    std::vector<int> ranks;
    for (const HangRank& r : hang.ranks) ranks.push_back(r.rank.value_or(-1));
    return ranks;
  }
  static std::vector<std::string> Ids(const std::vector<Hang>& hangs) {
    Report report;
    report.ranks.resize(1);
    report.hangs = hangs;
    std::vector<std::string> ids;
    for (const Finding& f : FindingsOf(report)) {
      if (f.severity == Severity::kError) ids.push_back(f.id);
    }
    return ids;
  }
};

// --- circles ----------------------------------------------------------------------------------------------

TEST_F(HangCausesTest, TwoRanksThatSendBeforeTheyReceiveWaitForEachOther) {
  for (int rank = 0; rank < kRanks; ++rank) {
    BatchBuilder b = Begin(rank);
    if (rank < 2) {
      Exchange(rank, b, 1 - rank, 100 * kMs, true);
      Transfer(rank, b, kSend, 1 - rank, kSecond);
      Work(rank, b, kSecond + kMs / 2);
      Transfer(rank, b, kRecv, 1 - rank, kSecond + kMs);
    }
    Send(rank, b, 2 * kSecond);
  }
  const std::vector<Hang> hangs = After(62 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(hangs[0].kind, Hang::Kind::kCircular);
  EXPECT_FALSE(hangs[0].culprit_known);
  EXPECT_THAT(Ranks(hangs[0]), ElementsAre(0, 1));
  EXPECT_THAT(HangStatement(hangs[0]), HasSubstr("Ranks 0, 1 have been waiting for each other for 61.0 s"));
  EXPECT_THAT(HangEvidence(hangs[0]),
              HasSubstr("ank 0 issued its Send to rank 1 before its Recv from rank 1."));
  EXPECT_THAT(HangEvidence(hangs[0]),
              HasSubstr("ank 1 issued its Send to rank 0 before its Recv from rank 0."));
  EXPECT_THAT(HangAdvice(hangs[0]), HasSubstr("ncclGroupStart"));
  EXPECT_THAT(Ids(hangs), ElementsAre("hang-circular"));
}

TEST_F(HangCausesTest, AGroupThatDoesNotEndIsNoCircle) {
  for (int rank = 0; rank < kRanks; ++rank) {
    BatchBuilder b = Begin(rank);
    if (rank < 2) Exchange(rank, b, 1 - rank, kSecond, false);
    Send(rank, b, 2 * kSecond);
  }
  for (const Hang& hang : After(62 * kSecond)) EXPECT_EQ(hang.kind, Hang::Kind::kAllIssued);
}

TEST_F(HangCausesTest, ThreeRanksThatEachSendToTheNextAndDidNotReachTheReceive) {
  for (int rank = 0; rank < kRanks; ++rank) {
    BatchBuilder b = Begin(rank);
    Reduce(rank, b, kWorld, 100 * kMs, true);
    if (rank < 3) Transfer(rank, b, kSend, (rank + 1) % 3, kSecond);
    Send(rank, b, 2 * kSecond);
  }
  const std::vector<Hang> hangs = After(62 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(hangs[0].kind, Hang::Kind::kCircular);
  EXPECT_THAT(Ranks(hangs[0]), ElementsAre(0, 1, 2));
  EXPECT_THAT(hangs[0].links, SizeIs(3));
  EXPECT_THAT(HangEvidence(hangs[0]),
              HasSubstr("ank 1 waits in its Send to rank 2 and did not issue its Recv from rank 0."));
}

TEST_F(HangCausesTest, AChainThatAFourthRankDoesNotJoinIsNoCircle) {
  for (int rank = 0; rank < kRanks; ++rank) {
    BatchBuilder b = Begin(rank);
    Reduce(rank, b, kWorld, 100 * kMs, true);
    if (rank < 3) Transfer(rank, b, kSend, rank + 1, kSecond);
    Send(rank, b, 2 * kSecond);
  }
  const std::vector<Hang> hangs = After(62 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(hangs[0].kind, Hang::Kind::kMissingRank);
  EXPECT_THAT(Ranks(hangs[0]), ElementsAre(3));
  EXPECT_THAT(HangEvidence(hangs[0]), HasSubstr("Rank 0 waits for rank 1 in Send to rank 1"));
}

class OppositeOrderTest : public HangCausesTest {
 protected:
  // Both calls are queued, or each rank waits on the host for its first one.
  void Check(bool queued) {
    for (int rank = 0; rank < kRanks; ++rank) {
      BatchBuilder b = Begin(rank);
      Reduce(rank, b, kWorld, 100 * kMs, true);
      if (rank < 2) {
        b.Comm(kRow, 0x2000, rank, 2).Comm(kColumn, 0x3000, rank, 2);
        Reduce(rank, b, rank == 0 ? kRow : kColumn, kSecond, false);
        if (queued) Reduce(rank, b, rank == 0 ? kColumn : kRow, kSecond + kMs, false);
      }
      Send(rank, b, 2 * kSecond);
    }
    const std::vector<Hang> hangs = After(62 * kSecond);
    ASSERT_THAT(hangs, SizeIs(1));
    EXPECT_EQ(hangs[0].kind, Hang::Kind::kCircular);
    EXPECT_THAT(Ranks(hangs[0]), ElementsAre(0, 1));
    EXPECT_THAT(HangEvidence(hangs[0]), HasSubstr(queued ? " before " : " and did not issue "));
    EXPECT_THAT(HangEvidence(hangs[0]), HasSubstr("AllReduce seq 0 on communicator 2000"));
    EXPECT_THAT(HangAdvice(hangs[0]), HasSubstr("same order on all ranks"));
  }
};

TEST_F(OppositeOrderTest, TwoCommunicatorsInOppositeOrderAreOneCircle) { Check(true); }

TEST_F(OppositeOrderTest, SoAreTwoRanksThatEachWaitInTheCallThatTheOtherHasNotReached) { Check(false); }

TEST_F(HangCausesTest, TwoCommunicatorsInTheSameOrderAreNoCircle) {
  for (int rank = 0; rank < kRanks; ++rank) {
    BatchBuilder b = Begin(rank);
    if (rank < 2) {
      b.Comm(kRow, 0x2000, rank, 2).Comm(kColumn, 0x3000, rank, 2);
      Reduce(rank, b, kRow, kSecond, false);
      Reduce(rank, b, kColumn, kSecond + kMs, false);
    }
    Send(rank, b, 2 * kSecond);
  }
  const std::vector<Hang> hangs = After(62 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(hangs[0].kind, Hang::Kind::kAllIssued);
  EXPECT_EQ(hangs[0].comm, "0000000000002000");
}

// --- chains -----------------------------------------------------------------------------------------------

TEST_F(HangCausesTest, ARankThatIsMissingOnTwoCommunicatorsIsOneHangWithItsChain) {
  for (int rank = 0; rank < kRanks; ++rank) {
    BatchBuilder b = Begin(rank);
    Mesh(rank, b);
    Reduce(rank, b, kRow, 100 * kMs, true);
    Reduce(rank, b, kColumn, 200 * kMs, true);
    if (rank != 3) Reduce(rank, b, kRow, kSecond, rank < 2);
    if (rank < 2) Reduce(rank, b, kColumn, kSecond + 10 * kMs, false);
    Send(rank, b, 2 * kSecond);
  }
  const std::vector<Hang> hangs = After(62 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(hangs[0].kind, Hang::Kind::kMissingRank);
  EXPECT_THAT(Ranks(hangs[0]), ElementsAre(3));
  EXPECT_EQ(hangs[0].comm, "0000000000002001");
  const std::string evidence = HangEvidence(hangs[0]);
  EXPECT_THAT(evidence, HasSubstr("Rank 1 waits for rank 3 in AllReduce seq 1 on communicator 3001"));
  EXPECT_THAT(evidence, HasSubstr("Rank 0 waits for rank 2 in AllReduce seq 1 on communicator 3000"));
  // It is read back as it was written.
  EXPECT_EQ(HangEvidence(HangOf(VerdictOf(hangs[0], 1, 0))), evidence);
}

TEST_F(HangCausesTest, TwoRanksThatAreMissingForThemselvesAreTwoHangs) {
  for (int rank = 0; rank < kRanks; ++rank) {
    BatchBuilder b = Begin(rank);
    Mesh(rank, b);
    Reduce(rank, b, kRow, 100 * kMs, true);
    if (rank % 2 == 0) Reduce(rank, b, kRow, kSecond, false);
    Send(rank, b, 2 * kSecond);
  }
  EXPECT_THAT(After(62 * kSecond), SizeIs(2));
}

// --- a call too many --------------------------------------------------------------------------------------

class ExtraCallTest : public HangCausesTest {
 protected:
  // All reduce once; `extra` once more, after `work` kernels; the others launch `done` kernels.
  void OneMore(const std::vector<int>& extra, int work, int done) {
    for (int rank = 0; rank < kRanks; ++rank) {
      BatchBuilder b = Begin(rank);
      Reduce(rank, b, kWorld, 100 * kMs, true);
      const bool more = std::find(extra.begin(), extra.end(), rank) != extra.end();
      for (int i = 0; i < (more ? work : done); ++i) Work(rank, b, 200 * kMs);
      if (more) Reduce(rank, b, kWorld, kSecond, false);
      Send(rank, b, 2 * kSecond);
    }
  }
};

TEST_F(ExtraCallTest, OneRankThatCallsOnceMoreIsTheOddOne) {
  OneMore({0}, 0, 0);
  const std::vector<Hang> hangs = After(62 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(hangs[0].kind, Hang::Kind::kExtraCall);
  EXPECT_THAT(Ranks(hangs[0]), ElementsAre(0));
  EXPECT_THAT(HangStatement(hangs[0]), HasSubstr("rank 0 issued it, one call more than ranks 1-3."));
  EXPECT_THAT(HangAdvice(hangs[0]), HasSubstr("that only rank 0 calls"));
  EXPECT_THAT(HangAdvice(hangs[0]), HasSubstr("If ranks 1-3 should have issued it, too, gpuprobe stacks"));
  EXPECT_THAT(Ids(hangs), ElementsAre("hang-extra-call"));
}

class ExitedWellTest : public ExtraCallTest {
 protected:
  void Check(uint64_t exit_ns) {
    OneMore({0}, 20, 0);  // it evaluated first
    BeatOf({1, 2, 3}, exit_ns);
    for (const int rank : {1, 2, 3}) Exit(rank, exit_ns);
    BeatOf({0}, 170 * kSecond);
    const std::vector<Hang> hangs = At(170 * kSecond);
    ASSERT_THAT(hangs, SizeIs(1));
    EXPECT_EQ(hangs[0].kind, Hang::Kind::kExtraCall);
    EXPECT_THAT(Ranks(hangs[0]), ElementsAre(0));
    EXPECT_THAT(HangEvidence(hangs[0]), HasSubstr("Ranks 1-3 made one call fewer and exited with code 0."));
    EXPECT_THAT(HangAdvice(hangs[0]), Not(HasSubstr("own log")));
    EXPECT_THAT(HangAdvice(hangs[0]), Not(HasSubstr("gpuprobe stacks")));
  }
};

TEST_F(ExitedWellTest, RanksThatExitedWellAreNotTheCause) { Check(3 * kSecond); }

TEST_F(ExitedWellTest, NorIfTheyExitedLongAfterTheHangBegan) { Check(100 * kSecond); }

TEST_F(ExtraCallTest, MostRanksThatStandBeforeWorkThatTheOthersDidAreMissing) {
  OneMore({0}, 5, 1);
  const std::vector<Hang> hangs = After(62 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(hangs[0].kind, Hang::Kind::kMissingRank);
  EXPECT_THAT(Ranks(hangs[0]), ElementsAre(1, 2, 3));
  EXPECT_THAT(HangAdvice(hangs[0]), HasSubstr("or those that issued it made a call too many"));
}

TEST_F(ExtraCallTest, AMinorityThatDoesNotCallIsMissing) {
  OneMore({0, 1, 2}, 0, 0);
  const std::vector<Hang> hangs = After(62 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(hangs[0].kind, Hang::Kind::kMissingRank);
  EXPECT_THAT(Ranks(hangs[0]), ElementsAre(3));
}

TEST_F(ExtraCallTest, ARankOfFewThatExitedWellMadeFewerCalls) {
  OneMore({0, 1, 2}, 3, 0);
  Exit(3, 3 * kSecond);
  BeatOf({0, 1, 2}, 70 * kSecond);
  const std::vector<Hang> hangs = At(70 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(hangs[0].kind, Hang::Kind::kMissingRank);
  EXPECT_THAT(HangStatement(hangs[0]), HasSubstr("Rank 3 exited with code 0"));
  EXPECT_THAT(HangAdvice(hangs[0]), HasSubstr("the same number of batches"));
  EXPECT_THAT(HangAdvice(hangs[0]), Not(HasSubstr("own log")));
}

TEST_F(ExtraCallTest, ADeathLongAfterTheHangIsNotItsCause) {
  OneMore({0, 1, 2}, 0, 0);
  BeatOf({0, 1, 2, 3}, 100 * kSecond);
  Exit(3, 100 * kSecond, 0, SIGKILL);
  BeatOf({0, 1, 2}, 170 * kSecond);
  const std::vector<Hang> hangs = At(170 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(hangs[0].ranks[0].state, HangRank::State::kNotIssued);
  EXPECT_THAT(HangStatement(hangs[0]), HasSubstr("rank 3 did not issue it"));
  EXPECT_THAT(HangEvidence(hangs[0]), HasSubstr("its process was killed by SIGKILL"));
}

TEST_F(ExtraCallTest, ADeathBeforeItIsAHangIsItsCause) {
  OneMore({0, 1, 2}, 0, 0);
  Exit(3, 3 * kSecond, 0, SIGKILL);
  BeatOf({0, 1, 2}, 70 * kSecond);
  const std::vector<Hang> hangs = At(70 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(hangs[0].ranks[0].state, HangRank::State::kHalted);
}

// --- a mismatch and a hang --------------------------------------------------------------------------------

class MismatchThenHangTest : public HangCausesTest {
 protected:
  // Six rounds, of which those in `differ` are another size on rank 2; then all but `missing` reduce.
  void Rounds(const std::vector<int>& differ, int missing, uint64_t last_count = 1000) {
    for (int rank = 0; rank < kRanks; ++rank) {
      BatchBuilder b = Begin(rank);
      for (int i = 0; i < 6; ++i) {
        const bool other = rank == 2 && std::find(differ.begin(), differ.end(), i) != differ.end();
        Reduce(rank, b, kWorld, static_cast<uint64_t>(i + 1) * 100 * kMs, true, other ? 998 : 1000);
      }
      if (rank != missing) Reduce(rank, b, kWorld, kSecond, false, rank == 2 ? last_count : 1000);
      Send(rank, b, 2 * kSecond);
    }
  }
};

TEST_F(MismatchThenHangTest, AMismatchThatPassedDoesNotHideAHang) {
  Rounds({2}, 1);
  const std::vector<Hang> hangs = After(62 * kSecond);
  ASSERT_THAT(hangs, SizeIs(2));
  EXPECT_EQ(hangs[0].kind, Hang::Kind::kMissingRank);
  EXPECT_THAT(Ranks(hangs[0]), ElementsAre(1));
  EXPECT_EQ(hangs[1].kind, Hang::Kind::kMismatch);
  EXPECT_TRUE(hangs[1].over);
  EXPECT_THAT(Ids(hangs), ElementsAre("hang-missing-rank", "hang-mismatch"));
}

TEST_F(MismatchThenHangTest, TheRankWhoseCallsAreOffByOneExplainsTheHang) {
  Rounds({2, 3, 4, 5}, 2);
  const std::vector<Hang> hangs = After(62 * kSecond);
  EXPECT_THAT(Ids(hangs), ElementsAre("hang-mismatch", "hang-missing-rank"));
}

TEST_F(MismatchThenHangTest, AMismatchThatRanksWaitInIsToldOnce) {
  Rounds({}, -1, 998);
  const std::vector<Hang> hangs = After(62 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(hangs[0].kind, Hang::Kind::kMismatch);
  EXPECT_FALSE(hangs[0].over);
}

TEST_F(MismatchThenHangTest, ALaterMismatchThatHangsIsToldBesideTheFirst) {
  Rounds({2}, -1, 998);
  EXPECT_THAT(After(3 * kSecond), SizeIs(1));
  const std::vector<Hang> hangs = After(62 * kSecond);
  ASSERT_THAT(hangs, SizeIs(2));
  EXPECT_EQ(hangs[0].seq, 6u);
  EXPECT_FALSE(hangs[0].over);
  EXPECT_TRUE(hangs[1].over);
}

TEST_F(MismatchThenHangTest, ARankThatIsMissingInAMismatchIsNamedToo) {
  Rounds({}, 1, 998);
  const std::vector<Hang> hangs = After(62 * kSecond);
  ASSERT_THAT(hangs, SizeIs(2));
  EXPECT_EQ(hangs[0].kind, Hang::Kind::kMismatch);
  EXPECT_EQ(hangs[1].kind, Hang::Kind::kMissingRank);
  EXPECT_THAT(Ranks(hangs[1]), ElementsAre(1));
}

// Ranks that wait in the mismatch keep others waiting on another communicator.
TEST_F(MismatchThenHangTest, WhatWaitsBehindAMismatchIsNotToldBesideIt) {
  for (int rank = 0; rank < kRanks; ++rank) {
    BatchBuilder b = Begin(rank);
    Mesh(rank, b);
    Reduce(rank, b, kRow, 100 * kMs, true);
    Reduce(rank, b, kColumn, 200 * kMs, true);
    Reduce(rank, b, kRow, kSecond, rank < 2, rank == 3 ? 998 : 1000);
    if (rank < 2) Reduce(rank, b, kColumn, kSecond + 10 * kMs, false);
    Send(rank, b, 2 * kSecond);
  }
  const std::vector<Hang> hangs = After(62 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(hangs[0].kind, Hang::Kind::kMismatch);
}

// --- records that CUPTI holds back ------------------------------------------------------------------------

class HeldBackTest : public HangCausesTest {
 protected:
  // The processes that are asked for their records when each rank has waited in so many calls for 57 s.
  std::vector<uint32_t> AskedAfter(int calls) {
    for (int rank = 0; rank < kRanks; ++rank) {
      BatchBuilder b = Begin(rank);
      for (int i = 0; i < calls; ++i)
        Reduce(rank, b, kWorld, kSecond + static_cast<uint64_t>(i) * kMs, false);
      Send(rank, b, 2 * kSecond);
    }
    Heartbeat(58 * kSecond);
    std::vector<uint32_t> held_back;
    EXPECT_THAT(HangsOf(job_, kStart + 58 * kSecond, kLimit, &held_back), IsEmpty());
    return held_back;
  }
};

TEST_F(HeldBackTest, TheFirstOfSeveralCallsMayHaveEndedSoItsRecordIsAskedFor) {
  EXPECT_THAT(AskedAfter(2), ElementsAre(0, 1, 2, 3));
}

TEST_F(HeldBackTest, NothingIsAskedForWhereOnlyOneCallIsOpen) { EXPECT_THAT(AskedAfter(1), IsEmpty()); }

TEST_F(HeldBackTest, NoneOfSeveralCallsIsJudgedBeforeTheAnswerHasComeUnlessItNeverDoes) {
  for (int rank = 0; rank < kRanks; ++rank) {
    BatchBuilder b = Begin(rank);
    for (uint64_t i = 0; i < 3; ++i) Reduce(rank, b, kWorld, kSecond + i * kMs, false);
    Send(rank, b, 2 * kSecond);
  }
  answers_ = false;
  EXPECT_THAT(After(70 * kSecond), IsEmpty());
  // The first two have ended.
  for (int rank = 0; rank < kRanks; ++rank) {
    BatchBuilder b = Begin(rank);
    for (uint64_t call = 1; call <= 2; ++call)
      b.Kernel(kStart + kSecond + call * kMs, kStart + kSecond + call * kMs + 1, 1, call);
    b.Loss(v1::LOSS_UNFINISHED_AT_FLUSH, 1);
    Send(rank, b, 71 * kSecond);
  }
  const std::vector<Hang> hangs = At(71 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(hangs[0].seq, 2u);
}

TEST_F(HeldBackTest, AnAnswerThatNeverComesDoesNotHideTheHang) {
  answers_ = false;
  AskedAfter(2);
  EXPECT_THAT(After(73 * kSecond), SizeIs(1));
}

// --- communicators that are created, and jobs without work
// --------------------------------------------------

class NoCallTest : public HangCausesTest {
 protected:
  // Work, and one call that ends.
  void Steps() {
    for (int rank = 0; rank < kRanks; ++rank) {
      BatchBuilder b = Begin(rank);
      Reduce(rank, b, kWorld, kSecond, true);
      Send(rank, b, 2 * kSecond);
    }
  }
  // `inside`: in a call that creates a communicator of so many ranks, since 2 s.
  void Say(int rank, uint64_t at_ns, bool inside, int ranks = kRanks, uint64_t io_bytes = 0,
           const v1::CommunicatorCreation& more = {}) {
    BatchBuilder b = Begin(rank);
    b.String(kInit, "CommInitRank").String(kGrow, "CommGrow");
    v1::Batch batch = b.batch();
    batch.mutable_clock()->set_realtime_ns(kStart + at_ns);
    batch.mutable_clock()->set_monotonic_ns(kSecond + at_ns);
    batch.mutable_host_state()->set_io_bytes(io_bytes);
    if (inside) {
      v1::CommunicatorCreation& c = *batch.mutable_host_state()->mutable_creating();
      c.set_hash(0x5ec0);
      c.set_rank(rank);
      c.set_ranks(ranks);
      c.set_made_by(kInit);
      c.set_since_ns(kStart + 2 * kSecond);
      c.MergeFrom(more);
    }
    ASSERT_TRUE(processes_[static_cast<size_t>(rank)]->Apply(batch).ok());
  }
  // Rank 1's host does that after it has trained; the others' are idle.
  void ExpectIdle(double cpus, const std::string& waits_for) {
    Train();
    Heartbeat(303 * kSecond);
    for (int rank = 0; rank < kRanks; ++rank)
      Observe(rank, 303 * kSecond, rank == 1 ? cpus : 0.01, rank == 1 ? waits_for : "");
    EXPECT_THAT(At(290 * kSecond), IsEmpty());
    const std::vector<Hang> hangs = At(303 * kSecond);
    ASSERT_THAT(hangs, SizeIs(1));
    EXPECT_TRUE(hangs[0].idle);
  }
  static constexpr uint32_t kInit = 100;
  static constexpr uint32_t kGrow = 101;
};

TEST_F(NoCallTest, TheRankThatDoesNotCreateTheCommunicatorIsNamed) {
  Steps();
  for (const uint64_t at_ns : {30 * kSecond, 63 * kSecond}) {
    for (int rank = 0; rank < kRanks; ++rank) Say(rank, at_ns, rank != 2);
    EXPECT_THAT(At(at_ns), SizeIs(at_ns < kLimit ? 0 : 1));
  }
  const Hang hang = At(63 * kSecond).front();
  EXPECT_EQ(hang.kind, Hang::Kind::kCreation);
  ASSERT_THAT(hang.ranks, SizeIs(1));
  EXPECT_EQ(hang.ranks[0].rank, 2);
  EXPECT_THAT(HangStatement(hang), HasSubstr("Ranks 0-1, 3 have been in ncclCommInitRank of communicator"));
  EXPECT_THAT(HangStatement(hang), HasSubstr("rank 2 has not called it."));
  const Hang again = HangOf(VerdictOf(hang, kStart + 63 * kSecond, 0));
  EXPECT_EQ(HangStatement(again), HangStatement(hang));
  EXPECT_EQ(HangEvidence(again), HangEvidence(hang));
}

TEST_F(NoCallTest, ARankThatReadsIsOnItsWayToTheCommunicator) {
  Steps();
  for (int rank = 0; rank < kRanks; ++rank)
    Say(rank, 63 * kSecond, rank != 2, kRanks, rank == 2 ? 1 << 30 : 0);
  EXPECT_THAT(At(63 * kSecond), IsEmpty());
}

TEST_F(NoCallTest, ACommunicatorOfUnknownProcessesSaysWhichOfItsRanksAreMissing) {
  Steps();
  for (int rank = 0; rank < kRanks; ++rank) Say(rank, 63 * kSecond, rank < 2, 6);
  const std::vector<Hang> hangs = At(63 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(hangs[0].absent, "2-5");
  EXPECT_FALSE(hangs[0].culprit_known);
}

TEST_F(NoCallTest, RanksThatAreAllInTheCallGetFiveTimesAsLong) {
  Steps();
  for (const uint64_t at_ns : {200 * kSecond, 303 * kSecond}) {
    for (int rank = 0; rank < kRanks; ++rank) Say(rank, at_ns, true);
    EXPECT_THAT(At(at_ns), SizeIs(at_ns < 5 * kLimit ? 0 : 1));
  }
}

TEST_F(NoCallTest, ACommunicatorThatIsCreatedInTheBackgroundIsWaitedForByRanksThatDoNothingElse) {
  Steps();
  v1::CommunicatorCreation background;
  background.set_result(7);  // ncclInProgress
  const auto say = [&](uint64_t at_ns) {
    for (int rank = 0; rank < kRanks; ++rank) Say(rank, at_ns, rank != 2, kRanks, 0, background);
  };
  say(63 * kSecond);
  const std::vector<Hang> hangs = At(63 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(hangs[0].kind, Hang::Kind::kCreation);
  EXPECT_THAT(Ranks(hangs[0]), ElementsAre(2));
  EXPECT_THAT(HangStatement(hangs[0]), HasSubstr("Ranks 0-1, 3 have been waiting for ncclCommInitRank of"));
  EXPECT_THAT(HangStatement(hangs[0]), HasSubstr("to complete in the background for"));
  EXPECT_EQ(HangStatement(HangOf(VerdictOf(hangs[0], kStart + 63 * kSecond, 0))), HangStatement(hangs[0]));
  // A rank that works on meanwhile waits for nothing.
  BatchBuilder b = Begin(0);
  Work(0, b, 70 * kSecond);
  Send(0, b, 71 * kSecond);
  say(72 * kSecond);
  EXPECT_THAT(At(72 * kSecond), IsEmpty());
}

class GrowTest : public NoCallTest {
 protected:
  // The ranks of a communicator of four that grows to six, `old` of them, and new processes.
  void Grow(const std::vector<int>& old, const std::vector<int>& joining) {
    Steps();
    v1::CommunicatorCreation grow;
    grow.set_hash(0);
    grow.set_parent(0x9c1e);
    grow.set_made_by(kGrow);
    for (int rank = 0; rank < kRanks; ++rank) {
      const bool inside = std::find(old.begin(), old.end(), rank) != old.end();
      Say(rank, 63 * kSecond, inside, 6, 0, grow);
    }
    for (const int rank : joining) {
      model::ProcessModel& process = job_.Join(gpuprobe::testing::MakeHello(rank, 6));
      BatchBuilder b(1, kStart);
      b.String(kGrow, "CommGrow").Clock(kStart + 63 * kSecond, 64 * kSecond);
      v1::Batch batch = b.batch();
      v1::CommunicatorCreation& c = *batch.mutable_host_state()->mutable_creating();
      c.set_rank(rank);
      c.set_ranks(6);
      c.set_made_by(kGrow);
      c.set_since_ns(kStart + 2 * kSecond);
      ASSERT_TRUE(process.Apply(batch).ok());
    }
  }
};

TEST_F(GrowTest, ARankOfTheOldCommunicatorThatDoesNotGrowItIsNamed) {
  Grow({0, 1, 3}, {4, 5});
  const std::vector<Hang> hangs = At(63 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_THAT(Ranks(hangs[0]), ElementsAre(2));
  EXPECT_THAT(HangStatement(hangs[0]), HasSubstr("ncclCommGrow"));
  EXPECT_EQ(hangs[0].comm_ranks, 6);
  EXPECT_EQ(hangs[0].issued, 5);
}

TEST_F(GrowTest, ANewRankThatDoesNotComeIsMissing) {
  Grow({0, 1, 2, 3}, {4});
  const std::vector<Hang> hangs = At(63 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(hangs[0].absent, "5");
  EXPECT_THAT(HangStatement(hangs[0]), HasSubstr("nobody is known to have called it for its rank 5."));
}

TEST_F(NoCallTest, AJobThatTrainedAndWhoseHostsAreIdleStandsStill) {
  Train();
  for (const uint64_t at_ns : {61 * kSecond, 63 * kSecond}) {
    Heartbeat(at_ns);
    for (int rank = 0; rank < kRanks; ++rank) Observe(rank, at_ns, 0.01, "futex");
    EXPECT_THAT(At(at_ns), SizeIs(at_ns < 62 * kSecond ? 0 : 1));
  }
  const Hang hang = At(63 * kSecond).front();
  EXPECT_EQ(hang.kind, Hang::Kind::kNoWork);
  EXPECT_FALSE(hang.idle);
  EXPECT_THAT(hang.ranks, SizeIs(kRanks));
  EXPECT_THAT(HangStatement(hang), HasSubstr("no call is open, and the hosts are idle, too."));
  EXPECT_THAT(Ids({hang}), ElementsAre("hang-no-work"));
}

// A server that has answered requests, or has loaded its weights, waits for the next one like that.
TEST_F(NoCallTest, AJobThatWasNotSeenToTrainIsSaidToBeIdleAndLater) {
  Steps();
  for (const uint64_t at_ns : {290 * kSecond, 303 * kSecond}) {
    Heartbeat(at_ns);
    for (int rank = 0; rank < kRanks; ++rank) Observe(rank, at_ns, 0.01, "futex");
    EXPECT_THAT(At(at_ns), SizeIs(at_ns < 300 * kSecond ? 0 : 1));
  }
  const Hang hang = At(303 * kSecond).front();
  EXPECT_TRUE(hang.idle);
  EXPECT_THAT(HangStatement(hang), HasSubstr("It was not seen to train: it may wait for a request"));
  EXPECT_THAT(HangAdvice(hang), HasSubstr("A server without requests is no fault."));
  EXPECT_THAT(Ids({hang}), IsEmpty());
  EXPECT_EQ(HangStatement(HangOf(VerdictOf(hang, kStart + 303 * kSecond, 0))), HangStatement(hang));
}

TEST_F(NoCallTest, AJobThatMayWaitForAMessageIsSaidToBeIdleAndLater) { ExpectIdle(0.01, "poll"); }

TEST_F(NoCallTest, AJobThatComputesOnTheHostIsSaidToBeIdleAndLater) { ExpectIdle(1, ""); }

TEST_F(NoCallTest, AJobThatHasPausedSoLongBeforeOrReadsOrRunsAKernelDoesNotStandStill) {
  Train();
  for (int rank = 0; rank < kRanks; ++rank) {
    BatchBuilder b = Begin(rank);
    Reduce(rank, b, kWorld, 101 * kSecond, true);
    Send(rank, b, 102 * kSecond);
    Observe(rank, 330 * kSecond, 0.01);
  }
  Heartbeat(330 * kSecond);
  EXPECT_THAT(At(330 * kSecond), IsEmpty());  // three times the pause of 100 s
  for (int rank = 0; rank < kRanks; ++rank) Observe(rank, 420 * kSecond, 0.01);
  for (int rank = 0; rank < kRanks; ++rank) Say(rank, 420 * kSecond, false, kRanks, rank == 1 ? 1 << 20 : 0);
  EXPECT_THAT(At(420 * kSecond), IsEmpty());
  BatchBuilder b = Begin(0);
  b.Launch(1, kStart + 421 * kSecond, ++correlation_[0]);
  Send(0, b, 422 * kSecond);
  Heartbeat(900 * kSecond);
  EXPECT_THAT(At(900 * kSecond), IsEmpty());
}

// --- words ------------------------------------------------------------------------------------------------

TEST_F(HangCausesTest, LaunchesAreCountedFromTheIssueAndOneIsOneTime) {
  for (int rank = 0; rank < kRanks; ++rank) {
    BatchBuilder b = Begin(rank);
    Reduce(rank, b, kWorld, 100 * kMs, true);
    if (rank == 1) Work(rank, b, 200 * kMs);
    if (rank != 1) Reduce(rank, b, kWorld, kSecond, false);
    Send(rank, b, 2 * kSecond);
  }
  const std::vector<Hang> hangs = After(62 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_THAT(HangEvidence(hangs[0]),
              HasSubstr("since it issued that call it has launched work 1 time, last 61.8 s"));
}

TEST(HangOfDuplicatesTest, ProcessesThatSayTheyAreTheSameRankAreNamedByPid) {
  enum : uint32_t { kAllReduce = 1, kNccl };
  constexpr uint32_t kWorld = 1;
  model::JobModel job;
  std::vector<model::ProcessModel*> processes;
  for (int i = 0; i < 2; ++i) {
    v1::Hello hello = gpuprobe::testing::MakeHello(0, 2);
    hello.mutable_identity()->set_pid(100 + static_cast<uint32_t>(i));
    processes.push_back(&job.Join(hello));
  }
  for (int i = 0; i < 2; ++i) {
    BatchBuilder b(1, kStart);
    b.String(kAllReduce, "AllReduce").String(kNccl, "ncclDevKernel_AllReduce_Sum_f32_RING_LL").Site(1, kNccl);
    b.Comm(kWorld, 0x1000, i, 2);
    b.Launch(1, kStart + kSecond, 1);
    if (i == 0) b.Collective(kAllReduce, kWorld, 0, 1000, 4, 1, kStart + kSecond).Plan(1, 1);
    b.Clock(kStart + 62 * kSecond, 63 * kSecond);
    if (i == 1) b.Kernel(kStart + kSecond, kStart + kSecond + kMs, 1, 1);
    ASSERT_TRUE(processes[static_cast<size_t>(i)]->Apply(b.batch()).ok());
  }
  const std::vector<Hang> hangs = HangsOf(job, kStart + 62 * kSecond, 60 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_THAT(HangStatement(hangs[0]), HasSubstr("rank 0 (pid 101) did not issue it."));
  EXPECT_EQ(hangs[0].waiting[0].label, "0 (pid 100)");
}

}  // namespace
}  // namespace gpuprobe::analysis
