#include "injector/core/identity.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <ctime>
#include <map>
#include <string>

namespace gpuprobe::injector {
namespace {

std::map<std::string, std::string> variables;

const char* Lookup(const char* name) {
  const auto found = variables.find(name);
  return found == variables.end() ? nullptr : found->second.c_str();
}

Identity Find(std::map<std::string, std::string> environment) {
  variables = std::move(environment);
  Identity identity;
  FindRank(Lookup, &identity);
  return identity;
}

std::string RunOf(std::map<std::string, std::string> environment, const ProcessIds& ids) {
  Identity identity = Find(std::move(environment));
  FindRun(Lookup, ids, &identity);
  return identity.run;
}

TEST(Identity, ProcessesOfOneJobHaveOneRun) {
  using Environment = std::map<std::string, std::string>;
  const Environment none{{"TORCHELASTIC_RUN_ID", "none"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "29500"}};
  Environment rank0 = none;
  rank0["RANK"] = "0";
  Environment rank1 = none;
  rank1["RANK"] = "1";
  EXPECT_EQ(RunOf(rank0, {10, 5, 5}), RunOf(rank1, {10, 5, 5}));
  EXPECT_NE(RunOf(rank0, {10, 5, 5}), RunOf(rank1, {11, 5, 5}))
      << "two torchruns that chose one port in turn";
  const Environment job{{"RANK", "0"}, {"TORCHELASTIC_RUN_ID", "abc"}};
  EXPECT_EQ(RunOf(job, {10, 5, 5}), RunOf(job, {11, 6, 6})) << "the launcher's id, whoever started it";
  const Environment step0{{"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}};
  Environment step1 = step0;
  step1["SLURM_STEP_ID"] = "1";
  EXPECT_NE(RunOf(step0, {10, 5, 5}), RunOf(step1, {10, 5, 5})) << "two sruns in one allocation";
  EXPECT_EQ(RunOf({{"RANK", "0"}}, {10, 5, 7}), RunOf({{"RANK", "1"}}, {10, 5, 8}));
  EXPECT_EQ(RunOf({}, {10, 5, 7}), RunOf({}, {11, 5, 7})) << "a program and what it starts";
  EXPECT_NE(RunOf({}, {10, 5, 7}), RunOf({}, {10, 5, 8})) << "two commands of one shell";
  EXPECT_NE(RunOf({}, {10, 5, 7}), RunOf({}, {10, 6, 7})) << "two terminals";
}

TEST(Identity, WithoutALauncherTheRankIsNotKnown) {
  const Identity identity = Find({});
  EXPECT_EQ(identity.rank, -1);
  EXPECT_EQ(identity.local_rank, -1);
  EXPECT_EQ(identity.world_size, 0);
  EXPECT_EQ(identity.rank_source, wire::RankSource::kRankSourceNone);
}

TEST(Identity, Torchrun) {
  const Identity identity =
      Find({{"RANK", "9"}, {"LOCAL_RANK", "1"}, {"WORLD_SIZE", "16"}, {"TORCHELASTIC_RUN_ID", "train-7f3a"}});
  EXPECT_EQ(identity.rank, 9);
  EXPECT_EQ(identity.local_rank, 1);
  EXPECT_EQ(identity.world_size, 16);
  EXPECT_EQ(identity.rank_source, wire::RankSource::kRankSourceTorchrun);
  EXPECT_STREQ(identity.job, "train-7f3a");
}

TEST(Identity, OpenMpiSlurmAndPmi) {
  EXPECT_EQ(Find({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}}).rank_source,
            wire::RankSource::kRankSourceOpenMpi);
  EXPECT_EQ(Find({{"SLURM_PROCID", "3"}, {"SLURM_JOB_ID", "77"}}).rank_source,
            wire::RankSource::kRankSourceSlurm);
  EXPECT_EQ(Find({{"PMI_RANK", "5"}, {"PMI_SIZE", "6"}}).world_size, 6);
  EXPECT_EQ(Find({{"PMIX_RANK", "5"}}).rank_source, wire::RankSource::kRankSourcePmi);
}

TEST(Identity, OurOwnVariableWinsAndTheLauncherFillsTheRest) {
  const Identity identity =
      Find({{"GPUPROBE_RANK", "70"}, {"SLURM_PROCID", "3"}, {"SLURM_LOCALID", "1"}, {"SLURM_NTASKS", "8"}});
  EXPECT_EQ(identity.rank, 70);
  EXPECT_EQ(identity.rank_source, wire::RankSource::kRankSourceGpuprobe);
  EXPECT_EQ(identity.local_rank, 1);
  EXPECT_EQ(identity.world_size, 8);
}

TEST(Identity, TorchrunUnderSlurmIsTorchrun) {
  const Identity identity = Find({{"RANK", "12"}, {"SLURM_PROCID", "1"}, {"SLURM_JOB_ID", "42"}});
  EXPECT_EQ(identity.rank, 12);
  EXPECT_STREQ(identity.job, "42");
}

TEST(Identity, NonsenseIsNotARank) {
  EXPECT_EQ(Find({{"RANK", "x"}}).rank, -1);
  EXPECT_EQ(Find({{"RANK", "-3"}}).rank, -1);
  EXPECT_EQ(Find({{"RANK", "99999999999"}}).rank, -1);
  EXPECT_EQ(Find({{"RANK", ""}}).rank, -1);
  EXPECT_EQ(Find({{"RANK", "7x"}}).rank, -1);
}

TEST(Identity, ThisProcess) {
  Identity identity;
  FindIdentity(&identity);
  EXPECT_EQ(identity.pid, static_cast<uint32_t>(getpid()));
  EXPECT_NE(std::string(identity.executable).find("injector_core_test"), std::string::npos);
  EXPECT_NE(std::string(identity.command_line).find("injector_core_test"), std::string::npos);
  EXPECT_NE(identity.host[0], '\0');
  const auto now = static_cast<uint64_t>(time(nullptr)) * 1'000'000'000u;
  EXPECT_LT(identity.process_start_ns, now + 2'000'000'000u);
  EXPECT_GT(identity.process_start_ns, now - 600'000'000'000u);
}

}  // namespace
}  // namespace gpuprobe::injector
