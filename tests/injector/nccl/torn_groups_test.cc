// Groups that began before the program's calls were led to us: each call is recorded once, by the plugin if
// NCCL tells it, else by the wrapper.
#include "injector/nccl/torn_groups.h"

#include "injector/guard.h"
#include "injector/nccl/communicators.h"
#include "injector/nccl/patching.h"
#include "injector/nccl/plugin.h"
#include "injector/nccl/real_functions.h"
#include "injector/nccl/scopes.h"
#include "tests/injector/live_probe.h"

namespace gpuprobe::injector::nccl {
namespace {

constexpr const char* kKernel =
    "_Z38ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE";
constexpr PluginCall kAllReduce{EntryPoint::kAllReduce, 7, -1, -1, 100, 0, 1};

class TornGroups : public LiveProbe {
 protected:
  void SetUp() override {
    LiveProbe::SetUp();
    ClearCommunicatorsForTest();
    ClearPluginForTest();
    Communicator* comm = Register(&handle_, {.hash = 0xabc, .rank = 1, .ranks = 4, .device = 0});
    comm->blocking.store(Blocking::kYes);
    ThreadState& thread = CurrentThread();
    thread.nccl_group_depth = 0;
    thread.nccl_held.store(nullptr);
    thread.nccl_patches_seen = LatePatches() - 2;  // as if calls had just been led to us
  }

  void Call(uint32_t launches = 0) {
    CallScope call(Origin{kFirstProviderWay, EntryPoint::kAllReduce});
    call.Begin(100, ncclFloat32, -1, -1, &handle_, nullptr);
    for (uint32_t i = 0; i < launches; ++i) Launch(50 + i);
    call.End(ncclSuccess);
  }
  // A launch on this thread, as the driver's callback tells it.
  static void Launch(uint32_t correlation) {
    const Guard guard;
    ASSERT_TRUE(guard);
    if (NoteKernelLaunch(guard.thread(), kKernel, nullptr, nullptr, correlation)) return;
    if (guard.thread().nccl_group_depth != 0 && guard.thread().nccl_call_depth == 0)
      EndOfGroupWasMissed(guard.thread());
    NotePluginLaunch(guard.thread(), correlation);
  }
  static void Start() {
    GroupStartScope start(Origin{kFirstProviderWay, EntryPoint::kGroupStart});
    start.Begin();
    start.End(ncclSuccess);
  }
  // Launches one kernel, of which NCCL tells `told` calls.
  static void End(PluginCommunicator* plugin, int told, uint32_t correlation = 70) {
    GroupEndScope end(Origin{kFirstProviderWay, EntryPoint::kGroupEnd});
    end.Begin();
    if (correlation != 0) Launch(correlation);
    for (int i = 0; i < told; ++i) NotePluginCall(plugin, kAllReduce);
    EndPluginGroup();
    end.End(ncclSuccess);
  }

  // Of all calls: the source, and that they are numbered from 0 and share one plan with one kernel.
  static void ExpectOneGroup(const std::vector<SeenEvent>& events, size_t calls, wire::CallSource source) {
    const auto recorded = Only<CollectiveEvent>(events);
    ASSERT_EQ(recorded.size(), calls);
    const auto launches = Only<PlanLaunchEvent>(events);
    ASSERT_EQ(launches.size(), 1u);
    EXPECT_EQ(launches[0].correlation, 70u);
    for (size_t i = 0; i < calls; ++i) {
      EXPECT_EQ(recorded[i].source, static_cast<uint8_t>(source));
      EXPECT_EQ(recorded[i].seq, i);
      EXPECT_EQ(recorded[i].plan, launches[0].plan);
    }
  }

  int handle_ = 0;
};

TEST_F(TornGroups, AreThePluginsWhenNcclTellsIt) {
  PluginCommunicator* plugin = OpenPluginCommunicator(0xabc, 1, 4);
  Call();
  Call();
  EXPECT_TRUE(Only<CollectiveEvent>(Events()).empty()) << "held until it is known what they are";
  End(plugin, 3);  // one was issued past us
  ExpectOneGroup(Events(), 3, wire::CallSource::kCallSourcePlugin);
  Call(1);
  const auto calls = Only<CollectiveEvent>(Events());
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].seq, 3u);
  EXPECT_EQ(calls[0].source, static_cast<uint8_t>(wire::CallSource::kCallSourceRelocation));
}

TEST_F(TornGroups, AreTheWrappersOtherwise) {
  Call();
  Call();
  End(nullptr, 0);
  ExpectOneGroup(Events(), 2, wire::CallSource::kCallSourceRelocation);
}

TEST_F(TornGroups, AnInnerGroupBelongsToTheTornOne) {
  PluginCommunicator* plugin = OpenPluginCommunicator(0xabc, 1, 4);
  Start();
  Call();
  Call();
  End(plugin, 0, 0);
  EXPECT_TRUE(Only<CollectiveEvent>(Events()).empty());
  End(plugin, 2);
  ExpectOneGroup(Events(), 2, wire::CallSource::kCallSourcePlugin);
}

TEST_F(TornGroups, ACallThatLaunchesNothingIsReportedWithTheNextOneThatDoes) {
  Call();
  Call(1);
  const auto calls = Only<CollectiveEvent>(Events());
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].seq, 0u);
  EXPECT_EQ(calls[1].seq, 1u);
  EXPECT_NE(calls[0].plan, calls[1].plan);
  Call();
  EXPECT_EQ(Only<CollectiveEvent>(Events()).size(), 1u) << "nothing is held any more";
}

TEST_F(TornGroups, WhatIsHeldAtTheEndIsReported) {
  Call();
  FlushHeld(CurrentThread());
  EXPECT_EQ(Only<CollectiveEvent>(Events()).size(), 1u);
  FlushHeld(CurrentThread());
  EXPECT_TRUE(Only<CollectiveEvent>(Events()).empty());
}

TEST_F(TornGroups, AGroupWhoseEndIsMissedIsThePlugins) {
  PluginCommunicator* plugin = OpenPluginCommunicator(0xabc, 1, 4);
  Start();
  Call();
  Call();
  Launch(70);  // in a GroupEnd that nobody saw
  for (int i = 0; i < 2; ++i) NotePluginCall(plugin, kAllReduce);
  EndPluginGroup();
  ExpectOneGroup(Events(), 2, wire::CallSource::kCallSourcePlugin);
  EXPECT_EQ(CurrentThread().nccl_group_depth, 0);
}

}  // namespace
}  // namespace gpuprobe::injector::nccl
