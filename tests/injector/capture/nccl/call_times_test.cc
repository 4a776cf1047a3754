#include "injector/capture/nccl/call_times.h"

#include <atomic>
#include <thread>
#include <vector>

#include "injector/core/guard.h"
#include "injector/core/recording.h"
#include "injector/core/step_gate.h"
#include "tests/injector/live_probe.h"

namespace gpuprobe::injector::nccl {
namespace {

class CallTimes : public LiveProbe {
 protected:
  void SetUp() override {
    LiveProbe::SetUp();
    recording.times_calls = true;
    step_gate.Init({.on_demand = true, .traces_calls = true});
    comm_ = OpenPluginCommunicator(0xabc, 1, 4, nullptr);
    ASSERT_NE(comm_, nullptr);
    {  // known with its first call, which has been launched
      const Guard guard;
      ASSERT_TRUE(guard);
      NotePluginLaunch(guard.thread(), 11);
    }
    NotePluginCall(comm_, {EntryPoint::kAllReduce, 7, -1, -1, 100, 0, 1});
    EndPluginGroup();
    Events();
  }
  void TearDown() override {
    ClosePluginCommunicator(comm_);
    step_gate.Init({});
    recording.times_calls = false;
    LiveProbe::TearDown();
  }
  void* Begin() { return BeginTimedCall(comm_, EntryPoint::kAllReduce); }
  static std::vector<CallTimeEvent> Times() { return Only<CallTimeEvent>(Events()); }

  PluginCommunicator* comm_ = nullptr;
};

TEST_F(CallTimes, ACallTakesAsLongAsTheFirstOfItsChannelsThatBegan) {
  void* call = Begin();
  void* channel = BeginTimedChannel(call, 1000);
  EXPECT_EQ(BeginTimedChannel(call, 1500), nullptr) << "another channel of the same call";
  EndTimedChannel(channel, 4000);
  const auto times = Times();
  ASSERT_EQ(times.size(), 1u);
  EXPECT_EQ(times[0].gpu_ns, 3000u);
  EXPECT_EQ(times[0].op, static_cast<uint16_t>(EntryPoint::kAllReduce));
  EXPECT_NE(times[0].comm, 0u);
}

TEST_F(CallTimes, CallsAreNumberedInTheOrderOfTheirReports) {
  void* one = BeginTimedChannel(Begin(), 10);
  void* two = BeginTimedChannel(Begin(), 20);
  EndTimedChannel(two, 25);
  EndTimedChannel(one, 40);
  const auto times = Times();
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[0].number, times[1].number + 1);
  EXPECT_EQ(times[0].gpu_ns, 5u);
  EXPECT_EQ(times[1].gpu_ns, 30u);
}

TEST_F(CallTimes, ThePlaceOfACallThatHasNotEndedGivesANewerOneNothingOfIt) {
  void* const not_begun = Begin();
  void* const begun = BeginTimedChannel(Begin(), 100);
  std::vector<void*> newer;
  for (uint32_t i = 0; i < kTimedCalls; ++i) newer.push_back(Begin());
  EXPECT_EQ(BeginTimedChannel(not_begun, 200), nullptr);
  EndTimedChannel(begun, 300);
  EXPECT_TRUE(Times().empty());
  for (void* call : newer) {
    void* channel = BeginTimedChannel(call, 1000);
    ASSERT_NE(channel, nullptr) << "an older call's channel has not begun it";
    EndTimedChannel(channel, 1007);
  }
  const auto times = Times();
  EXPECT_EQ(times.size(), kTimedCalls);
  for (const CallTimeEvent& time : times) ASSERT_EQ(time.gpu_ns, 7u);
}

TEST_F(CallTimes, WhatIsNoTimeIsNotReported) {
  EndTimedChannel(BeginTimedChannel(Begin(), 1000), 1000);
  EndTimedChannel(BeginTimedChannel(Begin(), 1000), 900);
  EndTimedChannel(BeginTimedChannel(Begin(), 0), 900);
  EndTimedChannel(nullptr, 900);
  int elsewhere = 0;
  EXPECT_EQ(BeginTimedChannel(&elsewhere, 900), nullptr);
  EndTimedChannel(&elsewhere, 900);
  void* call = Begin();
  EndTimedChannel(call, 900);
  EXPECT_EQ(BeginTimedChannel(BeginTimedChannel(call, 1), 2), nullptr) << "a channel is no call";
  EXPECT_TRUE(Times().empty());
}

TEST_F(CallTimes, TheClockOfTheGpuMayPassSeventyEightHours) {
  constexpr uint64_t kTurn = uint64_t{1} << 48;
  EndTimedChannel(BeginTimedChannel(Begin(), kTurn - 5), kTurn + 6);
  const auto times = Times();
  ASSERT_EQ(times.size(), 1u);
  EXPECT_EQ(times[0].gpu_ns, 11u);
}

// NCCL's proxy threads end channels while others report calls: each time is of the call that it says.
TEST_F(CallTimes, PlacesAreUsedAgainWhileOthersEndThem) {
  constexpr uint64_t kCalls = 20 * kTimedCalls;
  std::vector<std::atomic<void*>> handles(kCalls);
  std::thread proxy([&] {
    for (uint64_t i = 0; i < kCalls; i += 3) {
      void* call = nullptr;
      while ((call = handles[i].load()) == nullptr) std::this_thread::yield();
      EndTimedChannel(BeginTimedChannel(call, 1000), 1000 + i + 1);
    }
  });
  for (std::atomic<void*>& handle : handles) handle = Begin();
  proxy.join();
  const auto times = Times();
  EXPECT_FALSE(times.empty());
  uint64_t last = 0;
  for (const CallTimeEvent& time : times) {
    ASSERT_EQ((time.gpu_ns - 1) % 3, 0u);
    const uint64_t before_first = time.number - (time.gpu_ns - 1);
    if (last != 0) {
      ASSERT_EQ(before_first, last);
    }
    last = before_first;
  }
}

}  // namespace
}  // namespace gpuprobe::injector::nccl
