#include "injector/ledgers/allocation_ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <tuple>
#include <vector>

#include "injector/base/losses.h"
#include "injector/core/recording.h"
#include "injector/ledgers/stream.h"
#include "tests/injector/support/frames.h"

namespace gpuprobe::injector {
namespace {

using testing::At;
using testing::TakeBatches;
using testing::Undelta;

struct Row {
  bool release;
  uint64_t address;
  uint64_t bytes;
  uint64_t time_ns;
  uint64_t duration_ns;
};

class AllocationLedgerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    stream_ = std::make_unique<Stream>();
    ASSERT_TRUE(stream_->Init(size_t{64} << 20));
    ledger_ = std::make_unique<AllocationLedger>(&stream_->builder);
  }
  static AllocationEvent Event(wire::AllocationOp op, uint64_t time_ns, uint64_t address, uint64_t bytes,
                               uint64_t began_ns) {
    AllocationEvent event{};
    event.time_ns = time_ns;
    event.address = address;
    event.bytes = bytes;
    event.began_ns = began_ns;
    event.op = static_cast<uint8_t>(op);
    event.memory = static_cast<uint8_t>(wire::MemoryKind::kMemoryKindDevice);
    return event;
  }
  void Allocate(uint64_t time_ns, uint64_t address, uint64_t bytes) {
    ledger_->Take(Event(wire::AllocationOp::kAllocationOpAlloc, time_ns, address, bytes, 0), 1);
  }
  void Release(uint64_t began_ns, uint64_t time_ns, uint64_t address) {
    ledger_->Take(Event(wire::AllocationOp::kAllocationOpFree, time_ns, address, 0, began_ns), 1);
  }
  // From 90 to 100 ns, at addresses of their own.
  void LaunchGraphThatAllocates(const std::vector<uint64_t>& parts) {
    GraphMemoryNodeEvent node{};
    node.graph = 1;
    for (const uint64_t bytes : parts) {
      node.address += 0x10000;
      node.bytes = bytes;
      ledger_->Take(node);
    }
    ledger_->GraphInstantiated(1, 2);
    GraphCallEvent call{};
    call.exec = 2;
    call.began_ns = 90;
    call.time_ns = 100;
    ledger_->GraphLaunched(call, 1);
  }
  std::vector<Row> Rows() {
    stream_->builder.Seal();
    std::vector<Row> rows;
    for (const v1::Batch& batch : TakeBatches(&stream_->queue)) {
      const v1::Allocations& m = batch.allocations();
      const auto times = Undelta(m.time_delta(), m.time_delta_size());
      const auto addresses = Undelta(m.address_delta(), m.time_delta_size());
      for (int i = 0; i < m.time_delta_size(); ++i) {
        const auto at = static_cast<size_t>(i);
        rows.push_back({m.op_size() > i && m.op(i) == v1::ALLOCATION_OP_FREE, addresses[at], At(m.bytes(), i),
                        batch.base_ns() + times[at], At(m.duration(), i)});
      }
    }
    return rows;
  }
  // Each address is allocated and released in turns, in the order of the rows and of their times, and a
  // release has the bytes of its allocation. Returns the live bytes.
  static uint64_t CheckTurns(const std::vector<Row>& rows) {
    std::map<uint64_t, Row> live;
    std::map<uint64_t, uint64_t> last_ns;
    uint64_t bytes = 0;
    for (const Row& row : rows) {
      EXPECT_GE(row.time_ns, last_ns[row.address]);
      last_ns[row.address] = row.time_ns;
      if (row.release) {
        EXPECT_EQ(live.count(row.address), 1u);
        EXPECT_EQ(live[row.address].bytes, row.bytes);
        bytes -= row.bytes;
        live.erase(row.address);
      } else {
        EXPECT_EQ(live.count(row.address), 0u);
        live[row.address] = row;
        bytes += row.bytes;
      }
    }
    return bytes;
  }

  std::unique_ptr<Stream> stream_;
  std::unique_ptr<AllocationLedger> ledger_;
};

// The address goes through three hands while two threads are kept from saying that they gave it back.
TEST_F(AllocationLedgerTest, LateReleasesBelongToWhatWasThereBefore) {
  Allocate(100, 0x7000, 10);
  Allocate(300, 0x7000, 20);
  Allocate(500, 0x7000, 30);
  Release(600, 610, 0x7000);
  Release(400, 700, 0x7000);
  Release(200, 800, 0x7000);
  Allocate(900, 0x7000, 40);
  Release(910, 920, 0x7000);
  ledger_->Settle(UINT64_MAX);
  const auto rows = Rows();
  EXPECT_EQ(rows.size(), 8u);
  EXPECT_EQ(CheckTurns(rows), 0u);
  EXPECT_EQ(LossCount(wire::LossReason::kLossAllocationUnknown), 0u);
}

// From when on each can have happened: a release that is known by its address being given out again, since
// the allocation before.
TEST_F(AllocationLedgerTest, RowsSayHowLongTheirCallsTook) {
  ledger_->Take(Event(wire::AllocationOp::kAllocationOpAlloc, 100, 0x7000, 10, 90), 1);
  ledger_->Take(Event(wire::AllocationOp::kAllocationOpAlloc, 300, 0x7000, 20, 280), 1);
  Release(330, 400, 0x7000);
  Release(150, 500, 0x7000);  // the first one's, told late
  Allocate(600, 0x8000, 30);  // nobody saw it begin
  const auto rows = Rows();
  ASSERT_EQ(rows.size(), 5u);
  const uint64_t durations[] = {10, 200, 20, 70, 0};
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i].duration_ns, durations[i]) << i;
}

// What is in a context goes within the call that ends it; meanwhile others may get its addresses, and another
// context its handle.
TEST_F(AllocationLedgerTest, TheEndOfAContextTakesAsLongAsItsCall) {
  const auto allocate = [&](uint64_t time_ns, uint64_t address, uint64_t bytes, uint64_t context) {
    AllocationEvent event = Event(wire::AllocationOp::kAllocationOpAlloc, time_ns, address, bytes, time_ns);
    event.context = context;
    ledger_->Take(event, 1);
  };
  allocate(10, 0x1000, 1, 0xc1);
  allocate(20, 0x2000, 2, 0xc1);
  allocate(30, 0x3000, 3, 0xc2);
  ledger_->ContextEnded({100, 0xc1}, 1);
  allocate(110, 0x1000, 4, 0xc2);
  allocate(120, 0x4000, 5, 0xc1);
  ledger_->ContextEnded({130, 0}, 2);  // another thread's call
  ledger_->ContextEnded({150, 0}, 1);
  Release(160, 170, 0x1000);
  ledger_->ContextEnded({180, 0xc2}, 1);  // and does not come back
  ledger_->Settle(180);
  ledger_->Settle(UINT64_MAX);
  std::vector<std::tuple<uint64_t, uint64_t, uint64_t>> ended;
  for (const Row& row : Rows()) {
    if (row.release) ended.emplace_back(row.bytes, row.time_ns, row.duration_ns);
  }
  EXPECT_EQ(ended, (std::vector<std::tuple<uint64_t, uint64_t, uint64_t>>{
                       {1, 110, 10}, {2, 150, 50}, {4, 170, 10}, {3, 180, 0}}));
  EXPECT_EQ(LossCount(wire::LossReason::kLossAllocationUnknown), 0u);
}

// The object's end is reported only after its handle has a new owner: what was bound to it ends all the same,
// and does not wait for that owner.
TEST_F(AllocationLedgerTest, WhatIsBoundToAnObjectEndsWhenItsHandleIsTaken) {
  const auto physical = [&](PhysicalMemoryCall call, uint64_t time_ns, uint64_t handle, uint64_t memory,
                            uint64_t began_ns) {
    PhysicalMemoryEvent event{};
    event.time_ns = time_ns;
    event.handle = handle;
    event.address = memory;
    event.began_ns = began_ns;
    event.call = static_cast<uint8_t>(call);
    ledger_->Take(event, 1);
  };
  const auto create = [&](uint64_t time_ns, uint64_t handle) {
    AllocationEvent event = Event(wire::AllocationOp::kAllocationOpAlloc, time_ns, handle, 100 + handle, 0);
    event.what = kPhysical;
    ledger_->Take(event, 1);
  };
  physical(PhysicalMemoryCall::kObjectMade, 10, 7, 0, 0);
  for (const uint64_t memory : {1, 2}) {
    create(20 + memory, memory);
    physical(PhysicalMemoryCall::kBound, 30, 7, memory, 0);
    physical(PhysicalMemoryCall::kReleased, 40, memory, 0, 35);
    // Once an object has the handle, once memory: both times the old one's release comes late.
    memory == 1 ? physical(PhysicalMemoryCall::kObjectMade, 60, 7, 0, 0) : create(80, 7);
    physical(PhysicalMemoryCall::kReleased, 90, 7, 0, 50);
  }
  physical(PhysicalMemoryCall::kReleased, 100, 7, 0, 95);
  std::vector<std::pair<uint64_t, uint64_t>> ended;
  for (const Row& row : Rows()) {
    if (row.release) ended.emplace_back(row.bytes, row.time_ns);
  }
  EXPECT_EQ(ended, (std::vector<std::pair<uint64_t, uint64_t>>{{101, 60}, {102, 80}, {107, 100}}));
}

TEST_F(AllocationLedgerTest, WhatALaunchObtainsMayBeWhereTheReleaseOfOtherMemoryIsToldLate) {
  Allocate(50, 0x1000, 300);
  GraphMemoryNodeEvent node{};
  node.graph = 1;
  node.address = 0x1000;
  node.bytes = 500;
  ledger_->Take(node);
  ledger_->GraphInstantiated(1, 2);
  GraphCallEvent call{};
  call.exec = 2;
  for (const uint64_t time_ns : {100, 200}) {  // the second one finds what the first one left
    call.began_ns = time_ns - 10;
    call.time_ns = time_ns;
    ledger_->GraphLaunched(call, 1);
    if (time_ns == 100) Release(80, 101, 0x1000);  // that of the other memory
  }
  Release(300, 310, 0x1000);
  std::vector<std::pair<uint64_t, uint64_t>> ended;
  const std::vector<Row> rows = Rows();
  for (const Row& row : rows) {
    if (row.release) ended.emplace_back(row.bytes, row.time_ns);
  }
  EXPECT_EQ(ended, (std::vector<std::pair<uint64_t, uint64_t>>{{300, 100}, {500, 310}}));
  EXPECT_EQ(CheckTurns(rows), 0u);
}

TEST_F(AllocationLedgerTest, RowsSayHowLongLaunchesAndEndsOfGraphsTook) {
  GraphMemoryNodeEvent node{};
  node.graph = 1;
  node.address = 0x1000;
  node.bytes = 500;
  ledger_->Take(node);
  node.op = static_cast<uint8_t>(wire::AllocationOp::kAllocationOpFree);
  ledger_->Take(node);
  ledger_->GraphInstantiated(1, 2);
  GraphCallEvent call{};
  call.exec = 2;
  call.began_ns = 90;
  call.time_ns = 100;
  ledger_->GraphLaunched(call, 1);
  call.time_ns = 200;
  ledger_->ExecDestroyed(call, 1);
  ledger_->GraphInstantiated(1, 2);  // the handle is given out again before the thread says that it is done
  call.began_ns = 200;
  call.time_ns = 230;
  ledger_->ExecGone(call, 2);  // another thread's
  ledger_->ExecGone(call, 1);
  ledger_->ExecGone(call, 1);
  const std::vector<Row> rows = Rows();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(std::pair(rows[0].time_ns, rows[0].duration_ns), std::pair(uint64_t{100}, uint64_t{10}));
  EXPECT_EQ(std::pair(rows[1].time_ns, rows[1].duration_ns), std::pair(uint64_t{230}, uint64_t{30}));
  EXPECT_TRUE(rows[1].release);
}

TEST_F(AllocationLedgerTest, RunsOfSmallOnesSayHowManyBytesOverlapped) {
  recording.min_allocation_bytes = 1000;
  const auto allocate = [&](uint64_t began_ns, uint64_t time_ns, uint64_t address, uint64_t bytes) {
    ledger_->Take(Event(wire::AllocationOp::kAllocationOpAlloc, time_ns, address, bytes, began_ns), 1);
  };
  allocate(10, 20, 0x10, 1);
  allocate(30, 40, 0x20, 2);
  allocate(35, 50, 0x30, 4);  // began while the one before was under way
  allocate(50, 60, 0x40, 8);
  Release(55, 70, 0x30);
  allocate(65, 80, 0x50, 5000);  // has a record of its own
  allocate(75, 90, 0x60, 16);
  ledger_->Settle(UINT64_MAX);
  recording.min_allocation_bytes = 0;
  stream_->builder.Seal();
  const auto batches = TakeBatches(&stream_->queue);
  ASSERT_EQ(batches.size(), 1u);
  const v1::SmallAllocations& small = batches[0].small_allocations();
  ASSERT_EQ(small.overlapping_size(), 2);
  EXPECT_EQ(small.overlapping(0), 4u);
  EXPECT_EQ(small.overlapping_freed(0), 4u);
  EXPECT_EQ(small.overlapping_before(0), 0u);
  EXPECT_EQ(small.overlapping(1), 16u);
  EXPECT_EQ(small.overlapping_before(1), 16u);
  EXPECT_EQ(small.overlapping_since(1), 90u - 75u);
  EXPECT_EQ(small.overlapping_freed(1), 0u);
  EXPECT_EQ(batches[0].allocations().duration(0), 15u);
}

TEST_F(AllocationLedgerTest, SmallPartsOfOneLaunchAreNotBesideEachOther) {
  recording.min_allocation_bytes = 1000;
  ledger_->Take(Event(wire::AllocationOp::kAllocationOpAlloc, 50, 0x10, 1, 40), 1);
  LaunchGraphThatAllocates({500, 500, 500});
  ledger_->Settle(UINT64_MAX);
  recording.min_allocation_bytes = 0;
  stream_->builder.Seal();
  const auto batches = TakeBatches(&stream_->queue);
  ASSERT_EQ(batches.size(), 1u);
  const v1::SmallAllocations& small = batches[0].small_allocations();
  for (int i = 0; i < small.overlapping_size(); ++i) EXPECT_EQ(small.overlapping(i), 0u) << i;
}

// Readers sort by time, a run before a record of the same time: small and large parts stay in the launch's
// order.
TEST_F(AllocationLedgerTest, PartsOfOneLaunchKeepTheirOrder) {
  recording.min_allocation_bytes = 1000;
  const std::vector<uint64_t> parts = {1, 2, 4000, 4, 8, 5000, 6000, 16};
  LaunchGraphThatAllocates(parts);
  ledger_->Settle(UINT64_MAX);
  recording.min_allocation_bytes = 0;
  stream_->builder.Seal();
  const auto batches = TakeBatches(&stream_->queue);
  ASSERT_EQ(batches.size(), 1u);
  const v1::SmallAllocations& small = batches[0].small_allocations();
  const v1::Allocations& large = batches[0].allocations();
  std::vector<std::tuple<uint64_t, bool, uint64_t>> read;  // time, has a record of its own, bytes
  read.reserve(parts.size());
  const auto ends = Undelta(small.time_delta(), small.time_delta_size());
  for (int i = 0; i < small.time_delta_size(); ++i)
    read.emplace_back(ends[static_cast<size_t>(i)] + At(small.duration(), i), false, At(small.rise(), i));
  const auto times = Undelta(large.time_delta(), large.time_delta_size());
  for (int i = 0; i < large.time_delta_size(); ++i)
    read.emplace_back(times[static_cast<size_t>(i)], true, At(large.bytes(), i));
  std::stable_sort(read.begin(), read.end(), [](const auto& a, const auto& b) {
    return std::tie(std::get<0>(a), std::get<1>(a)) < std::tie(std::get<0>(b), std::get<1>(b));
  });
  std::vector<uint64_t> bytes;
  bytes.reserve(read.size());
  for (const auto& part : read) bytes.push_back(std::get<2>(part));
  EXPECT_EQ(bytes, (std::vector<uint64_t>{1 + 2, 4000, 4 + 8, 5000, 6000, 16}));
}

TEST_F(AllocationLedgerTest, AReleaseThatIsToldBeforeItsAllocationWaitsForIt) {
  Release(200, 210, 0x7000);
  ledger_->Settle(1'000'000);
  EXPECT_TRUE(Rows().empty());
  Allocate(100, 0x7000, 10);
  ledger_->Settle(2'000'000);
  EXPECT_EQ(CheckTurns(Rows()), 0u);
  EXPECT_EQ(LossCount(wire::LossReason::kLossAllocationUnknown), 0u);
}

TEST_F(AllocationLedgerTest, AnAllocationThatIsToldAfterTheNextOneAtItsAddressEndedBefore) {
  Allocate(300, 0x7000, 20);
  Allocate(100, 0x7000, 10);
  Release(200, 400, 0x7000);
  Release(500, 510, 0x7000);
  const auto rows = Rows();
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(LossCount(wire::LossReason::kLossAllocationUnknown), 0u);
  uint64_t live = 0;
  for (const Row& row : rows) live += row.release ? -row.bytes : row.bytes;
  EXPECT_EQ(live, 0u);
}

TEST_F(AllocationLedgerTest, AReleaseOfWhatNobodyAllocatedIsToldAfterASecond) {
  Release(200, 210, 0x7000);
  ledger_->Settle(500'000'000);
  EXPECT_TRUE(Rows().empty());
  ledger_->Settle(2'000'000'000);
  const auto rows = Rows();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].bytes, 0u);
  EXPECT_EQ(LossCount(wire::LossReason::kLossAllocationUnknown), 1u);
}

TEST_F(AllocationLedgerTest, WhatIsImportedIsNotCountedAndItsReleaseIsExpected) {
  AllocationEvent imported = Event(wire::AllocationOp::kAllocationOpAlloc, 100, 0x7000, 0, 0);
  imported.what = kImported;
  ledger_->Take(imported, 1);
  Release(200, 210, 0x7000);
  Allocate(300, 0x7000, 10);
  imported.time_ns = 400;
  imported.context = 0xc1;
  ledger_->Take(imported, 1);
  ledger_->ContextEnded({500, 0xc1}, 1);
  ledger_->Settle(UINT64_MAX);
  const auto rows = Rows();
  EXPECT_EQ(rows.size(), 2u);
  EXPECT_EQ(CheckTurns(rows), 0u);
  EXPECT_EQ(LossCount(wire::LossReason::kLossAllocationUnknown), 0u);
}

TEST_F(AllocationLedgerTest, WhatFindsNoPlaceIsNotInTheLevel) {
  constexpr uint64_t kMore = (uint64_t{1} << 20) + 10;
  for (uint64_t i = 0; i < kMore; ++i) Allocate(100 + i, 0x1000 + 16 * i, 8);
  for (uint64_t i = 0; i < kMore; ++i) Release(kMore + 100 + i, kMore + 101 + i, 0x1000 + 16 * i);
  ledger_->Settle(UINT64_MAX);
  EXPECT_EQ(LossCount(wire::LossReason::kLossDefinitionsFull), 10u);
  EXPECT_EQ(LossCount(wire::LossReason::kLossAllocationUnknown), 10u);
  int64_t live = 0;
  for (const Row& row : Rows()) live += row.release ? -static_cast<int64_t>(row.bytes) : 8;
  EXPECT_EQ(live, 0);
}

// Threads may be stopped anywhere in a call, or between the call and its event, for any length of time: each
// allocation is still reported with its own release.
TEST_F(AllocationLedgerTest, EveryReleaseFindsItsAllocationWhateverTheOrderInWhichTheyAreTold) {
  struct Told {
    uint64_t at_ns;
    AllocationEvent event;
  };
  std::mt19937_64 random(7);
  const auto up_to = [&](uint64_t most) { return random() % (most + 1); };
  std::vector<Told> told;
  constexpr int kRounds = 2000;
  for (uint64_t address = 1; address <= 8; ++address) {
    uint64_t now_ns = 1000;
    for (int round = 0; round < kRounds; ++round) {
      // The word on an allocation is given inside of the call. Now and then it is slow.
      now_ns += 1 + up_to(50);
      const uint64_t allocated_ns = now_ns;
      const uint64_t word_ns = allocated_ns + (up_to(20) == 0 ? up_to(3000) : 0);
      told.push_back({word_ns, Event(wire::AllocationOp::kAllocationOpAlloc, allocated_ns, address << 12,
                                     1 + up_to(1000), 0)});
      now_ns = word_ns + 1 + up_to(50);
      const uint64_t began_ns = now_ns;
      now_ns += 1 + up_to(20);  // it is free here
      const uint64_t left_ns = now_ns + 1 + (up_to(4) == 0 ? up_to(3000) : up_to(10));
      told.push_back(
          {left_ns, Event(wire::AllocationOp::kAllocationOpFree, left_ns, address << 12, 0, began_ns)});
    }
  }
  std::stable_sort(told.begin(), told.end(),
                   [](const Told& a, const Told& b) { return a.event.time_ns < b.event.time_ns; });
  for (const Told& one : told) ledger_->Take(one.event, 1);
  ledger_->Settle(UINT64_MAX);
  EXPECT_EQ(LossCount(wire::LossReason::kLossAllocationUnknown), 0u);
  const auto rows = Rows();
  EXPECT_EQ(rows.size(), told.size());
  EXPECT_EQ(CheckTurns(rows), 0u);
}

}  // namespace
}  // namespace gpuprobe::injector
