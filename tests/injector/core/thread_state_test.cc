#include "injector/core/thread_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

namespace gpuprobe::injector {
namespace {

// What a thread that never worked for the program would be taken for now.
bool NewThreadAllocatesForNccl() {
  bool answer = false;
  std::thread([&] { answer = AllocatesForNccl(CurrentThread()); }).join();
  return answer;
}

TEST(ThreadStateTest, NewThreadsAllocateForNcclWhileAnotherThreadIsInside) {
  EXPECT_FALSE(NewThreadAllocatesForNccl());
  ThreadState& thread = CurrentThread();
  EnterNccl(thread);
  EnterNccl(thread);
  EXPECT_TRUE(NewThreadAllocatesForNccl());
  --thread.nccl_call_depth;
  EXPECT_TRUE(NewThreadAllocatesForNccl()) << "still inside the outer call";
  --thread.nccl_call_depth;
  EXPECT_FALSE(NewThreadAllocatesForNccl());
}

TEST(ThreadStateTest, AThreadThatWorkedForTheProgramAllocatesForItself) {
  ThreadState& inside = CurrentThread();
  EnterNccl(inside);
  std::thread([] {
    CurrentThread().works_for_application = true;
    EXPECT_FALSE(AllocatesForNccl(CurrentThread()));
  }).join();
  --inside.nccl_call_depth;
}

TEST(ThreadStateTest, AThreadThatExitsInsideNcclIsInsideNoLonger) {
  std::thread([] { EnterNccl(CurrentThread()); }).join();
  EXPECT_FALSE(AnyThreadInNccl());
}

TEST(ThreadStateTest, EveryThreadHasAStateOfItsOwnHoweverManyThereAre) {
  constexpr int kThreads = kThreadsPerPart + 200;
  std::vector<ThreadState*> states;
  for (int i = 0; i < kThreads; ++i) {
    current_thread = nullptr;  // as on a thread that has none
    states.push_back(&CurrentThread());
    ASSERT_NE(states.back()->tid, 0u);
  }
  std::sort(states.begin(), states.end());
  EXPECT_EQ(std::unique(states.begin(), states.end()), states.end());
  EXPECT_GE(UsedThreads(), kThreads);
  EXPECT_EQ(&ThreadAt(static_cast<int>(CurrentThread().place)), &CurrentThread());
}

}  // namespace
}  // namespace gpuprobe::injector
