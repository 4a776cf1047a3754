#include "collector/store/growing_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include "collector/store/directory.h"
#include "collector/store/run_log_writer.h"
#include "tests/collector/testing/batch_builder.h"
#include "tests/collector/testing/temp_dir.h"

namespace gpuprobe::store {
namespace {

using gpuprobe::testing::BatchBuilder;
using gpuprobe::testing::ByeFrame;
using gpuprobe::testing::HelloFrame;
using gpuprobe::testing::kMs;
using gpuprobe::testing::kSecond;
using gpuprobe::testing::kStart;
using gpuprobe::testing::MakeHello;
using gpuprobe::testing::TempDir;

constexpr uint64_t kCallsOfSecond = 1000;
constexpr uint64_t kSeconds = 70;
constexpr uint64_t kCalls = kSeconds * kCallsOfSecond;
static_assert(kCalls > model::CallMatcher::kMaxWaitingCalls);

// What a rank does in a second: calls of which rank 1 makes rank 0 wait 200 us in each.
v1::Frame Second(int rank, uint64_t second, uint64_t communicator = 0x9c1e) {
  enum : uint32_t { kNccl = 1, kAllReduce };
  const uint64_t begin_ns = kStart + (second + 1) * kSecond;
  BatchBuilder b(second + 1, begin_ns);
  if (second == 0) {
    b.String(kNccl, "ncclDevKernel_AllReduce_Sum_f32_RING_LL").String(kAllReduce, "AllReduce");
    b.Thread(1, true, "train").Site(1, kNccl, 0, 13).Comm(1, communicator, rank, 2);
  }
  for (uint64_t i = 0; i < kCallsOfSecond; ++i) {
    const uint64_t call = second * kCallsOfSecond + i;
    const uint64_t t = begin_ns + i * kMs;
    b.Launch(1, t, call + 1);
    b.Kernel(t + 10'000 + (rank == 1 ? 200'000 : 0), t + 500'000, 1, call + 1);
    b.Collective(kAllReduce, 1, call, 1 << 18, 4, call + 1, t).Plan(call + 1, call + 1);
  }
  b.Clock(begin_ns + kSecond, begin_ns + kSecond - kStart);
  return b.Frame();
}

class GrowingRunTest : public ::testing::Test {
 protected:
  void Begin(int rank, int ranks_of_launcher) {
    logs_[rank] = *RunLogWriter::Create(*Directory::Make(dir_.path()),
                                        "rank-" + std::to_string(rank) + ".gpr", "test", kStart);
    Write(rank, HelloFrame(MakeHello(rank, ranks_of_launcher)));
  }
  void Write(int rank, const v1::Frame& frame) {
    ASSERT_TRUE(logs_[rank]->Append(frame.SerializeAsString(), kStart).ok());
    ASSERT_TRUE(logs_[rank]->Flush().ok());
  }
  void WriteSeconds(int rank, uint64_t from, uint64_t to) {
    for (uint64_t second = from; second < to; ++second) Write(rank, Second(rank, second));
  }
  void Look(bool is_last = false) {
    ASSERT_TRUE(run_.Look(
                        job_, [](const model::ProcessModel&) {}, is_last)
                    .ok());
  }
  // Calls that were compared, and what one rank has waited for the other in them.
  uint64_t Compared() {
    job_.Finish();
    return Blame().compared;
  }
  const model::RankComparison::Blame& Blame() const {
    return *std::max_element(job_.comparison().blame().begin(), job_.comparison().blame().end(),
                             [](const auto& a, const auto& b) { return a.waited_ns < b.waited_ns; });
  }
  uint64_t WaitedNs() const { return Blame().waited_ns; }

  TempDir dir_;
  std::map<int, std::unique_ptr<RunLogWriter>> logs_;
  model::JobModel job_;
  GrowingRun run_{dir_.path()};
};

TEST_F(GrowingRunTest, ALogThatIsBehindIsWaitedForSoThatEachCallIsComparedWhole) {
  Begin(0, 2);
  Begin(1, 2);
  WriteSeconds(1, 0, 1);
  WriteSeconds(0, 0, kSeconds);
  Look();
  EXPECT_TRUE(run_.is_held_back());
  WriteSeconds(1, 1, kSeconds / 2);
  Look();
  EXPECT_TRUE(run_.is_held_back());
  WriteSeconds(1, kSeconds / 2, kSeconds);
  Look();
  EXPECT_FALSE(run_.is_held_back());
  EXPECT_EQ(Compared(), kCalls);
  EXPECT_EQ(WaitedNs(), kCalls * 200'000);
}

TEST_F(GrowingRunTest, ARankOfWhichNothingHasComeIsWaitedForTooWhileRanksCome) {
  Begin(2, 3);  // has no part in these calls
  Look();
  Begin(0, 3);
  WriteSeconds(0, 0, kSeconds);
  Look();
  Look();
  EXPECT_TRUE(run_.is_held_back());
  Begin(1, 3);
  WriteSeconds(1, 0, kSeconds);
  Look();
  EXPECT_FALSE(run_.is_held_back());
  EXPECT_EQ(Compared(), kCalls);
}

TEST_F(GrowingRunTest, ALogThatHasEndedHoldsNothingBack) {
  Begin(0, 2);
  Begin(1, 2);
  WriteSeconds(1, 0, 3);
  Write(1, ByeFrame(3));
  WriteSeconds(0, 0, kSeconds);
  Look();
  EXPECT_FALSE(run_.is_held_back());
  EXPECT_GE(Compared(), kCallsOfSecond) << "a call is handed on two batches later";
}

TEST_F(GrowingRunTest, TheLastLookReadsEverything) {
  Begin(0, 2);
  Begin(1, 2);
  WriteSeconds(1, 0, 1);
  WriteSeconds(0, 0, kSeconds);
  Look(/*is_last=*/true);
  EXPECT_FALSE(run_.is_held_back());
  EXPECT_EQ(job_.processes().front()->totals().kernels, kCalls);
}

TEST_F(GrowingRunTest, NothingIsHeldBackForARankThatIsNotProfiled) {
  Begin(0, 1);
  Begin(2, 1);
  Write(2, Second(1, 0, /*communicator=*/0xc0));
  WriteSeconds(0, 0, kSeconds / 2);
  Look();
  EXPECT_FALSE(run_.is_held_back());
  EXPECT_EQ(job_.processes().front()->totals().kernels, kCalls / 2);
}

TEST_F(GrowingRunTest, NothingIsHeldBackForARankThatHasLeftTheCalls) {
  Begin(0, 2);
  Begin(1, 2);
  Begin(2, 2);
  WriteSeconds(1, 0, 1);
  Write(1, ByeFrame(1));
  WriteSeconds(0, 0, kSeconds);
  Look();
  Write(2, Second(1, 0, /*communicator=*/0xc0));
  WriteSeconds(0, kSeconds, kSeconds + 2);
  Look();
  EXPECT_FALSE(run_.is_held_back()) << "that communicator has had to give up waiting";
}

}  // namespace
}  // namespace gpuprobe::store
