#include "injector/rows/batch_builder.h"

#include <gtest/gtest.h>

#include <memory>
#include <protozero/buffer_string.hpp>

#include "injector/base/losses.h"
#include "injector/core/guard.h"
#include "tests/injector/support/frames.h"

namespace gpuprobe::injector {
namespace {

using testing::Starts;
using testing::TakeBatches;
using testing::Undelta;

class BatchBuilderTest : public ::testing::Test {
 protected:
  void SetUp() override { Init(size_t{64} << 20); }
  void Init(size_t queue_bytes) {
    queue_ = std::make_unique<SendQueue>();
    builder_ = std::make_unique<BatchBuilder>();
    ASSERT_TRUE(queue_->Init(queue_bytes));
    ASSERT_TRUE(builder_->Init(queue_.get()));
  }
  void AddKernel(uint64_t start_ns, uint64_t end_ns, uint32_t site, uint32_t correlation,
                 uint64_t graph_node) {
    KernelBlock block;
    block.Add(start_ns, end_ns, site, correlation, graph_node);
    builder_->AddKernels(block);
  }
  void Launch(uint32_t thread, uint64_t time_ns, uint64_t correlation, uint64_t range,
              uint64_t fallback_range = 0) {
    builder_->Add(wire::LaunchRow{.thread = thread,
                                  .time_ns = time_ns,
                                  .correlation = correlation,
                                  .range = range,
                                  .fallback_range = fallback_range});
  }
  v1::Batch SealOne() {
    EXPECT_TRUE(builder_->Seal());
    auto batches = TakeBatches(queue_.get());
    EXPECT_EQ(batches.size(), 1u);
    return batches.empty() ? v1::Batch() : batches[0];
  }

  std::unique_ptr<SendQueue> queue_;
  std::unique_ptr<BatchBuilder> builder_;
};

TEST_F(BatchBuilderTest, KernelsComeBackAsTheyWentIn) {
  const uint64_t now = NowNs();
  const SiteKey key{.name = builder_->KernelName("_Z3addPfS_", 1),
                    .device = 1,
                    .context = 2,
                    .stream = 7,
                    .grid = {10, 20, 30},
                    .block = {128, 2, 1},
                    .static_shared_bytes = 48,
                    .dynamic_shared_bytes = 1024,
                    .registers_per_thread = 32};
  const uint32_t site = builder_->Site(key);
  AddKernel(now + 100, now + 350, site, 11, 0);
  AddKernel(now - 5000, now - 4000, site, 9, 77);  // out of order
  EXPECT_EQ(builder_->Site(key), site);

  const v1::Batch batch = SealOne();
  EXPECT_EQ(batch.sequence(), 1u);
  EXPECT_GT(batch.clock().monotonic_ns(), 0u);
  const v1::Kernels& kernels = batch.kernels();
  EXPECT_EQ(Starts(batch.base_ns(), kernels.start_delta(), kernels.duration()),
            (std::vector<uint64_t>{now + 100, now - 5000}));
  EXPECT_EQ(kernels.duration(0), 250u);
  EXPECT_EQ(kernels.duration(1), 1000u);
  EXPECT_EQ(Undelta(kernels.correlation_delta(), 2), (std::vector<uint64_t>{11, 9}));
  EXPECT_EQ(Undelta(kernels.graph_node_delta(), 2), (std::vector<uint64_t>{0, 77}));
  ASSERT_EQ(batch.kernel_sites_size(), 1);
  const v1::KernelSite& defined = batch.kernel_sites(0);
  EXPECT_EQ(defined.id(), kernels.site(0));
  EXPECT_EQ(testing::Text({batch}, defined.name()), "_Z3addPfS_");
  EXPECT_EQ(defined.device(), 1u);
  EXPECT_EQ(defined.context(), 2u);
  EXPECT_EQ(defined.stream(), 7u);
  EXPECT_EQ(defined.grid_z(), 30u);
  EXPECT_EQ(defined.block_y(), 2u);
  EXPECT_EQ(defined.static_shared_bytes(), 48u);
  EXPECT_EQ(defined.dynamic_shared_bytes(), 1024u);
  EXPECT_EQ(defined.registers_per_thread(), 32u);
}

TEST_F(BatchBuilderTest, CopiesMemsetsAndSyncsKeepEveryField) {
  const uint64_t now = NowNs();
  builder_->Add(wire::CopyRow{.start_ns = now,
                              .end_ns = now + 5,
                              .bytes = uint64_t{5} << 33,
                              .direction = wire::CopyDirection::kCopyDirectionP2p,
                              .src_memory = wire::MemoryKind::kMemoryKindDevice,
                              .dst_memory = wire::MemoryKind::kMemoryKindManaged,
                              .device = 2,
                              .context = 4,
                              .stream = 6,
                              .correlation = 8,
                              .graph_node = 3,
                              .asynchronous = true,
                              .peer_device = 0});
  builder_->Add(wire::MemsetRow{.start_ns = now,
                                .end_ns = now + 7,
                                .bytes = 512,
                                .value = 0xff,
                                .memory = wire::MemoryKind::kMemoryKindDevice,
                                .device = 1,
                                .context = 3,
                                .stream = 5,
                                .correlation = 10,
                                .graph_node = 9});
  builder_->Add(wire::SyncRow{.start_ns = now,
                              .end_ns = now + 9,
                              .what = wire::SyncKind::kSyncKindEvent,
                              .context = 1,
                              .stream = 2,
                              .event = 3,
                              .correlation = 4});
  const v1::Batch batch = SealOne();
  const v1::Copies& copies = batch.copies();
  EXPECT_EQ(copies.bytes(0), uint64_t{5} << 33);
  EXPECT_EQ(copies.direction(0), v1::COPY_DIRECTION_P2P);
  EXPECT_EQ(copies.src_memory(0), v1::MEMORY_KIND_DEVICE);
  EXPECT_EQ(copies.dst_memory(0), v1::MEMORY_KIND_MANAGED);
  EXPECT_EQ(copies.device(0), 2u);
  EXPECT_EQ(copies.context(0), 4u);
  EXPECT_EQ(copies.stream(0), 6u);
  EXPECT_EQ(copies.correlation_delta(0), 8);
  EXPECT_EQ(copies.graph_node_delta(0), 3);
  EXPECT_EQ(copies.asynchronous(0), 1u);
  EXPECT_EQ(copies.peer_device(0), 1u);
  EXPECT_EQ(batch.memsets().value(0), 0xffu);
  EXPECT_EQ(batch.memsets().bytes(0), 512u);
  EXPECT_EQ(batch.memsets().memory(0), v1::MEMORY_KIND_DEVICE);
  EXPECT_EQ(batch.memsets().graph_node_delta(0), 9);
  EXPECT_EQ(batch.syncs().what(0), v1::SYNC_KIND_EVENT);
  EXPECT_EQ(batch.syncs().duration(0), 9u);
  EXPECT_EQ(batch.syncs().event(0), 3u);
}

TEST_F(BatchBuilderTest, LaunchesAreGroupedByThreadAndEachGroupStartsAfresh) {
  const uint64_t now = NowNs();
  for (uint32_t i = 0; i < 3; ++i) Launch(1, now + i, 100 + i, 5);
  for (uint32_t i = 0; i < 2; ++i) Launch(2, now + 10 + i, 200 + i, 0, 5);
  Launch(1, now + 50, 300, 0);
  const v1::Batch batch = SealOne();
  ASSERT_EQ(batch.launches_size(), 3);
  EXPECT_EQ(batch.launches(0).thread(), 1u);
  EXPECT_EQ(Undelta(batch.launches(0).correlation_delta(), 3), (std::vector<uint64_t>{100, 101, 102}));
  EXPECT_EQ(Undelta(batch.launches(0).range_delta(), 3), (std::vector<uint64_t>{5, 5, 5}));
  EXPECT_TRUE(batch.launches(0).fallback_range_delta().empty());
  EXPECT_EQ(batch.launches(1).thread(), 2u);
  EXPECT_EQ(Undelta(batch.launches(1).fallback_range_delta(), 2), (std::vector<uint64_t>{5, 5}));
  EXPECT_EQ(batch.base_ns() + static_cast<uint64_t>(batch.launches(1).time_delta(0)), now + 10);
  EXPECT_EQ(batch.launches(2).thread(), 1u);
  EXPECT_EQ(batch.launches(2).correlation_delta(0), 300);
}

TEST_F(BatchBuilderTest, RowsThatAreAllZeroAreStillCounted) {
  builder_->Add(wire::AllocationRow{});
  const v1::Batch batch = SealOne();
  EXPECT_EQ(batch.allocations().time_delta_size(), 1);
}

TEST_F(BatchBuilderTest, CollectivesPlansAndCommunicatorsKeepEveryField) {
  const uint64_t now = NowNs();
  builder_->Add(wire::CollectiveRow{.issue_ns = now,
                                    .return_ns = now + 1234,
                                    .op = builder_->String("AllReduce"),
                                    .comm = 2,
                                    .seq = 48211,
                                    .count = 6553600,
                                    .datatype = builder_->String("float32"),
                                    .element_bytes = 4,
                                    .root = -1,
                                    .peer = 3,
                                    .plan = 17,
                                    .thread = 9,
                                    .range = 4,
                                    .source = wire::CallSource::kCallSourceInterposed,
                                    .result = -5,
                                    .algorithm = builder_->String("RING"),
                                    .protocol = builder_->String("LL"),
                                    .channels = 4});
  builder_->Add(wire::PlanRow{.plan = 17, .correlation = 555});
  builder_->DefineCommunicator(
      {.time_ns = now,
       .hash = 0xdeadbeefcafef00d,
       .id = 2,
       .parent = 1,
       .rank = 3,
       .ranks = 8,
       .device = -1,
       .state = static_cast<uint8_t>(wire::CommunicatorState::kCommunicatorStateAborted),
       .reserved = 0,
       .made_by = 0},
      builder_->String("tensor parallel"), builder_->String("CommSplit"));
  const v1::Batch batch = SealOne();
  const v1::Collectives& calls = batch.collectives();
  EXPECT_EQ(batch.base_ns() + static_cast<uint64_t>(calls.issue_delta(0)), now);
  EXPECT_EQ(calls.host_duration(0), 1234u);
  EXPECT_EQ(testing::Text({batch}, calls.op(0)), "AllReduce");
  EXPECT_EQ(testing::Text({batch}, calls.datatype(0)), "float32");
  EXPECT_EQ(calls.seq_delta(0), 48211);
  EXPECT_EQ(calls.root(0), -1);
  EXPECT_EQ(calls.peer(0), 3);
  EXPECT_EQ(calls.plan_delta(0), 17);
  EXPECT_EQ(calls.result(0), -5);
  EXPECT_EQ(calls.thread(0), 9u);
  EXPECT_EQ(calls.source(0), v1::CALL_SOURCE_INTERPOSED);
  EXPECT_EQ(batch.plans().plan_delta(0), 17);
  EXPECT_EQ(batch.plans().correlation_delta(0), 555);
  ASSERT_EQ(batch.communicators_size(), 1);
  EXPECT_EQ(batch.communicators(0).hash(), 0xdeadbeefcafef00d);
  EXPECT_EQ(batch.communicators(0).device(), -1);
  EXPECT_EQ(testing::Text({batch}, batch.communicators(0).name()), "tensor parallel");
  EXPECT_EQ(batch.communicators(0).state(), v1::COMMUNICATOR_STATE_ABORTED);
}

TEST_F(BatchBuilderTest, AFullTableSealsByItself) {
  const uint64_t now = NowNs();
  for (uint32_t i = 0; i < kMaxRows + 1; ++i) AddKernel(now + i, now + i + 1, 1, i, 0);
  builder_->Seal();
  const auto batches = TakeBatches(queue_.get());
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_EQ(batches[0].kernels().duration_size(), static_cast<int>(kMaxRows));
  EXPECT_EQ(batches[1].kernels().duration_size(), 1);
  EXPECT_EQ(batches[1].sequence(), 2u);
  EXPECT_EQ(batches[1].self().records(), kMaxRows + 1u);
}

TEST_F(BatchBuilderTest, MoreLaunchesThanRowsFromManyThreadsArriveAll) {
  const uint64_t now = NowNs();
  size_t sent = 0;
  for (uint32_t i = 0; i < 3 * kMaxRows; ++i) Launch(1 + i % 7, now + i, i * 7919, uint64_t{1} << 60);
  builder_->Seal();
  for (const v1::Batch& batch : TakeBatches(queue_.get())) {
    for (const v1::Launches& launches : batch.launches())
      sent += static_cast<size_t>(launches.time_delta_size());
  }
  EXPECT_EQ(sent + LossCount(wire::LossReason::kLossSendQueueFull), size_t{3} * kMaxRows);
  EXPECT_EQ(LossCount(wire::LossReason::kLossSendQueueFull), 0u);
}

TEST_F(BatchBuilderTest, WhenTheQueueIsFullRecordsAreCountedAndDefinitionsComeLater) {
  Init(8192);
  const uint64_t now = NowNs();
  const wire::SyncRow sync{.start_ns = now, .end_ns = now + 1, .correlation = 1};
  builder_->Add(sync);
  ASSERT_TRUE(builder_->Seal());
  EXPECT_EQ(TakeBatches(queue_.get()).size(), 1u);
  ASSERT_NE(queue_->Reserve(4000), nullptr);  // the collector is slow
  queue_->Commit(0, 4000, 0, 1);
  const uint32_t late = builder_->String("late");
  builder_->Add(sync);
  builder_->Add(sync);
  ASSERT_FALSE(builder_->Seal());
  EXPECT_EQ(LossCount(wire::LossReason::kLossSendQueueFull), 2u);
  queue_->Pop();
  ASSERT_TRUE(builder_->Seal());
  const auto batches = TakeBatches(queue_.get());
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_EQ(batches[0].sequence(), 3u);
  EXPECT_EQ(testing::Text(batches, late), "late");
  ASSERT_EQ(batches[0].losses_size(), 1);
  EXPECT_EQ(batches[0].losses(0).reason(), v1::LOSS_SEND_QUEUE_FULL);
  EXPECT_EQ(batches[0].losses(0).records(), 2u);
}

TEST_F(BatchBuilderTest, DefinitionsOfDevicesThreadsAndVersions) {
  DeviceRow device{};
  device.ordinal = 3;
  device.name = "NVIDIA H100";
  for (int i = 0; i < 16; ++i) device.uuid[i] = static_cast<uint8_t>(i * 17);
  device.memory_bytes = uint64_t{80} << 30;
  device.compute_major = 9;
  builder_->DefineDevice(device);
  builder_->DefineThread(1, 4242, "pt_autograd_0", false);
  builder_->DefineVersions({.cuda_driver = 13000,
                            .cuda_runtime = 12080,
                            .cupti = 28,
                            .nccl = 22809,
                            .cupti_path = "/x/libcupti.so.13"});
  const v1::Batch batch = SealOne();
  ASSERT_EQ(batch.devices_size(), 1);
  EXPECT_EQ(batch.devices(0).uuid(), "GPU-00112233-4455-6677-8899-aabbccddeeff");
  EXPECT_EQ(batch.devices(0).ordinal(), 3u);
  EXPECT_EQ(batch.threads(0).name(), "pt_autograd_0");
  EXPECT_FALSE(batch.threads(0).main());
  EXPECT_EQ(batch.versions().nccl(), 22809);
  EXPECT_EQ(batch.versions().cupti_path(), "/x/libcupti.so.13");
}

TEST(WireBuffer, WhatDoesNotFitLeavesWhatIsBeforeAlone) {
  for (size_t capacity = 24; capacity < 64; ++capacity) {
    char memory[64] = {};
    WireBuffer buffer{memory, capacity};
    WireWriter(buffer).add_bytes(1, "twenty-one characters", 21);
    const std::string before(memory, buffer.size);
    {
      WireWriter fields(buffer);
      WireWriter nested(fields, 2);
      nested.add_uint32(1, 7);
      nested.add_bytes(2, "a name that is longer than there is room for in all", 51);
      nested.add_uint32(3, 7);
    }
    EXPECT_TRUE(buffer.overflowed);
    EXPECT_EQ(std::string(memory, before.size()), before) << capacity;
  }
}

TEST(Columns, VarintsOfEveryLengthAreThoseOfProtobuf) {
  char memory[kColumnBytes];
  Column column{memory, memory};
  std::string expected;
  for (int bit = 0; bit < 64; ++bit) {
    for (const uint64_t value :
         {uint64_t{1} << bit, (uint64_t{1} << bit) - 1, (uint64_t{1} << bit) | 0x55, ~uint64_t{0} >> bit}) {
      column.Put(value);
      protozero::add_varint_to_buffer(&expected, value);
    }
  }
  EXPECT_EQ(std::string(column.begin, column.size()), expected);
}

TEST(LossReasons, TheCountersCoverTheSchema) { EXPECT_LT(v1::LossReason_MAX, kLossReasons); }

}  // namespace
}  // namespace gpuprobe::injector
