// A child of the test, watched as a rank is.
#include "collector/observe/process_observer.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

namespace gpuprobe::observe {
namespace {

class ProcessObserverTest : public ::testing::Test {
 protected:
  ~ProcessObserverTest() override {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  void Start() {
    child_ = fork();
    if (child_ == 0) {
      for (;;) pause();
    }
    ASSERT_GT(child_, 0);
  }
  std::optional<v1::ProcessObservation> Look(ProcessObserver& observer) {
    now_ns_ += 1'000'000'000;
    return observer.Look(now_ns_, now_ns_);
  }
  // The kernel needs a moment.
  bool Await(ProcessObserver& observer, const std::function<bool(const v1::ProcessObservation&)>& holds) {
    for (int i = 0; i < 500; ++i) {
      const auto seen = Look(observer);
      if (seen.has_value() && holds(*seen)) return true;
      usleep(10'000);
    }
    return false;
  }

  pid_t child_ = -1;
  uint64_t now_ns_ = 1'000'000'000;
};

TEST_F(ProcessObserverTest, APythonThatStaysSomewhereIsSeenThere) {
  child_ = fork();
  if (child_ == 0) {
    execlp("python3", "python3", "-c", "import time\ndef idle():\n  time.sleep(1000)\nidle()", nullptr);
    _exit(127);
  }
  const auto observer = ProcessObserver::Open(child_, static_cast<uint32_t>(child_));
  ASSERT_NE(observer, nullptr);
  std::optional<v1::PythonStack> seen;
  ASSERT_TRUE(Await(*observer, [&](const auto& o) {
    if (o.has_python()) seen = o.python();
    return o.has_python() && o.python().frames(0).function() == "idle";
  })) << (seen.has_value() ? seen->ShortDebugString() : "no stack, or no python3");
  EXPECT_EQ(seen->frames_size(), 2);
  EXPECT_EQ(seen->frames(0).line(), 3u);
  EXPECT_EQ(seen->frames(0).file(), "<string>");
  EXPECT_EQ(seen->frames(1).line(), 4u);
}

TEST_F(ProcessObserverTest, AStoppedProcessIsSeenStoppedAndGoingOn) {
  Start();
  const auto observer = ProcessObserver::Open(child_, static_cast<uint32_t>(child_));
  ASSERT_NE(observer, nullptr);
  const auto first = Look(*observer);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->interval_ns(), 0u);
  kill(child_, SIGSTOP);
  EXPECT_TRUE(Await(*observer, [](const auto& o) { return o.state() == 'T'; }));
  kill(child_, SIGCONT);
  EXPECT_TRUE(
      Await(*observer, [](const auto& o) { return o.state() == 'S' && o.interval_ns() == 1'000'000'000; }));
}

TEST_F(ProcessObserverTest, WhatItUsesBeforeTheFirstLookIsCounted) {
  child_ = fork();
  if (child_ == 0) {
    for (;;) getppid();
  }
  const auto observer = ProcessObserver::Open(child_, static_cast<uint32_t>(child_));
  ASSERT_NE(observer, nullptr);
  EXPECT_FALSE(observer->Count(now_ns_, now_ns_).has_value()) << "since when is not known";
  observer->Begin(now_ns_);
  uint64_t used_ns = 0;
  for (int i = 0; i < 500 && used_ns == 0; ++i) {
    usleep(10'000);
    now_ns_ += 250'000'000;
    const auto counted = observer->Count(now_ns_, now_ns_);
    ASSERT_TRUE(counted.has_value());
    EXPECT_EQ(counted->interval_ns(), 250'000'000u);
    EXPECT_EQ(counted->state(), 0u);
    used_ns = counted->cpu_ns();
  }
  EXPECT_GT(used_ns, 0u);
  const auto look = Look(*observer);
  ASSERT_TRUE(look.has_value());
  EXPECT_EQ(look->interval_ns(), 1'000'000'000u) << "since it was counted";
}

TEST_F(ProcessObserverTest, TheSignalThatEndedItIsToldOnce) {
  Start();
  const auto observer = ProcessObserver::Open(child_, static_cast<uint32_t>(child_));
  ASSERT_NE(observer, nullptr);
  EXPECT_FALSE(observer->HasEnded());
  kill(child_, SIGKILL);
  // Nobody has waited for it: it is a zombie, whose status the kernel shows.
  EXPECT_TRUE(Await(*observer, [](const auto& o) { return o.has_end(); }));
  EXPECT_TRUE(observer->said_end());
  EXPECT_FALSE(Look(*observer).has_value());
}

TEST_F(ProcessObserverTest, AStatusThatItsParentGaveIsTaken) {
  Start();
  const auto observer = ProcessObserver::Open(child_, static_cast<uint32_t>(child_));
  ASSERT_NE(observer, nullptr);
  kill(child_, SIGSEGV);
  int status = 0;
  ASSERT_EQ(waitpid(child_, &status, 0), child_);
  child_ = -1;
  observer->NoteStatus(status);
  const auto end = Look(*observer);
  ASSERT_TRUE(end.has_value());
  EXPECT_TRUE(end->end().known());
  EXPECT_EQ(end->end().signal(), static_cast<uint32_t>(SIGSEGV));
}

TEST_F(ProcessObserverTest, WhoeverOnlySpeaksForAnotherIsNotWatched) {
  Start();
  EXPECT_EQ(ProcessObserver::Open(child_, static_cast<uint32_t>(getpid())), nullptr);
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  EXPECT_EQ(ProcessObserver::OfPeer(ends[0], 1), nullptr);
  EXPECT_NE(ProcessObserver::OfPeer(ends[0], static_cast<uint32_t>(getpid())), nullptr);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace gpuprobe::observe
