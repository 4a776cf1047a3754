#include "collector/observe/device_watch.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <thread>

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
