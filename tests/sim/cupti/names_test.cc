#include "tests/sim/cupti/names.h"

#include <cupti.h>
#include <gtest/gtest.h>

#include "tests/sim/cupti/oracle.h"

namespace gpusim::cupti {
namespace {

TEST(NamesTest, AllCallbackNamesAreTheRealOnes) {
  SKIP_WITHOUT_ORACLE();
  for (int domain = 0; domain <= CUPTI_CB_DOMAIN_SIZE; ++domain) {
    for (uint32_t cbid = 0; cbid < 1024; ++cbid) {
      const char* real = nullptr;
      const bool known = Oracle::Get().callback_name(static_cast<CUpti_CallbackDomain>(domain), cbid,
                                                     &real) == CUPTI_SUCCESS;
      const char* ours = CallbackName(domain, cbid);
      ASSERT_EQ(ours != nullptr, known) << "domain " << domain << " id " << cbid;
      if (known) {
        ASSERT_STREQ(ours, real) << "domain " << domain << " id " << cbid;
      }
    }
  }
}

TEST(NamesTest, ResultNamesAreTheRealOnes) {
  SKIP_WITHOUT_ORACLE();
  for (int result = 0; result <= CUPTI_ERROR_UNKNOWN; ++result) {
    const char* real = nullptr;
    const bool known = Oracle::Get().result_string(static_cast<CUptiResult>(result), &real) == CUPTI_SUCCESS;
    const char* ours = ResultName(result);
    ASSERT_EQ(ours != nullptr, known) << "result " << result;
    if (known) {
      EXPECT_STREQ(ours, real);
    }
  }
}

TEST(NamesTest, DriverCallsAreClassified) {
  EXPECT_EQ(KindOfDriverCall(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel), DriverCall::kKernelLaunch);
  EXPECT_EQ(KindOfDriverCall(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz), DriverCall::kKernelLaunch);
  EXPECT_EQ(KindOfDriverCall(CUPTI_DRIVER_TRACE_CBID_cuLaunchHostFunc), DriverCall::kOther);
  EXPECT_EQ(KindOfDriverCall(CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2), DriverCall::kDeviceWork);
  EXPECT_EQ(KindOfDriverCall(CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize), DriverCall::kStreamSynchronize);
  EXPECT_EQ(KindOfDriverCall(CUPTI_DRIVER_TRACE_CBID_cuCtxSynchronize), DriverCall::kContextSynchronize);
  EXPECT_EQ(KindOfDriverCall(100000), DriverCall::kOther);
}

}  // namespace
}  // namespace gpusim::cupti
