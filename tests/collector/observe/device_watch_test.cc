#include "collector/observe/device_watch.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collector/observe/nvml.h"

namespace gpuprobe::observe {
namespace {

TEST(DeviceWatch, NothingHappensBeforeTheFirstGpu) {
  DeviceWatch watch("libno-such-nvml.so.1");
  EXPECT_TRUE(watch.Take().empty());
}

TEST(DeviceWatch, WithoutTheLibraryNothingIsSeen) {
  EXPECT_EQ(Nvml::Load("libno-such-nvml.so.1"), nullptr);
  EXPECT_EQ(Nvml::Load("libm.so.6"), nullptr) << "another library";
  DeviceWatch watch("libno-such-nvml.so.1");
  watch.Add("GPU-1");
  watch.Add("GPU-1");
  watch.Add("GPU-2");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(watch.Take().empty());
}

// The simulated node's NVML: its GPUs have this in common.
std::string UuidOf(int device) { return "GPU-67707573-696d-2d64-6576-6963652d000" + std::to_string(device); }

TEST(DeviceWatch, SeesEachGpuOnceASecondUntilItGoes) {
  ASSERT_EQ(setenv("GPUSIM_DEVICES", "2", 1), 0);
  DeviceWatch watch(GPUSIM_NVML);
  std::map<std::string, std::vector<v1::DeviceObservation>> seen;
  watch.Add(UuidOf(0));
  watch.Add("GPU-of-another-host");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while ((seen[UuidOf(0)].size() < 2 || seen[UuidOf(1)].empty()) && std::chrono::steady_clock::now() < end) {
    for (auto& [uuid, observation] : watch.Take()) seen[uuid].push_back(std::move(observation));
    if (!seen[UuidOf(0)].empty()) watch.Add(UuidOf(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_GE(seen[UuidOf(0)].size(), 2U);
  ASSERT_FALSE(seen[UuidOf(1)].empty());
  EXPECT_TRUE(seen["GPU-of-another-host"].empty());
  const v1::DeviceObservation& first = seen[UuidOf(0)].front();
  EXPECT_EQ(first.interval_ns(), 0U);
  EXPECT_EQ(first.sm_clock_mhz(), 1980U);
  EXPECT_EQ(first.power_limit_milliwatts(), 700'000U);
  EXPECT_EQ(first.max_pcie_lanes(), 16U);
  EXPECT_TRUE(first.busy());
  EXPECT_GT(seen[UuidOf(0)].back().interval_ns(), 0U);
}

TEST(DeviceWatch, LeavesTheCallersSignalsAsTheyAre) {
  sigset_t before;
  sigset_t after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  DeviceWatch watch("libno-such-nvml.so.1");
  watch.Add("GPU-1");
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (const int signal : {SIGINT, SIGTERM, SIGCHLD})
    EXPECT_EQ(sigismember(&before, signal), sigismember(&after, signal));
}

}  // namespace
}  // namespace gpuprobe::observe
