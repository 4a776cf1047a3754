#include "collector/recording/several_hosts.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace gpuprobe::recording {
namespace {

bool Spans(const std::vector<std::string>& command,
           const std::map<std::string, std::string>& variables = {}) {
  return SpansHosts(command, [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(SeveralHosts, AreWhatALauncherIsAskedFor) {
  EXPECT_TRUE(Spans({"torchrun", "--nnodes", "2", "train.py"}));
  EXPECT_TRUE(Spans({"torchrun", "--nnodes=2", "train.py"}));
  EXPECT_TRUE(Spans({"torchrun", "--nnodes=1:4", "train.py"})) << "at most four";
  EXPECT_TRUE(Spans({"accelerate", "launch", "--num_machines", "3", "train.py"}));
  EXPECT_TRUE(Spans({"deepspeed", "--num_nodes=2", "train.py"}));
  EXPECT_FALSE(Spans({"torchrun", "--nnodes", "1", "train.py"}));
  EXPECT_FALSE(Spans({"torchrun", "--nnodes=1:1", "train.py"}));
  EXPECT_FALSE(Spans({"torchrun", "--nnodes"}));
  EXPECT_FALSE(Spans({"torchrun", "--nnodes-file", "2"}));
  EXPECT_FALSE(Spans({"torchrun", "--nproc-per-node", "8", "train.py"}));
}

TEST(SeveralHosts, AreSaidByTheLauncherThatStartedUs) {
  EXPECT_TRUE(Spans({"app"}, {{"WORLD_SIZE", "8"}, {"LOCAL_WORLD_SIZE", "4"}}));
  EXPECT_FALSE(Spans({"app"}, {{"WORLD_SIZE", "8"}, {"LOCAL_WORLD_SIZE", "8"}}));
  EXPECT_FALSE(Spans({"app"}, {{"WORLD_SIZE", "8"}})) << "how many are here is not known";
  EXPECT_TRUE(Spans({"app"}, {{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}));
  EXPECT_FALSE(Spans({"app"}, {{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}));
  EXPECT_TRUE(Spans({"app"}, {{"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "2"}}));
  EXPECT_TRUE(Spans({"app"}, {{"SLURM_STEP_TASKS_PER_NODE", "4(x2)"}, {"SLURM_STEP_NUM_NODES", "2"}}));
  EXPECT_FALSE(Spans({"app"}, {{"SLURM_STEP_TASKS_PER_NODE", "4"}, {"SLURM_STEP_NUM_NODES", "1"}}));
  EXPECT_FALSE(Spans({"app"}, {{"SLURM_STEP_NUM_NODES", "2"}})) << "a batch script";
}

}  // namespace
}  // namespace gpuprobe::recording
