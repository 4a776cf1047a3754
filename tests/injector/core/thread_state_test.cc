#include "injector/core/thread_state.h"

#include <gtest/gtest.h>

#include <thread>

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
  ++thread.nccl_call_depth;
  ++thread.nccl_call_depth;
  EXPECT_TRUE(NewThreadAllocatesForNccl());
  --thread.nccl_call_depth;
  EXPECT_TRUE(NewThreadAllocatesForNccl()) << "still inside the outer call";
  --thread.nccl_call_depth;
  EXPECT_FALSE(NewThreadAllocatesForNccl());
}

TEST(ThreadStateTest, AThreadThatWorkedForTheProgramAllocatesForItself) {
  ThreadState& inside = CurrentThread();
  ++inside.nccl_call_depth;
  std::thread([] {
    CurrentThread().works_for_application = true;
    EXPECT_FALSE(AllocatesForNccl(CurrentThread()));
  }).join();
  --inside.nccl_call_depth;
}

TEST(ThreadStateTest, AThreadThatExitsInsideNcclIsInsideNoLonger) {
  std::thread([] { ++CurrentThread().nccl_call_depth; }).join();
  EXPECT_FALSE(AnyThreadInNccl());
}

}  // namespace
}  // namespace gpuprobe::injector
