#include "injector/capture/cupti/callbacks.h"

#include <gtest/gtest.h>

#include <vector>

#include "injector/capture/cupti/main_thread_waits.h"
#include "injector/core/host_state.h"

namespace gpuprobe::injector {
namespace {

std::vector<int> calls;

void First(ThreadState& /*thread*/, const CUpti_CallbackData& /*data*/, CUpti_CallbackId /*cbid*/) noexcept {
  calls.push_back(1);
}
void Second(ThreadState& /*thread*/, const CUpti_CallbackData& /*data*/, CUpti_CallbackId /*cbid*/) noexcept {
  calls.push_back(2);
}
void Third(ThreadState& /*thread*/, const CUpti_CallbackData& /*data*/, CUpti_CallbackId /*cbid*/) noexcept {
  calls.push_back(3);
}

void Fourth(ThreadState& /*thread*/, const CUpti_CallbackData& /*data*/, CUpti_CallbackId /*cbid*/) noexcept {
  calls.push_back(4);
}

class CallbacksTest : public ::testing::Test {
 protected:
  static void Dispatch(CUpti_CallbackDomain domain, CUpti_CallbackId cbid, CUpti_ApiCallbackSite site) {
    CUpti_CallbackData data{};
    data.callbackSite = site;
    DispatchApi(CurrentThread(), domain, cbid, data);
  }
};

TEST_F(CallbacksTest, HooksRunInTheirOrderAtTheirSiteAndDomainOnly) {
  ASSERT_TRUE(AddApiHook(CUPTI_CB_DOMAIN_DRIVER_API, 307, CUPTI_API_ENTER, First));
  ASSERT_TRUE(AddApiHook(CUPTI_CB_DOMAIN_DRIVER_API, 307, CUPTI_API_ENTER, Second));
  ASSERT_TRUE(AddApiHook(CUPTI_CB_DOMAIN_DRIVER_API, 307, CUPTI_API_EXIT, Third));
  Dispatch(CUPTI_CB_DOMAIN_DRIVER_API, 307, CUPTI_API_ENTER);
  EXPECT_EQ(calls, (std::vector<int>{1, 2}));
  Dispatch(CUPTI_CB_DOMAIN_DRIVER_API, 307, CUPTI_API_EXIT);
  EXPECT_EQ(calls, (std::vector<int>{1, 2, 3}));
  Dispatch(CUPTI_CB_DOMAIN_RUNTIME_API, 307, CUPTI_API_ENTER);
  Dispatch(CUPTI_CB_DOMAIN_DRIVER_API, 308, CUPTI_API_ENTER);
  EXPECT_EQ(calls.size(), 3u);
}

TEST_F(CallbacksTest, AFullPlaceAndAnIdOutOfRangeAreRefused) {
  EXPECT_TRUE(AddApiHook(CUPTI_CB_DOMAIN_RUNTIME_API, 1, CUPTI_API_EXIT, First));
  EXPECT_TRUE(AddApiHook(CUPTI_CB_DOMAIN_RUNTIME_API, 1, CUPTI_API_EXIT, Second));
  EXPECT_TRUE(AddApiHook(CUPTI_CB_DOMAIN_RUNTIME_API, 1, CUPTI_API_EXIT, Third));
  EXPECT_FALSE(AddApiHook(CUPTI_CB_DOMAIN_RUNTIME_API, 1, CUPTI_API_EXIT, Fourth));
  EXPECT_TRUE(AddApiHook(CUPTI_CB_DOMAIN_RUNTIME_API, 1, CUPTI_API_EXIT, First)) << "there already";
  EXPECT_FALSE(AddApiHook(CUPTI_CB_DOMAIN_RUNTIME_API, kMaxCallbackId, CUPTI_API_EXIT, First));
  EXPECT_FALSE(AddApiHook(CUPTI_CB_DOMAIN_NVTX, 1, CUPTI_API_EXIT, First));
  Dispatch(CUPTI_CB_DOMAIN_RUNTIME_API, kMaxCallbackId + 5, CUPTI_API_EXIT);
}

TEST_F(CallbacksTest, TheWaitsOfEachRuntimeAreWanted) {
  AddWaitHooks();
  EXPECT_TRUE(WantsApi(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuCtxSynchronize));
  EXPECT_TRUE(WantsApi(CUPTI_CB_DOMAIN_DRIVER_API, 800))
      << "cuCtxSynchronize_v2, which CUDA 13's runtime calls";
}

TEST_F(CallbacksTest, OnlyHookedFunctionsAreWanted) {
  ASSERT_TRUE(AddApiHook(CUPTI_CB_DOMAIN_DRIVER_API, 9, CUPTI_API_EXIT, First));
  EXPECT_TRUE(WantsApi(CUPTI_CB_DOMAIN_DRIVER_API, 9));
  EXPECT_FALSE(WantsApi(CUPTI_CB_DOMAIN_DRIVER_API, 10));
  EXPECT_FALSE(WantsApi(CUPTI_CB_DOMAIN_RUNTIME_API, 9));
}

TEST_F(CallbacksTest, EveryFunctionOfTheToolkitFitsTheTable) {
  EXPECT_LT(CUPTI_DRIVER_TRACE_CBID_SIZE, kMaxCallbackId);
  EXPECT_LT(CUPTI_RUNTIME_TRACE_CBID_SIZE, kMaxCallbackId);
}

}  // namespace
}  // namespace gpuprobe::injector
