// What NCCL asks NVML about the node's devices agrees with what CUDA says of them.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

namespace {

TEST(Nvml, KnowsTheDevicesThatCudaKnows) {
  ASSERT_EQ(setenv("GPUSIM_DEVICES", "3", 1), 0);
  void* library = dlopen(GPUSIM_NVML, RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto count_of = reinterpret_cast<int (*)(unsigned*)>(dlsym(library, "nvmlDeviceGetCount_v2"));
  const auto by_bus =
      reinterpret_cast<int (*)(const char*, void**)>(dlsym(library, "nvmlDeviceGetHandleByPciBusId"));
  const auto by_index =
      reinterpret_cast<int (*)(unsigned, void**)>(dlsym(library, "nvmlDeviceGetHandleByIndex"));
  const auto index_of = reinterpret_cast<int (*)(void*, unsigned*)>(dlsym(library, "nvmlDeviceGetIndex"));
  const auto capability =
      reinterpret_cast<int (*)(void*, int*, int*)>(dlsym(library, "nvmlDeviceGetCudaComputeCapability"));
  ASSERT_TRUE(count_of != nullptr && by_bus != nullptr && by_index != nullptr && index_of != nullptr &&
              capability != nullptr);
  unsigned count = 0;
  ASSERT_EQ(count_of(&count), 0);
  int devices = 0;
  ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  EXPECT_EQ(count, static_cast<unsigned>(devices));
  for (int device = 0; device < devices; ++device) {
    char bus[32];
    ASSERT_EQ(cudaDeviceGetPCIBusId(bus, sizeof bus, device), cudaSuccess);
    void* handle = nullptr;
    void* same = nullptr;
    unsigned index = 99;
    ASSERT_EQ(by_bus(bus, &handle), 0);
    ASSERT_EQ(by_index(static_cast<unsigned>(device), &same), 0);
    EXPECT_EQ(handle, same);
    ASSERT_EQ(index_of(handle, &index), 0);
    EXPECT_EQ(index, static_cast<unsigned>(device));
    int major = 0;
    int minor = 0;
    ASSERT_EQ(capability(handle, &major, &minor), 0);
    int cuda_major = 0;
    ASSERT_EQ(cudaDeviceGetAttribute(&cuda_major, cudaDevAttrComputeCapabilityMajor, device), cudaSuccess);
    EXPECT_EQ(major, cuda_major);
  }
  void* none = nullptr;
  EXPECT_NE(by_bus("0000:77:00.0", &none), 0);
  EXPECT_NE(by_index(3, &none), 0);
}

TEST(Nvml, ReportsTheMemoryThatThisProcessHolds) {
  struct Process {
    unsigned pid;
    unsigned long long used_bytes;
  };
  void* library = dlopen(GPUSIM_NVML, RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto by_index =
      reinterpret_cast<int (*)(unsigned, void**)>(dlsym(library, "nvmlDeviceGetHandleByIndex"));
  const auto processes_on = reinterpret_cast<int (*)(void*, unsigned*, Process*)>(
      dlsym(library, "nvmlDeviceGetComputeRunningProcesses"));
  ASSERT_TRUE(by_index != nullptr && processes_on != nullptr);
  void* device = nullptr;
  ASSERT_EQ(by_index(0, &device), 0);
  Process process = {};
  unsigned count = 1;
  ASSERT_EQ(processes_on(device, &count, &process), 0);
  EXPECT_EQ(count, 0U);
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 4 << 20), cudaSuccess);
  count = 1;
  ASSERT_EQ(processes_on(device, &count, &process), 0);
  ASSERT_EQ(count, 1U);
  EXPECT_EQ(process.pid, static_cast<unsigned>(getpid()));
  EXPECT_EQ(process.used_bytes, 4ULL << 20);
  count = 0;
  EXPECT_EQ(processes_on(device, &count, nullptr), 7) << "there is no room for one";
  EXPECT_EQ(count, 1U);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

}  // namespace
