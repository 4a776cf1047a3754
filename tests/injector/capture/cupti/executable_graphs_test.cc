#include "injector/capture/cupti/executable_graphs.h"

#include <gtest/gtest.h>

#include <vector>

#include "injector/capture/cupti/callbacks.h"

namespace gpuprobe::injector {
namespace {

class ExecutableGraphsTest : public ::testing::Test {
 protected:
  void SetUp() override { AddExecutableGraphHooks(); }

  static void Dispatch(CUpti_CallbackId cbid, CUpti_ApiCallbackSite site, const void* arguments, int result) {
    CUpti_CallbackData data{};
    data.callbackSite = site;
    data.functionParams = arguments;
    data.functionReturnValue = &result;
    DispatchApi(CurrentThread(), CUPTI_CB_DOMAIN_DRIVER_API, cbid, data);
  }
  // Returns the graph number under which nodes are reported meanwhile.
  static uint32_t Instantiate(uintptr_t address, int result = 0) {
    auto executable = reinterpret_cast<CUgraphExec>(address);
    const cuGraphInstantiateWithFlags_params arguments{&executable, nullptr, 0};
    constexpr auto kCbid = CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiateWithFlags;
    Dispatch(kCbid, CUPTI_API_ENTER, &arguments, 0);
    const uint32_t number = CurrentThread().instantiating_graph;
    Dispatch(kCbid, CUPTI_API_EXIT, &arguments, result);
    EXPECT_EQ(CurrentThread().instantiating_graph, 0u);
    return number;
  }
  static void Destroy(uintptr_t address) {
    const cuGraphExecDestroy_params arguments{reinterpret_cast<CUgraphExec>(address)};
    Dispatch(CUPTI_DRIVER_TRACE_CBID_cuGraphExecDestroy, CUPTI_API_ENTER, &arguments, 0);
  }
  static uint32_t NumberOf(uintptr_t address) {
    return NumberOfGraph(reinterpret_cast<const void*>(address));  // NOLINT(performance-no-int-to-ptr)
  }
};

TEST_F(ExecutableGraphsTest, NumbersAscendAndAreKnownByAddress) {
  const uint32_t first = Instantiate(0x1000);
  const uint32_t second = Instantiate(0x2000);
  EXPECT_EQ(second, first + 1);
  EXPECT_EQ(NumberOf(0x1000), first);
  EXPECT_EQ(NumberOf(0x2000), second);
}

TEST_F(ExecutableGraphsTest, AnAddressThatComesAgainIsAnotherGraph) {
  const uint32_t first = Instantiate(0x1000);
  Destroy(0x1000);
  EXPECT_EQ(NumberOf(0x1000), kUnseenGraph);
  const uint32_t second = Instantiate(0x1000);
  EXPECT_GT(second, first);
  EXPECT_EQ(NumberOf(0x1000), second);
}

TEST_F(ExecutableGraphsTest, WhatWasNotMadeHereIsUnseen) {
  EXPECT_EQ(NumberOf(0x7000), kUnseenGraph);
  EXPECT_EQ(NumberOf(0), kUnseenGraph);
  Instantiate(0x7000, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(NumberOf(0x7000), kUnseenGraph);
  Destroy(0x7000);
}

TEST_F(ExecutableGraphsTest, WithMoreGraphsThanRoomThoseThatAreKnownAreRight) {
  constexpr uintptr_t kGraphs = 2 * kGraphSets * kGraphWays;
  std::vector<uint32_t> numbers;
  for (uintptr_t i = 1; i <= kGraphs; ++i) numbers.push_back(Instantiate(i * 0x40));
  size_t known = 0;
  for (uintptr_t i = 1; i <= kGraphs; ++i) {
    const uint32_t number = NumberOf(i * 0x40);
    if (number == kUnseenGraph) continue;
    ++known;
    EXPECT_EQ(number, numbers[i - 1]);
  }
  EXPECT_GT(known, kGraphSets * kGraphWays / 2);
  EXPECT_EQ(NumberOf(kGraphs * 0x40), numbers.back());
}

}  // namespace
}  // namespace gpuprobe::injector
