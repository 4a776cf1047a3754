#include "injector/core/guard.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <new>
#include <thread>

#include "injector/base/lifecycle.h"
#include "injector/base/losses.h"

namespace gpuprobe::injector {
namespace {

class GuardTest : public ::testing::Test {
 protected:
  static void GoLive() {
    ASSERT_TRUE(Transition(LifecycleState::kOff, LifecycleState::kStarting));
    ASSERT_TRUE(Transition(LifecycleState::kStarting, LifecycleState::kLive));
  }
};

TEST_F(GuardTest, NobodyEntersUnlessTheProbeIsLive) {
  EXPECT_FALSE(Guard());
  ASSERT_TRUE(Transition(LifecycleState::kOff, LifecycleState::kStarting));
  EXPECT_FALSE(Guard());
  ASSERT_TRUE(Transition(LifecycleState::kStarting, LifecycleState::kLive));
  EXPECT_TRUE(Guard());
  ASSERT_TRUE(Transition(LifecycleState::kLive, LifecycleState::kYielded));
  EXPECT_FALSE(Guard());
}

TEST_F(GuardTest, AThreadInsideDoesNotEnterAgain) {
  GoLive();
  const Guard outer;
  ASSERT_TRUE(outer);
  EXPECT_FALSE(Guard());
}

TEST_F(GuardTest, LeavingLetsTheThreadInAgainAndThreadsAreIndependent) {
  GoLive();
  {
    const Guard guard;
    EXPECT_TRUE(guard);
    std::thread([] { EXPECT_TRUE(Guard()); }).join();
  }
  EXPECT_TRUE(Guard());
}

TEST_F(GuardTest, TheProgramsErrnoSurvives) {
  GoLive();
  errno = EAGAIN;
  {
    const Guard guard;
    ASSERT_TRUE(guard);
    errno = ENOENT;
  }
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(GuardTest, EventsAreCountedAndSomeAreTimed) {
  GoLive();
  const HostCost before = TotalHostCost();
  for (int i = 0; i < 1000; ++i) {
    const Guard guard;
    usleep(1);
  }
  const HostCost after = TotalHostCost();
  EXPECT_EQ(after.events - before.events, 1000u);
  EXPECT_GT(after.judged_ns - before.judged_ns, 15u * 1000u);
}

// A thread that lost the processor did not cost 64 times as much.
TEST_F(GuardTest, AnInterruptionOfATimedEventCountsOnce) {
  GoLive();
  const HostCost before = TotalHostCost();
  for (uint32_t i = 0; i < kHostCostSampling; ++i) {
    const Guard guard;
    usleep(2000);
  }
  const HostCost after = TotalHostCost();
  EXPECT_EQ(after.judged_ns - before.judged_ns, kMaxJudgedNs);
  EXPECT_GE(after.interrupted_ns - before.interrupted_ns, 2'000'000u - kMaxJudgedNs);
  EXPECT_EQ(after.budgeted_ns() - before.budgeted_ns(), kMaxJudgedNs * kHostCostSampling);
  EXPECT_EQ(after.estimated_ns() - before.estimated_ns(),
            after.budgeted_ns() - before.budgeted_ns() + after.interrupted_ns - before.interrupted_ns);
}

uint64_t Interrupted() { return LossCount(wire::LossReason::kLossInterrupted); }

// A guard whose function was left by a jump, at this place on the stack.
class LeftGuard {
 public:
  LeftGuard() { new (place_) Guard; }
  const Guard& operator*() const { return *std::launder(reinterpret_cast<const Guard*>(place_)); }
  void Overwrite() { std::memset(place_, 0x5a, sizeof(place_)); }
  bool Reopen() { return static_cast<bool>(*new (place_) Guard); }
  void Close() { std::launder(reinterpret_cast<Guard*>(place_))->~Guard(); }

 private:
  alignas(Guard) char place_[sizeof(Guard)];
};

TEST_F(GuardTest, WhatASignalHandlerMakesInsideIsCounted) {
  GoLive();
  const uint64_t before = Interrupted();
  CountRefused();
  EXPECT_EQ(Interrupted(), before) << "nothing refuses it";
  const Guard outer;
  const Guard handlers;
  EXPECT_FALSE(handlers);
  CountRefused(2);
  EXPECT_EQ(Interrupted(), before + 2);
}

TEST_F(GuardTest, AGuardThatWasLeftByAJumpIsReopenedInItsPlace) {
  GoLive();
  const uint64_t before = Interrupted();
  LeftGuard left;
  ASSERT_TRUE(*left);
  EXPECT_TRUE(left.Reopen());
  left.Close();
  EXPECT_EQ(Interrupted(), before + 1);
  EXPECT_TRUE(Guard());
}

TEST_F(GuardTest, AGuardThatWasLeftByAJumpIsDeadWhenItsPlaceIsUsedOtherwise) {
  GoLive();
  const uint64_t before = Interrupted();
  LeftGuard left;
  EXPECT_FALSE(Guard()) << "it may be interrupted only";
  left.Overwrite();
  EXPECT_TRUE(Guard());
  EXPECT_TRUE(Guard());
  EXPECT_EQ(Interrupted(), before + 1);
}

[[gnu::noinline]] void LeaveAGuardBelow() {
  LeftGuard left;
  ASSERT_TRUE(*left);
}

TEST_F(GuardTest, AGuardThatWasLeftByAJumpIsDeadBelowTheFramesInUse) {
  GoLive();
  std::thread([] {
    LeaveAGuardBelow();
    EXPECT_TRUE(Guard());
  }).join();
  LeaveAGuardBelow();
  EXPECT_TRUE(Guard());
}

TEST_F(GuardTest, AGuardOnAStackThatIsGoneIsDead) {
  GoLive();
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* stack = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  new (stack) Guard;
  EXPECT_FALSE(Guard());
  munmap(stack, page);
  EXPECT_TRUE(Guard());
}

// Whatever way the child is made, fork handlers or not.
TEST_F(GuardTest, AForkedChildIsDeadAndTheParentIsNot) {
  ASSERT_TRUE(WatchForks());
  GoLive();
  const auto clone_child = [] {
    return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, 0));
  };
  const std::function<pid_t()> ways[] = {fork, _Fork, clone_child};
  for (const auto& make : ways) {
    const pid_t child = make();
    if (child == 0) {
      const bool revived = Transition(LifecycleState::kOff, LifecycleState::kStarting);
      _exit(!Guard() && InForkedChild() && !InWatchedProcess() && !revived ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(Guard());
    EXPECT_FALSE(InForkedChild());
    EXPECT_TRUE(InWatchedProcess());
  }
}

TEST_F(GuardTest, AChildThatSharesOurMemoryDoesNothingAtExit) {
  ASSERT_TRUE(WatchForks());
  GoLive();
  alignas(16) static char stack[65536];
  const auto main = [](void*) { return InWatchedProcess() ? 1 : 0; };
  const int child = clone(main, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, nullptr);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(InWatchedProcess());
  EXPECT_TRUE(Guard());
}

TEST_F(GuardTest, OnlyTheAllowedTransitionsHappen) {
  EXPECT_FALSE(Transition(LifecycleState::kOff, LifecycleState::kLive));
  EXPECT_FALSE(Transition(LifecycleState::kLive, LifecycleState::kClosed));
  GoLive();
  CloseLifecycle();
  EXPECT_FALSE(Transition(LifecycleState::kClosed, LifecycleState::kStarting));
  EXPECT_EQ(CurrentLifecycle(), LifecycleState::kClosed);
}

}  // namespace
}  // namespace gpuprobe::injector
