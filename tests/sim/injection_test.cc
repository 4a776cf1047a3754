// cuInit loads CUDA_INJECTION64_PATH, once, and bears what it finds. One test a process: a driver starts
// once.
#include <cuda.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>
#include <vector>

namespace {

TEST(InjectionTest, IsLoadedOnceByTheFirstInitialisationOfAnyThread) {
  setenv("CUDA_INJECTION64_PATH", GPUSIM_TEST_TOOL, 1);
  int count = 0;
  EXPECT_EQ(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(std::getenv("GPUSIM_TEST_INJECTED"), nullptr);
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) threads.emplace_back([] { EXPECT_EQ(cuInit(0), CUDA_SUCCESS); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
  ASSERT_NE(std::getenv("GPUSIM_TEST_INJECTED"), nullptr);
  EXPECT_STREQ(std::getenv("GPUSIM_TEST_INJECTED"), "1");
  EXPECT_EQ(cuDeviceGetCount(&count), CUDA_SUCCESS);
}

}  // namespace
