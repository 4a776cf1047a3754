#include "injector/capture/cupti/driver_calls.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "injector/capture/cupti/callbacks.h"
#include "injector/core/guard.h"
#include "injector/core/host_clock.h"
#include "tests/injector/live_probe.h"

namespace gpuprobe::injector {
namespace {

constexpr CUpti_CallbackId kLoad = CUPTI_DRIVER_TRACE_CBID_cuModuleLoadData;
constexpr CUpti_CallbackId kRetain = CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxRetain;

class DriverCallsTest : public LiveProbe {
 protected:
  void SetUp() override {
    LiveProbe::SetUp();
    AddDriverCallHooks();
  }

  static void Call(CUpti_CallbackId cbid, CUpti_ApiCallbackSite site, uint32_t correlation, const char* name,
                   CUresult result = CUDA_SUCCESS) {
    CUpti_CallbackData data{};
    data.callbackSite = site;
    data.correlationId = correlation;
    data.functionName = name;
    data.functionReturnValue = site == CUPTI_API_EXIT ? &result : nullptr;
    const Guard guard;
    ASSERT_TRUE(guard);
    DispatchApi(guard.thread(), CUPTI_CB_DOMAIN_DRIVER_API, cbid, data);
  }
  static void Enter(CUpti_CallbackId cbid, uint32_t correlation, const char* name) {
    Call(cbid, CUPTI_API_ENTER, correlation, name);
  }
  static void Exit(CUpti_CallbackId cbid, uint32_t correlation, const char* name,
                   CUresult result = CUDA_SUCCESS) {
    Call(cbid, CUPTI_API_EXIT, correlation, name, result);
  }
  static void BeSlow() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

  static std::vector<std::string> Names() {
    std::vector<std::string> names;
    for (const auto& event : Only<DriverCallEvent>(Events())) names.emplace_back(event.function);
    return names;
  }
};

TEST_F(DriverCallsTest, ASlowCallHasItsTimesAndItsResult) {
  const uint64_t before = Stamp();
  Enter(kLoad, 7, "cuModuleLoadData");
  BeSlow();
  Exit(kLoad, 7, "cuModuleLoadData", CUDA_ERROR_NO_BINARY_FOR_GPU);
  const auto events = Only<DriverCallEvent>(Events());
  ASSERT_EQ(events.size(), 1u);
  EXPECT_STREQ(events[0].function, "cuModuleLoadData");
  EXPECT_EQ(events[0].result, CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_GE(events[0].entered_ns, before);
  EXPECT_GE(events[0].time_ns - events[0].entered_ns, 1'000'000u);
  EXPECT_LE(events[0].time_ns, Stamp());
}

TEST_F(DriverCallsTest, WhileItRunsTheThreadSaysWhereItIs) {
  EXPECT_EQ(CurrentThread().driver_call.name, nullptr);
  Enter(kLoad, 7, "cuModuleLoadData");
  EXPECT_STREQ(CurrentThread().driver_call.name, "cuModuleLoadData");
  EXPECT_NE(CurrentThread().driver_call.since, 0u);
  Exit(kLoad, 7, "cuModuleLoadData");
  EXPECT_EQ(CurrentThread().driver_call.name, nullptr);
}

TEST_F(DriverCallsTest, ACallInsideOfAnotherIsPartOfIt) {
  Enter(kRetain, 7, "cuDevicePrimaryCtxRetain");
  Enter(kLoad, 7, "cuModuleLoadData");
  BeSlow();
  Exit(kLoad, 7, "cuModuleLoadData");
  Exit(kRetain, 7, "cuDevicePrimaryCtxRetain");
  EXPECT_EQ(Names(), std::vector<std::string>{"cuDevicePrimaryCtxRetain"});
}

TEST_F(DriverCallsTest, CallsThatFollowEachOtherInOneRuntimeCallAreTwo) {
  Enter(kRetain, 7, "cuDevicePrimaryCtxRetain");
  BeSlow();
  Exit(kRetain, 7, "cuDevicePrimaryCtxRetain");
  Enter(kLoad, 7, "cuModuleLoadData");
  BeSlow();
  Exit(kLoad, 7, "cuModuleLoadData");
  EXPECT_EQ(Names(), (std::vector<std::string>{"cuDevicePrimaryCtxRetain", "cuModuleLoadData"}));
}

TEST_F(DriverCallsTest, ACallThatNeverReturnedIsForgottenAtTheNext) {
  Enter(kRetain, 7, "cuDevicePrimaryCtxRetain");
  BeSlow();
  Enter(kLoad, 8, "cuModuleLoadData");
  BeSlow();
  Exit(kLoad, 8, "cuModuleLoadData");
  EXPECT_EQ(Names(), std::vector<std::string>{"cuModuleLoadData"});
}

TEST_F(DriverCallsTest, AnExitWhoseEntryWasNotSeenSaysNothing) {
  Exit(kLoad, 7, "cuModuleLoadData");
  Enter(kRetain, 8, "cuDevicePrimaryCtxRetain");
  BeSlow();
  Exit(kRetain, 9, "cuDevicePrimaryCtxRetain");
  EXPECT_TRUE(Names().empty());
}

}  // namespace
}  // namespace gpuprobe::injector
