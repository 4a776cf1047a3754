// What is called a hang, whom it is put down to, and what is not a hang.
#include "collector/analysis/hangs/hangs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "collector/analysis/hangs/hang.h"
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

class HangsTest : public HangsFixture {
 protected:
  static constexpr int kRanks = 4;
  static constexpr uint64_t kNoLaunch = 100;  // a plan that none came of

  HangsTest() : HangsFixture(kRanks) {}
  // Everybody issues call 0, which ends, and all but `missing` call 1 at 1 s.
  void AllBut(int missing) {
    for (int rank = 0; rank < kRanks; ++rank) {
      BatchBuilder b = Begin(rank);
      Call(rank, b, 0, 100 * kMs, true);
      if (rank != missing) Call(rank, b, 1, kSecond, false);
      Send(rank, b, kSecond + kMs);
    }
  }
};

TEST_F(HangsTest, ARankThatDoesNotIssueIsNamedAtTheLimitAndNotBefore) {
  AllBut(2);
  Heartbeat(61 * kSecond - kMs);
  EXPECT_THAT(At(61 * kSecond - kMs), IsEmpty());
  Heartbeat(62 * kSecond);
  const std::vector<Hang> hangs = At(62 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(hangs[0].kind, Hang::Kind::kMissingRank);
  EXPECT_EQ(hangs[0].seq, 1u);
  EXPECT_EQ(hangs[0].issued, 3);
  EXPECT_EQ(hangs[0].waiting_ns, 61 * kSecond);
  ASSERT_THAT(hangs[0].ranks, SizeIs(1));
  EXPECT_EQ(hangs[0].ranks[0].rank, 2);
  EXPECT_EQ(hangs[0].ranks[0].last_seq, 0u);
  EXPECT_EQ(hangs[0].ranks[0].last_done_ago_ns, 62 * kSecond - 102 * kMs);
}

TEST_F(HangsTest, AtLevelCallsTheRankThatDidNotIssueIsNamed) {
  for (int rank = 0; rank < kRanks; ++rank) {
    BatchBuilder b = Begin(rank);
    for (uint64_t seq = 0; seq < (rank == 2 ? 2 : 5); ++seq)
      b.TracedCall(kAllReduce, kWorld, seq, 4096, kStart + (seq + 1) * kSecond);
    Send(rank, b, 6 * kSecond);
  }
  Heartbeat(62 * kSecond);
  EXPECT_THAT(At(62 * kSecond), IsEmpty());
  Heartbeat(64 * kSecond);
  const std::vector<Hang> hangs = At(64 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(hangs[0].kind, Hang::Kind::kMissingRank);
  EXPECT_EQ(hangs[0].seq, 2u);
  EXPECT_EQ(hangs[0].shape.bytes, 4096u);
  ASSERT_THAT(hangs[0].ranks, SizeIs(1));
  EXPECT_EQ(hangs[0].ranks[0].rank, 2);
  EXPECT_EQ(hangs[0].ranks[0].last_seq, 1u);
  EXPECT_EQ(hangs[0].ranks[0].launches_since, std::nullopt);
  EXPECT_THAT(HangEvidence(hangs[0]), HasSubstr("not recorded at level calls"));
  // It goes on.
  BatchBuilder b = Begin(2);
  for (uint64_t seq = 2; seq < 5; ++seq) b.TracedCall(kAllReduce, kWorld, seq, 4096, kStart + 65 * kSecond);
  Send(2, b, 65 * kSecond);
  Heartbeat(200 * kSecond);
  EXPECT_THAT(At(200 * kSecond), IsEmpty()) << "all have issued what any has";
}

TEST_F(HangsTest, AtLevelCallsACallThatDiffersIsPutDownToTheMinority) {
  for (int rank = 0; rank < kRanks; ++rank) {
    BatchBuilder b = Begin(rank);
    for (uint64_t seq = 0; seq < 3; ++seq) {
      const bool differs = rank == 3 && seq == 1;
      b.TracedCall(differs ? kBroadcast : kAllReduce, kWorld, seq, differs ? 8192 : 4096,
                   kStart + (seq + 1) * kSecond);
    }
    Send(rank, b, 3 * kSecond + kMs);
  }
  const std::vector<Hang> hangs = At(4 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(hangs[0].kind, Hang::Kind::kMismatch);
  EXPECT_EQ(hangs[0].seq, 1u);
  EXPECT_TRUE(hangs[0].over) << "all have issued the next one";
  EXPECT_EQ(hangs[0].issued, 3);
  EXPECT_EQ(hangs[0].shape.bytes, 4096u);
  ASSERT_THAT(hangs[0].ranks, SizeIs(1));
  EXPECT_EQ(hangs[0].ranks[0].rank, 3);
  EXPECT_EQ(ShapeText(*hangs[0].ranks[0].shape), "Broadcast, 8.00 KiB");
}

TEST_F(HangsTest, AtLevelCallsTheNewestCallThatDiffersIsSaidOnceItHasNotEndedForTheLimit) {
  for (int rank = 0; rank < kRanks; ++rank) {
    BatchBuilder b = Begin(rank);
    b.TracedCall(kAllReduce, kWorld, 0, 4096, kStart + kSecond);
    b.TracedCall(kAllReduce, kWorld, 1, rank == 0 ? 16 : 4096, kStart + 2 * kSecond);
    Send(rank, b, 2 * kSecond + kMs);
  }
  Heartbeat(30 * kSecond);
  EXPECT_THAT(At(30 * kSecond), IsEmpty()) << "it may be over";
  Heartbeat(63 * kSecond);
  const std::vector<Hang> hangs = At(63 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(hangs[0].kind, Hang::Kind::kMismatch);
  EXPECT_FALSE(hangs[0].over);
  EXPECT_EQ(hangs[0].waiting_ns, 61 * kSecond);
  ASSERT_THAT(hangs[0].ranks, SizeIs(1));
  EXPECT_EQ(hangs[0].ranks[0].rank, 0);
}

TEST_F(HangsTest, AtLevelCallsAWaitBehindAnotherIsAConsequence) {
  constexpr uint32_t kPair = 2;
  for (int rank = 0; rank < kRanks; ++rank) {
    BatchBuilder b = Begin(rank);
    if (rank >= 2) b.Comm(kPair, 0x77, rank - 2, 2);
    b.TracedCall(kAllReduce, kWorld, 0, 4096, kStart + kSecond);
    if (rank == 2) b.TracedCall(kAllReduce, kPair, 0, 64, kStart + 2 * kSecond);
    if (rank < 2) b.TracedCall(kAllReduce, kWorld, 1, 4096, kStart + 2 * kSecond);
    Send(rank, b, 3 * kSecond);
  }
  Heartbeat(70 * kSecond);
  const std::vector<Hang> hangs = At(70 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1)) << "ranks 0 and 1 wait for rank 2, which waits for rank 3";
  ASSERT_THAT(hangs[0].ranks, SizeIs(1));
  EXPECT_EQ(hangs[0].ranks[0].rank, 3);
  EXPECT_EQ(hangs[0].comm_ranks, 2);
}

TEST_F(HangsTest, AtLevelCallsARankThatWritesIsAtWork) {
  for (int rank = 0; rank < kRanks; ++rank) {
    BatchBuilder b = Begin(rank);
    b.TracedCall(kAllReduce, kWorld, 0, 4096, kStart + kSecond);
    if (rank != 2) b.TracedCall(kAllReduce, kWorld, 1, 4096, kStart + 2 * kSecond);
    Send(rank, b, 3 * kSecond);
  }
  BatchBuilder b = Begin(2);
  v1::Batch batch = b.batch();
  batch.mutable_clock()->set_realtime_ns(kStart + 30 * kSecond);
  batch.mutable_host_state()->set_io_bytes(100 << 20);
  ASSERT_TRUE(processes_[2]->Apply(batch).ok());
  Heartbeat(80 * kSecond);
  EXPECT_THAT(At(80 * kSecond), IsEmpty()) << "it writes";
  Heartbeat(92 * kSecond);
  EXPECT_THAT(At(92 * kSecond), SizeIs(1));
}

TEST_F(HangsTest, ARankThatLaunchesOrCopiesOrWritesIsAtWork) {
  AllBut(2);
  for (const bool writes : {false, true}) {
    const uint64_t base = writes ? 100 * kSecond : 0;
    BatchBuilder b = Begin(2);
    if (writes) {
      v1::Batch batch = b.batch();
      batch.mutable_clock()->set_realtime_ns(kStart + base + 30 * kSecond);
      batch.mutable_host_state()->set_io_bytes(100 << 20);
      ASSERT_TRUE(processes_[2]->Apply(batch).ok());
    } else {
      b.Launch(1, kStart + 30 * kSecond, ++correlation_[2]);
      b.Copy(kStart + 30 * kSecond, kStart + 31 * kSecond, 1 << 20, v1::COPY_DIRECTION_D2H, correlation_[2]);
      Send(2, b, 32 * kSecond);
    }
    Heartbeat(base + 80 * kSecond);
    EXPECT_THAT(At(base + 80 * kSecond), IsEmpty());
    Heartbeat(base + 92 * kSecond);
    EXPECT_THAT(At(base + 92 * kSecond), SizeIs(1));
  }
}

TEST_F(HangsTest, ARankWhoseOwnWorkStillRunsIsNotMissing) {
  AllBut(2);
  BatchBuilder b = Begin(2);
  b.Launch(1, kStart + 2 * kSecond, ++correlation_[2]);
  Send(2, b, 3 * kSecond);
  Heartbeat(200 * kSecond);
  EXPECT_THAT(At(200 * kSecond), IsEmpty());
}

TEST_F(HangsTest, AllIssuedAndItDoesNotEnd) {
  AllBut(-1);
  Heartbeat(62 * kSecond);
  const std::vector<Hang> hangs = At(62 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(hangs[0].kind, Hang::Kind::kAllIssued);
  EXPECT_FALSE(hangs[0].culprit_known);
  EXPECT_THAT(hangs[0].ranks, SizeIs(kRanks));
}

TEST_F(HangsTest, ARankThatIssuedTheCallButLaunchedNoKernelIsNamedLiveAndAfterwards) {
  for (int rank = 0; rank < kRanks; ++rank) {
    BatchBuilder b = Begin(rank);
    Call(rank, b, 0, 100 * kMs, true);
    if (rank == 2) {
      b.Collective(kAllReduce, kWorld, 1, 1000, 4, kNoLaunch, kStart + kSecond);
      Call(rank, b, 2, kSecond + kMs, false);
    } else {
      Call(rank, b, 1, kSecond, false);
    }
    Send(rank, b, kSecond + 2 * kMs);
  }
  Heartbeat(62 * kSecond);
  for (const bool over : {false, true}) {
    if (over) job_.Finish();
    const std::vector<Hang> hangs = At(62 * kSecond);
    ASSERT_THAT(hangs, SizeIs(1)) << over;
    EXPECT_EQ(hangs[0].kind, Hang::Kind::kMissingRank);
    EXPECT_EQ(hangs[0].seq, 1u);
    EXPECT_EQ(hangs[0].issued, 3);
    ASSERT_THAT(hangs[0].ranks, SizeIs(1));
    EXPECT_EQ(hangs[0].ranks[0].rank, 2);
    EXPECT_EQ(hangs[0].ranks[0].state, HangRank::State::kLaunchedNothing);
    EXPECT_EQ(hangs[0].ranks[0].last_seq, 2u);
    EXPECT_THAT(HangStatement(hangs[0]), HasSubstr("rank 2 issued the call but launched no kernel."));
  }
}

TEST_F(HangsTest, AKernelThatMayHaveBeenLostIsNotSaidToBeMissing) {
  for (int rank = 0; rank < kRanks; ++rank) {
    BatchBuilder b = Begin(rank);
    Call(rank, b, 0, 100 * kMs, true);
    if (rank == 2) {
      b.Collective(kAllReduce, kWorld, 1, 1000, 4, kNoLaunch, kStart + kSecond);
      b.Loss(v1::LOSS_EVENT_RING_FULL, 1);
    } else {
      Call(rank, b, 1, kSecond, false);
    }
    Send(rank, b, kSecond + 2 * kMs);
  }
  Heartbeat(62 * kSecond);
  const std::vector<Hang> hangs = At(62 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(hangs[0].kind, Hang::Kind::kAllIssued);
  EXPECT_FALSE(hangs[0].culprit_known);
}

TEST_F(HangsTest, WorkBeforeItThatStillRunsExcusesACollectiveForFiveTimesTheLimit) {
  for (int rank = 0; rank < kRanks; ++rank) {
    BatchBuilder b = Begin(rank);
    Call(rank, b, 0, 100 * kMs, true);
    if (rank == 1) b.Launch(1, kStart + 900 * kMs, ++correlation_[rank]);
    Call(rank, b, 1, kSecond, false);
    Send(rank, b, kSecond + kMs);
  }
  Heartbeat(290 * kSecond);
  EXPECT_THAT(At(290 * kSecond), IsEmpty());
  Heartbeat(302 * kSecond);
  ASSERT_THAT(At(302 * kSecond), SizeIs(1));
  EXPECT_TRUE(At(302 * kSecond)[0].earlier_work);
}

TEST_F(HangsTest, CallsThatDifferAreReportedAtOnceAndPutDownToTheMinority) {
  for (int rank = 0; rank < kRanks; ++rank) {
    BatchBuilder b = Begin(rank);
    Call(rank, b, 0, 100 * kMs, true);
    Call(rank, b, 1, kSecond, false, rank == 3 ? kBroadcast : kAllReduce, rank == 3 ? 7 : 1000);
    Send(rank, b, kSecond + kMs);
  }
  const std::vector<Hang> hangs = At(kSecond + 2 * kMs);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(hangs[0].kind, Hang::Kind::kMismatch);
  EXPECT_EQ(hangs[0].shape.op, "AllReduce");
  EXPECT_EQ(hangs[0].issued, 3);
  ASSERT_THAT(hangs[0].ranks, SizeIs(1));
  EXPECT_EQ(hangs[0].ranks[0].rank, 3);
  EXPECT_EQ(hangs[0].ranks[0].shape->op, "Broadcast");
  EXPECT_EQ(hangs[0].ranks[0].shape->count, 7u);
}

TEST_F(HangsTest, AMismatchOfAProgramThatWasStartedAgainIsNotPutDownToTheNewOne) {
  for (int rank = 0; rank < kRanks; ++rank) {
    BatchBuilder b = Begin(rank);
    Call(rank, b, 0, 100 * kMs, true, kAllReduce, rank == 3 ? 7 : 1000);
    Send(rank, b, kSecond);
  }
  ASSERT_THAT(At(2 * kSecond), SizeIs(1));
  BatchBuilder again(1, kStart + 3 * kSecond);
  again.Comm(kWorld, 0x9c1e, 0, kRanks);
  ASSERT_TRUE(job_.Join(testing::MakeHello(0, kRanks, /*pid=*/9999)).Apply(again.batch()).ok());
  EXPECT_THAT(At(4 * kSecond), IsEmpty());
}

TEST_F(HangsTest, ALostCallIsTakenToHaveBeenIssuedWhenALaterOneWas) {
  for (int rank = 0; rank < kRanks; ++rank) {
    BatchBuilder b = Begin(rank);
    if (rank != 2) Call(rank, b, 0, 100 * kMs, false);
    Call(rank, b, 1, kSecond, true);
    Send(rank, b, kSecond + kMs);
  }
  Heartbeat(100 * kSecond);
  EXPECT_THAT(At(100 * kSecond), IsEmpty());
}

TEST_F(HangsTest, AStateThatWasSavedFindsTheSameHang) {
  AllBut(2);
  Heartbeat(62 * kSecond);
  model::JobModel loaded;
  ASSERT_TRUE(loaded.LoadState(job_.SaveState()).ok());
  const std::vector<Hang> hangs = HangsOf(loaded, kStart + 62 * kSecond, kLimit);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(HangEvidence(hangs[0]), HangEvidence(At(62 * kSecond)[0]));
}

}  // namespace
}  // namespace gpuprobe::analysis
