// The NCCL part's way into CUPTI's callbacks: launches that NCCL makes inside a call become its plan.
#include "injector/capture/nccl/part.h"

#include <cstdlib>

#include "injector/base/environment.h"
#include "injector/capture/cupti/callbacks.h"
#include "injector/capture/cupti/driver_calls.h"
#include "injector/capture/cupti/graph_calls.h"
#include "injector/capture/cupti/launches.h"
#include "injector/capture/cupti/main_thread_waits.h"
#include "injector/capture/nccl/communicators.h"
#include "injector/capture/nccl/real_functions.h"
#include "injector/capture/nccl/scopes.h"
#include "injector/core/event_names.h"
#include "injector/core/guard.h"
#include "injector/core/host_state.h"
#include "injector/core/recording.h"
#include "injector/probe/parts.h"
#include "tests/injector/live_probe.h"

namespace gpuprobe::injector {
namespace {

constexpr const char* kPartKernel =
    "_Z38ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE";

class NcclPart : public LiveProbe {
 protected:
  void SetUp() override {
    LiveProbe::SetUp();
    nccl::Register(&comm_, {.hash = 1, .rank = 0, .ranks = 2, .device = 0});
    kNcclPart.start();
  }

  static void Enter(CUpti_CallbackId cbid, const void* params, uint32_t correlation,
                    const char* kernel = kPartKernel) {
    CUpti_CallbackData data = {};
    data.callbackSite = CUPTI_API_ENTER;
    data.functionParams = params;
    data.symbolName = kernel;
    data.correlationId = correlation;
    const Guard guard;
    ASSERT_TRUE(guard);
    DispatchApi(guard.thread(), CUPTI_CB_DOMAIN_DRIVER_API, cbid, data);
  }

  int comm_ = 0;
};

TEST(NcclPartStarts, WithAPluginOnlyIfCallsAreRecorded) {
  unsetenv("NCCL_PROFILER_PLUGIN");
  recording.kinds = kRecordKernels;
  kNcclPart.start();
  recording = {};
  EXPECT_EQ(AnsweringGetenv("NCCL_PROFILER_PLUGIN"), nullptr);
  kNcclPart.start();
  EXPECT_NE(AnsweringGetenv("NCCL_PROFILER_PLUGIN"), nullptr);
}

// A function that three parts want needs a larger table: kHooksPerSite.
TEST(NcclPartStarts, InAWholeRunWhereEveryHookFindsItsPlace) {
  recording = {};
  StartParts();
  AddLaunchHooks();
  AddGraphHooks();
  AddWaitHooks();
  AddDriverCallHooks();
  EXPECT_TRUE(WantsApi(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2))
      << "the memory part";
  EXPECT_TRUE(WantsApi(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel));
  EXPECT_EQ(RefusedApiHooks(), 0u);
}

TEST_F(NcclPart, EveryKindOfLaunchIsSeen) {
  CUlaunchConfig config = {};
  const cuLaunchKernel_params plain = {};
  const cuLaunchKernelEx_params extended = {&config, nullptr, nullptr, nullptr};
  nccl::CallScope call(nccl::Origin{nccl::kFirstProviderWay, nccl::EntryPoint::kAllReduce});
  call.Begin(8, ncclFloat, -1, -1, &comm_, nullptr);
  Enter(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, &plain, 1);
  Enter(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz, &plain, 2);
  Enter(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, &extended, 3);
  Enter(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz, &extended, 4);
  Enter(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, &plain, 5, "not NCCL's");
  Enter(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, nullptr, 6);
  const cuLaunchKernelEx_params without_config = {};
  Enter(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, &without_config, 7);
  call.End(ncclSuccess);
  const auto events = Events();
  const auto calls = Only<CollectiveEvent>(events);
  const auto launches = Only<PlanLaunchEvent>(events);
  ASSERT_EQ(calls.size(), 1u);
  ASSERT_EQ(launches.size(), 4u);
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(launches[i].correlation, i + 1);
    EXPECT_EQ(launches[i].plan, calls[0].plan);
  }
}

TEST_F(NcclPart, NamesOfOperationsAndTypesAreKnownToTheConsumer) {
  EXPECT_STREQ(event_names.collective_op(static_cast<uint16_t>(nccl::EntryPoint::kReduceScatter)),
               "ReduceScatter");
  EXPECT_STREQ(event_names.collective_op(60000), "");
  EXPECT_STREQ(event_names.collective_datatype(ncclBfloat16), "bfloat16");
  EXPECT_STREQ(event_names.collective_datatype(200), "");
}

TEST_F(NcclPart, AnNcclKernelOutOfTheBlueWakesTheProbeAFewTimes) {
  const cuLaunchKernel_params params = {};
  const uint32_t before = wake_word.load();
  Enter(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, &params, 1, "vector_add");
  EXPECT_EQ(wake_word.load(), before);
  for (uint32_t i = 0; i < 100; ++i) Enter(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, &params, i);
  EXPECT_GT(wake_word.load(), before);
  EXPECT_LE(wake_word.load(), before + 8 * kLookStep);
  EXPECT_FALSE(AsksForFlush(wake_word.load(), before));
  EXPECT_TRUE(Only<PlanLaunchEvent>(Events()).empty());
}

}  // namespace
}  // namespace gpuprobe::injector
