// libcupti on the simulated driver: subscription, callbacks, and the records of what ran.

#include <cuda.h>
#include <cupti.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/sim/core/cupti_seam.h"
#include "tests/sim/cupti/tool.h"

namespace gpusim::cupti {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

void IgnoreCall(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

TEST(SubscriptionTest, OneAtATimeAndTheSecondLearnsTheFirstsName) {
  CUpti_SubscriberHandle first = nullptr;
  CUpti_SubscriberParams params{};
  params.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
  params.subscriberName = "mine";
  ASSERT_EQ(cuptiSubscribe_v2(&first, IgnoreCall, nullptr, &params), CUPTI_SUCCESS);
  CUpti_SubscriberHandle second = nullptr;
  char name[CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN] = {};
  params.oldSubscriberName = name;
  params.oldSubscriberSize = sizeof(name);
  EXPECT_EQ(cuptiSubscribe(&second, IgnoreCall, nullptr), CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
  EXPECT_EQ(cuptiSubscribe_v2(&second, IgnoreCall, nullptr, &params),
            CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
  EXPECT_STREQ(name, "CUPTI for mine");
  EXPECT_EQ(cuptiUnsubscribe(first), CUPTI_SUCCESS);
  EXPECT_EQ(cuptiUnsubscribe(first), CUPTI_ERROR_INVALID_PARAMETER);
  EXPECT_EQ(cuptiSubscribe(&second, IgnoreCall, nullptr), CUPTI_SUCCESS);
  EXPECT_EQ(cuptiEnableCallback(1, first, CUPTI_CB_DOMAIN_DRIVER_API, 1), CUPTI_ERROR_INVALID_PARAMETER);
  EXPECT_EQ(cuptiUnsubscribe(second), CUPTI_SUCCESS);
}

TEST(SubscriptionTest, CallbackStateIsWhatWasSet) {
  Tool tool;
  uint32_t state = 7;
  const auto domain = CUPTI_CB_DOMAIN_DRIVER_API;
  ASSERT_EQ(cuptiGetCallbackState(&state, tool.subscriber, domain, 5), CUPTI_SUCCESS);
  EXPECT_EQ(state, 0U);
  tool.Listen(domain, 5);
  EXPECT_EQ(cuptiGetCallbackState(&state, tool.subscriber, domain, 5), CUPTI_SUCCESS);
  EXPECT_EQ(state, 1U);
  EXPECT_EQ(cuptiEnableDomain(1, tool.subscriber, domain), CUPTI_SUCCESS);
  EXPECT_EQ(cuptiEnableCallback(0, tool.subscriber, domain, 5), CUPTI_SUCCESS);
  EXPECT_EQ(cuptiGetCallbackState(&state, tool.subscriber, domain, 5), CUPTI_SUCCESS);
  EXPECT_EQ(state, 0U);
  EXPECT_EQ(cuptiGetCallbackState(&state, tool.subscriber, domain, 6), CUPTI_SUCCESS);
  EXPECT_EQ(state, 1U);
  EXPECT_EQ(cuptiEnableCallback(1, tool.subscriber, domain, 100000), CUPTI_ERROR_INVALID_PARAMETER);
  EXPECT_EQ(cuptiEnableDomain(1, tool.subscriber, CUPTI_CB_DOMAIN_SIZE), CUPTI_ERROR_INVALID_PARAMETER);
}

TEST(CallbackTest, EnterAndExitShareCorrelationAndData) {
  const Application application;
  Tool tool;
  tool.Listen(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
  application.Launch(application.fast);
  application.Synchronize();
  ASSERT_THAT(tool.calls, SizeIs(2));
  EXPECT_EQ(tool.calls[0].site, CUPTI_API_ENTER);
  EXPECT_EQ(tool.calls[1].site, CUPTI_API_EXIT);
  EXPECT_EQ(tool.calls[0].function, "cuLaunchKernel");
  EXPECT_EQ(tool.calls[0].symbol, "fast_kernel");
  EXPECT_NE(tool.calls[0].correlation, 0U);
  EXPECT_EQ(tool.calls[0].correlation, tool.calls[1].correlation);
  EXPECT_EQ(tool.calls[1].data, tool.calls[0].correlation + 1000);
  EXPECT_NE(tool.calls[0].context_uid, 0U);
}

TEST(CallbackTest, ExitCarriesTheResult) {
  const Application application;
  Tool tool;
  std::vector<CUresult> results;
  tool.on_callback = [&](CUpti_CallbackDomain, uint32_t, const void* data) {
    const auto* call = static_cast<const CUpti_CallbackData*>(data);
    if (call->callbackSite == CUPTI_API_EXIT) {
      results.push_back(*static_cast<CUresult*>(call->functionReturnValue));
    }
  };
  tool.Listen(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2);
  CUdeviceptr memory = 0;
  EXPECT_EQ(cuMemAlloc(&memory, 1024), CUDA_SUCCESS);
  CUdeviceptr refused = 0;
  EXPECT_EQ(cuMemAlloc(&refused, size_t{1} << 50), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_THAT(results, ElementsAre(CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY));
  EXPECT_EQ(cuMemFree(memory), CUDA_SUCCESS);
}

TEST(CallbackTest, WhatAToolCallsInACallbackIsNotTraced) {
  const Application application;
  Tool tool;
  int inside = 0;
  tool.on_callback = [&](CUpti_CallbackDomain, uint32_t, const void*) {
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    ++inside;
    EXPECT_EQ(cuMemGetInfo(&free_bytes, &total_bytes), CUDA_SUCCESS);
  };
  EXPECT_EQ(cuptiEnableDomain(1, tool.subscriber, CUPTI_CB_DOMAIN_DRIVER_API), CUPTI_SUCCESS);
  application.Launch(application.fast);
  EXPECT_EQ(inside, 2);
}

TEST(CallbackTest, ResourcesAndSynchronisationsAreTold) {
  const Application application;
  Tool tool;
  std::vector<std::pair<int, uint32_t>> seen;
  tool.on_callback = [&](CUpti_CallbackDomain domain, uint32_t cbid, const void* data) {
    seen.emplace_back(domain, cbid);
    if (domain == CUPTI_CB_DOMAIN_RESOURCE) {
      const auto* resource = static_cast<const CUpti_ResourceData*>(data);
      EXPECT_EQ(resource->context, application.context);
      EXPECT_NE(resource->resourceHandle.stream, nullptr);
    } else {
      const auto* sync = static_cast<const CUpti_SynchronizeData*>(data);
      EXPECT_EQ(sync->context, application.context);
      if (cbid == CUPTI_CBID_SYNCHRONIZE_STREAM_SYNCHRONIZED) {
        EXPECT_EQ(sync->stream, application.stream);
      }
    }
  };
  EXPECT_EQ(cuptiEnableDomain(1, tool.subscriber, CUPTI_CB_DOMAIN_RESOURCE), CUPTI_SUCCESS);
  EXPECT_EQ(cuptiEnableDomain(1, tool.subscriber, CUPTI_CB_DOMAIN_SYNCHRONIZE), CUPTI_SUCCESS);
  CUstream stream = nullptr;
  EXPECT_EQ(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  application.Synchronize();
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamDestroy(stream), CUDA_SUCCESS);
  EXPECT_THAT(
      seen,
      ElementsAre(
          std::pair<int, uint32_t>(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_STREAM_CREATED),
          std::pair<int, uint32_t>(CUPTI_CB_DOMAIN_SYNCHRONIZE, CUPTI_CBID_SYNCHRONIZE_STREAM_SYNCHRONIZED),
          std::pair<int, uint32_t>(CUPTI_CB_DOMAIN_SYNCHRONIZE, CUPTI_CBID_SYNCHRONIZE_CONTEXT_SYNCHRONIZED),
          std::pair<int, uint32_t>(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_STREAM_DESTROY_STARTING)));
}

TEST(RecordTest, EveryKernelComesOnceWithItsLaunchsCorrelation) {
  constexpr int kLaunches = 1000;
  const Application application;
  Tool tool;
  tool.buffer_size = 8192;
  tool.Listen(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
  tool.Enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  for (int i = 0; i < kLaunches; ++i) {
    application.Launch(application.fast);
  }
  application.Synchronize();
  tool.Flush();
  std::set<uint32_t> launched;
  for (const SeenCall& call : tool.calls) {
    launched.insert(call.correlation);
  }
  auto records = tool.Records<CUpti_ActivityKernel10>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  ASSERT_THAT(records, SizeIs(kLaunches));
  EXPECT_FALSE(std::is_sorted(records.begin(), records.end(), [](const auto& a, const auto& b) {
    return a.start < b.start;
  })) << "records are unordered";
  std::sort(records.begin(), records.end(), [](const auto& a, const auto& b) { return a.start < b.start; });
  std::set<uint32_t> recorded;
  uint64_t last_end = 0;
  uint32_t stream_id = 0;
  EXPECT_EQ(cuptiGetStreamId(application.context, application.stream, &stream_id), CUPTI_SUCCESS);
  for (const auto& record : records) {
    recorded.insert(record.correlationId);
    EXPECT_EQ(record.end - record.start, 20'000U);
    EXPECT_GE(record.start, last_end) << "one stream, in order";
    last_end = record.end;
    EXPECT_STREQ(record.name, "fast_kernel");
    EXPECT_EQ(record.streamId, stream_id);
    EXPECT_EQ(record.gridX, 4);
    EXPECT_EQ(record.blockX, 64);
    EXPECT_EQ(record.dynamicSharedMemory, 128);
  }
  EXPECT_EQ(recorded, launched);
  size_t dropped = 7;
  EXPECT_EQ(cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped), CUPTI_SUCCESS);
  EXPECT_EQ(dropped, 0U);
  EXPECT_GT(tool.completions, 20);
}

TEST(RecordTest, AKernelThatRunsKeepsItsBufferFromADefaultFlush) {
  const Application application;
  Tool tool;
  tool.Enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  application.Launch(application.fast);
  application.Launch(application.slow);
  tool.Flush();
  EXPECT_THAT(tool.Records<CUpti_ActivityKernel10>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), IsEmpty());
  tool.Flush(/*forced=*/true);
  auto records = tool.Records<CUpti_ActivityKernel10>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  std::map<std::string, uint64_t> ends;
  for (const auto& record : records) {
    ends[record.name] = record.end;
  }
  ASSERT_EQ(ends.count("slow_kernel"), 1U);
  EXPECT_EQ(ends["slow_kernel"], 0U) << "incomplete";
  application.Synchronize();
  tool.Flush(/*forced=*/true);
  EXPECT_THAT(tool.Records<CUpti_ActivityKernel10>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), SizeIs(2))
      << "the completion of a record that was given away is lost";
}

TEST(RecordTest, CopiesFillsAllocationsAndSynchronisations) {
  const Application application;
  Tool tool;
  for (const CUpti_ActivityKind kind : {CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET,
                                        CUPTI_ACTIVITY_KIND_MEMORY2, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION}) {
    tool.Enable(kind);
  }
  CUdeviceptr device = 0;
  void* pinned = nullptr;
  std::vector<char> pageable(1 << 20);
  EXPECT_EQ(cuMemAlloc(&device, 1 << 20), CUDA_SUCCESS);
  EXPECT_EQ(cuMemHostAlloc(&pinned, 1 << 20, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpyHtoDAsync(device, pinned, 1 << 20, application.stream), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD8Async(device, 0xab, 4096, application.stream), CUDA_SUCCESS);
  application.Synchronize();
  EXPECT_EQ(cuMemcpyDtoH(pageable.data(), device, 1 << 20), CUDA_SUCCESS);
  EXPECT_EQ(pageable[17], static_cast<char>(0xab));
  EXPECT_EQ(cuMemFree(device), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeHost(pinned), CUDA_SUCCESS);
  tool.Flush();
  const auto copies = tool.Records<CUpti_ActivityMemcpy6>(CUPTI_ACTIVITY_KIND_MEMCPY);
  ASSERT_THAT(copies, SizeIs(2));
  for (const auto& copy : copies) {
    EXPECT_EQ(copy.bytes, 1U << 20);
    EXPECT_GT(copy.end, copy.start);
    EXPECT_EQ(copy.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD,
              copy.srcKind == CUPTI_ACTIVITY_MEMORY_KIND_PINNED);
    EXPECT_EQ(copy.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH,
              copy.dstKind == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE);
  }
  const auto fills = tool.Records<CUpti_ActivityMemset4>(CUPTI_ACTIVITY_KIND_MEMSET);
  ASSERT_THAT(fills, SizeIs(1));
  EXPECT_EQ(fills[0].bytes, 4096U);
  int64_t balance = 0;
  const auto memory = tool.Records<CUpti_ActivityMemory4>(CUPTI_ACTIVITY_KIND_MEMORY2);
  EXPECT_THAT(memory, SizeIs(4));
  for (const auto& record : memory) {
    const auto bytes = static_cast<int64_t>(record.bytes);
    balance += record.memoryOperationType == CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION ? bytes : -bytes;
  }
  EXPECT_EQ(balance, 0);
  const auto syncs = tool.Records<CUpti_ActivitySynchronization2>(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
  ASSERT_GE(syncs.size(), 1U);
  EXPECT_EQ(std::count_if(syncs.begin(), syncs.end(),
                          [](const auto& sync) {
                            return sync.type == CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE;
                          }),
            1);
}

TEST(RecordTest, ApiRecordsAndExternalIdsShareTheCallsCorrelation) {
  const Application application;
  Tool tool;
  tool.Enable(CUPTI_ACTIVITY_KIND_DRIVER);
  tool.Enable(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
  tool.Enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  uint64_t popped = 0;
  EXPECT_EQ(cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &popped),
            CUPTI_ERROR_QUEUE_EMPTY);
  EXPECT_EQ(cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, 42),
            CUPTI_SUCCESS);
  application.Launch(application.fast);
  EXPECT_EQ(cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &popped),
            CUPTI_SUCCESS);
  EXPECT_EQ(popped, 42U);
  application.Synchronize();
  tool.Flush();
  const auto kernels = tool.Records<CUpti_ActivityKernel10>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  ASSERT_THAT(kernels, SizeIs(1));
  const auto external =
      tool.Records<CUpti_ActivityExternalCorrelation>(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
  ASSERT_THAT(external, SizeIs(1));
  EXPECT_EQ(external[0].externalId, 42U);
  EXPECT_EQ(external[0].correlationId, kernels[0].correlationId);
  const auto calls = tool.Records<CUpti_ActivityAPI>(CUPTI_ACTIVITY_KIND_DRIVER);
  EXPECT_EQ(std::count_if(calls.begin(), calls.end(),
                          [&](const CUpti_ActivityAPI& call) {
                            return call.cbid == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel &&
                                   call.correlationId == kernels[0].correlationId && call.start <= call.end;
                          }),
            1);
}

TEST(RecordTest, DevicesContextsAndStreamsAreDumped) {
  const Application application;
  Tool tool;
  for (const CUpti_ActivityKind kind :
       {CUPTI_ACTIVITY_KIND_DEVICE, CUPTI_ACTIVITY_KIND_CONTEXT, CUPTI_ACTIVITY_KIND_STREAM}) {
    EXPECT_EQ(cuptiActivityEnableAndDump(kind), CUPTI_SUCCESS);
  }
  tool.Flush();
  const auto devices = tool.Records<CUpti_ActivityDevice5>(CUPTI_ACTIVITY_KIND_DEVICE);
  EXPECT_THAT(devices, SizeIs(DeviceCount()));
  EXPECT_STREQ(devices.at(0).name, FactsOfDevice(0).name);
  const auto contexts = tool.Records<CUpti_ActivityContext3>(CUPTI_ACTIVITY_KIND_CONTEXT);
  uint32_t uid = 0;
  EXPECT_EQ(cuptiGetContextId(application.context, &uid), CUPTI_SUCCESS);
  EXPECT_TRUE(std::any_of(contexts.begin(), contexts.end(),
                          [&](const auto& record) { return record.contextId == uid; }));
  const auto streams = tool.Records<CUpti_ActivityStream>(CUPTI_ACTIVITY_KIND_STREAM);
  uint32_t stream = 0;
  EXPECT_EQ(cuptiGetStreamId(application.context, application.stream, &stream), CUPTI_SUCCESS);
  EXPECT_TRUE(std::any_of(streams.begin(), streams.end(),
                          [&](const auto& record) { return record.streamId == stream; }));
  for (const CUpti_ActivityKind kind :
       {CUPTI_ACTIVITY_KIND_DEVICE, CUPTI_ACTIVITY_KIND_CONTEXT, CUPTI_ACTIVITY_KIND_STREAM}) {
    EXPECT_EQ(cuptiActivityDisable(kind), CUPTI_SUCCESS);
  }
}

TEST(RecordTest, DeclinedBuffersDropAndCount) {
  const Application application;
  Tool tool;
  tool.decline_buffers = true;
  tool.Enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  for (int i = 0; i < 10; ++i) {
    application.Launch(application.fast);
  }
  application.Synchronize();
  tool.Flush();
  size_t dropped = 0;
  EXPECT_EQ(cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped), CUPTI_SUCCESS);
  EXPECT_EQ(dropped, 10U);
  tool.decline_buffers = false;
  application.Launch(application.fast);
  application.Synchronize();
  tool.Flush();
  EXPECT_THAT(tool.Records<CUpti_ActivityKernel10>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), SizeIs(1));
}

TEST(ActivityApiTest, KindsAreChecked) {
  EXPECT_EQ(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_INVALID), CUPTI_ERROR_INVALID_KIND);
  EXPECT_EQ(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_PC_SAMPLING), CUPTI_ERROR_INVALID_KIND);
  EXPECT_EQ(cuptiGetLastError(), CUPTI_ERROR_INVALID_KIND);
  EXPECT_EQ(cuptiGetLastError(), CUPTI_SUCCESS);
  EXPECT_EQ(cuptiActivityRegisterCallbacks(nullptr, nullptr), CUPTI_ERROR_INVALID_PARAMETER);
}

}  // namespace
}  // namespace gpusim::cupti
