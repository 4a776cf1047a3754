#include "injector/ledgers/event_drain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <set>
#include <thread>

#include "injector/base/losses.h"
#include "injector/core/event_names.h"
#include "injector/core/guard.h"
#include "injector/core/host_clock.h"
#include "injector/core/recording.h"
#include "injector/core/self_report.h"
#include "injector/ledgers/stream.h"
#include "tests/injector/support/frames.h"

namespace gpuprobe::injector {
namespace {

using ::testing::ElementsAre;
using testing::TakeBatches;
using testing::Undelta;

class EventDrainTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(MapRings());
    stream_ = std::make_unique<Stream>();
    ASSERT_TRUE(stream_->Init(size_t{64} << 20));
  }
  void TearDown() override {
    event_names = {};
    // The rings outlive the drain that knows whose they are.
    if (EventRing* ring = CurrentThread().ring; ring != nullptr) ReleaseRing(*ring);
    CurrentThread().ring = nullptr;
    stream_->drain.Drain(UINT64_MAX);
    stream_->drain.Drain(UINT64_MAX);  // frees the rings of threads that ended
  }
  v1::Batch DrainAll() {
    stream_->drain.Drain(UINT64_MAX);
    stream_->builder.Seal();
    const auto batches = TakeBatches(&stream_->queue);
    EXPECT_EQ(batches.size(), 1u);
    return batches.empty() ? v1::Batch() : batches[0];
  }
  static bool Open(uint64_t time_ns, uint64_t id, uint64_t parent, std::string_view name,
                   uint64_t domain = 0) {
    return Emit(CurrentThread(),
                RangeOpenEvent{.time_ns = time_ns,
                               .id = id,
                               .parent_id = parent,
                               .domain = domain,
                               .category = 6,
                               .kind = static_cast<uint16_t>(wire::RangeKind::kRangeKindPushPop),
                               .name_bytes = static_cast<uint16_t>(name.size()),
                               .payload = 77,
                               .color = 0xff00ff00,
                               .payload_kind = 1},
                name);
  }
  static bool Close(uint64_t time_ns, uint64_t id) {
    return Emit(CurrentThread(), RangeCloseEvent{time_ns, id});
  }
  static bool Memory(wire::AllocationOp op, uint64_t time_ns, uint64_t address, uint64_t bytes,
                     bool failed = false, uint64_t began_ns = 0, uint64_t context = 0) {
    return Emit(CurrentThread(),
                AllocationEvent{.time_ns = time_ns,
                                .address = address,
                                .bytes = bytes,
                                .range_id = 0,
                                .began_ns = began_ns,
                                .context = context,
                                .device = 1,
                                .op = static_cast<uint8_t>(op),
                                .memory = static_cast<uint8_t>(wire::MemoryKind::kMemoryKindDevice),
                                .failed = failed ? uint8_t{1} : uint8_t{0},
                                .what = 0,
                                .by_nccl = 0});
  }

  std::unique_ptr<Stream> stream_;
};

TEST_F(EventDrainTest, WhatIsNotWantedIsNotSent) {
  recording.kinds = kRecordKernels;
  ASSERT_TRUE(Open(100, 1, 0, "step"));
  ASSERT_TRUE(Emit(CurrentThread(), LaunchEvent{.time_ns = 110,
                                                .range_id = 1,
                                                .fallback_range_id = 0,
                                                .correlation = 7,
                                                .graph = 0,
                                                .may_lack_record = 0,
                                                .owner = 2}));
  ASSERT_TRUE(Memory(wire::AllocationOp::kAllocationOpAlloc, 120, 0x1000, 64));
  ASSERT_TRUE(Close(130, 1));
  const v1::Batch batch = DrainAll();
  recording = {};
  EXPECT_FALSE(batch.has_ranges());
  EXPECT_FALSE(batch.has_allocations());
  ASSERT_EQ(batch.launches_size(), 1);
  EXPECT_EQ(batch.launches(0).correlation_delta_size(), 1);
  EXPECT_EQ(batch.launches(0).range_delta_size(), 0);
  ASSERT_EQ(batch.launches(0).owner_size(), 1);
  EXPECT_EQ(batch.launches(0).owner(0), 2u);
}

TEST_F(EventDrainTest, OutsideTheWindowOnlyAllocationsAreSent) {
  recording.from_ns = 1000;
  recording.span_ns = 1000;
  ASSERT_TRUE(Open(100, 1, 0, "before"));
  ASSERT_TRUE(Close(130, 1));
  ASSERT_TRUE(Memory(wire::AllocationOp::kAllocationOpAlloc, 140, 0x2000, 64));
  ASSERT_TRUE(Open(150, 2, 0, "into"));
  ASSERT_TRUE(Close(1100, 2));
  ASSERT_TRUE(Open(2500, 3, 0, "after"));
  ASSERT_TRUE(Close(2600, 3));
  const uint64_t before = SelfCount(SelfCounter::kOutsideWindow);
  const v1::Batch batch = DrainAll();
  recording = {};
  EXPECT_EQ(batch.ranges().duration_size(), 1);
  EXPECT_EQ(batch.ranges().id_delta(0), 2);
  EXPECT_EQ(batch.allocations().bytes_size(), 1);
  EXPECT_EQ(SelfCount(SelfCounter::kOutsideWindow) - before, 2u);
}

TEST_F(EventDrainTest, ARangeIsOneRowWhenItCloses) {
  event_names.range_domain = [](uint64_t handle, char* out, size_t capacity) -> size_t {
    return static_cast<size_t>(snprintf(out, capacity, "domain-%d", static_cast<int>(handle)));
  };
  ASSERT_TRUE(Open(1000, 5, 4, "forward", 7));
  EXPECT_EQ(DrainAll().ranges().start_delta_size(), 0);
  ASSERT_TRUE(Close(1500, 5));
  const v1::Batch batch = DrainAll();
  ASSERT_EQ(batch.ranges().start_delta_size(), 1);
  EXPECT_EQ(batch.base_ns() + static_cast<uint64_t>(batch.ranges().start_delta(0)), 1000u);
  EXPECT_EQ(batch.ranges().duration(0), 500u);
  EXPECT_EQ(batch.ranges().id_delta(0), 5);
  EXPECT_EQ(batch.ranges().parent_delta(0), 4);
  EXPECT_EQ(batch.ranges().category(0), 6u);
  EXPECT_EQ(batch.ranges().color(0), 0xff00ff00u);
  EXPECT_EQ(batch.ranges().payload_kind(0), v1::PAYLOAD_KIND_UINT64);
  EXPECT_EQ(batch.ranges().payload(0), 77u);
  EXPECT_NE(batch.ranges().domain(0), 0u);
  EXPECT_NE(batch.ranges().domain(0), batch.ranges().name(0));
}

TEST_F(EventDrainTest, ARangeThatAnotherThreadClosesIsWholeWhicheverRingIsReadFirst) {
  // The main thread's ring comes first; what it closes was opened elsewhere.
  ASSERT_TRUE(Close(2000, 9));
  stream_->drain.Drain(UINT64_MAX);
  std::thread([] { ASSERT_TRUE(Open(1000, 9, 0, "request")); }).join();
  const v1::Batch batch = DrainAll();
  ASSERT_EQ(batch.ranges().start_delta_size(), 1);
  EXPECT_EQ(batch.ranges().duration(0), 1000u);
}

TEST_F(EventDrainTest, RangesStillOpenAtTheEndSaySo) {
  ASSERT_TRUE(Open(1000, 3, 0, "training"));
  stream_->drain.Drain(UINT64_MAX);
  stream_->drain.CloseOpenRanges(9000);
  const v1::Batch batch = DrainAll();
  ASSERT_EQ(batch.ranges().start_delta_size(), 1);
  EXPECT_EQ(batch.ranges().unclosed(0), 1u);
  EXPECT_EQ(batch.ranges().duration(0), 8000u);
}

TEST_F(EventDrainTest, AFreeLearnsItsSizeEvenAcrossThreads) {
  std::thread([] { ASSERT_TRUE(Memory(wire::AllocationOp::kAllocationOpAlloc, 100, 0x7000, 4096)); }).join();
  ASSERT_TRUE(Memory(wire::AllocationOp::kAllocationOpFree, 200, 0x7000, 0));
  const v1::Batch batch = DrainAll();
  ASSERT_EQ(batch.allocations().time_delta_size(), 2);
  EXPECT_EQ(batch.allocations().op(0), v1::ALLOCATION_OP_ALLOC);
  EXPECT_EQ(batch.allocations().op(1), v1::ALLOCATION_OP_FREE);
  EXPECT_EQ(batch.allocations().bytes(1), 4096u);
  EXPECT_EQ(Undelta(batch.allocations().address_delta(), 2), (std::vector<uint64_t>{0x7000, 0x7000}));
  EXPECT_EQ(LossCount(wire::LossReason::kLossAllocationUnknown), 0u);
}

TEST_F(EventDrainTest, AFreeOfUnknownMemoryIsSentAndCounted) {
  ASSERT_TRUE(Memory(wire::AllocationOp::kAllocationOpFree, 200, 0x9000, 0));
  ASSERT_TRUE(Memory(wire::AllocationOp::kAllocationOpAlloc, 300, 0, 1 << 30, true));
  const v1::Batch batch = DrainAll();
  EXPECT_EQ(batch.allocations().bytes(0), 0u);
  EXPECT_EQ(batch.allocations().failed(1), 1u);
  EXPECT_EQ(batch.allocations().bytes(1), uint64_t{1} << 30);
  EXPECT_EQ(LossCount(wire::LossReason::kLossAllocationUnknown), 1u);
}

TEST_F(EventDrainTest, AllocatorLevelsAndRefusalsAreRows) {
  ASSERT_TRUE(Emit(CurrentThread(), AllocatorLevelEvent{.time_ns = 1000,
                                                        .allocated_bytes = 10,
                                                        .reserved_bytes = 20,
                                                        .peak_allocated_bytes = 15,
                                                        .peak_reserved_bytes = 25,
                                                        .device = 3,
                                                        .reserved = 0}));
  ASSERT_TRUE(Emit(CurrentThread(), AllocatorRefusalEvent{.time_ns = 2000,
                                                          .asked_bytes = 99,
                                                          .allocated_bytes = 10,
                                                          .reserved_bytes = 20,
                                                          .range_id = 7,
                                                          .device = 3,
                                                          .reserved = 0}));
  const v1::Batch batch = DrainAll();
  ASSERT_EQ(batch.allocator_levels().time_delta_size(), 1);
  EXPECT_EQ(batch.base_ns() + static_cast<uint64_t>(batch.allocator_levels().time_delta(0)), 1000u);
  EXPECT_EQ(batch.allocator_levels().device(0), 3u);
  EXPECT_EQ(batch.allocator_levels().allocated(0), 10u);
  EXPECT_EQ(batch.allocator_levels().reserved(0), 20u);
  EXPECT_EQ(batch.allocator_levels().peak_allocated(0), 15u);
  EXPECT_EQ(batch.allocator_levels().peak_reserved(0), 25u);
  ASSERT_EQ(batch.allocator_refusals().time_delta_size(), 1);
  EXPECT_EQ(batch.allocator_refusals().asked(0), 99u);
  EXPECT_EQ(batch.allocator_refusals().range_delta(0), 7);
}

// Thread A enters cuMemFree at 200 and reports it at 400; thread B was given the address at 300.
TEST_F(EventDrainTest, AnAddressThatIsGivenOutAgainBeforeItsReleaseIsToldIsReleasedFirst) {
  using wire::AllocationOp;
  ASSERT_TRUE(Memory(AllocationOp::kAllocationOpAlloc, 100, 0x7000, 10));
  std::thread([] { ASSERT_TRUE(Memory(AllocationOp::kAllocationOpAlloc, 300, 0x7000, 20)); }).join();
  ASSERT_TRUE(Memory(AllocationOp::kAllocationOpFree, 400, 0x7000, 0, false, 200));
  ASSERT_TRUE(Memory(AllocationOp::kAllocationOpFree, 600, 0x7000, 0, false, 500));
  const v1::Batch batch = DrainAll();
  ASSERT_EQ(batch.allocations().time_delta_size(), 4);
  const uint32_t ops[] = {0, 1, 0, 1};
  const uint64_t bytes[] = {10, 10, 20, 20};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(static_cast<uint32_t>(batch.allocations().op(i)), ops[i]) << i;
    EXPECT_EQ(batch.allocations().bytes(i), bytes[i]) << i;
  }
  EXPECT_EQ(LossCount(wire::LossReason::kLossAllocationUnknown), 0u);
}

TEST_F(EventDrainTest, TheEndOfAContextReleasesWhatWasAllocatedInIt) {
  constexpr int kAllocations = 1000;
  for (int i = 0; i < kAllocations; ++i) {
    ASSERT_TRUE(Memory(wire::AllocationOp::kAllocationOpAlloc, 100, 0x10000 + 16 * static_cast<uint64_t>(i),
                       8, false, 0, 0xc1));
  }
  ASSERT_TRUE(Memory(wire::AllocationOp::kAllocationOpAlloc, 100, 0x7000, 9, false, 0, 0xc2));
  ASSERT_TRUE(Emit(CurrentThread(), ContextEndEvent{200, 0xc1}));
  ASSERT_TRUE(Emit(CurrentThread(), ContextEndEvent{250, 0}));
  ASSERT_TRUE(Memory(wire::AllocationOp::kAllocationOpFree, 300, 0x7000, 0));
  const v1::Batch batch = DrainAll();
  ASSERT_EQ(batch.allocations().time_delta_size(), 2 * kAllocations + 2);
  int64_t live = 0;
  for (int i = 0; i < batch.allocations().time_delta_size(); ++i) {
    const auto bytes = static_cast<int64_t>(batch.allocations().bytes(i));
    live += batch.allocations().op_size() != 0 && batch.allocations().op(i) == v1::ALLOCATION_OP_FREE ? -bytes
                                                                                                      : bytes;
  }
  EXPECT_EQ(live, 0);
  EXPECT_EQ(batch.allocations().bytes(2 * kAllocations + 1), 9u);
}

TEST_F(EventDrainTest, EventsOfDifferentThreadsAreTakenInTheOrderOfTheirTimes) {
  ASSERT_NE(RingOf(CurrentThread()), nullptr);  // else it goes on in the ring of the thread that ended
  std::thread([] {
    for (uint64_t i = 0; i < 100; ++i)
      ASSERT_TRUE(Memory(wire::AllocationOp::kAllocationOpAlloc, 1 + 2 * i, 0x1000 + i, 8));
  }).join();
  for (uint64_t i = 0; i < 100; ++i) {
    ASSERT_TRUE(Memory(wire::AllocationOp::kAllocationOpAlloc, 2 + 2 * i, 0x100000 + i, 8));
  }
  const v1::Batch batch = DrainAll();
  ASSERT_EQ(batch.allocations().time_delta_size(), 200);
  for (int i = 1; i < 200; ++i) EXPECT_EQ(batch.allocations().time_delta(i), 1) << i;
}

// Ranges and what lies in them keep their order, over drains, readings and a change of the clock.
TEST_F(EventDrainTest, StampsBecomeTimesInTheOrderOfTheirThread) {
  host_clock.Start();
  if (!host_clock.in_use()) GTEST_SKIP() << "this machine has no counter that the kernel trusts";
  const uint64_t before_ns = NowNs();
  constexpr uint64_t kPairs = 20'000;
  for (uint64_t i = 0; i < kPairs; ++i) {
    ASSERT_TRUE(Open(Stamp(), 2 * i + 1, 0, "outer"));
    ASSERT_TRUE(Open(Stamp(), 2 * i + 2, 2 * i + 1, "inner"));
    ASSERT_TRUE(Close(Stamp(), 2 * i + 2));
    ASSERT_TRUE(Close(Stamp(), 2 * i + 1));
    if (i % 1000 == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      stream_->drain.Drain(NowNs() - 1'000'000);
    }
    if (i % 2500 == 0) stamps_are_ticks = i % 5000 == 0;
  }
  stream_->drain.Drain(UINT64_MAX);
  const uint64_t after_ns = NowNs();
  const uint64_t error_ns = host_clock.max_error_ns() + 50;
  stream_->builder.Seal();
  uint64_t rows = 0;
  uint64_t last_end = 0;
  uint64_t inner_start = 0;
  uint64_t inner_end = 0;
  for (const v1::Batch& batch : TakeBatches(&stream_->queue)) {
    const auto starts =
        testing::Starts(batch.base_ns(), batch.ranges().start_delta(), batch.ranges().duration());
    for (int i = 0; i < batch.ranges().duration_size(); ++i, ++rows) {
      const uint64_t start = starts[static_cast<size_t>(i)];
      const uint64_t end = start + batch.ranges().duration(i);
      if (rows % 2 == 0) {
        ASSERT_GE(start, last_end);
        inner_start = start;
        inner_end = end;
      } else {
        ASSERT_LE(start, inner_start);
        ASSERT_GE(end, inner_end);
        ASSERT_GE(start, last_end);
        last_end = end;
      }
      ASSERT_GE(start + error_ns, before_ns);
      ASSERT_LE(end, after_ns + error_ns);
    }
  }
  EXPECT_EQ(rows, 2 * kPairs);
  EXPECT_EQ(LossCount(wire::LossReason::kLossEventRingFull), 0u);
}

// As many threads as a program likes, one after another and faster than anybody drains: each one's events are
// its own.
TEST_F(EventDrainTest, ThousandsOfThreadsOneAfterAnother) {
  constexpr uint32_t kThreads = 2000;
  for (uint32_t i = 0; i < kThreads; ++i) {
    std::thread([i] {
      ASSERT_TRUE(Emit(CurrentThread(), LaunchEvent{2 * i + 1, 0, 0, i + 1, 0, 0, 0}));
      ASSERT_TRUE(Memory(wire::AllocationOp::kAllocationOpAlloc, 2 * i + 2, 0x1000 + i, i + 1));
    }).join();
  }
  stream_->drain.Drain(UINT64_MAX);
  stream_->builder.Seal();
  std::map<uint32_t, uint32_t> launched;  // by correlation, ThreadDef.id
  std::set<uint32_t> defined;
  uint64_t allocations = 0;
  for (const v1::Batch& batch : TakeBatches(&stream_->queue)) {
    for (const v1::ThreadDef& thread : batch.threads()) EXPECT_TRUE(defined.insert(thread.id()).second);
    for (const v1::Launches& launches : batch.launches()) {
      for (const uint64_t correlation :
           Undelta(launches.correlation_delta(), launches.correlation_delta_size()))
        launched[static_cast<uint32_t>(correlation)] = launches.thread();
    }
    for (int i = 0; i < batch.allocations().bytes_size(); ++i, ++allocations) {
      EXPECT_EQ(batch.allocations().thread(i), launched[static_cast<uint32_t>(batch.allocations().bytes(i))]);
    }
  }
  EXPECT_EQ(defined.size(), kThreads);
  EXPECT_EQ(allocations, kThreads);
  ASSERT_EQ(launched.size(), kThreads);
  std::set<uint32_t> ids;
  for (const auto& [correlation, thread] : launched) ids.insert(thread);
  EXPECT_EQ(ids, defined);
  EXPECT_EQ(LossCount(wire::LossReason::kLossThreadSlotsFull), 0u);
}

TEST_F(EventDrainTest, EventsAfterTheLimitWaitForTheNextDrain) {
  ASSERT_TRUE(Emit(CurrentThread(), LaunchEvent{100, 0, 0, 1, 0, 0, 0}));
  ASSERT_TRUE(Emit(CurrentThread(), LaunchEvent{900, 0, 0, 2, 0, 0, 0}));
  stream_->drain.Drain(500);
  stream_->builder.Seal();
  const auto batches = TakeBatches(&stream_->queue);
  ASSERT_EQ(batches.at(0).launches_size(), 1);
  EXPECT_EQ(batches[0].launches(0).correlation_delta_size(), 1);
  const v1::Batch rest = DrainAll();
  EXPECT_EQ(rest.launches(0).correlation_delta(0), 2);
}

TEST_F(EventDrainTest, AThreadIsKnownByTheNameThatItTookLater) {
  std::atomic<bool> named{false};
  std::atomic<bool> done{false};
  std::thread worker([&] {
    EXPECT_TRUE(Emit(CurrentThread(), LaunchEvent{1, 0, 0, 1, 0, 0, 0}));
    pthread_setname_np(pthread_self(), "pt_autograd_0");
    named = true;
    while (!done) usleep(1000);
  });
  while (!named) usleep(1000);
  const v1::Batch batch = DrainAll();
  done = true;
  worker.join();
  ASSERT_EQ(batch.threads_size(), 1);
  EXPECT_EQ(batch.threads(0).name(), "pt_autograd_0");
  EXPECT_FALSE(batch.threads(0).main());
  EXPECT_EQ(batch.launches(0).thread(), batch.threads(0).id());
}

TEST_F(EventDrainTest, AThreadHasTheNameThatTheProgramGivesIt) {
  const uint32_t tid = CurrentThread().tid;
  ASSERT_TRUE(Emit(CurrentThread(), LaunchEvent{1, 0, 0, 1, 0, 0, 0}));
  ASSERT_TRUE(Emit(CurrentThread(), ThreadNameEvent{2, tid, 0}, "trainer"));
  const v1::Batch batch = DrainAll();
  ASSERT_GE(batch.threads_size(), 1);
  const v1::ThreadDef& named = batch.threads(batch.threads_size() - 1);
  EXPECT_EQ(named.tid(), tid);
  EXPECT_EQ(named.given_name(), "trainer");
  EXPECT_NE(named.name(), "trainer");
  // A thread that is named before it does anything, and another one that later gets its number.
  uint32_t worker_tid = 0;
  std::thread([&] {
    worker_tid = CurrentThread().tid;
    EXPECT_TRUE(Emit(CurrentThread(), ThreadNameEvent{3, worker_tid, 0}, std::string(300, 'w')));
    EXPECT_TRUE(Emit(CurrentThread(), LaunchEvent{4, 0, 0, 1, 0, 0, 0}));
  }).join();
  const v1::Batch second = DrainAll();
  ASSERT_GE(second.threads_size(), 1);
  EXPECT_EQ(second.threads(second.threads_size() - 1).tid(), worker_tid);
  EXPECT_EQ(second.threads(second.threads_size() - 1).given_name(), std::string(64, 'w'));
}

TEST_F(EventDrainTest, DriverCallsThatWereSlowHaveRows) {
  constexpr uint64_t kTime = 1'000'000'000;
  const auto call = [](uint64_t entered_ns, uint64_t duration_ns, const char* function, int32_t result) {
    return Emit(CurrentThread(), DriverCallEvent{.time_ns = entered_ns + duration_ns,
                                                 .entered_ns = entered_ns,
                                                 .function = function,
                                                 .range_id = 5,
                                                 .result = result,
                                                 .by_nccl = 0});
  };
  ASSERT_TRUE(call(kTime, kSlowDriverCallNs - 1, "cuEventCreate", 0));
  ASSERT_TRUE(call(kTime + 30'000, kSlowDriverCallNs, "cuEventCreate", 0));
  ASSERT_TRUE(call(kTime + 60'000, 5'000'000, "cuModuleLoadData", 209));
  const v1::Batch batch = DrainAll();
  const v1::DriverCalls& calls = batch.driver_calls();
  EXPECT_THAT(calls.duration(), ElementsAre(kSlowDriverCallNs, 5'000'000));
  EXPECT_THAT(calls.result(), ElementsAre(0, 209));
  ASSERT_EQ(calls.function_size(), 2);
  std::map<uint32_t, std::string> names;
  for (const v1::StringDef& name : batch.strings()) names[name.id()] = name.value();
  EXPECT_EQ(names[calls.function(0)], "cuEventCreate");
  EXPECT_EQ(names[calls.function(1)], "cuModuleLoadData");
}

TEST_F(EventDrainTest, ATimedLaunchStandsForSixteenAndOneThatWaitsCountsForLittle) {
  constexpr uint64_t kTime = 1'000'000'000;
  const uint64_t launches = SelfCount(SelfCounter::kLaunches);
  const uint64_t launch_ns = SelfCount(SelfCounter::kLaunchNs);
  ASSERT_TRUE(Emit(CurrentThread(), LaunchTimeEvent{kTime + 400, kTime}));
  ASSERT_TRUE(Emit(CurrentThread(), LaunchTimeEvent{kTime + 900'000, kTime + 1'000}));
  stream_->drain.Drain(UINT64_MAX);
  EXPECT_EQ(SelfCount(SelfCounter::kLaunches) - launches, 2 * kLaunchSampling);
  EXPECT_EQ(SelfCount(SelfCounter::kLaunchNs) - launch_ns, (400 + 20'000) * kLaunchSampling);
}

TEST_F(EventDrainTest, TheRingOfAThreadThatEndedIsFreedAndItsEventsAreThere) {
  EventRing* ring = nullptr;
  std::thread([&ring] {
    for (int i = 0; i < 5000; ++i) ASSERT_TRUE(Emit(CurrentThread(), LaunchEvent{1, 0, 0, 1, 0, 0, 0}));
    ring = CurrentThread().ring;
  }).join();
  EXPECT_EQ(DrainAll().launches(0).time_delta_size(), 5000);
  stream_->drain.Drain(UINT64_MAX);
  EXPECT_EQ(ring->slot(), EventRing::Slot::kFree);
}

TEST_F(EventDrainTest, CollectivesGetTheNamesOfTheirTables) {
  event_names.collective_op = [](uint16_t op) -> const char* { return op == 1 ? "AllReduce" : "Send"; };
  event_names.collective_datatype = [](uint8_t type) -> const char* {
    return type == 7 ? "float32" : "int8";
  };
  CollectiveEvent event{};
  event.issue_ns = 10;
  event.return_ns = 20;
  event.op = 1;
  event.datatype = 7;
  ASSERT_TRUE(Emit(CurrentThread(), event));
  ASSERT_TRUE(Emit(CurrentThread(), PlanLaunchEvent{3, 77, 0, 0, 0, 0}));
  const v1::Batch batch = DrainAll();
  EXPECT_EQ(testing::Text({batch}, batch.collectives().op(0)), "AllReduce");
  EXPECT_EQ(testing::Text({batch}, batch.collectives().datatype(0)), "float32");
  EXPECT_EQ(batch.plans().correlation_delta(0), 77);
}

class SmallAllocations : public EventDrainTest {
 protected:
  void SetUp() override {
    EventDrainTest::SetUp();
    recording.min_allocation_bytes = 100;
  }
  void TearDown() override {
    EventDrainTest::TearDown();
    recording = {};
  }
  static void Allocate(uint64_t time_ns, uint64_t address, uint64_t bytes, bool failed = false,
                       wire::MemoryKind memory = wire::MemoryKind::kMemoryKindDevice) {
    AllocationEvent event{};
    event.time_ns = time_ns;
    event.address = failed ? 0 : address;
    event.bytes = bytes;
    event.range_id = time_ns;
    event.memory = static_cast<uint8_t>(memory);
    event.failed = failed ? 1 : 0;
    EXPECT_TRUE(Emit(CurrentThread(), event));
  }
  static void Release(uint64_t time_ns, uint64_t address) {
    AllocationEvent event{};
    event.time_ns = time_ns;
    event.address = address;
    event.op = static_cast<uint8_t>(wire::AllocationOp::kAllocationOpFree);
    event.memory = static_cast<uint8_t>(wire::MemoryKind::kMemoryKindDevice);
    EXPECT_TRUE(Emit(CurrentThread(), event));
  }
};

TEST_F(SmallAllocations, RunsTellHowFarTheLevelRoseBetweenLargeOnes) {
  const uint64_t t = NowNs();
  Allocate(t + 1, 0x10, 50);
  Allocate(t + 2, 0x20, 99);
  Release(t + 3, 0x10);
  Allocate(t + 4, 0x30, 100);  // large enough for a record
  Release(t + 5, 0x20);
  Allocate(t + 6, 0x40, 20, false, wire::MemoryKind::kMemoryKindPinned);  // another level
  Allocate(t + 7, 0x50, 10, true);                                        // refusals are always reported
  Release(t + 8, 0x30);
  const v1::Batch batch = DrainAll();
  EXPECT_EQ(batch.allocations().time_delta_size(), 3);
  const v1::SmallAllocations& small = batch.small_allocations();
  ASSERT_EQ(small.time_delta_size(), 3);
  EXPECT_EQ(batch.base_ns() + static_cast<uint64_t>(small.time_delta(0)), t + 2);
  EXPECT_EQ(small.duration(0), 1u);
  EXPECT_THAT(small.allocations(), ::testing::ElementsAre(2, 0, 1));
  EXPECT_THAT(small.frees(), ::testing::ElementsAre(1, 1, 0));
  EXPECT_THAT(small.rise(), ::testing::ElementsAre(149, 0, 20));
  EXPECT_THAT(small.change(), ::testing::ElementsAre(99, -99, 20));
  EXPECT_EQ(Undelta(small.range_delta(), 3)[0], t + 2);
}

}  // namespace
}  // namespace gpuprobe::injector
