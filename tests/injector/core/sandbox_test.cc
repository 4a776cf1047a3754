#include "injector/core/sandbox.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

namespace gpuprobe::injector {
namespace {

bool Kills(std::vector<sock_filter> code) {
  const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  return MayKill(&program);
}

TEST(Sandbox, AFilterThatAllowsOrRefusesKillsNobody) {
  EXPECT_FALSE(Kills({BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)}));
  EXPECT_FALSE(Kills({BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 41, 0, 1),
                      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_LOG)}));
}

TEST(Sandbox, AFilterMayKillOrAskSomebodyElse) {
  for (const unsigned action : {SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_KILL_THREAD, SECCOMP_RET_TRAP,
                                SECCOMP_RET_TRACE, SECCOMP_RET_USER_NOTIF})
    EXPECT_TRUE(Kills({BPF_STMT(BPF_RET | BPF_K, action)})) << action;
}

TEST(Sandbox, WhatAFilterReturnsMayBeComputed) { EXPECT_TRUE(Kills({BPF_STMT(BPF_RET | BPF_A, 0)})); }

TEST(Sandbox, TheEndOfALongFilterCounts) {
  std::vector<sock_filter> code(4000, BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0));
  code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  EXPECT_FALSE(Kills(code));
  code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  EXPECT_TRUE(Kills(code));
}

TEST(Sandbox, AFilterThatCannotBeReadMayKill) {
  EXPECT_TRUE(MayKill(nullptr));
  const sock_fprog program{1, nullptr};
  EXPECT_TRUE(MayKill(&program));
}

// In a child, because a filter stays.
TEST(Sandbox, AFilterOfOnesOwnIsASandbox) {
  const bool already = IsInSandbox();
  const pid_t child = fork();
  if (child == 0) {
    sock_filter code[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const sock_fprog program{1, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
      _exit(2);
    _exit(IsInSandbox() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "filters cannot be installed here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_FALSE(already) << "what all processes here have is no sandbox";
}

}  // namespace
}  // namespace gpuprobe::injector
