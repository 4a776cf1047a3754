#include "collector/cli/launched_rank.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace gpuprobe::cli {
namespace {

using Variables = std::map<std::string, std::string>;

// "variable rank of ranks here", or "".
std::string RankOf(const Variables& variables) {
  const std::optional<LaunchedRank> rank = RankOfVariables([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
  if (!rank.has_value()) return "";
  return std::string(rank->variable) + " " + std::to_string(rank->rank) + " of " +
         std::to_string(rank->ranks_here);
}

Variables With(Variables variables, const Variables& more) {
  variables.insert(more.begin(), more.end());
  return variables;
}

const Variables kTorchrunRank = {
    {"RANK", "5"}, {"LOCAL_RANK", "1"}, {"WORLD_SIZE", "8"}, {"LOCAL_WORLD_SIZE", "4"}};
const Variables kMpirunRank = {{"OMPI_COMM_WORLD_RANK", "3"},
                               {"OMPI_COMM_WORLD_SIZE", "4"},
                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                               {"PMIX_RANK", "3"}};
const Variables kHydraRank = {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "2"}};

Variables Task(const std::string& task, const std::string& tasks_per_node, const std::string& node) {
  return {{"SLURM_PROCID", task},
          {"SLURM_NTASKS", "4"},
          {"SLURM_STEP_TASKS_PER_NODE", tasks_per_node},
          {"SLURM_NODEID", node}};
}

TEST(LaunchedRank, EachLauncherHasItsVariables) {
  EXPECT_EQ(RankOf(kTorchrunRank), "RANK 5 of 4");
  EXPECT_EQ(RankOf(kMpirunRank), "OMPI_COMM_WORLD_RANK 3 of 4");
  EXPECT_EQ(RankOf(kHydraRank), "PMI_RANK 2 of 2");
  EXPECT_EQ(RankOf(Task("3", "4", "0")), "SLURM_PROCID 3 of 4");
  EXPECT_EQ(RankOf({{"PMIX_RANK", "1"}}), "PMIX_RANK 1 of 0");
  EXPECT_EQ(RankOf({{"RANK", "1"}, {"WORLD_SIZE", "4"}}), "RANK 1 of 0") << "a script";
}

TEST(LaunchedRank, WhereNothingElseRunsOnThisHostThereIsNone) {
  EXPECT_EQ(RankOf({}), "");
  EXPECT_EQ(RankOf({{"RANK", "x"}}), "");
  EXPECT_EQ(RankOf({{"RANK", "-1"}}), "");
  EXPECT_EQ(RankOf({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), "");
  EXPECT_EQ(RankOf({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "1"}}), "");
  EXPECT_EQ(RankOf(Task("1", "1(x4)", "1")), "");
  EXPECT_EQ(RankOf({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}), "") << "a batch script";
}

TEST(LaunchedRank, TheInnermostLauncherOfSeveralRanksCounts) {
  EXPECT_EQ(RankOf(With(kTorchrunRank, Task("1", "1(x2)", "1"))), "RANK 5 of 4")
      << "srun starts a torchrun on each node";
  EXPECT_EQ(RankOf(With({{"RANK", "3"}, {"WORLD_SIZE", "4"}}, kMpirunRank)), "OMPI_COMM_WORLD_RANK 3 of 4")
      << "a script around each rank has named it anew";
  EXPECT_EQ(RankOf(With(kMpirunRank, Task("0", "1(x2)", "1"))), "OMPI_COMM_WORLD_RANK 3 of 4")
      << "mpirun starts its daemons with srun";
}

TEST(LaunchedRank, SlurmListsTheTasksOfEachNode) {
  const std::string tasks = "2(x3),1,4(x2)";
  EXPECT_EQ(TasksOnNode(tasks, 0), 2);
  EXPECT_EQ(TasksOnNode(tasks, 2), 2);
  EXPECT_EQ(TasksOnNode(tasks, 3), 1);
  EXPECT_EQ(TasksOnNode(tasks, 5), 4);
  EXPECT_EQ(TasksOnNode(tasks, 6), 0);
  EXPECT_EQ(TasksOnNode(tasks, -1), 0);
  for (const char* broken : {"", "x", "2(x", "(x2)", "2(x-1)", "2(xy)"}) EXPECT_EQ(TasksOnNode(broken, 0), 0);
}

}  // namespace
}  // namespace gpuprobe::cli
