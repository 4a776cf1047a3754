// Sends and receives that wait for each other, and who is to blame.
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

// Three stages: 0 sends to 1, 1 sends to 2.
class TransfersTest : public HangsFixture {
 protected:
  static constexpr int kRanks = 3;

  TransfersTest() : HangsFixture(kRanks) {}
  // One round that ends, then a second one, at 1 s, in which stage 0 does what the test says.
  void Rounds(bool first_sends) {
    for (int rank = 0; rank < kRanks; ++rank) {
      BatchBuilder b = Begin(rank);
      for (const bool first : {true, false}) {
        const uint64_t at_ns = first ? 100 * kMs : kSecond;
        if (rank > 0) Transfer(rank, b, kRecv, rank - 1, at_ns, first);
        if (rank < 2 && (first || first_sends || rank > 0))
          Transfer(rank, b, kSend, rank + 1, at_ns + 5 * kMs, first);
      }
      Send(rank, b, 2 * kSecond);
    }
  }
};

TEST_F(TransfersTest, TheRankThatDoesNotSendIsNamedAndNotThoseThatWaitBehindIt) {
  Rounds(false);
  Heartbeat(61 * kSecond - kMs);
  EXPECT_THAT(At(61 * kSecond - kMs), IsEmpty());
  Heartbeat(62 * kSecond);
  for (const bool over : {false, true}) {
    if (over) job_.Finish();
    const std::vector<Hang> hangs = At(62 * kSecond);
    ASSERT_THAT(hangs, SizeIs(1)) << over;
    EXPECT_EQ(hangs[0].kind, Hang::Kind::kMissingRank);
    EXPECT_EQ(hangs[0].shape.op, "Recv");
    EXPECT_EQ(hangs[0].transfer->rank, 1);
    EXPECT_EQ(hangs[0].transfer->peer, 0);
    ASSERT_THAT(hangs[0].ranks, SizeIs(1));
    EXPECT_EQ(hangs[0].ranks[0].rank, 0);
    EXPECT_EQ(hangs[0].ranks[0].last_op, "Send");
    EXPECT_THAT(HangStatement(hangs[0]), HasSubstr("rank 0 did not issue its Send."));
  }
}

TEST_F(TransfersTest, IssuedByBothAndItDoesNotEnd) {
  Rounds(true);
  Heartbeat(62 * kSecond);
  const std::vector<Hang> hangs = At(62 * kSecond);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(hangs[0].kind, Hang::Kind::kAllIssued);
  EXPECT_EQ(hangs[0].transfer->rank, 0);
  EXPECT_EQ(hangs[0].transfer->peer, 1);
  EXPECT_FALSE(hangs[0].culprit_known);
}

TEST_F(TransfersTest, ASenderThatIsAtWorkIsNotMissing) {
  Rounds(false);
  BatchBuilder b = Begin(0);
  b.Launch(1, kStart + 30 * kSecond, ++correlation_[0]);
  Send(0, b, 31 * kSecond);
  Heartbeat(200 * kSecond);
  EXPECT_THAT(At(200 * kSecond), IsEmpty());
}

TEST_F(TransfersTest, ASenderOfWhichCallsWereLostIsNotBlamed) {
  Rounds(false);
  BatchBuilder b = Begin(0);
  b.Loss(v1::LOSS_EVENT_RING_FULL, 1);
  Send(0, b, 3 * kSecond);
  Heartbeat(62 * kSecond);
  EXPECT_THAT(At(62 * kSecond), IsEmpty());
}

TEST_F(TransfersTest, AStateThatWasSavedFindsTheSame) {
  Rounds(false);
  Heartbeat(62 * kSecond);
  model::JobModel loaded;
  ASSERT_TRUE(loaded.LoadState(job_.SaveState()).ok());
  const std::vector<Hang> hangs = HangsOf(loaded, kStart + 62 * kSecond, kLimit);
  ASSERT_THAT(hangs, SizeIs(1));
  EXPECT_EQ(HangStatement(hangs[0]), HangStatement(At(62 * kSecond)[0]));
}

}  // namespace
}  // namespace gpuprobe::analysis
