// Calls into NCCL, outside and inside groups, and what NCCL tells its profiler plugin, allocate nothing, and
// neither does what becomes of them on the probe's thread.
#include <memory>
#include <string>
#include <type_traits>

#include "injector/capture/nccl/captured_nodes.h"
#include "injector/capture/nccl/plugin_events.h"
#include "injector/capture/nccl/wrappers.h"
#include "injector/core/guard.h"
#include "injector/core/host_clock.h"
#include "injector/ledgers/stream.h"
#include "tests/injector/live_probe.h"
#include "tests/injector/support/counted_allocations.h"

extern "C" const gpuprobe::nccl_plugin::Profiler4 ncclProfiler_v4;  // NOLINT(readability-identifier-naming)
extern "C" const gpuprobe::nccl_plugin::Profiler5 ncclProfiler_v6;  // NOLINT(readability-identifier-naming)

namespace gpuprobe::injector::nccl {
namespace {

using Nccl = Wrappers<kFirstProviderWay>;

int group_depth = 0;
bool capturing = false;
uint32_t correlation = 0;
uint64_t node = 0;

// What CUPTI's callbacks do when NCCL launches a kernel, or captures it.
void Launch() {
  const Guard guard;
  if (!guard) return;
  NoteKernelLaunch(guard.thread(),
                   {.name = "_Z38ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE",
                    .stream = nullptr,
                    .context = nullptr,
                    .correlation = ++correlation});
  if (capturing && WantsGraphNode(guard.thread(), false, false))
    NoteGraphNode(guard.thread(), ++node, 0, 1, false);
}

ncclResult_t AllReduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t) {
  if (group_depth == 0) Launch();
  return ncclSuccess;
}
ncclResult_t Send(const void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) { return ncclSuccess; }
ncclResult_t GroupStart() {
  ++group_depth;
  return ncclSuccess;
}
ncclResult_t GroupEnd() {
  if (--group_depth == 0) Launch();
  return ncclSuccess;
}

template <typename Function>
void SetReal(EntryPoint entry_point, Function* function) {
  real_functions[kFirstProviderWay][static_cast<size_t>(entry_point)].store(
      reinterpret_cast<void*>(function));
}

class NoAllocation : public LiveProbe {
 protected:
  void SetUp() override {
    if (!testing::kAllocationsAreCounted) GTEST_SKIP() << "the sanitizer's allocator is not counted";
    LiveProbe::SetUp();
    host_clock.Start();
    SetReal(EntryPoint::kAllReduce, AllReduce);
    SetReal(EntryPoint::kSend, Send);
    SetReal(EntryPoint::kGroupStart, GroupStart);
    SetReal(EntryPoint::kGroupEnd, GroupEnd);
    Register(Comm(), {.hash = 1, .rank = 0, .ranks = 8, .device = 0});
    stream_ = std::make_unique<Stream>();
    ASSERT_TRUE(stream_->Init(size_t{16} << 20));
  }
  void TearDown() override {
    if (!testing::kAllocationsAreCounted) return;
    LiveProbe::TearDown();
  }

  static ncclComm_t Comm() {
    static char object = 0;
    return reinterpret_cast<ncclComm_t>(&object);
  }
  // Not by EXPECT, which allocates.
  static bool Calls() {
    bool good = Nccl::AllReduce(nullptr, nullptr, 1024, ncclFloat, ncclSum, Comm(), nullptr) == ncclSuccess;
    good = good && Nccl::GroupStart() == ncclSuccess;
    for (int i = 0; i < 8; ++i) {
      good =
          good && Nccl::AllReduce(nullptr, nullptr, 1024, ncclFloat, ncclSum, Comm(), nullptr) == ncclSuccess;
      good = good && Nccl::Send(nullptr, 64, ncclInt8, 3, Comm(), nullptr) == ncclSuccess;
    }
    return good && Nccl::GroupEnd() == ncclSuccess;
  }
  void Sink() {
    stream_->drain.Drain(UINT64_MAX);
    stream_->builder.Seal();
    SendQueue::Frame frame;
    while (stream_->queue.Front(&frame)) stream_->queue.Pop();
  }

  std::unique_ptr<Stream> stream_;
};

TEST_F(NoAllocation, CallsAndGroupsOfThem) {
  ASSERT_TRUE(Calls());
  Sink();
  const uint64_t before = testing::Allocations();
  bool good = true;
  for (int i = 0; i < 2000; ++i) {
    good = good && Calls();
    if (i % 100 == 0) Sink();
  }
  Sink();
  EXPECT_EQ(testing::Allocations(), before);
  EXPECT_TRUE(good);
  EXPECT_EQ(LossCount(wire::LossReason::kLossEventRingFull), 0u);
}

TEST_F(NoAllocation, CallsThatAreCaptured) {
  capturing = true;
  ASSERT_TRUE(Calls());
  Sink();
  const uint64_t before = testing::Allocations();
  bool good = true;
  for (int i = 0; i < 100; ++i) good = good && Calls();
  Sink();
  EXPECT_EQ(testing::Allocations(), before);
  EXPECT_TRUE(good);
  capturing = false;
}

// NCCL's steps for a group of an AllReduce and a Send that bypass the wrappers: it reports the call, launches
// the kernel, and reports the plan. False if something was refused.
template <typename Descriptor, typename Profiler>
bool TellPlugin(const Profiler& table, void* context) {
  namespace abi = nccl_plugin;
  bool good = true;
  const auto start = [&](void** handle, auto fill) {
    Descriptor descriptor{};
    descriptor.rank = 1;
    fill(descriptor);
    good = good && table.start_event(context, handle, &descriptor) == 0;
  };
  void* api = nullptr;
  void* call = nullptr;
  if constexpr (std::is_same_v<Descriptor, abi::Descriptor5>) {
    start(&api, [](Descriptor& d) { d.type = abi::kEventGroupApi; });
    start(&call, [](Descriptor& d) {
      d.type = abi::kEventCollectiveApi;
      d.collective_api = {"AllReduce", 1024, "ncclFloat32", 0, nullptr, false};
    });
    good = good && table.stop_event(call) == 0;
    start(&call, [](Descriptor& d) {
      d.type = abi::kEventPointToPointApi;
      d.point_to_point_api = {"Send", 64, "ncclInt8", nullptr, false};
    });
    good = good && table.stop_event(call) == 0;
  }
  {
    const Guard guard;
    if (guard) NotePluginLaunch(guard.thread(), ++correlation);
  }
  void* group = nullptr;
  start(&group, [](Descriptor& d) { d.type = abi::kEventGroup; });
  start(&call, [](Descriptor& d) {
    d.type = abi::kEventCollective;
    d.collective.function = "AllReduce";
    d.collective.count = 1024;
    d.collective.datatype = "ncclFloat32";
    d.collective.algorithm = "RING";
    d.collective.protocol = "LL";
    d.collective.channels = 2;
  });
  good = good && table.record_event_state(call, 0, nullptr) == 0 && table.stop_event(call) == 0;
  start(&call, [](Descriptor& d) {
    d.type = abi::kEventPointToPoint;
    d.point_to_point.function = "Send";
    d.point_to_point.count = 64;
    d.point_to_point.datatype = "ncclInt8";
    d.point_to_point.peer = 3;
  });
  good = good && table.stop_event(call) == 0 && table.stop_event(group) == 0;
  return api == nullptr ? good : good && table.stop_event(api) == 0;
}

TEST_F(NoAllocation, WhatNcclTellsItsPlugin) {
  void* old = nullptr;
  void* now = nullptr;
  int mask = 0;
  ASSERT_EQ(ncclProfiler_v4.init(&old, &mask, "", 0xabc, 1, 8, 1, nullptr), 0);
  ASSERT_EQ(ncclProfiler_v6.init(&now, 0xdef, &mask, "", 1, 8, 1, nullptr), 0);
  ASSERT_NE(mask, 0);
  const auto events = [&] {
    return TellPlugin<nccl_plugin::Descriptor4>(ncclProfiler_v4, old) &&
           TellPlugin<nccl_plugin::Descriptor5>(ncclProfiler_v6, now);
  };
  ASSERT_TRUE(events());
  Sink();
  const uint64_t before = testing::Allocations();
  bool good = true;
  for (int i = 0; i < 1000; ++i) {
    good = good && events();
    if (i % 100 == 0) Sink();
  }
  void* another = nullptr;
  good = good && ncclProfiler_v6.init(&another, 0x123, &mask, "", 1, 8, 1, nullptr) == 0;
  good = good && ncclProfiler_v6.finalize(another) == 0;
  Sink();
  EXPECT_EQ(testing::Allocations(), before);
  EXPECT_TRUE(good);
  EXPECT_EQ(ncclProfiler_v4.finalize(old), 0);
  EXPECT_EQ(ncclProfiler_v6.finalize(now), 0);
}

TEST_F(NoAllocation, TheCounterCounts) {
  const uint64_t before = testing::Allocations();
  const std::unique_ptr<std::string> counted = std::make_unique<std::string>(100, 'x');
  EXPECT_GT(testing::Allocations(), before) << counted->size();
}

}  // namespace
}  // namespace gpuprobe::injector::nccl
