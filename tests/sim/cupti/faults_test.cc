// libcupti under GPUSIM_FAULT and GPUSIM_CUPTI_VERSION, and before the driver is up.

#include <cuda.h>
#include <cupti.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/sim/core/cupti_seam.h"
#include "tests/sim/cupti/tool.h"

namespace gpusim::cupti {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

void Ignore(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

// What needs a process of its own: the knobs are read when the library is loaded, and the driver comes up
// once.

TEST(AloneTest, DISABLED_BeforeTheDriver) {
  EXPECT_FALSE(DriverIsUp());
  Tool tool;
  EXPECT_EQ(tool.subscribed, CUPTI_SUCCESS) << "possible inside of cuInit";
  tool.Enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  uint8_t one = 1;
  size_t size = sizeof(one);
  CUpti_ActivityThreadIdType type = CUPTI_ACTIVITY_THREAD_ID_TYPE_DEFAULT;
  EXPECT_EQ(cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &size, &one),
            CUPTI_ERROR_UNKNOWN);
  EXPECT_EQ(cuptiActivityFlushPeriod(100), CUPTI_ERROR_UNKNOWN);
  EXPECT_EQ(cuptiSetThreadIdType(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM), CUPTI_ERROR_UNKNOWN);
  EXPECT_EQ(cuptiGetThreadIdType(&type), CUPTI_ERROR_UNKNOWN);
  uint64_t now = 0;
  EXPECT_EQ(cuptiGetTimestamp(&now), CUPTI_SUCCESS);
  const Application application;
  EXPECT_EQ(cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &size, &one),
            CUPTI_SUCCESS);
  size_t bytes = 0;
  size = sizeof(bytes);
  EXPECT_EQ(cuptiActivityGetAttribute(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE, &size, &bytes), CUPTI_SUCCESS);
  EXPECT_EQ(bytes, 3200000U);
  size = 4;
  EXPECT_EQ(cuptiActivityGetAttribute(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE, &size, &bytes),
            CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT);
  EXPECT_EQ(cuptiActivityFlushPeriod(100), CUPTI_SUCCESS);
  EXPECT_EQ(cuptiSetThreadIdType(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM), CUPTI_SUCCESS);
  application.Launch(application.fast);
  application.Synchronize();
  tool.Flush();
  EXPECT_THAT(tool.Records<CUpti_ActivityKernel10>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), SizeIs(1));
}

TEST(AloneTest, DISABLED_SubscriberTaken) {
  CUpti_SubscriberHandle handle = nullptr;
  CUpti_SubscriberParams params{};
  char name[CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN] = {};
  params.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
  params.oldSubscriberName = name;
  params.oldSubscriberSize = sizeof(name);
  EXPECT_EQ(cuptiSubscribe_v2(&handle, Ignore, nullptr, &params),
            CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
  EXPECT_STREQ(name, "CUPTI for another tool");
}

TEST(AloneTest, DISABLED_Unusable) {
  CUpti_SubscriberHandle handle = nullptr;
  EXPECT_EQ(cuptiSubscribe(&handle, Ignore, nullptr), CUPTI_ERROR_UNKNOWN);
  EXPECT_EQ(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY), CUPTI_ERROR_UNKNOWN);
  EXPECT_EQ(cuptiActivityFlushAll(0), CUPTI_ERROR_UNKNOWN);
}

// Ten kernels under the faults of the environment; the records, by start.
std::vector<CUpti_ActivityKernel10> TenKernels(Tool& tool) {
  const Application application;
  tool.Enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  for (int i = 0; i < 10; ++i) {
    application.Launch(application.fast);
  }
  application.Synchronize();
  tool.Flush();
  return tool.Records<CUpti_ActivityKernel10>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
}

TEST(AloneTest, DISABLED_ZeroTimestamps) {
  Tool tool;
  const auto records = TenKernels(tool);
  EXPECT_THAT(records, SizeIs(10));
  EXPECT_EQ(
      std::count_if(records.begin(), records.end(), [](const auto& r) { return r.start == 0 && r.end == 0; }),
      5);
}

TEST(AloneTest, DISABLED_BackwardTimestamps) {
  Tool tool;
  const auto records = TenKernels(tool);
  EXPECT_EQ(std::count_if(records.begin(), records.end(), [](const auto& r) { return r.end < r.start; }), 10);
}

TEST(AloneTest, DISABLED_Drops) {
  Tool tool;
  EXPECT_THAT(TenKernels(tool), SizeIs(7));
  size_t dropped = 0;
  EXPECT_EQ(cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped), CUPTI_SUCCESS);
  EXPECT_EQ(dropped, 3U);
}

// Buffers of five kernels; every second comes back with a third record that cannot be read.
TEST(AloneTest, DISABLED_DamagedBuffer) {
  Tool tool;
  tool.buffer_size = 5 * sizeof(CUpti_ActivityKernel10);
  EXPECT_THAT(TenKernels(tool), SizeIs(5 + 2)) << "the damaged one, and what is behind it, are not read";
}

TEST(AloneTest, DISABLED_DriverStarts) {
  Tool tool;
  std::vector<int> requests_before;
  tool.on_callback = [&](CUpti_CallbackDomain domain, uint32_t cbid, const void*) {
    EXPECT_EQ(domain, CUPTI_CB_DOMAIN_RESOURCE);
    EXPECT_EQ(cbid, static_cast<uint32_t>(CUPTI_CBID_RESOURCE_CU_INIT_FINISHED));
    requests_before.push_back(tool.requests);
  };
  tool.Listen(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_CU_INIT_FINISHED);
  tool.Enable(CUPTI_ACTIVITY_KIND_DEVICE);
  EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
  EXPECT_EQ(requests_before, std::vector<int>{1}) << "asked for first, then told that the driver is up";
  EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
  EXPECT_THAT(requests_before, SizeIs(1)) << "once";
  tool.Flush();
  EXPECT_THAT(tool.Records<CUpti_ActivityDevice5>(CUPTI_ACTIVITY_KIND_DEVICE), SizeIs(1));
}

TEST(AloneTest, DISABLED_ForcedFlush) {
  Tool tool;
  EXPECT_THAT(TenKernels(tool), SizeIs(10)) << "a plain flush is well";
  tool.Flush(/*forced=*/true);
}

TEST(AloneTest, DISABLED_KernelsDisabled) {
  Tool tool;
  EXPECT_EQ(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), CUPTI_SUCCESS)
      << "none was recorded";
  EXPECT_THAT(TenKernels(tool), SizeIs(10));
  EXPECT_EQ(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), CUPTI_SUCCESS);
}

// Waits for the device have no record in 13.0, waits for a stream have.
TEST(AloneTest, DISABLED_DeviceWaits) {
  const Application application;
  Tool tool;
  tool.Enable(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
  application.Launch(application.fast);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  application.Synchronize();
  tool.Flush();
  uint32_t version = 0;
  EXPECT_EQ(cuptiGetVersion(&version), CUPTI_SUCCESS);
  EXPECT_THAT(tool.Records<CUpti_ActivitySynchronization>(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION),
              SizeIs(version == 130000 ? 1 : 2));
}

uint64_t Ticks() { return NowNs() / 2; }

TEST(AloneTest, DISABLED_TimesWithAClock) {
  Tool tool;
  EXPECT_EQ(cuptiActivityRegisterTimestampCallback(nullptr), CUPTI_ERROR_INVALID_PARAMETER);
  EXPECT_THAT(TenKernels(tool), SizeIs(10));
  const Application application;
  const auto launch_three = [&] {
    for (int i = 0; i < 3; ++i) application.Launch(application.fast);
    application.Synchronize();
  };
  for (int registration = 1; registration <= 2; ++registration) {
    launch_three();
    EXPECT_EQ(cuptiActivityRegisterTimestampCallback(Ticks), CUPTI_SUCCESS);
    launch_three();
    tool.Flush();
    EXPECT_EQ(cuptiActivityRegisterTimestampCallback(nullptr), CUPTI_ERROR_INVALID_PARAMETER)
        << "it cannot be taken back";
    const auto records = tool.Records<CUpti_ActivityKernel10>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    EXPECT_THAT(records, SizeIs(10 + 6 * registration));
    uint32_t version = 0;
    EXPECT_EQ(cuptiGetVersion(&version), CUPTI_SUCCESS);
    EXPECT_EQ(std::count_if(records.begin(), records.end(), [](const auto& r) { return r.end == 0; }),
              version <= 130001 ? 3 * registration : 0)
        << "those that waited while it was registered";
  }
}

TEST(AloneTest, DISABLED_NoKernelRecords) {
  Tool tool;
  EXPECT_THAT(TenKernels(tool), IsEmpty());
}

TEST(AloneTest, DISABLED_OldLayout) {
  Tool tool;
  uint32_t version = 0;
  EXPECT_EQ(cuptiGetVersion(&version), CUPTI_SUCCESS);
  EXPECT_EQ(version, 18U);
  const auto records = TenKernels(tool);
  ASSERT_THAT(records, SizeIs(10));
  EXPECT_EQ(records[0].end - records[0].start, 20'000U);
}

TEST(AloneTest, DISABLED_NullBuffer) {
  Tool tool;
  tool.decline_buffers = true;
  TenKernels(tool);
}

TEST(AloneTest, DISABLED_Finalize) {
  Tool tool;
  EXPECT_THAT(TenKernels(tool), SizeIs(10));
  EXPECT_EQ(cuptiFinalize(), CUPTI_SUCCESS);
  const Application application;
  application.Launch(application.fast);
  application.Synchronize();
  tool.Flush();
  EXPECT_THAT(tool.Records<CUpti_ActivityKernel10>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), SizeIs(10));
  tool.subscribed = CUPTI_ERROR_NOT_INITIALIZED;  // it is not anymore
}

// A tool that calls CUPTI under a lock which its completion callback takes: with the library's lock held over
// callbacks, stuck.
TEST(AloneTest, DISABLED_LockOverCallbacks) {
  const Application application;
  Tool tool;
  tool.buffer_size = 1024;
  tool.Enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  std::mutex own;
  std::atomic<bool> in_callback{false};
  tool.on_complete = [&] {
    in_callback = true;
    const std::scoped_lock lock(own);
  };
  std::unique_lock held(own);
  std::thread([&] {
    EXPECT_EQ(cuCtxSetCurrent(application.context), CUDA_SUCCESS);
    for (int i = 0; i < 10; ++i) {
      application.Launch(application.fast);
    }
  }).detach();
  while (!in_callback) {
    std::this_thread::yield();
  }
  size_t dropped = 0;
  cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped);
  std::_Exit(0);  // not reached when the library's lock is held over the callback
}

int Code(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status); }

TEST(FaultTest, KnobsOfTheEnvironment) {
  const std::pair<const char*, std::pair<const char*, const char*>> cases[] = {
      {"BeforeTheDriver", {"GPUSIM_FAULT", ""}},
      {"SubscriberTaken", {"GPUSIM_FAULT", "subscriber_taken"}},
      {"Unusable", {"GPUSIM_FAULT", "unusable"}},
      {"ZeroTimestamps", {"GPUSIM_FAULT", "zero_timestamps=2"}},
      {"BackwardTimestamps", {"GPUSIM_FAULT", "backward_timestamps"}},
      {"Drops", {"GPUSIM_FAULT", "drops=3"}},
      {"NoKernelRecords", {"GPUSIM_FAULT", "no_kernel_records"}},
      {"OldLayout", {"GPUSIM_CUPTI_VERSION", "11.8"}},
      {"Finalize", {"GPUSIM_FAULT", ""}},
      {"DamagedBuffer", {"GPUSIM_FAULT", "damaged_buffer=2"}},
      {"DriverStarts", {"GPUSIM_FAULT", ""}},
      {"ForcedFlush", {"GPUSIM_CUPTI_VERSION", "13.0.1"}},
      {"KernelsDisabled", {"GPUSIM_CUPTI_VERSION", "13.0.1"}},
      {"DeviceWaits", {"GPUSIM_CUPTI_VERSION", "13.0.0"}},
      {"DeviceWaits", {"GPUSIM_CUPTI_VERSION", "13.0.1"}},
      {"TimesWithAClock", {"GPUSIM_CUPTI_VERSION", "12.9"}},
      {"TimesWithAClock", {"GPUSIM_CUPTI_VERSION", "13.0.1"}},
      {"TimesWithAClock", {"GPUSIM_CUPTI_VERSION", "13.2"}},
  };
  for (const auto& [test, variable] : cases) {
    EXPECT_EQ(Code(RunAlone(test, {{variable.first, variable.second}})), 0) << test;
  }
}

TEST(FaultTest, ANullBufferEndsTheProcessBefore129) {
  EXPECT_EQ(Code(RunAlone("NullBuffer", {{"GPUSIM_CUPTI_VERSION", "12.6"}})), -SIGABRT);
  EXPECT_EQ(Code(RunAlone("NullBuffer", {{"GPUSIM_CUPTI_VERSION", "13.0"}})), 0);
  EXPECT_EQ(Code(RunAlone("NullBuffer", {{"GPUSIM_CUPTI_VERSION", "12.7"}})), 2) << "no such version";
}

TEST(FaultTest, TheFirst130CrashesInAForcedFlushAndHangsWhereKernelsAreDisabled) {
  EXPECT_EQ(Code(RunAlone("ForcedFlush", {{"GPUSIM_CUPTI_VERSION", "13.0.0"}})), -SIGSEGV);
  EXPECT_EQ(Code(RunAlone("KernelsDisabled", {{"GPUSIM_CUPTI_VERSION", "13.0.0"}}, /*alarm_s=*/2)), -SIGALRM);
}

TEST(FaultTest, ALockOverCallbacksDeadlocksAToolThatLocksTheOtherWayRound) {
  EXPECT_EQ(Code(RunAlone("LockOverCallbacks", {{"GPUSIM_FAULT", ""}})), 0);
  EXPECT_EQ(Code(RunAlone("LockOverCallbacks", {{"GPUSIM_FAULT", "lock_over_callbacks"}}, /*alarm_s=*/2)),
            -SIGALRM);
}

}  // namespace
}  // namespace gpusim::cupti
