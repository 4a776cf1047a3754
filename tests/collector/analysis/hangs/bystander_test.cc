// Processes that load the probe and use no device: launchers, and workers that a rank started.
#include "collector/analysis/hangs/bystander.h"

#include <gtest/gtest.h>

#include "tests/collector/testing/batch_builder.h"

namespace gpuprobe::analysis {
namespace {

using testing::BatchBuilder;
using testing::kSecond;
using testing::kStart;
using testing::MakeHello;

constexpr int kNoRank = -1;

class BystanderTest : public ::testing::Test {
 protected:
  v1::Hello Hello(int rank, uint64_t start_ns) {
    v1::Hello hello = MakeHello(rank, 2, ++last_pid_);
    hello.mutable_clock()->set_realtime_ns(kStart + start_ns);
    return hello;
  }
  model::ProcessModel& Idle(int rank, uint64_t start_ns) { return job_.Join(Hello(rank, start_ns)); }
  model::ProcessModel& Busy(int rank, uint64_t start_ns, uint64_t last_ns) {
    model::ProcessModel& process = Idle(rank, start_ns);
    BatchBuilder batch;
    batch.String(1, "gemm").Site(1, 1).Kernel(kStart + last_ns - 1000, kStart + last_ns, 1);
    EXPECT_TRUE(process.Apply(batch.batch()).ok());
    return process;
  }
  bool StandsBy(const model::ProcessModel& process) const { return Bystanders(job_).Has(process); }

  model::JobModel job_;

 private:
  uint32_t last_pid_ = 100;
};

TEST_F(BystanderTest, ALauncherOfRanks) {
  const auto& launcher = Idle(kNoRank, 0);
  EXPECT_FALSE(StandsBy(launcher)) << "alone, it may be the program";
  const auto& rank = Idle(0, kSecond);
  EXPECT_TRUE(StandsBy(launcher));
  EXPECT_FALSE(StandsBy(rank)) << "it has not begun";
}

TEST_F(BystanderTest, AWorkerOfAProgramWithoutRanks) {
  const auto& program = Busy(kNoRank, 0, 2 * kSecond);
  const auto& worker = Idle(kNoRank, kSecond);
  EXPECT_TRUE(StandsBy(worker));
  EXPECT_FALSE(StandsBy(program));
}

TEST_F(BystanderTest, AWorkerThatDiedBeforeItWasHeard) {
  Busy(kNoRank, 0, 2 * kSecond);
  auto& worker = Idle(kNoRank, kSecond);
  worker.MarkCutOff();
  EXPECT_FALSE(StandsBy(worker)) << "nobody knows what it did";
}

TEST_F(BystanderTest, AWorkerThatInheritedItsRank) {
  const auto& rank = Busy(0, 0, 2 * kSecond);
  const auto& other = Busy(1, 0, 2 * kSecond);
  const auto& worker = Idle(0, kSecond);
  EXPECT_TRUE(StandsBy(worker));
  EXPECT_FALSE(StandsBy(rank));
  EXPECT_FALSE(StandsBy(other));
}

TEST_F(BystanderTest, ARankThatDoesNothingIsStillARank) {
  Busy(0, 0, 2 * kSecond);
  EXPECT_FALSE(StandsBy(Idle(1, kSecond)));
}

TEST_F(BystanderTest, AProcessOfTheSameRankThatDidSomething) {
  Busy(0, 0, 2 * kSecond);
  EXPECT_FALSE(StandsBy(Busy(0, kSecond, 2 * kSecond)));
}

TEST_F(BystanderTest, ARankThatWasStartedAgain) {
  auto& died = Busy(0, 0, kSecond);
  died.MarkCutOff();
  EXPECT_FALSE(StandsBy(Idle(0, 3 * kSecond))) << "the first attempt was gone";
}

TEST_F(BystanderTest, ARankThatDiedBeforeItsFirstLaunch) {
  const auto& died = Idle(0, 0);
  Busy(0, kSecond, 2 * kSecond);
  EXPECT_FALSE(StandsBy(died)) << "the second attempt came later";
}

TEST_F(BystanderTest, OnAnotherHost) {
  Busy(kNoRank, 0, 2 * kSecond);
  v1::Hello hello = Hello(kNoRank, kSecond);
  hello.mutable_identity()->set_host("n2");
  EXPECT_FALSE(StandsBy(job_.Join(hello)));
}

}  // namespace
}  // namespace gpuprobe::analysis
