// Two processes that are one rank at the same time: who counts, what they are called, and what the report
// says.
#include "collector/analysis/trust/duplicate_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "collector/analysis/build_report.h"
#include "collector/analysis/job_numbers.h"
#include "tests/collector/testing/batch_builder.h"

namespace gpuprobe::analysis {
namespace {

using testing::BatchBuilder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kSecond;
using testing::kStart;
using testing::MakeHello;

constexpr int kUnranked = -1;

class DuplicateRanksTest : public ::testing::Test {
 protected:
  // Runs two kernels on GPU 0, one at its start and one at its end.
  model::ProcessModel& Ran(int rank, uint64_t start_ns, uint64_t end_ns, const std::string& uuid = "GPU-a") {
    v1::Hello hello = MakeHello(rank, 1, ++last_pid_);
    if (rank == kUnranked) hello.mutable_identity()->set_rank_source(v1::RANK_SOURCE_NONE);
    hello.mutable_identity()->set_host("n1");
    hello.mutable_clock()->set_realtime_ns(kStart + start_ns);
    model::ProcessModel& process = job_.Join(hello);
    BatchBuilder batch;
    batch.String(1, "gemm").Site(1, 1);
    v1::Batch sent = batch.Kernel(kStart + start_ns, kStart + start_ns + 1000, 1)
                         .Kernel(kStart + end_ns - 1000, kStart + end_ns, 1)
                         .batch();
    v1::Device* device = sent.add_devices();
    device->set_ordinal(0);
    device->set_uuid(uuid);
    EXPECT_TRUE(process.Apply(sent).ok());
    process.ApplyBye(v1::Bye());
    return process;
  }
  Report Built() { return BuildReport(job_, {}); }
  static bool Has(const Report& report, const std::string& id) {
    return std::any_of(report.findings.begin(), report.findings.end(),
                       [&id](const Finding& finding) { return finding.id == id; });
  }

  model::JobModel job_;

 private:
  uint32_t last_pid_ = 100;
};

TEST_F(DuplicateRanksTest, TwoProcessesOfARankOnOneDevice) {
  Ran(0, 0, 2 * kSecond);
  Ran(0, kSecond, 3 * kSecond);
  const Report report = Built();
  ASSERT_EQ(report.ranks.size(), 2U);
  EXPECT_EQ(report.ranks[0].label, "0 (pid 101)");
  EXPECT_EQ(report.ranks[1].label, "0 (pid 102)");
  ASSERT_EQ(report.conditions.duplicate_ranks.size(), 1U);
  EXPECT_THAT(report.conditions.duplicate_ranks[0].pids, ElementsAre(101, 102));
  ASSERT_EQ(report.conditions.shared_devices.size(), 1U);
  EXPECT_THAT(report.conditions.shared_devices[0].ranks, ElementsAre(0));
  EXPECT_THAT(report.conditions.shared_devices[0].processes, ElementsAre("0 (pid 101)", "0 (pid 102)"));
  EXPECT_TRUE(Has(report, "duplicate-rank"));
  EXPECT_TRUE(Has(report, "shared-device"));
  EXPECT_FALSE(Has(report, "healthy"));
}

TEST_F(DuplicateRanksTest, FindingsNameTheProcesses) {
  Ran(0, 0, 2 * kSecond);
  Ran(0, kSecond, 3 * kSecond);
  for (const Finding& finding : Built().findings) {
    if (finding.id == "shared-device") {
      EXPECT_EQ(finding.statement, "Several processes share one GPU, so their kernels take turns.");
      EXPECT_THAT(finding.evidence, HasSubstr("rank 0 (pid 101), rank 0 (pid 102) on GPU 0 of n1."));
    }
    if (finding.id == "duplicate-rank") {
      EXPECT_EQ(finding.statement, "Rank 0 was recorded by 2 processes at the same time.");
      EXPECT_THAT(finding.evidence, HasSubstr("rank 0: pids 101, 102."));
    }
  }
}

TEST_F(DuplicateRanksTest, OnTwoDevicesTheyShareNothing) {
  Ran(0, 0, 2 * kSecond, "GPU-a");
  Ran(0, 0, 2 * kSecond, "GPU-b");
  const Report report = Built();
  EXPECT_TRUE(Has(report, "duplicate-rank"));
  EXPECT_THAT(report.conditions.shared_devices, IsEmpty());
}

TEST_F(DuplicateRanksTest, ARankThatWasStartedAgainIsNone) {
  Ran(0, 0, kSecond);
  Ran(0, 2 * kSecond, 3 * kSecond);
  const Report report = Built();
  EXPECT_THAT(report.conditions.duplicate_ranks, IsEmpty());
  EXPECT_THAT(report.conditions.shared_devices, IsEmpty());
  EXPECT_EQ(report.ranks[0].label, "0");
}

TEST_F(DuplicateRanksTest, TwoRanksOnOneDeviceAreRanks) {
  Ran(0, 0, 2 * kSecond);
  Ran(1, 0, 2 * kSecond);
  const Report report = Built();
  EXPECT_THAT(report.conditions.duplicate_ranks, IsEmpty());
  ASSERT_EQ(report.conditions.shared_devices.size(), 1U);
  EXPECT_THAT(report.conditions.shared_devices[0].ranks, ElementsAre(0, 1));
  EXPECT_EQ(report.findings.front().statement, "Several ranks share one GPU, so their kernels take turns.");
}

TEST_F(DuplicateRanksTest, ProcessesWithoutARankShareADeviceToo) {
  Ran(kUnranked, 0, 2 * kSecond);
  Ran(kUnranked, kSecond, 3 * kSecond);
  const Report report = Built();
  EXPECT_THAT(report.conditions.duplicate_ranks, IsEmpty());
  ASSERT_EQ(report.conditions.shared_devices.size(), 1U);
  EXPECT_THAT(report.conditions.shared_devices[0].processes, ElementsAre("pid 101", "pid 102"));
  EXPECT_TRUE(Has(report, "shared-device"));
}

TEST_F(DuplicateRanksTest, AreTwoRowsOfTheNumbersToo) {
  Ran(0, 0, 2 * kSecond);
  Ran(0, kSecond, 3 * kSecond);
  const JobNumbers numbers = NumbersOf(job_, kStart + 3 * kSecond);
  ASSERT_EQ(numbers.ranks.size(), 2U);
  EXPECT_EQ(numbers.ranks[0].rank, "0 (pid 101)");
  EXPECT_EQ(numbers.ranks[1].rank, "0 (pid 102)");
}

}  // namespace
}  // namespace gpuprobe::analysis
