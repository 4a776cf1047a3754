// Exit handlers and static destructors call CUDA, as NCCL does: the thread's device and context are still
// there.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace {

bool used = false;

// Too late for gtest: ends the process with a status of its own.
void RequireDeviceOne(const char* who, int status) {
  if (!used) return;
  int device = -1;
  CUcontext context = nullptr;
  void* memory = nullptr;
  if (cudaGetDevice(&device) == cudaSuccess && device == 1 && cuCtxGetCurrent(&context) == CUDA_SUCCESS &&
      context != nullptr && cudaMalloc(&memory, 4096) == cudaSuccess && cudaFree(memory) == cudaSuccess) {
    return;
  }
  std::fprintf(stderr, "CUDA does not work any more in %s\n", who);
  _exit(status);
}

struct AfterMain {
  ~AfterMain() { RequireDeviceOne("a static destructor", 91); }
} after_main;

TEST(ExitTest, HandlersAndStaticDestructorsStillHaveTheContext) {
  setenv("GPUSIM_DEVICES", "2", 1);
  std::atexit([] { RequireDeviceOne("an exit handler", 92); });
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 4096), cudaSuccess);
  used = true;
}

}  // namespace
