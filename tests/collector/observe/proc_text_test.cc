// Texts of /proc and of control groups: as kernels write them, and as a process may name itself to mislead.
#include "collector/observe/proc_text.h"

#include <gtest/gtest.h>

#include <string>

namespace gpuprobe::observe {
namespace {

// Field 3 on: state, then numbers; fields 12, 14, 15, 20 and 52 are those that are read.
std::string Stat(const std::string& name, char state) {
  std::string text = "4711 (" + name + ") " + state;
  for (int field = 4; field <= 52; ++field) {
    const int value = field == 12   ? 7
                      : field == 14 ? 30
                      : field == 15 ? 12
                      : field == 20 ? 5
                      : field == 52 ? 19
                                    : 1;
    text += " " + std::to_string(value);
  }
  return text + "\n";
}

TEST(ProcTextTest, StatIsReadBehindWhateverNameTheProcessHas) {
  for (const std::string name : {"python", "a b", ") R 1 2 3", "x) Z (y", "((", ""}) {
    const auto stat = ParseStat(Stat(name, 'T'));
    ASSERT_TRUE(stat.has_value()) << name;
    EXPECT_EQ(stat->state, 'T');
    EXPECT_EQ(stat->major_faults, 7u);
    EXPECT_EQ(stat->cpu_ticks, 42u);
    EXPECT_EQ(stat->threads, 5u);
    EXPECT_EQ(stat->exit_code, 19);
  }
}

TEST(ProcTextTest, StatOfAnOldKernelHasNoExitCode) {
  const std::string whole = Stat("a", 'S');
  std::string cut = whole;
  for (int i = 0; i < 8; ++i) cut.resize(cut.rfind(' '));
  const auto stat = ParseStat(cut);
  ASSERT_TRUE(stat.has_value());
  EXPECT_EQ(stat->exit_code, 0);
}

TEST(ProcTextTest, WhatIsNoStatIsRefused) {
  for (const char* text : {"", ")", "1 (a)", "1 (a) S", "1 (a) SS 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
                           "1 (a) S 1 1 1 1 1 1 1 1 x 1 1 1 1 1 1 1 1",
                           "1 (a) S 1 1 1 1 1 1 1 1 99999999999999999999999 1 1 1 1 1 1 1 1"})
    EXPECT_FALSE(ParseStat(text).has_value()) << text;
  const std::string whole = Stat("python) S", 'D');
  for (size_t size = 0; size < whole.size(); ++size) (void)ParseStat(std::string(whole, 0, size));
}

TEST(ProcTextTest, TheInnermostPidIsTheLast) {
  const auto status = ParseStatus(
      "Name:\tNSpid: 9\nPid:\t4711\nPPid:\t1\nTracerPid:\t12\nNSpid:\t4711\t12\t1\nVmSwap:\t 2048 kB\n");
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(status->pids, (std::vector<uint32_t>{4711, 12, 1}));
  EXPECT_EQ(status->tracer, 12u);
  EXPECT_EQ(status->parent, 1u);
  EXPECT_EQ(status->swapped_bytes, uint64_t{2} << 20);
}

TEST(ProcTextTest, WithoutNamespacesThePidIsItsOwn) {
  EXPECT_EQ(ParseStatus("Name:\ta\nPid:\t7\n")->pids, std::vector<uint32_t>{7});
  EXPECT_FALSE(ParseStatus("").has_value());
  EXPECT_FALSE(ParseStatus("Pid\nNSpid:\n:::\n").has_value());
}

TEST(ProcTextTest, SchedStat) {
  const auto stat = ParseSchedStat("123 456 7\n");
  ASSERT_TRUE(stat.has_value());
  EXPECT_EQ(stat->run_ns, 123u);
  EXPECT_EQ(stat->delay_ns, 456u);
  EXPECT_FALSE(ParseSchedStat("123").has_value());
  EXPECT_FALSE(ParseSchedStat("a b c").has_value());
  EXPECT_FALSE(ParseSchedStat("-1 0 0").has_value());
}

TEST(ProcTextTest, SystemCallOfAThreadThatSleeps) {
  const auto call = ParseSystemCall("0 0x1f 0x7fc2ef154000 0x1 0x0 0x0 0x0 0x7fff253cb578 0x7fc2ef2cc2ad\n");
  ASSERT_TRUE(call.has_value());
  EXPECT_EQ(call->number, 0);
  EXPECT_EQ(call->first, 0x1fu);
  for (const char* text :
       {"running\n", "-1 0x7ffd 0x7f\n", "", "0", "0 31 0x1", "0 0x 0x1", "0 0xffffffffffffffffff 0x1"})
    EXPECT_FALSE(ParseSystemCall(text).has_value()) << text;
}

TEST(ProcTextTest, ControlGroupsOfBothHierarchies) {
  const auto paths =
      ParseCgroups("9:name=systemd:/\n4:memory:/a\n2:cpu,cpuacct:/job:1/b\n0::/x y\nbad\n::\n5:pids:no\n");
  EXPECT_EQ(paths.at(""), "/x y");
  EXPECT_EQ(paths.at("memory"), "/a");
  EXPECT_EQ(paths.at("cpu"), "/job:1/b");
  EXPECT_EQ(paths.at("cpuacct"), "/job:1/b");
  EXPECT_FALSE(paths.contains("pids"));
}

TEST(ProcTextTest, WhereControlGroupsAreMounted) {
  const auto mounts = ParseCgroupMounts(
      "35 24 0:30 / /sys/fs/cgroup/uni\\040fied rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"
      "36 24 0:31 /pod /sys/fs/cgroup/cpu rw shared:10 master:1 - cgroup cgroup rw,cpu,cpuacct\n"
      "37 24 0:32 / /tmp rw - tmpfs cgroup2 rw\n-\n38 - cgroup2\n");
  ASSERT_TRUE(mounts.contains(""));
  EXPECT_EQ(mounts.at("").point, "/sys/fs/cgroup/uni fied");
  EXPECT_EQ(mounts.at("cpu").root, "/pod");
  EXPECT_EQ(mounts.at("cpu").point, "/sys/fs/cgroup/cpu");
  EXPECT_EQ(mounts.size(), 4u);  // "rw" is one of the options, which nobody asks for
}

TEST(ProcTextTest, QuotasCountersAndPressure) {
  EXPECT_EQ(ParseCpuMax("150000 100000\n"), 1500u);
  EXPECT_EQ(ParseCpuMax("5 100000"), 0u);
  for (const char* text : {"max 100000\n", "", "1", "1 0", "-1 100000", "1 2 3"})
    EXPECT_FALSE(ParseCpuMax(text).has_value()) << text;
  EXPECT_EQ(ParseKeyed("nr_periods 5\nnr_throttled 3\n", "nr_throttled"), 3u);
  EXPECT_FALSE(ParseKeyed("nr_throttled_x 3\nnr_throttled\n", "nr_throttled").has_value());
  EXPECT_EQ(ParseNumber("42\n"), 42u);
  EXPECT_FALSE(ParseNumber("-1\n").has_value());
  EXPECT_EQ(
      ParseFullStall(
          "some avg10=9.0 avg60=1.0 avg300=0.0 total=7\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=123\n"),
      123u);
  EXPECT_FALSE(ParseFullStall("full\nsome total=3\n").has_value());
}

}  // namespace
}  // namespace gpuprobe::observe
