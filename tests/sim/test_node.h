// The fixture of the node's own tests: known knobs, two kernels as nvcc registers them, and a recorder in
// libcupti's place.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/core/cupti_seam.h"

namespace gpusim {

// Knobs that the test program sets before anything reads them.
constexpr uint64_t kSlowNs = 25'000'000;  // more than a busy machine keeps a test from enqueueing
constexpr uint64_t kFastNs = 20'000;
constexpr uint64_t kMemoryBytes = uint64_t{1} << 30;  // GPUSIM_MEMORY_GIB=1
constexpr double kPcieBytesPerS = 25e9;
constexpr int kDevices = 2;

// One enter or exit callback.
struct ApiEvent {
  bool enter = false;
  int domain = 0;
  uint32_t cbid = 0;
  std::string function;
  std::string symbol;
  uint32_t correlation = 0;
  int result = 0;  // at exit
};

class NodeTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  static const void* Slow();  // entry of a kernel of kSlowNs, "_Z4slowPf"
  static const void* Fast();
  static void Launch(const void* entry, cudaStream_t stream);
  static cudaStream_t NewStream(unsigned flags = cudaStreamNonBlocking);

  // Everything that has ended since SetUp, in order of delivery.
  static std::vector<Activity> Activities();
  static std::vector<Activity> Activities(ActivityKind kind);
  // API callbacks since RecordApi().
  static void RecordApi(bool on);
  static std::vector<ApiEvent> ApiEvents();
  static std::vector<Resource> Resources();
  // Lines of this process's truth file since SetUp.
  static std::vector<std::string> TruthLines();
};

}  // namespace gpusim

#define ASSERT_CUDA(call) ASSERT_EQ((call), cudaSuccess) << cudaGetErrorString(cudaPeekAtLastError())
#define EXPECT_CUDA(call) EXPECT_EQ((call), cudaSuccess)
