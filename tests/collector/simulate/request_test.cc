// What options make of a scenario's job, and which jobs are refused.
#include "collector/simulate/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuprobe::simulate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TrainingJob JobOf(std::vector<std::string> arguments) {
  const absl::StatusOr<Request> request = ReadRequest(arguments);
  EXPECT_TRUE(request.ok()) << request.status();
  return request.ok() ? request->job : TrainingJob{};
}

std::string Refusal(std::vector<std::string> arguments) {
  return std::string(ReadRequest(arguments).status().message());
}

TEST(Request, WithoutOptionsItIsTheScenario) {
  const absl::StatusOr<Request> request =
      ReadRequest(std::vector<std::string>{"--scenario=grid", "--keep=16777216", "--out=a=b"});
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->scenario, FindScenario("grid"));
  EXPECT_EQ(request->job.tensor, 2);
  EXPECT_THAT(request->collect, ElementsAre("--out=a=b", "--keep=16777216"));
}

TEST(Request, ARunSaysHowItIsMadeAgain) {
  const absl::StatusOr<Request> request =
      ReadRequest(std::vector<std::string>{"--scenario=grid", "--seed=7", "--steps=1000000", "--nvtx=1",
                                           "--noise=0.29999999999999999", "--out=a"});
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_THAT(request->command_line, ElementsAre("gpuprobe", "simulate", "--scenario", "grid", "--steps",
                                                 "1000000", "--nvtx", "--noise", "0.3", "--seed", "7"));
}

TEST(Request, AFaultMovesToAnotherRankAndTimeWhateverItIs) {
  const std::vector<std::string> moved = {"--slow-from=0.5", "--slow-rank=3", "--steps=100"};
  auto with = [&](const char* scenario) {
    std::vector<std::string> arguments = moved;
    arguments.emplace_back(scenario);
    return JobOf(arguments);
  };
  const TrainingJob slow = with("--scenario=straggler-kernels");
  EXPECT_EQ(slow.slow.rank, 3);
  EXPECT_EQ(slow.slow.from, 0.5);
  EXPECT_EQ(slow.hang.rank, 0);
  const TrainingJob hangs = with("--scenario=hang-missing-rank");
  EXPECT_EQ(hangs.hang.rank, 3);
  EXPECT_EQ(hangs.hang.step, 50) << "of the steps that were asked for, in whatever order";
}

TEST(Request, AClustersDayDrawsItsJobs) {
  const absl::StatusOr<Request> request =
      ReadRequest(std::vector<std::string>{"--cluster=1", "--jobs=50", "--hours=1.5", "--seed=3", "--out=a"});
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_TRUE(request->cluster);
  EXPECT_EQ(request->jobs, 50);
  EXPECT_EQ(request->hours, 1.5);
  EXPECT_THAT(request->command_line, ElementsAre("gpuprobe", "simulate", "--cluster", "--seed", "3"));
  EXPECT_THAT(Refusal({"--cluster=1", "--ranks=4"}), HasSubstr("draws its jobs from --seed; --ranks"));
}

TEST(Request, OptionsBuildOnEachOtherInWhateverOrderTheyAreGiven) {
  const TrainingJob job =
      JobOf({"--network=25", "--link=100", "--bucket=1", "--work=2", "--scenario=straggler-at-scale"});
  EXPECT_EQ(job.link.beta_bytes_per_ns, 100);
  ASSERT_TRUE(job.network.link.has_value());
  EXPECT_EQ(job.network.link->beta_bytes_per_ns, 25);
  EXPECT_EQ(job.network.link->alpha_ns, job.link.alpha_ns);
  EXPECT_EQ(job.gradients.first_bucket_bytes, kMiB) << "no larger than the others";
  EXPECT_EQ(job.work, 2 * FindScenario("straggler-at-scale")->job.work);
  EXPECT_EQ(JobOf({"--scenario=healthy", "--slow-factor=2"}).slow.by, SlowBy::kKernels);
}

TEST(Request, WhatCannotBeIsRefused) {
  EXPECT_THAT(Refusal({"--scenario=none"}), HasSubstr("no scenario \"none\""));
  EXPECT_THAT(Refusal({"--scenario=healthy", "--ranks=0"}), HasSubstr("--ranks=0"));
  EXPECT_THAT(Refusal({"--scenario=healthy", "--ranks=x"}), HasSubstr("--ranks=x"));
  EXPECT_THAT(Refusal({"--scenario=healthy", "--truth=x"}), HasSubstr("unknown option --truth"));
  EXPECT_THAT(Refusal({"--scenario=healthy", "--ranks"}), HasSubstr("--ranks"));
  EXPECT_THAT(Refusal({"--scenario=grid", "--ranks=7"}), HasSubstr("must be a multiple of 4"));
  EXPECT_THAT(Refusal({"--scenario=pipeline", "--layers=7"}), HasSubstr("--layers must be a multiple of 4"));
  EXPECT_THAT(Refusal({"--scenario=fsdp", "--ranks=1"}), HasSubstr("at least 2 data-parallel ranks"));
  EXPECT_THAT(Refusal({"--scenario=straggler-kernels", "--ranks=2"}), HasSubstr("needs at least 6 ranks"));
}

}  // namespace
}  // namespace gpuprobe::simulate
