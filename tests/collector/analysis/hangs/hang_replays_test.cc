// Launches of CUDA graphs whose collectives do not end, and who is to blame.
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

// Each rank captures an AllReduce and an AllGather, calls 0 and 1, into graph 1 (rank 3: into graph 7), as
// nodes 10 and 11; on ranks 0 and 1 the graph carries an AllReduce of a communicator of theirs, too.
class ReplaysTest : public HangsFixture {
 protected:
  static constexpr int kRanks = 4;

  ReplaysTest() : HangsFixture(kRanks) {}
  static uint32_t GraphOf(int rank) { return rank == 3 ? 7 : 1; }
  void Capture(int rank, bool instantiate = true) {
    BatchBuilder b = Begin(rank);
    b.Collective(kAllReduce, 1, 0, 1000, 4, 1, kStart + kMs);
    b.Collective(kAllGather, 1, 1, 500, 4, 2, kStart + 2 * kMs);
    const uint32_t graph = instantiate ? GraphOf(rank) : 0;
    b.CapturedPlan(1, 10, graph).CapturedPlan(2, 11, graph);
    if (with_pair_ && rank < 2) {
      b.Comm(2, 0xaa, rank, 2);
      b.Collective(kAllReduce, 2, 0, 10, 4, 3, kStart + 3 * kMs);
      b.CapturedPlan(3, 12, graph);
    }
    Send(rank, b, 5 * kMs);
  }
  // `ended`: how many of its kernels.
  void Replay(int rank, uint64_t at_ns, int ended) {
    BatchBuilder b = Begin(rank);
    const uint64_t correlation = ++correlation_[rank];
    b.GraphLaunch(1, kStart + at_ns, correlation, GraphOf(rank));
    for (int i = 0; i < ended; ++i)
      b.Kernel(kStart + at_ns + static_cast<uint64_t>(i) * kMs,
               kStart + at_ns + static_cast<uint64_t>(i + 1) * kMs, 1, correlation,
               10 + static_cast<uint64_t>(i));
    Send(rank, b, at_ns + 10 * kMs);
  }
  // One replay that ends, and at 1 s a second one by all but `missing`.
  void AllBut(int missing, int ended = 0) {
    for (int rank = 0; rank < kRanks; ++rank) {
      Capture(rank);
      Replay(rank, 100 * kMs, 2 + (with_pair_ && rank < 2 ? 1 : 0));
      if (rank != missing) Replay(rank, kSecond, ended);
    }
  }

  bool with_pair_ = false;
};

TEST_F(ReplaysTest, TheRankThatDoesNotLaunchIsNamedAtTheLimitAndNotBefore) {
  AllBut(2);
  Heartbeat(61 * kSecond - kMs);
  EXPECT_THAT(At(61 * kSecond - kMs), IsEmpty());
  Heartbeat(62 * kSecond);
  for (const bool over : {false, true}) {
    if (over) job_.Finish();
    const std::vector<Hang> hangs = At(62 * kSecond);
    ASSERT_THAT(hangs, SizeIs(1)) << over;
    EXPECT_EQ(hangs[0].kind, Hang::Kind::kMissingRank);
    EXPECT_EQ(hangs[0].shape.op, "AllReduce");
    EXPECT_EQ(hangs[0].shape.bytes, 4000u);
    EXPECT_EQ(hangs[0].issued, 3);
    EXPECT_EQ(hangs[0].waiting_ns, 61 * kSecond);
    EXPECT_EQ(hangs[0].replay->number, 2u);
    EXPECT_EQ(hangs[0].replay->collectives, 2u);
    ASSERT_THAT(hangs[0].ranks, SizeIs(1));
    EXPECT_EQ(hangs[0].ranks[0].rank, 2);
    EXPECT_EQ(hangs[0].ranks[0].replays->launches, 1u);
    EXPECT_EQ(hangs[0].ranks[0].replays->last_launch_ago_ns, 62 * kSecond - 100 * kMs);
    EXPECT_TRUE(hangs[0].ranks[0].last_captured);
    EXPECT_THAT(HangStatement(hangs[0]), HasSubstr("Replay 2 of the CUDA graph with AllReduce seq 0"));
    EXPECT_THAT(HangStatement(hangs[0]), HasSubstr("rank 2 did not launch it."));
    EXPECT_THAT(HangEvidence(hangs[0]), HasSubstr("it launched this graph 1 time, last 61.9 s ago"));
  }
}

TEST_F(ReplaysTest, ARankThatDoesNotLaunchTheFirstReplayIsNamed) {
  for (int rank = 0; rank < kRanks; ++rank) {
    Capture(rank, rank != 2);
    BatchBuilder b = Begin(rank);
    b.Launch(1, kStart + 10 * kMs, ++correlation_[rank]);
    b.Kernel(kStart + 10 * kMs, kStart + 11 * kMs, 2, correlation_[rank]);
    Send(rank, b, 20 * kMs);
    if (rank != 2) Replay(rank, kSecond, 0);
  }
  Heartbeat(62 * kSecond);
  const std::vector<Hang> hangs = At(62 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(hangs[0].ranks[0].rank, 2);
  EXPECT_EQ(hangs[0].replay->number, 1u);
  EXPECT_THAT(HangEvidence(hangs[0]), HasSubstr("it never launched this graph"));
}

TEST_F(ReplaysTest, AllLaunchedAndTheCollectiveThatIsNotOverIsTold) {
  AllBut(-1, 1);
  Heartbeat(62 * kSecond);
  const std::vector<Hang> hangs = At(62 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(hangs[0].kind, Hang::Kind::kAllIssued);
  EXPECT_EQ(hangs[0].shape.op, "AllGather");
  EXPECT_EQ(hangs[0].seq, 1u);
  EXPECT_EQ(hangs[0].replay->ended, 1u);
  EXPECT_THAT(hangs[0].ranks, SizeIs(kRanks));
  EXPECT_THAT(HangEvidence(hangs[0]), HasSubstr("1 of its 2 collectives on this communicator have finished"));
}

// All update their graphs after the first replay; rank 2 has updated its own, and does not launch it.
TEST_F(ReplaysTest, AnUpdatedGraphIsToldByWhatItCarriesInThatReplay) {
  for (int rank = 0; rank < kRanks; ++rank) {
    Capture(rank);
    Replay(rank, 100 * kMs, 2);
    if (rank == 3) continue;  // it is before its update: the same graph all the same
    BatchBuilder b = Begin(rank);
    b.Collective(kAllReduce, 1, 2, 64, 4, 21, kStart + 200 * kMs);
    b.Collective(kAllGather, 1, 3, 32, 4, 22, kStart + 201 * kMs);
    const uint64_t from = correlation_[rank] + 1;
    b.CapturedPlan(21, 10, GraphOf(rank), 0, from).CapturedPlan(22, 11, GraphOf(rank), 0, from);
    Send(rank, b, 300 * kMs);
    if (rank != 2) Replay(rank, kSecond, 0);
  }
  Heartbeat(62 * kSecond);
  const std::vector<Hang> hangs = At(62 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(hangs[0].kind, Hang::Kind::kMissingRank);
  EXPECT_EQ(hangs[0].seq, 2u);
  EXPECT_EQ(hangs[0].shape.bytes, 256u);
  EXPECT_EQ(hangs[0].replay->number, 2u);
  EXPECT_EQ(hangs[0].replay->collectives, 2u);
  ASSERT_THAT(hangs[0].ranks, SizeIs(2));
  EXPECT_EQ(hangs[0].ranks[0].rank, 2);
  EXPECT_EQ(hangs[0].ranks[1].rank, 3);
}

TEST_F(ReplaysTest, OfTheCommunicatorsOfOneLaunchTheOneThatARankIsMissingOfIsTold) {
  with_pair_ = true;
  AllBut(2);
  Heartbeat(62 * kSecond);
  const std::vector<Hang> hangs = At(62 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(hangs[0].comm_ranks, kRanks);
  EXPECT_EQ(hangs[0].replay->communicators, 2);
  EXPECT_EQ(hangs[0].ranks[0].rank, 2);
}

TEST_F(ReplaysTest, ACallThatWaitsBehindAReplayIsNotTold) {
  AllBut(2);
  for (const int rank : {0, 1, 3}) {
    BatchBuilder b = Begin(rank);
    const uint64_t correlation = ++correlation_[rank];
    b.Launch(1, kStart + kSecond + 20 * kMs, correlation);
    b.Collective(kAllReduce, 1, 2, 1000, 4, 20, kStart + kSecond + 20 * kMs);
    b.Plan(20, correlation);
    Send(rank, b, kSecond + 30 * kMs);
  }
  Heartbeat(62 * kSecond);
  const std::vector<Hang> hangs = At(62 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_TRUE(hangs[0].replay.has_value());
}

TEST_F(ReplaysTest, AReplayIsNotLaunchedBecauseOfACallThatHangs) {
  for (int rank = 0; rank < kRanks; ++rank) {
    Capture(rank);
    Replay(rank, 100 * kMs, 2);
    if (rank < 2) {  // rank 2 waits for rank 3, which is missing from both
      Replay(rank, kSecond, 0);
    } else if (rank == 2) {
      BatchBuilder b = Begin(rank);
      b.Comm(2, 0xbb, 0, 2);
      const uint64_t correlation = ++correlation_[rank];
      b.Launch(1, kStart + kSecond, correlation);
      b.Collective(kAllReduce, 2, 0, 1000, 4, 20, kStart + kSecond);
      b.Plan(20, correlation);
      Send(rank, b, kSecond + 30 * kMs);
    } else {
      BatchBuilder b = Begin(rank);
      b.Comm(2, 0xbb, 1, 2);
      Send(rank, b, kSecond + 30 * kMs);
    }
  }
  Heartbeat(62 * kSecond);
  const std::vector<Hang> hangs = At(62 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_FALSE(hangs[0].replay.has_value());
  EXPECT_EQ(hangs[0].ranks[0].rank, 3);
}

TEST_F(ReplaysTest, ARankAtWorkIsNotMissing) {
  AllBut(2);
  BatchBuilder b = Begin(2);
  b.Launch(1, kStart + 30 * kSecond, ++correlation_[2]);
  Send(2, b, 31 * kSecond);
  Heartbeat(80 * kSecond);
  EXPECT_THAT(At(80 * kSecond), IsEmpty());
}

TEST_F(ReplaysTest, WhatWasLostOrNotSeenIsNotSaidToBeMissing) {
  AllBut(2);
  BatchBuilder b = Begin(2);
  b.Loss(v1::LOSS_EVENT_RING_FULL, 1);
  Send(2, b, 3 * kSecond);
  Heartbeat(62 * kSecond);
  EXPECT_THAT(At(62 * kSecond), IsEmpty());
}

TEST_F(ReplaysTest, ALaunchOfAGraphThatIsNotKnownMayBeTheOneThatIsMissing) {
  for (int rank = 0; rank < kRanks; ++rank) {
    Capture(rank, rank != 2);
    if (rank != 2) {
      Replay(rank, kSecond, 0);
      continue;
    }
    BatchBuilder b = Begin(rank);
    b.GraphLaunch(1, kStart + kSecond, ++correlation_[rank], model::GraphReplays::kUnseenGraph);
    Send(rank, b, kSecond + kMs);
  }
  Heartbeat(200 * kSecond);
  EXPECT_THAT(At(200 * kSecond), IsEmpty());
}

TEST_F(ReplaysTest, LaunchesThatWereCapturedAreNoWorkThatIsWaitedFor) {
  for (const bool told : {false, true}) {
    for (int rank = 0; rank < kRanks; ++rank) {
      if (!told) Capture(rank);
      BatchBuilder b = Begin(rank);
      if (!told) b.Launch(1, kStart + 10 * kMs, 1000);
      if (told) b.CapturedLaunch(1000, 13);
      Send(rank, b, 20 * kMs);
      correlation_[rank] = 1000;
      if (!told) Replay(rank, kSecond, 0);
    }
    Heartbeat(62 * kSecond);
    std::vector<uint32_t> held_back;
    EXPECT_THAT(HangsOf(job_, kStart + 62 * kSecond, kLimit, &held_back), SizeIs(told ? 1 : 0));
    EXPECT_THAT(held_back, SizeIs(told ? 0 : kRanks));
  }
}

TEST_F(ReplaysTest, AStateThatWasSavedFindsTheSame) {
  AllBut(2);
  Heartbeat(62 * kSecond);
  model::JobModel loaded;
  ASSERT_TRUE(loaded.LoadState(job_.SaveState()).ok());
  const std::vector<Hang> hangs = HangsOf(loaded, kStart + 62 * kSecond, kLimit);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(HangStatement(hangs[0]), HangStatement(At(62 * kSecond)[0]));
}

// Stages of a pipeline: each receives from the next rank and sends to the one before, in one graph.
class LineTest : public HangsFixture {
 protected:
  static constexpr int kStages = 4;
  LineTest() : HangsFixture(kStages) {}
  void Capture(int rank) {
    BatchBuilder b = Begin(rank);
    if (rank + 1 < kStages) b.Transfer(kRecv, 1, 0, rank + 1, 1, kStart + kMs).CapturedPlan(1, 10, 1);
    if (rank > 0) b.Transfer(kSend, 1, 1, rank - 1, 2, kStart + 2 * kMs).CapturedPlan(2, 11, 1);
    Send(rank, b, 5 * kMs);
  }
  void Replay(int rank, uint64_t at_ns, bool ends) {
    BatchBuilder b = Begin(rank);
    const uint64_t correlation = ++correlation_[rank];
    b.GraphLaunch(1, kStart + at_ns, correlation, 1);
    if (ends && rank + 1 < kStages) b.Kernel(kStart + at_ns, kStart + at_ns + kMs, 1, correlation, 10);
    if (ends && rank > 0) b.Kernel(kStart + at_ns + kMs, kStart + at_ns + 2 * kMs, 1, correlation, 11);
    Send(rank, b, at_ns + 10 * kMs);
  }
  void AllBut(int missing) {
    for (int rank = 0; rank < kStages; ++rank) {
      Capture(rank);
      Replay(rank, 100 * kMs, true);
      if (rank != missing) Replay(rank, kSecond, false);
    }
    Heartbeat(62 * kSecond);
  }
};

TEST_F(LineTest, TheStageThatDoesNotLaunchItsGraphIsNamed) {
  AllBut(2);
  EXPECT_THAT(At(61 * kSecond - kMs), IsEmpty());
  const std::vector<Hang> hangs = At(62 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1)) << "who waits for one that waits is no news";
  EXPECT_EQ(hangs[0].kind, Hang::Kind::kMissingRank);
  ASSERT_TRUE(hangs[0].transfer.has_value());
  EXPECT_EQ(hangs[0].transfer->peer, 2);
  EXPECT_EQ(hangs[0].transfer->others_waiting, 1) << "ranks 1 and 3 wait for it";
  EXPECT_EQ(hangs[0].replay->number, 2u);
  ASSERT_THAT(hangs[0].ranks, SizeIs(1));
  EXPECT_EQ(hangs[0].ranks[0].rank, 2);
  EXPECT_EQ(hangs[0].ranks[0].replays->launches, 1u);
  EXPECT_THAT(HangStatement(hangs[0]), HasSubstr("Replay 2 of the CUDA graph with "));
  EXPECT_THAT(HangStatement(hangs[0]), HasSubstr("rank 2 did not launch its graph with the "));
}

TEST_F(LineTest, AllLaunchedAndItDoesNotEnd) {
  AllBut(-1);
  const std::vector<Hang> hangs = At(62 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1)) << "one for launches that hang together";
  EXPECT_EQ(hangs[0].kind, Hang::Kind::kAllIssued);
  EXPECT_FALSE(hangs[0].culprit_known);
  EXPECT_THAT(HangStatement(hangs[0]), HasSubstr("both ranks launched their graph"));
}

TEST_F(LineTest, AStageAtWorkIsNotMissing) {
  AllBut(2);
  BatchBuilder b = Begin(2);
  b.Launch(1, kStart + 50 * kSecond, 900);
  Send(2, b, 51 * kSecond);
  EXPECT_THAT(At(62 * kSecond), IsEmpty());
}

}  // namespace
}  // namespace gpuprobe::analysis
