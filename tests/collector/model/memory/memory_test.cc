// The ledger's answers: what made the high-water mark, what was there at a refusal, and in which ranges.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collector/model/memory/memory_ledger.h"
#include "collector/model/process/process_model.h"
#include "collector/model/ranges/range_paths.h"
#include "tests/collector/testing/batch_builder.h"

namespace gpuprobe::model {
namespace {

using testing::BatchBuilder;

AllocationRecord Event(uint64_t time_ns, uint64_t address, uint64_t bytes,
                       v1::AllocationOp op = v1::ALLOCATION_OP_ALLOC) {
  AllocationRecord record{};
  record.time_ns = time_ns;
  record.op = op;
  record.memory = v1::MEMORY_KIND_DEVICE;
  record.address = address;
  record.bytes = bytes;
  record.range = time_ns;
  return record;
}

std::vector<uint64_t> Sizes(const MemoryLedger::Kind& kind) {
  std::vector<uint64_t> sizes;
  for (const MemoryLedger::Held& held : kind.largest) sizes.push_back(held.bytes);
  return sizes;
}

TEST(MemoryLedger, TheLargestAllocationsAreThoseOfTheHighWaterMark) {
  MemoryLedger ledger;
  for (uint64_t i = 1; i <= 8; ++i) ledger.Add(Event(i, i, i * 10));  // 360 bytes
  ledger.Add(Event(20, 8, 80, v1::ALLOCATION_OP_FREE));
  ledger.Add(Event(21, 9, 79));  // 359: no new mark
  ledger.Finish();
  const MemoryLedger::Kind& device = ledger.kinds()[v1::MEMORY_KIND_DEVICE];
  EXPECT_EQ(device.high_water_bytes, 360u);
  EXPECT_EQ(Sizes(device), (std::vector<uint64_t>{80, 70, 60, 50, 40}));
  EXPECT_EQ(device.largest[0].range, 8u);
}

TEST(MemoryLedger, TheMarkMayBeOffWhereCallsOverlapped) {
  MemoryLedger ledger;
  const auto within = [](AllocationRecord record, uint64_t duration_ns) {
    record.duration_ns = duration_ns;
    return record;
  };
  ledger.Add(within(Event(100, 1, 1000), 50));
  ledger.Add(within(Event(200, 2, 10), 50));
  const auto error = [&ledger] {
    const MemoryLedger::Kind& device = ledger.kinds()[v1::MEMORY_KIND_DEVICE];
    EXPECT_EQ(ledger.devices().at(0).bounds.ErrorOf(device.high_water_bytes),
              device.bounds.ErrorOf(device.high_water_bytes));
    return device.bounds.ErrorOf(device.high_water_bytes);
  };
  ledger.ApplyUntil(250);
  EXPECT_EQ(error(), 0u) << "one after the other";
  // 40 more may have been there before the 10 went.
  ledger.Add(within(Event(400, 2, 10, v1::ALLOCATION_OP_FREE), 100));
  ledger.Add(within(Event(420, 3, 40), 70));
  ledger.ApplyUntil(500);
  EXPECT_EQ(ledger.kinds()[v1::MEMORY_KIND_DEVICE].high_water_bytes, 1040u);
  EXPECT_EQ(error(), 10u);
  // Memory of another kind does not change this kind's level.
  AllocationRecord pinned = within(Event(430, 9, 7), 100);
  pinned.memory = v1::MEMORY_KIND_PINNED;
  ledger.Add(pinned);
  SmallAllocationsRecord run{};
  run.highest_ns = run.end_ns = 600;
  run.memory = v1::MEMORY_KIND_DEVICE;
  run.allocations = 9;
  run.rise_bytes = 60;
  run.change_bytes = 60;
  run.obtained_bytes = 25;
  ledger.AddSmall(run);
  ledger.ApplyUntil(600);
  EXPECT_EQ(ledger.kinds()[v1::MEMORY_KIND_DEVICE].high_water_bytes, 1100u);
  EXPECT_EQ(error(), 25u) << "25 more at one moment of the run";
  run.highest_ns = run.end_ns = 700;
  run.allocations = 1;
  run.rise_bytes = run.change_bytes = 100;
  run.obtained_bytes = 0;
  run.released_bytes = run.released_before_bytes = 40;
  run.released_since_ns = 650;
  ledger.AddSmall(run);
  ledger.Finish();
  EXPECT_EQ(ledger.kinds()[v1::MEMORY_KIND_DEVICE].high_water_bytes, 1200u);
  EXPECT_EQ(error(), 40u) << "40 of it may have been gone before";
}

TEST(MemoryLedger, AMarkThatIsNeverLeftIsNamedAtTheEnd) {
  MemoryLedger ledger;
  ledger.Add(Event(1, 1, 10));
  ledger.Add(Event(2, 1, 10, v1::ALLOCATION_OP_FREE));
  ledger.Add(Event(3, 2, 5));
  ledger.Add(Event(4, 3, 6));
  ledger.Finish();
  EXPECT_EQ(Sizes(ledger.kinds()[v1::MEMORY_KIND_DEVICE]), (std::vector<uint64_t>{6, 5}));
}

TEST(MemoryLedger, RunsOfSmallAllocationsRaiseTheMarkToTheByte) {
  MemoryLedger ledger;
  SmallAllocationsRecord run{};
  run.highest_ns = 3;
  run.end_ns = 5;
  run.memory = v1::MEMORY_KIND_DEVICE;
  run.allocations = 7;
  run.frees = 4;
  run.rise_bytes = 50;
  run.change_bytes = 20;
  run.range = 77;
  ledger.AddSmall(run);
  ledger.Add(Event(1, 1, 100));
  ledger.Add(Event(5, 2, 25));  // 145 at the same time as the run's end: 150 stays the highest
  run.highest_ns = run.end_ns = 9;
  run.rise_bytes = 0;
  run.change_bytes = -20;
  run.allocations = 0;
  ledger.AddSmall(run);
  ledger.ApplyUntil(4);
  EXPECT_EQ(ledger.kinds()[v1::MEMORY_KIND_DEVICE].live_bytes, 150u);
  ledger.Finish();
  const MemoryLedger::Kind& device = ledger.kinds()[v1::MEMORY_KIND_DEVICE];
  EXPECT_EQ(device.high_water_bytes, 150u);
  EXPECT_EQ(device.high_water_at_ns, 3u);
  EXPECT_EQ(device.high_water_range, 77u);
  EXPECT_EQ(Sizes(device), (std::vector<uint64_t>{100})) << "the small ones are not known one by one";
  EXPECT_EQ(device.live_bytes, 125u);
  EXPECT_EQ(device.allocations, 9u);
  EXPECT_EQ(device.small, 7u);
  EXPECT_EQ(device.frees, 8u);
  EXPECT_EQ(ledger.devices().at(0).high_water_bytes, 150u);
}

TEST(MemoryLedger, MemoryOfGraphsIsTheDevices) {
  MemoryLedger ledger;
  AllocationRecord graph = Event(2, 2, 30);
  graph.memory = v1::MEMORY_KIND_GRAPH;
  ledger.Add(Event(1, 1, 20));
  ledger.Add(graph);
  ledger.Finish();
  EXPECT_EQ(ledger.kinds()[v1::MEMORY_KIND_GRAPH].high_water_bytes, 30u);
  EXPECT_EQ(ledger.devices().at(0).high_water_bytes, 50u);
}

TEST(MemoryPools, TheLatestRowOfAPoolWins) {
  MemoryPools pools;
  pools.Add({.time_ns = 5,
             .pool = 1,
             .device = 2,
             .used_bytes = 10,
             .reserved_bytes = 64,
             .peak_used_bytes = 30,
             .peak_used_at_ns = 4,
             .peak_reserved_bytes = 64,
             .peak_reserved_at_ns = 4,
             .release_threshold_bytes = 8,
             .trims = 0,
             .state = v1::POOL_STATE_LIVE});
  pools.Add({.time_ns = 9,
             .pool = 1,
             .device = 2,
             .used_bytes = 0,
             .reserved_bytes = 0,
             .peak_used_bytes = 31,
             .peak_used_at_ns = 7,
             .peak_reserved_bytes = 64,
             .peak_reserved_at_ns = 4,
             .release_threshold_bytes = 8,
             .trims = 1,
             .state = v1::POOL_STATE_DESTROYED});
  ASSERT_EQ(pools.pools().size(), 1u);
  const MemoryPools::Pool& pool = pools.pools().at(1);
  EXPECT_EQ(pool.peak_used_bytes, 31u);
  EXPECT_EQ(pool.trims, 1u);
  EXPECT_TRUE(pool.destroyed);
}

TEST(MemoryLedger, KindsOfOneDeviceAddUpAndDevicesDoNot) {
  MemoryLedger ledger;
  AllocationRecord pool = Event(2, 2, 30);
  pool.memory = v1::MEMORY_KIND_POOL;
  AllocationRecord pinned = Event(3, 3, 500);
  pinned.memory = v1::MEMORY_KIND_PINNED;
  AllocationRecord other = Event(4, 4, 1000);
  other.device = 1;
  for (const AllocationRecord& record :
       {Event(1, 1, 20), pool, pinned, other, Event(5, 1, 20, v1::ALLOCATION_OP_FREE)})
    ledger.Add(record);
  ledger.Finish();
  EXPECT_EQ(ledger.devices().at(0).high_water_bytes, 50u);
  EXPECT_EQ(ledger.devices().at(0).high_water_at_ns, 2u);
  EXPECT_EQ(ledger.devices().at(0).at_high_water[v1::MEMORY_KIND_POOL], 30u);
  EXPECT_EQ(ledger.devices().at(0).live_bytes, 30u);
  EXPECT_EQ(ledger.devices().at(1).high_water_bytes, 1000u);
}

TEST(MemoryLedger, ARefusalKeepsWhatWasThereAndTheLastOneIsAlwaysKept) {
  MemoryLedger ledger;
  ledger.Add(Event(1, 1, 20));
  for (uint64_t i = 0; i < 3 * MemoryLedger::kMaxRefusals; ++i) {
    AllocationRecord refused = Event(10 + i, 0, 1000 + i);
    refused.failed = true;
    ledger.Add(refused);
  }
  ledger.Finish();
  ASSERT_EQ(ledger.refusals().size(), MemoryLedger::kMaxRefusals);
  EXPECT_EQ(ledger.refusals().front().asked_bytes, 1000u);
  EXPECT_EQ(ledger.refusals().front().live[v1::MEMORY_KIND_DEVICE], 20u);
  EXPECT_EQ(ledger.refusals().back().asked_bytes, 999 + 3 * MemoryLedger::kMaxRefusals);
  EXPECT_EQ(ledger.kinds()[v1::MEMORY_KIND_DEVICE].failed, 3 * MemoryLedger::kMaxRefusals);
}

TEST(RangePaths, PathsSurviveTheirRangesAndTheRestIsForgotten) {
  RangePaths paths;
  const auto close = [&](uint64_t id, uint64_t parent, uint32_t name) {
    RangeRecord record{};
    record.id = id;
    record.parent = parent;
    record.name = name;
    paths.Close(record);
  };
  paths.Watch(3);
  paths.Watch(0);
  close(3, 2, 30);
  EXPECT_EQ(paths.Path(3), (std::vector<uint32_t>{0, 30})) << "the outer one is still open";
  close(2, 1, 20);
  close(1, 0, 10);
  EXPECT_EQ(paths.Path(3), (std::vector<uint32_t>{10, 20, 30}));
  EXPECT_TRUE(paths.Path(0).empty());
  EXPECT_TRUE(paths.Path(99).empty());
  for (uint64_t id = 100; !paths.full(); ++id) paths.Watch(id);
  paths.Forget([](const std::function<void(uint64_t)>& need) { need(3); });
  EXPECT_FALSE(paths.full());
  EXPECT_EQ(paths.Path(3), (std::vector<uint32_t>{10, 20, 30}));
  EXPECT_TRUE(paths.Path(100).empty());
}

TEST(ProcessModel, AnAllocationIsFoundInItsRangesHoweverTheyArrive) {
  ProcessModel model(v1::Hello(), ProcessEvents{});
  BatchBuilder first(1);
  first.String(10, "step").String(11, "forward").Thread(1, true);
  first.Alloc(testing::kStart + 10, 100, 0xa0, 2).Range(2, 1, 11, 1, testing::kStart, testing::kStart + 20);
  ASSERT_TRUE(model.Apply(first.batch()).ok());
  ASSERT_TRUE(
      model.Apply(BatchBuilder(2).Range(1, 0, 10, 1, testing::kStart, testing::kStart + 30).batch()).ok());
  model.Finish();
  EXPECT_EQ(model.RangePath(2), "step/forward");
  EXPECT_EQ(model.RangePath(0), "");
}

}  // namespace
}  // namespace gpuprobe::model
