// The sums and levels that a monitoring system scrapes.
#include "collector/analysis/job_numbers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/collector/testing/batch_builder.h"

namespace gpuprobe::analysis {
namespace {

using testing::BatchBuilder;
using ::testing::ElementsAre;
using testing::kMs;
using testing::kStart;
using testing::MakeHello;

// A rank of two: `kernels` of 1 ms, one copy, and a level of memory.
void AddRank(model::JobModel& job, int rank, uint32_t pid, uint64_t kernels, uint64_t joined_ns = kStart) {
  v1::Hello hello = MakeHello(rank, 2, pid);
  hello.mutable_clock()->set_realtime_ns(joined_ns);
  model::ProcessModel& process = job.Join(hello);
  BatchBuilder batch;
  batch.String(1, "gemm").Site(1, 1).Thread(1, true);
  for (uint64_t i = 0; i < kernels; ++i) {
    const uint64_t start_ns = kStart + i * 2 * kMs;
    batch.Launch(1, start_ns, i + 1).Kernel(start_ns, start_ns + kMs, 1, i + 1);
  }
  batch.Copy(kStart, kStart + kMs, 4096, v1::COPY_DIRECTION_H2D)
      .Alloc(kStart, 1000, 0x1000)
      .Alloc(kStart, 500, 0x2000);
  batch.Free(kStart + kMs, 500, 0x2000);
  ASSERT_TRUE(process.Apply(batch.batch()).ok());
}

TEST(JobNumbers, AreSumsAndLevelsByRank) {
  model::JobModel job;
  AddRank(job, 1, 11, 3);
  AddRank(job, 0, 10, 5);
  const JobNumbers numbers = NumbersOf(job, kStart);
  ASSERT_EQ(numbers.ranks.size(), 2U);
  EXPECT_EQ(numbers.heard, 2U);
  EXPECT_EQ(numbers.world_size, 2);
  const RankNumbers& first = numbers.ranks[0];
  EXPECT_EQ(first.rank, "0") << "by rank, not in the order of their coming";
  EXPECT_EQ(first.kernels, 5U);
  EXPECT_EQ(first.kernel_ns, 5 * kMs);
  EXPECT_TRUE(first.connected);
  ASSERT_EQ(first.copies.size(), 1U);
  EXPECT_EQ(first.copies[0].direction, "h2d");
  EXPECT_EQ(first.copies[0].bytes, 4096U);
  ASSERT_EQ(first.memory.size(), 1U);
  EXPECT_EQ(first.memory[0].live_bytes, 1000U);
  EXPECT_EQ(first.memory[0].high_water_bytes, 1500U);
  EXPECT_EQ(numbers.records, numbers.ranks[0].records + numbers.ranks[1].records);
}

TEST(JobNumbers, ARankThatStartedAgainIsTheNewerProcess) {
  model::JobModel job;
  AddRank(job, 0, 10, 5);
  AddRank(job, 0, 20, 2, kStart + testing::kSecond);
  const JobNumbers numbers = NumbersOf(job, kStart);
  ASSERT_EQ(numbers.ranks.size(), 1U);
  EXPECT_EQ(numbers.ranks[0].kernels, 2U);
  EXPECT_GT(numbers.records, numbers.ranks[0].records) << "the job's sums only grow";
}

TEST(JobNumbers, AWorkerThatARankStartedIsNotTheRank) {
  model::JobModel job;
  AddRank(job, 0, 10, 5);
  v1::Hello worker = MakeHello(0, 2, 20);
  worker.mutable_clock()->set_realtime_ns(kStart + kMs);
  job.Join(worker);
  const JobNumbers numbers = NumbersOf(job, kStart + 2 * kMs);
  ASSERT_EQ(numbers.ranks.size(), 1U);
  EXPECT_EQ(numbers.ranks[0].kernels, 5U);
  EXPECT_EQ(numbers.heard, 1U);
}

TEST(JobNumbers, OnlyKnownOperationsBecomeLabels) {
  model::JobModel job;
  model::ProcessModel& process = job.Join(MakeHello(0, 1, 10));
  BatchBuilder batch;
  batch.String(1, "AllReduce").String(2, "made up by a client").Comm(1, 0x9c1e, 0, 1);
  batch.Collective(1, 1, 1, 1024, 4, 1).Collective(2, 1, 2, 1024, 4, 2);
  ASSERT_TRUE(process.Apply(batch.batch()).ok());
  job.Finish();
  std::vector<std::string> labels;
  for (const auto& [label, sums] : NumbersOf(job, kStart).collectives) labels.push_back(label);
  for (const std::string& label : labels) EXPECT_TRUE(label == "AllReduce" || label == "several") << label;
}

TEST(JobNumbers, LossesHaveTheirReason) {
  model::JobModel job;
  model::ProcessModel& process = job.Join(MakeHello(0, 1, 10));
  ASSERT_TRUE(process.Apply(BatchBuilder().Loss(v1::LOSS_SEND_QUEUE_FULL, 7).batch()).ok());
  const JobNumbers numbers = NumbersOf(job, kStart);
  ASSERT_EQ(numbers.lost.size(), 1U);
  EXPECT_EQ(numbers.lost.begin()->second, 7U);
}

TEST(JobNumbers, OfNobodyAreNothing) {
  const JobNumbers numbers = NumbersOf(model::JobModel(), kStart);
  EXPECT_TRUE(numbers.ranks.empty());
  EXPECT_EQ(numbers.steps, 0U);
}

}  // namespace
}  // namespace gpuprobe::analysis
