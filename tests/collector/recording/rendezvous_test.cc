#include "collector/recording/rendezvous.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <climits>
#include <map>
#include <string>
#include <vector>

namespace gpuprobe::recording {
namespace {

using Variables = std::map<std::string, std::string>;

absl::StatusOr<std::optional<hub::Meeting>> Find(const std::vector<std::string>& command,
                                                 const Variables& variables, bool spans_hosts = true) {
  return FindMeeting(
      command,
      [&](const char* name) -> const char* {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      spans_hosts);
}

// "HOST PORT+PORTS JOB"; "-": none.
std::string Meeting(const std::vector<std::string>& command, const Variables& variables = {}) {
  const auto found = Find(command, variables);
  if (!found.ok()) return std::string(found.status().message());
  if (!found->has_value()) return "-";
  const hub::Meeting& m = **found;
  return m.host + " " + std::to_string(m.first_port) + "+" + std::to_string(m.ports) + " " + m.job;
}

TEST(Rendezvous, IsTheLaunchersOwn) {
  EXPECT_EQ(Meeting({"torchrun", "--nnodes=2", "--rdzv-endpoint", "n1:29500", "--rdzv_id=7", "train.py"}),
            "n1 9461+16 n1:29500 7");
  EXPECT_EQ(Meeting({"torchrun", "--rdzv_endpoint=[fd00::1]:29500", "train.py"}),
            "fd00::1 9461+16 fd00::1:29500 ");
  EXPECT_EQ(Meeting({"torchrun", "--master-addr=n1", "--master_port", "1234"}), "n1 9461+16 n1:1234 ");
  EXPECT_EQ(Meeting({"accelerate", "launch", "--main_process_ip", "n1", "--main_process_port", "9"}),
            "n1 9461+16 n1:9 ");
  EXPECT_EQ(Meeting({"app"}, {{"MASTER_ADDR", "n1"}, {"MASTER_PORT", "5"}, {"TORCHELASTIC_RUN_ID", "r"}}),
            "n1 9461+16 n1:5 r");
  EXPECT_EQ(Meeting({"app"}, {{"OMPI_MCA_orte_hnp_uri", "12.0;tcp://10.0.0.1,10.1.0.1:4321"},
                              {"PMIX_NAMESPACE", "12"}}),
            "10.0.0.1 9461+16 mpi 12");
}

TEST(Rendezvous, OfASlurmStepIsItsFirstNode) {
  const Variables step = {{"SLURM_JOB_ID", "4711"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_STEP_NODELIST", "n[03-04,7],m1"},
                          {"MASTER_ADDR", "x"}};
  EXPECT_EQ(Meeting({"python", "train.py"}, step), "n03 9461+16 slurm 4711.0");
  EXPECT_EQ(Meeting({"torchrun", "--rdzv-endpoint=n1:1"}, step), "n1 9461+16 n1:1  4711")
      << "the command says more";
  EXPECT_EQ(FirstNode("n1"), "n1");
  EXPECT_EQ(FirstNode("n1,n2"), "n1");
  EXPECT_EQ(FirstNode("n[1,3]"), "n1");
  EXPECT_EQ(FirstNode("rack1-n[12-14]-ib,x"), "rack1-n12-ib");
  EXPECT_EQ(FirstNode("a,n[1-2]"), "a");
  EXPECT_EQ(FirstNode("n["), "");
  EXPECT_EQ(FirstNode(""), "");
}

TEST(Rendezvous, CanBeSaidOrSwitchedOff) {
  const std::vector<std::string> command = {"torchrun", "--rdzv-endpoint=n1:1"};
  EXPECT_EQ(Meeting(command, {{"GPUPROBE_HUB", "off"}}), "-");
  EXPECT_EQ(Meeting(command, {{"GPUPROBE_HUB", "n9"}}), "n9 9461+1 n1:1 ");
  EXPECT_EQ(Meeting(command, {{"GPUPROBE_HUB", "127.0.0.1:7"}}), "127.0.0.1 7+1 n1:1 ");
  for (const char* wrong : {"n1:x", "n1:0", "n1:65536", ":7", "[::1"}) {
    EXPECT_EQ(Meeting(command, {{"GPUPROBE_HUB", wrong}}),
              std::string("GPUPROBE_HUB must be HOST, HOST:PORT or off, got \"") + wrong + "\"");
  }
}

TEST(Rendezvous, OfAJobOnOneHostIsWhereItIsSaid) {
  EXPECT_FALSE(Find({"app"}, {{"MASTER_ADDR", "n1"}}, false)->has_value());
  EXPECT_FALSE(Find({"app"}, {{"GPUPROBE_HUB", "off"}}, false)->has_value());
  const Variables named = {{"GPUPROBE_HUB", "n9"}, {"MASTER_ADDR", "n1"}};
  const auto one = Find({"/usr/bin/torchrun", "train.py"}, named, false);
  ASSERT_TRUE(one.ok() && one->has_value());
  EXPECT_TRUE((*one)->alone);
  EXPECT_EQ((*one)->host, "n9");
  EXPECT_NE((*one)->job.find(" torchrun "), std::string::npos) << (*one)->job;
  EXPECT_NE((*one)->job, (*Find({"/usr/bin/torchrun", "train.py"}, named, false))->job);
}

TEST(Rendezvous, IsNowhereWithoutAnAddressThatHostsShare) {
  EXPECT_EQ(Meeting({"app"}), "-");
  for (const char* host : {"localhost", "127.0.0.1", "127.1.2.3"})
    EXPECT_EQ(Meeting({"app"}, {{"MASTER_ADDR", host}}), "-") << host;
}

TEST(Rendezvous, KnowsThisHost) {
  char name[HOST_NAME_MAX + 1] = "";
  ASSERT_EQ(gethostname(name, HOST_NAME_MAX), 0);
  EXPECT_TRUE(IsThisHost(name));
  EXPECT_FALSE(IsThisHost("127.0.0.1")) << "the end of a tunnel";
  EXPECT_FALSE(IsThisHost("192.0.2.1"));  // of documents
  EXPECT_FALSE(IsThisHost(""));
}

}  // namespace
}  // namespace gpuprobe::recording
