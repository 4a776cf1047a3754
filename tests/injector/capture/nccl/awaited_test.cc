// Calls whose kernels an NCCL thread launches are reported once, with the kernels that came in time.
#include "injector/capture/nccl/awaited.h"

#include <gtest/gtest.h>

#include <map>
#include <thread>
#include <vector>

#include "injector/capture/nccl/communicators.h"
#include "injector/capture/nccl/kernel_launches.h"
#include "injector/capture/nccl/scopes.h"
#include "injector/core/guard.h"
#include "tests/injector/live_probe.h"

namespace gpuprobe::injector::nccl {
namespace {

constexpr const char* kAwaitedKernel =
    "_Z38ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE";

class AwaitedCalls : public LiveProbe {
 protected:
  void TearDown() override {
    LookAtAwaited(CurrentThread(), true);
    LiveProbe::TearDown();
  }

  // A batch of one call on `handle`, on its stream.
  static CallBatch* Batch(void* handle, uint64_t count = 100) {
    CallBatch* batch = ClaimGroupBatch();
    if (batch == nullptr) return nullptr;
    PendingCall& call = batch->calls[batch->call_count++];
    call = {};
    call.event.op = static_cast<uint16_t>(EntryPoint::kAllReduce);
    call.event.count = count;
    call.event.result = ncclInProgress;
    call.handle = handle;
    call.ranks = 4;
    call.stream = NormalStream(handle);
    return batch;
  }
  // The application's call has returned; NCCL works on it.
  static Awaited* Leave(CallBatch* batch) {
    Awaited* awaited = Await(CurrentThread(), batch);
    LeaveAwaited(awaited);
    return awaited;
  }
  // On a thread of NCCL's.
  static void LaunchElsewhere(uint32_t correlation, const void* stream) {
    std::thread([=] {
      const Guard guard;
      ASSERT_TRUE(guard);
      NoteLaunch(guard.thread(),
                 {.name = kAwaitedKernel, .stream = stream, .context = nullptr, .correlation = correlation});
    }).join();
  }
  static void Look(int times) {
    for (int i = 0; i < times; ++i) LookAtAwaited(CurrentThread(), false);
  }
  // As many calls with as many kernels since the last time, each with its own.
  static void ExpectReported(const std::vector<uint32_t>& correlations, size_t calls) {
    const auto events = Events();
    const auto recorded = Only<CollectiveEvent>(events);
    const auto launches = Only<PlanLaunchEvent>(events);
    ASSERT_EQ(recorded.size(), calls);
    ASSERT_EQ(launches.size(), correlations.size());
    for (size_t i = 0; i < correlations.size(); ++i) {
      EXPECT_EQ(launches[i].correlation, correlations[i]);
      EXPECT_EQ(launches[i].plan, recorded.at(0).plan);
    }
  }

  int first_ = 0;
  int second_ = 0;
};

TEST_F(AwaitedCalls, AreReportedAtTheSecondLookWithTheirKernel) {
  Leave(Batch(&first_));
  LaunchElsewhere(7, &first_);
  Look(1);
  ExpectReported({}, 0);
  Look(1);
  ExpectReported({7}, 1);
  Look(10);
  ExpectReported({}, 0);
}

TEST_F(AwaitedCalls, AreReportedWithoutAKernelAfterAFewLooksAndTheKernelOnItsOwn) {
  Leave(Batch(&first_));
  Look(static_cast<int>(kLooksWithoutKernel));
  ExpectReported({}, 0);
  Look(1);
  const auto calls = Only<CollectiveEvent>(Events());
  ASSERT_EQ(calls.size(), 1u);
  LaunchElsewhere(8, &first_);
  const auto late = Events();
  EXPECT_TRUE(Only<CollectiveEvent>(late).empty());
  const auto launches = Only<PlanLaunchEvent>(late);
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_EQ(launches[0].plan, calls[0].plan);
}

TEST_F(AwaitedCalls, TheNextCallOnTheCommunicatorSaysThatTheBatchIsComplete) {
  Leave(Batch(&first_));
  Leave(Batch(&second_));
  LaunchElsewhere(7, &first_);
  ResolveAwaited(CurrentThread(), &first_);
  ExpectReported({7}, 1);
  ResolveAwaited(CurrentThread(), &first_);
  ExpectReported({}, 0);
  LaunchElsewhere(9, &second_);
  ResolveAwaited(CurrentThread(), &second_);
  ExpectReported({9}, 1);
}

TEST_F(AwaitedCalls, KernelsGoToTheFirstThatCanCarryThem) {
  Leave(Batch(&first_, 1));
  Leave(Batch(&first_, 2));
  Leave(Batch(&second_, 3));
  LaunchElsewhere(5, &second_);
  LaunchElsewhere(6, &first_);
  Look(2);
  const auto events = Events();
  std::vector<uint64_t> counts;
  for (const CollectiveEvent& call : Only<CollectiveEvent>(events)) counts.push_back(call.count);
  EXPECT_EQ(counts, (std::vector<uint64_t>{1, 3})) << "the other one still waits";
  EXPECT_EQ(Only<PlanLaunchEvent>(events).size(), 2u);
}

TEST_F(AwaitedCalls, AThreadOfNcclsLaunchesOneGroup) {
  Leave(Batch(&first_, 1));
  std::thread([this] {
    const Guard guard;
    ASSERT_TRUE(guard);
    NoteLaunch(guard.thread(),
               {.name = kAwaitedKernel, .stream = &first_, .context = nullptr, .correlation = 5});
    Leave(Batch(&first_, 2));  // of another communicator on the same stream
    NoteLaunch(guard.thread(),
               {.name = kAwaitedKernel, .stream = &first_, .context = nullptr, .correlation = 6});
  }).join();
  LaunchElsewhere(7, &first_);
  Look(2);
  const auto events = Events();
  const auto calls = Only<CollectiveEvent>(events);
  ASSERT_EQ(calls.size(), 2u);
  std::map<uint32_t, uint64_t> count_of;
  for (const PlanLaunchEvent& launch : Only<PlanLaunchEvent>(events)) {
    for (const CollectiveEvent& call : calls) {
      if (call.plan == launch.plan) count_of[launch.correlation] = call.count;
    }
  }
  EXPECT_EQ(count_of, (std::map<uint32_t, uint64_t>{{5, 1}, {6, 1}, {7, 2}}));
}

TEST_F(AwaitedCalls, TheKernelOfAGroupIsNamedByOneCallAndOnTheStreamOfAnother) {
  CallBatch* batch = Batch(&first_);
  batch->calls[batch->call_count] = batch->calls[0];
  batch->calls[0].event.op = static_cast<uint16_t>(EntryPoint::kSend);
  batch->calls[batch->call_count++].stream = NormalStream(&second_);
  Leave(batch);
  LaunchElsewhere(7, &first_);
  Look(2);
  ExpectReported({7}, 2);
}

TEST_F(AwaitedCalls, ACallThatWasLaunchedAtOnceIsTheCallersAgain) {
  CallBatch* batch = Batch(&first_);
  Awaited* awaited = Await(CurrentThread(), batch);
  EXPECT_EQ(StopAwaiting(awaited), batch);
  ReleaseGroupBatch(batch);
  LaunchElsewhere(7, &first_);
  Look(5);
  ExpectReported({}, 0);
}

TEST_F(AwaitedCalls, WhileTheCallerHasNotLeftNobodyReports) {
  CallBatch* batch = Batch(&first_);
  Awaited* awaited = Await(CurrentThread(), batch);
  LaunchElsewhere(7, &first_);
  Look(5);
  ExpectReported({}, 0);
  EXPECT_EQ(StopAwaiting(awaited), batch);
  EXPECT_EQ(batch->launch_count, 1u) << "what was noted meanwhile";
  ReleaseGroupBatch(batch);
}

TEST_F(AwaitedCalls, TheReportIsTheCallersNotTheProbesThreads) {
  const uint32_t caller = RingOf(CurrentThread())->thread_id();
  Leave(Batch(&first_));
  LaunchElsewhere(7, &first_);
  std::thread([] {
    LookAtAwaited(CurrentThread(), false);
    LookAtAwaited(CurrentThread(), false);
  }).join();
  const auto calls = Only<CollectiveEvent>(Events());
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].thread, caller);
}

TEST_F(AwaitedCalls, WhatNcclTellsOfALaunchReachesTheCallThatItIsOf) {
  Leave(Batch(&first_));
  std::thread([this] {
    const Guard guard;
    NoteLaunch(guard.thread(),
               {.name = kAwaitedKernel, .stream = &first_, .context = nullptr, .correlation = 7});
    TellAwaited(
        guard.thread(),
        [](CallBatch& batch, const void* channels) {
          batch.calls[0].event.channels = *static_cast<const uint8_t*>(channels);
        },
        "\5");
  }).join();
  Look(2);
  const auto calls = Only<CollectiveEvent>(Events());
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].channels, 5);
}

TEST_F(AwaitedCalls, WithoutAPlaceThereIsNoneAndAllAreReportedAtTheEnd) {
  std::vector<Awaited*> places;
  places.reserve(kAwaited);
  for (int i = 0; i < kAwaited; ++i) places.push_back(Leave(Batch(&first_, static_cast<uint64_t>(i) + 1)));
  for (const Awaited* place : places) EXPECT_NE(place, nullptr);
  EXPECT_EQ(ClaimGroupBatch(), nullptr) << "as many places as batches";
  LookAtAwaited(CurrentThread(), true);
  EXPECT_EQ(Only<CollectiveEvent>(Events()).size(), static_cast<size_t>(kAwaited));
  CallBatch* again = ClaimGroupBatch();
  EXPECT_NE(again, nullptr);
  ReleaseGroupBatch(again);
}

// Many batches are awaited, launched by other threads and resolved while the probe's thread looks: each call
// is reported once, each kernel told at most once.
TEST_F(AwaitedCalls, RacingThreadsLoseNoCallAndDoubleNone) {
  constexpr int kRounds = 300;
  std::atomic<bool> done{false};
  std::thread looker([&done] {
    while (!done.load()) LookAtAwaited(CurrentThread(), false);
  });
  size_t calls = 0;
  size_t launches = 0;
  const auto count = [&] {
    const auto events = Events();
    calls += Only<CollectiveEvent>(events).size();
    launches += Only<PlanLaunchEvent>(events).size();
  };
  for (int round = 0; round < kRounds; ++round) {
    ResolveAwaited(CurrentThread(), &first_);
    CallBatch* batch = Batch(&first_);
    if (batch == nullptr) continue;
    ASSERT_NE(Leave(batch), nullptr);
    LaunchElsewhere(static_cast<uint32_t>(round) + 1, &first_);
    if (round % 50 == 0) count();
  }
  done.store(true);
  looker.join();
  LookAtAwaited(CurrentThread(), true);
  count();
  EXPECT_EQ(calls, static_cast<size_t>(kRounds));
  EXPECT_LE(launches, static_cast<size_t>(kRounds));
}

}  // namespace
}  // namespace gpuprobe::injector::nccl
