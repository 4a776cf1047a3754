// Another profiler plugin with ours wrapped around it: each gets the events that it would get alone.
#include "injector/capture/nccl/plugin_chain.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "injector/capture/nccl/communicators.h"
#include "injector/capture/nccl/kernel_launches.h"
#include "injector/capture/nccl/plugin.h"
#include "injector/capture/nccl/plugin_abi.h"
#include "injector/core/guard.h"
#include "tests/injector/live_probe.h"

namespace gpuprobe::injector::nccl {
namespace {

namespace abi = nccl_plugin;

constexpr const char* kChainedKernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL";

// What the other plugin sees, and what it answers.
struct Other {
  int mask = 0;
  int init_result = 0;
  bool gives_handles = true;
  int context = 0;
  int finalized = 0;
  int next_handle = 0;
  std::vector<uint64_t> started;     // types
  std::vector<const void*> parents;  // of these
  std::vector<const void*> stopped;
  std::vector<const void*> stated;
  const void* context_seen = nullptr;
  char handles[64] = {};
};
Other* other_plugin = nullptr;

template <typename Descriptor>
int Start(void* context, void** handle, Descriptor* descriptor) {
  other_plugin->context_seen = context;
  other_plugin->started.push_back(descriptor->type);
  other_plugin->parents.push_back(descriptor->parent);
  *handle = other_plugin->gives_handles ? &other_plugin->handles[other_plugin->next_handle++] : nullptr;
  return 0;
}
int Stop(void* handle) {
  other_plugin->stopped.push_back(handle);
  return 0;
}
int State(void* handle, int /*state*/, void* /*arguments*/) {
  other_plugin->stated.push_back(handle);
  return 0;
}
int Finalize(void* context) {
  other_plugin->context_seen = context;
  ++other_plugin->finalized;
  return 0;
}
int Init(void** context, int* mask) {
  *context = &other_plugin->context;
  *mask = other_plugin->mask;
  return other_plugin->init_result;
}
int Init1(void** context, int* mask) { return Init(context, mask); }
int Init4(void** context, int* mask, const char*, uint64_t, int, int, int, abi::LogFunction) {
  return Init(context, mask);
}
int Init5(void** context, uint64_t, int* mask, const char*, int, int, int, abi::LogFunction) {
  return Init(context, mask);
}

constexpr abi::Profiler4 kOther4{"theirs", Init4, Start<abi::Descriptor4>, Stop, State, Finalize};
constexpr abi::Profiler5 kOther5{"theirs", Init5, Start<abi::Descriptor5>, Stop, State, Finalize};
constexpr abi::Profiler1 kOther1{"theirs", Init1, Start<abi::Descriptor1>, Stop, State, Finalize};

class PluginChain : public LiveProbe {
 protected:
  void SetUp() override {
    LiveProbe::SetUp();
    other_plugin = &other_;
  }

  static const abi::Profiler4* Chained4() {
    return static_cast<const abi::Profiler4*>(ChainPlugin(4, &kOther4, true));
  }
  static void* Open4(const abi::Profiler4& table, int* mask) {
    void* context = nullptr;
    EXPECT_EQ(table.init(&context, mask, "", 0xabc, 1, 4, 1, nullptr), other_plugin->init_result);
    return context;
  }
  static void* Event4(const abi::Profiler4& table, void* context, uint64_t type, void* parent) {
    abi::Descriptor4 descriptor{};
    descriptor.type = static_cast<uint8_t>(type);
    descriptor.parent = parent;
    descriptor.rank = 1;
    if (type == abi::kEventCollective) {
      descriptor.collective.function = "AllReduce";
      descriptor.collective.datatype = "ncclFloat32";
      descriptor.collective.count = 100;
    }
    void* handle = nullptr;
    EXPECT_EQ(table.start_event(context, &handle, &descriptor), 0);
    EXPECT_EQ(descriptor.parent, parent) << "NCCL's own descriptor is as it was";
    return handle;
  }
  // One kernel with one call, as NCCL tells it to whoever asked for `mask`.
  static void Plan(const abi::Profiler4& table, void* context, int mask, uint32_t correlation) {
    {
      const Guard guard;
      NoteLaunch(guard.thread(),
                 {.name = kChainedKernel, .stream = nullptr, .context = nullptr, .correlation = correlation});
    }
    const uint64_t told = abi::ToldFor(static_cast<uint64_t>(mask), 4);
    void* group =
        (told & abi::kEventGroup) != 0 ? Event4(table, context, abi::kEventGroup, nullptr) : nullptr;
    void* call = nullptr;
    if (group != nullptr && (told & abi::kEventCollective) != 0)
      call = Event4(table, context, abi::kEventCollective, group);
    for (void* handle : {call, group}) {
      if (handle != nullptr) table.stop_event(handle);
    }
  }

  Other other_;
};

TEST_F(PluginChain, BothAreToldWhatBothAskFor) {
  other_.mask = static_cast<int>(abi::kEventGroup | abi::kEventCollective);
  const abi::Profiler4* table = Chained4();
  ASSERT_NE(table, nullptr);
  EXPECT_STREQ(table->name, "theirs");
  int mask = 0;
  void* context = Open4(*table, &mask);
  EXPECT_NE(context, &other_.context);
  EXPECT_EQ(mask & other_.mask, other_.mask);
  Plan(*table, context, mask, 7);
  EXPECT_EQ(other_.started, (std::vector<uint64_t>{abi::kEventGroup, abi::kEventCollective}));
  EXPECT_EQ(other_.parents[1], &other_.handles[0]) << "its own handle";
  EXPECT_EQ(other_.context_seen, &other_.context);
  EXPECT_EQ(other_.stopped, (std::vector<const void*>{&other_.handles[1], &other_.handles[0]}));
  const auto events = Events();
  ASSERT_EQ(Only<CollectiveEvent>(events).size(), 1u);
  ASSERT_EQ(Only<PlanLaunchEvent>(events).size(), 1u);
  EXPECT_EQ(Only<PlanLaunchEvent>(events)[0].correlation, 7u);
  EXPECT_EQ(table->finalize(context), 0);
  EXPECT_EQ(other_.finalized, 1);
  EXPECT_EQ(other_.context_seen, &other_.context);
}

TEST_F(PluginChain, WhatOnlyWeAskForIsKeptFromTheOther) {
  other_.mask = static_cast<int>(abi::kEventGroup);
  const abi::Profiler4* table = Chained4();
  int mask = 0;
  void* context = Open4(*table, &mask);
  EXPECT_NE(mask, other_.mask) << "we ask for calls";
  Plan(*table, context, mask, 7);
  EXPECT_EQ(other_.started, (std::vector<uint64_t>{abi::kEventGroup}));
  EXPECT_EQ(other_.stopped, (std::vector<const void*>{&other_.handles[0]})) << "no handle of ours";
  EXPECT_EQ(Only<CollectiveEvent>(Events()).size(), 1u);
}

TEST_F(PluginChain, AnOtherThatAsksForNothingIsToldNothing) {
  const abi::Profiler4* table = Chained4();
  int mask = 0;
  void* context = Open4(*table, &mask);
  Plan(*table, context, mask, 7);
  EXPECT_TRUE(other_.started.empty());
  EXPECT_TRUE(other_.stopped.empty());
  EXPECT_EQ(Only<CollectiveEvent>(Events()).size(), 1u);
}

TEST_F(PluginChain, TheOtherMayChangeItsMindAtAnyTime) {
  const abi::Profiler4* table = Chained4();
  int mask = 0;
  void* context = Open4(*table, &mask);
  mask = static_cast<int>(abi::kEventGroup);  // it kept the address
  Plan(*table, context, mask | static_cast<int>(abi::kEventCollective), 7);
  EXPECT_EQ(other_.started, (std::vector<uint64_t>{abi::kEventGroup}));
}

TEST_F(PluginChain, AnOtherWithoutHandlesIsChainedAsWell) {
  other_.mask = static_cast<int>(abi::kEventGroup | abi::kEventCollective);
  other_.gives_handles = false;
  const abi::Profiler4* table = Chained4();
  int mask = 0;
  void* context = Open4(*table, &mask);
  Plan(*table, context, mask, 7);
  EXPECT_EQ(other_.started, (std::vector<uint64_t>{abi::kEventGroup}))
      << "before version 5 a group without handle has no children";
  EXPECT_TRUE(other_.stopped.empty());
  EXPECT_EQ(Only<CollectiveEvent>(Events()).size(), 1u) << "ours are recorded all the same";
}

TEST_F(PluginChain, StatesOfOurHandlesAreNotTheOthers) {
  other_.mask = static_cast<int>(abi::kEventGroup);
  const abi::Profiler4* table = Chained4();
  int mask = 0;
  void* context = Open4(*table, &mask);
  void* group = Event4(*table, context, abi::kEventGroup, nullptr);
  void* call = Event4(*table, context, abi::kEventCollective, group);
  EXPECT_EQ(table->record_event_state(call, 1, nullptr), 0);
  EXPECT_EQ(table->record_event_state(group, 1, nullptr), 0);
  EXPECT_EQ(other_.stated, (std::vector<const void*>{&other_.handles[0]}));
}

TEST_F(PluginChain, WhenTheOtherRefusesNothingOfItIsChanged) {
  other_.mask = static_cast<int>(abi::kEventGroup);
  other_.init_result = 3;
  const abi::Profiler4* table = Chained4();
  int mask = 0;
  EXPECT_EQ(Open4(*table, &mask), &other_.context);
  EXPECT_EQ(mask, other_.mask);
  EXPECT_EQ(table->finalize(&other_.context), 0);
  EXPECT_EQ(other_.finalized, 1);
}

TEST_F(PluginChain, ASecondCommunicatorFindsTheMaskThatTheOtherLeft) {
  other_.mask = static_cast<int>(abi::kEventGroup);
  const abi::Profiler4* table = Chained4();
  int mask = 0;
  void* first = Open4(*table, &mask);
  void* second = Open4(*table, &mask);
  EXPECT_NE(first, second);
  EXPECT_NE(mask, other_.mask);
  Plan(*table, second, mask, 7);
  EXPECT_EQ(other_.started, (std::vector<uint64_t>{abi::kEventGroup}));
}

TEST_F(PluginChain, GroupsOfTheApplicationAreToldFromVersion5On) {
  const auto* table = static_cast<const abi::Profiler5*>(ChainPlugin(5, &kOther5, true));
  ASSERT_NE(table, nullptr);
  other_.mask = static_cast<int>(abi::kEventGroupApi);
  int mask = 0;
  void* context = nullptr;
  ASSERT_EQ(table->init(&context, 0xabc, &mask, "", 1, 4, 1, nullptr), 0);
  const auto event = [&](uint64_t type, auto fill) {
    abi::Descriptor5 descriptor{};
    descriptor.type = type;
    descriptor.rank = 1;
    fill(descriptor);
    void* handle = nullptr;
    EXPECT_EQ(table->start_event(context, &handle, &descriptor), 0);
    return handle;
  };
  void* group = event(abi::kEventGroupApi, [](abi::Descriptor5&) {});
  void* call = event(abi::kEventCollectiveApi, [&](abi::Descriptor5& descriptor) {
    descriptor.parent = group;
    descriptor.collective_api = {"AllReduce", 100, "ncclFloat32", 0, nullptr, false};
  });
  {
    const Guard guard;
    NoteLaunch(guard.thread(),
               {.name = kChainedKernel, .stream = nullptr, .context = nullptr, .correlation = 7});
  }
  table->stop_event(call);
  table->stop_event(group);
  EXPECT_EQ(other_.started, (std::vector<uint64_t>{abi::kEventGroupApi}));
  EXPECT_EQ(other_.stopped, (std::vector<const void*>{&other_.handles[0]}));
  const auto events = Events();
  ASSERT_EQ(Only<CollectiveEvent>(events).size(), 1u);
  ASSERT_EQ(Only<PlanLaunchEvent>(events).size(), 1u);
}

TEST_F(PluginChain, TwoOthersOfOneVersionAreLeftAlone) {
  const abi::Profiler1 another = kOther1;
  EXPECT_NE(ChainPlugin(1, &kOther1, true), nullptr);
  EXPECT_NE(ChainPlugin(1, &kOther1, true), nullptr) << "the same again";
  EXPECT_EQ(ChainPlugin(1, &another, true), nullptr);
}

TEST_F(PluginChain, WhatNobodyHasOrNobodyKnowsIsLeftToTheLibraryItself) {
  EXPECT_EQ(ChainPlugin(4, nullptr, true), nullptr) << "it has another version";
  EXPECT_EQ(ChainPlugin(9, &kOther4, true), nullptr);
  EXPECT_EQ(ChainPlugin(0, &kOther4, true), nullptr);
  Switch(false);
  EXPECT_EQ(ChainPlugin(4, &kOther4, true), nullptr) << "the probe is off";
}

}  // namespace
}  // namespace gpuprobe::injector::nccl
