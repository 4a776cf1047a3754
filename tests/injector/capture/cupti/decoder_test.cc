#include "injector/capture/cupti/decoder.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "injector/base/losses.h"
#include "injector/core/guard.h"
#include "injector/core/recording.h"
#include "injector/core/self_report.h"
#include "tests/injector/support/frames.h"
#include "tests/injector/support/records.h"

namespace gpuprobe::injector {
namespace {

using testing::DecodingApi;
using testing::Kernel;
using testing::RecordBuffer;
using testing::Starts;
using testing::Undelta;

class DecoderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    stream_ = std::make_unique<Stream>();
    ASSERT_TRUE(stream_->Init(size_t{64} << 20));
  }
  v1::Batch Decode(RecordBuffer& buffer, uint32_t version = CUPTI_API_VERSION) {
    const CuptiApi api = DecodingApi(version);
    Decoder decoder(&api, stream_.get());
    decoder.Init();
    decoder.DecodeBuffer(buffer.data(), buffer.size());
    EXPECT_TRUE(stream_->builder.Seal());
    const auto batches = testing::TakeBatches(&stream_->queue);
    EXPECT_EQ(batches.size(), 1u);
    return batches.empty() ? v1::Batch() : batches[0];
  }

  std::unique_ptr<Stream> stream_;
  const uint64_t now_ = NowNs();
};

TEST_F(DecoderTest, KernelsWithTheirSites) {
  RecordBuffer buffer;
  auto kernel = Kernel("_Z6vecAddPKfS0_Pfi", now_, now_ + 1000, 42);
  kernel.deviceId = 3;
  kernel.graphNodeId = 99;
  kernel.staticSharedMemory = 16;
  kernel.dynamicSharedMemory = 2048;
  buffer.Add(kernel);
  buffer.Add(Kernel("_Z6vecAddPKfS0_Pfi", now_ + 2000, now_ + 3000, 43));
  const v1::Batch batch = Decode(buffer);
  ASSERT_EQ(batch.kernels().duration_size(), 2);
  EXPECT_EQ(Starts(batch.base_ns(), batch.kernels().start_delta(), batch.kernels().duration()),
            (std::vector<uint64_t>{now_, now_ + 2000}));
  EXPECT_EQ(Undelta(batch.kernels().correlation_delta(), 2), (std::vector<uint64_t>{42, 43}));
  EXPECT_EQ(Undelta(batch.kernels().graph_node_delta(), 2), (std::vector<uint64_t>{99, 0}));
  ASSERT_EQ(batch.kernel_sites_size(), 2);
  const v1::KernelSite& site = batch.kernel_sites(0);
  EXPECT_EQ(site.device(), 3u);
  EXPECT_EQ(site.stream(), 7u);
  EXPECT_EQ(site.grid_x(), 128u);
  EXPECT_EQ(site.block_x(), 256u);
  EXPECT_EQ(site.registers_per_thread(), 24u);
  EXPECT_EQ(site.static_shared_bytes(), 16u);
  EXPECT_EQ(site.dynamic_shared_bytes(), 2048u);
  EXPECT_EQ(testing::Text({batch}, site.name()), "_Z6vecAddPKfS0_Pfi");
}

TEST_F(DecoderTest, OfAllocationsOnlyTheirPoolsAreTold) {
  RecordBuffer buffer;
  CUpti_ActivityMemory4 linear{};
  linear.kind = CUPTI_ACTIVITY_KIND_MEMORY2;
  linear.timestamp = now_;
  linear.bytes = 512;
  CUpti_ActivityMemory4 pooled = linear;
  pooled.deviceId = 3;
  pooled.isAsync = 1;
  pooled.memoryPoolConfig.memoryPoolType = CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL;
  pooled.memoryPoolConfig.address = 0xabc0;
  pooled.memoryPoolConfig.pool.size = 4096;
  pooled.memoryPoolConfig.utilizedSize = 512;
  pooled.memoryPoolConfig.releaseThreshold = 9;
  CUpti_ActivityMemory4 imported = pooled;
  imported.memoryPoolConfig.memoryPoolType = CUPTI_ACTIVITY_MEMORY_POOL_TYPE_IMPORTED;
  CUpti_ActivityMemoryPool3 trimmed{};
  trimmed.kind = CUPTI_ACTIVITY_KIND_MEMORY_POOL;
  trimmed.memoryPoolOperationType = CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_TRIMMED;
  trimmed.memoryPoolType = CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL;
  trimmed.address = 0xabc0;
  trimmed.size = 2048;
  trimmed.utilizedSize = 512;
  trimmed.timestamp = now_ + 50;
  trimmed.deviceId = 3;
  buffer.Add(linear);
  buffer.Add(pooled);
  buffer.Add(imported);
  buffer.Add(trimmed);
  const v1::Batch batch = Decode(buffer);
  EXPECT_EQ(batch.allocations().time_delta_size(), 0);
  const v1::PoolLevels& pools = batch.pool_levels();
  ASSERT_EQ(pools.time_delta_size(), 1);
  EXPECT_EQ(batch.base_ns() + static_cast<uint64_t>(pools.time_delta(0)), now_ + 50);
  EXPECT_EQ(pools.pool(0), 1u);
  EXPECT_EQ(pools.device(0), 3u);
  EXPECT_EQ(pools.used(0), 512u);
  EXPECT_EQ(pools.reserved(0), 2048u);
  EXPECT_EQ(pools.peak_reserved(0), 4096u);
  EXPECT_EQ(pools.peak_reserved_delta(0), -50);
  EXPECT_EQ(pools.trims(0), 1u);
}

TEST_F(DecoderTest, BeforeGraphNodesExistedTheFieldBehindTheRecordIsNotRead) {
  RecordBuffer buffer;
  auto kernel = Kernel("k", now_, now_ + 1, 1);
  kernel.graphNodeId = 0x1234567;
  buffer.Add(kernel);
  EXPECT_TRUE(Decode(buffer, 12).kernels().graph_node_delta().empty());
}

TEST_F(DecoderTest, CopiesOfEveryDirection) {
  struct Case {
    uint8_t kind;
    v1::CopyDirection direction;
  };
  const Case cases[] = {{CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, v1::COPY_DIRECTION_H2D},
                        {CUPTI_ACTIVITY_MEMCPY_KIND_DTOH, v1::COPY_DIRECTION_D2H},
                        {CUPTI_ACTIVITY_MEMCPY_KIND_HTOA, v1::COPY_DIRECTION_H2D},
                        {CUPTI_ACTIVITY_MEMCPY_KIND_ATOH, v1::COPY_DIRECTION_D2H},
                        {CUPTI_ACTIVITY_MEMCPY_KIND_ATOA, v1::COPY_DIRECTION_D2D},
                        {CUPTI_ACTIVITY_MEMCPY_KIND_DTOD, v1::COPY_DIRECTION_D2D},
                        {CUPTI_ACTIVITY_MEMCPY_KIND_HTOH, v1::COPY_DIRECTION_H2H}};
  RecordBuffer buffer;
  for (const Case& each : cases) {
    CUpti_ActivityMemcpy6 copy{};
    copy.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
    copy.copyKind = each.kind;
    copy.srcKind = CUPTI_ACTIVITY_MEMORY_KIND_PINNED;
    copy.dstKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
    copy.flags = CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC;
    copy.bytes = 4096;
    copy.start = now_;
    copy.end = now_ + 10;
    copy.streamId = 13;
    copy.graphNodeId = 5;
    buffer.Add(copy);
  }
  const v1::Batch batch = Decode(buffer);
  ASSERT_EQ(batch.copies().direction_size(), static_cast<int>(std::size(cases)));
  for (size_t i = 0; i < std::size(cases); ++i) {
    EXPECT_EQ(batch.copies().direction(static_cast<int>(i)), cases[i].direction);
  }
  EXPECT_EQ(batch.copies().src_memory(0), v1::MEMORY_KIND_PINNED);
  EXPECT_EQ(batch.copies().dst_memory(0), v1::MEMORY_KIND_DEVICE);
  EXPECT_EQ(batch.copies().asynchronous(0), 1u);
  EXPECT_EQ(batch.copies().stream(0), 13u);
  EXPECT_EQ(batch.copies().graph_node_delta(0), 5);
}

TEST_F(DecoderTest, PeerCopiesNameTheOtherDevice) {
  RecordBuffer buffer;
  CUpti_ActivityMemcpyPtoP4 copy{};
  copy.kind = CUPTI_ACTIVITY_KIND_MEMCPY2;
  copy.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_PTOP;
  copy.start = now_;
  copy.end = now_ + 10;
  copy.deviceId = 0;
  copy.srcDeviceId = 0;
  copy.dstDeviceId = 2;
  buffer.Add(copy);
  copy.deviceId = 2;
  buffer.Add(copy);
  const v1::Batch batch = Decode(buffer);
  EXPECT_EQ(batch.copies().direction(0), v1::COPY_DIRECTION_P2P);
  EXPECT_EQ(batch.copies().peer_device(0), 3u);
  EXPECT_EQ(batch.copies().peer_device(1), 1u);
  EXPECT_EQ(batch.copies().device(1), 2u);
}

TEST_F(DecoderTest, MemsetsSynchronisationsAndDevices) {
  RecordBuffer buffer;
  CUpti_ActivityMemset4 fill{};
  fill.kind = CUPTI_ACTIVITY_KIND_MEMSET;
  fill.value = 7;
  fill.bytes = 99;
  fill.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_MANAGED;
  fill.start = now_;
  fill.end = now_ + 4;
  fill.correlationId = 6;
  buffer.Add(fill);
  CUpti_ActivitySynchronization2 sync{};
  sync.kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
  sync.type = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT;
  sync.start = now_;
  sync.end = now_;
  sync.contextId = 1;
  sync.streamId = CUPTI_SYNCHRONIZATION_INVALID_VALUE;
  sync.cudaEventId = 12;
  buffer.Add(sync);
  CUpti_ActivityDevice5 device{};
  device.kind = CUPTI_ACTIVITY_KIND_DEVICE;
  device.id = 1;
  device.name = "NVIDIA L40S";
  device.globalMemorySize = uint64_t{48} << 30;
  device.globalMemoryBandwidth = 864000000;
  device.numMultiprocessors = 142;
  device.computeCapabilityMajor = 8;
  device.computeCapabilityMinor = 9;
  buffer.Add(device);
  const v1::Batch batch = Decode(buffer);
  EXPECT_EQ(batch.memsets().value(0), 7u);
  EXPECT_EQ(batch.memsets().bytes(0), 99u);
  EXPECT_EQ(batch.memsets().memory(0), v1::MEMORY_KIND_MANAGED);
  EXPECT_EQ(batch.syncs().what(0), v1::SYNC_KIND_STREAM_WAIT_EVENT);
  EXPECT_TRUE(batch.syncs().stream().empty());
  EXPECT_EQ(batch.syncs().event(0), 12u);
  ASSERT_EQ(batch.devices_size(), 1);
  EXPECT_EQ(batch.devices(0).name(), "NVIDIA L40S");
  EXPECT_EQ(batch.devices(0).memory_bandwidth_bytes_per_s(), 864'000'000'000u);
}

TEST_F(DecoderTest, ZeroAndBackwardTimesAreCountedNotSent) {
  RecordBuffer buffer;
  buffer.Add(Kernel("k", 0, 0, 1));
  buffer.Add(Kernel("k", now_, 0, 2));
  buffer.Add(Kernel("k", now_ + 10, now_, 3));
  buffer.Add(Kernel("k", now_, now_ + 10, 4));
  const v1::Batch batch = Decode(buffer);
  ASSERT_EQ(batch.kernels().duration_size(), 1);
  EXPECT_EQ(batch.kernels().correlation_delta(0), 4);
  EXPECT_EQ(LossCount(wire::LossReason::kLossInvalidTimestamp), 3u);
}

TEST_F(DecoderTest, RecordsThatNobodyAskedForAreCounted) {
  RecordBuffer buffer;
  CUpti_ActivityEnvironment environment{};
  environment.kind = CUPTI_ACTIVITY_KIND_ENVIRONMENT;
  buffer.Add(environment);
  buffer.Add(Kernel("k", now_, now_ + 10, 4));
  buffer.Add(environment);
  const v1::Batch batch = Decode(buffer);
  EXPECT_EQ(batch.kernels().duration_size(), 1);
  EXPECT_EQ(LossCount(wire::LossReason::kLossUnknownRecord), 2u);
  ASSERT_EQ(batch.self().unknown_kinds_size(), 1);
  EXPECT_EQ(batch.self().unknown_kinds(0).kind(), uint32_t{CUPTI_ACTIVITY_KIND_ENVIRONMENT});
  EXPECT_EQ(batch.self().unknown_kinds(0).records(), 2u);
}

TEST_F(DecoderTest, OverheadsAreRecordedByKindAndTheirDetailsFreed) {
  RecordBuffer buffer;
  CUpti_ActivityOverhead3 overhead{};
  overhead.kind = CUPTI_ACTIVITY_KIND_OVERHEAD;
  const auto add = [&](uint32_t what, uint32_t correlation) {
    overhead.overheadKind = static_cast<CUpti_ActivityOverheadKind>(what);
    overhead.start = now_;
    overhead.end = now_ + 500;
    overhead.correlationId = correlation;
    buffer.Add(overhead);
  };
  add(CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH, 0);
  add(CUPTI_ACTIVITY_OVERHEAD_DRIVER_COMPILER, 11);
  overhead.overheadData =
      std::malloc(sizeof(CUpti_ActivityOverheadCommandBufferFullData));  // for the leak checker
  add(CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL, 12);
  overhead.overheadData = nullptr;
  add(CUPTI_ACTIVITY_OVERHEAD_UVM_ACTIVITY_INIT, 13);
  add(77 << 16, 0);  // a newer CUPTI's
  add(CUPTI_ACTIVITY_OVERHEAD_UNKNOWN, 0);
  const v1::Batch batch = Decode(buffer);
  const v1::Overheads& overheads = batch.overheads();
  EXPECT_EQ((std::vector<int>(overheads.what().begin(), overheads.what().end())),
            (std::vector<int>{v1::OVERHEAD_KIND_BUFFER_FLUSH, v1::OVERHEAD_KIND_COMPILER,
                              v1::OVERHEAD_KIND_COMMAND_BUFFER_FULL, v1::OVERHEAD_KIND_MANAGED_MEMORY,
                              v1::OVERHEAD_KIND_UNKNOWN, v1::OVERHEAD_KIND_UNKNOWN}));
  EXPECT_EQ(overheads.duration(0), 500u);
  EXPECT_EQ(Undelta(overheads.correlation_delta(), 6), (std::vector<uint64_t>{0, 11, 12, 13, 0, 0}));
  EXPECT_EQ(LossCount(wire::LossReason::kLossUnknownRecord), 0u);
}

TEST_F(DecoderTest, WhatComesBehindADamagedRecordIsCountedOneByOne) {
  RecordBuffer buffer;
  for (uint32_t i = 0; i < 10; ++i) buffer.Add(Kernel("k", now_ + i * 100, now_ + i * 100 + 10, i + 1));
  reinterpret_cast<CUpti_ActivityKernel10*>(buffer.data())[3].kind = CUPTI_ACTIVITY_KIND_INVALID;
  EXPECT_EQ(Decode(buffer).kernels().duration_size(), 3);
  EXPECT_EQ(LossCount(wire::LossReason::kLossUnknownRecord), 7u);
}

TEST_F(DecoderTest, RecordsBehindADamagedOneAreCountedInTheVersionsOwnSize) {
  constexpr size_t kKernels = 200;  // 8 bytes less each, a kernel's record is shorter before 13.0
  std::vector<uint8_t> buffer(kKernels * sizeof(CUpti_ActivityKernel9));
  for (uint32_t i = 0; i < kKernels; ++i) {
    const CUpti_ActivityKernel10 kernel = Kernel("k", now_ + i * 100, now_ + i * 100 + 10, i + 1);
    std::memcpy(buffer.data() + i * sizeof(CUpti_ActivityKernel9), &kernel, sizeof(CUpti_ActivityKernel9));
  }
  reinterpret_cast<CUpti_ActivityKernel9*>(buffer.data())[50].kind = CUPTI_ACTIVITY_KIND_INVALID;
  CuptiApi api = DecodingApi(24);
  api.ActivityGetNextRecord = [](uint8_t* bytes, size_t valid, CUpti_Activity** record) {
    uint8_t* next =
        *record == nullptr ? bytes : reinterpret_cast<uint8_t*>(*record) + sizeof(CUpti_ActivityKernel9);
    if (next >= bytes + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    auto* found = reinterpret_cast<CUpti_Activity*>(next);
    if (found->kind == CUPTI_ACTIVITY_KIND_INVALID) return CUPTI_ERROR_INVALID_KIND;
    *record = found;
    return CUPTI_SUCCESS;
  };
  Decoder decoder(&api, stream_.get());
  decoder.Init();
  decoder.DecodeBuffer(buffer.data(), buffer.size());
  EXPECT_EQ(LossCount(wire::LossReason::kLossUnknownRecord), 150u);
}

TEST_F(DecoderTest, ABufferThatIsDamagedFromTheStartIsCounted) {
  RecordBuffer buffer;
  for (uint32_t i = 0; i < 4; ++i) buffer.Add(Kernel("k", now_, now_ + 10, i + 1));
  reinterpret_cast<CUpti_ActivityKernel10*>(buffer.data())[0].kind = CUPTI_ACTIVITY_KIND_INVALID;
  const CuptiApi api = DecodingApi(CUPTI_API_VERSION);
  Decoder decoder(&api, stream_.get());
  decoder.Init();
  decoder.DecodeBuffer(buffer.data(), buffer.size());
  EXPECT_EQ(LossCount(wire::LossReason::kLossUnknownRecord), 4u);
}

TEST_F(DecoderTest, WorkOutsideTheWindowIsLeftOutAndCounted) {
  recording.from_ns = now_;
  recording.span_ns = 1000;
  const uint64_t before = SelfCount(SelfCounter::kOutsideWindow);
  RecordBuffer buffer;
  buffer.Add(Kernel("k", now_ - 1, now_ + 10, 1));
  buffer.Add(Kernel("k", now_, now_ + 10, 2));
  buffer.Add(Kernel("k", now_ + 999, now_ + 2000, 3));
  buffer.Add(Kernel("k", now_ + 1000, now_ + 2000, 4));
  const v1::Batch batch = Decode(buffer);
  recording = {};
  EXPECT_EQ(Undelta(batch.kernels().correlation_delta(), 2), (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(SelfCount(SelfCounter::kOutsideWindow) - before, 2u);
  EXPECT_EQ(batch.self().records_outside_window(), SelfCount(SelfCounter::kOutsideWindow));
  EXPECT_EQ(LossCount(wire::LossReason::kLossInvalidTimestamp), 0u);
}

// Graph nodes begin in the middle of a batch: the records before them have node 0.
TEST_F(DecoderTest, GraphNodesAfterKernelsWithoutOne) {
  RecordBuffer buffer;
  for (uint32_t i = 0; i < 200; ++i) {
    auto kernel = Kernel("k", now_ + i * 10, now_ + i * 10 + 5, i + 1);
    kernel.graphNodeId = i < 100 ? 0 : 5000 + i;
    buffer.Add(kernel);
  }
  const v1::Batch batch = Decode(buffer);
  const auto nodes = Undelta(batch.kernels().graph_node_delta(), 200);
  ASSERT_EQ(nodes.size(), 200u);
  EXPECT_EQ(nodes[0], 0u);
  EXPECT_EQ(nodes[99], 0u);
  EXPECT_EQ(nodes[100], 5100u);
  EXPECT_EQ(nodes[199], 5199u);
}

TEST_F(DecoderTest, ALargeBufferArrivesWhole) {
  RecordBuffer buffer;
  std::vector<std::string> names;
  names.reserve(40);
  for (int i = 0; i < 40; ++i) names.push_back("kernel_" + std::to_string(i));
  for (uint64_t i = 0; i < 40000; ++i)
    buffer.Add(Kernel(names[i % 40].c_str(), now_ + i * 10, now_ + i * 10 + 5, static_cast<uint32_t>(i)));
  const CuptiApi api = DecodingApi();
  Decoder decoder(&api, stream_.get());
  decoder.Init();
  decoder.DecodeBuffer(buffer.data(), buffer.size());
  stream_->builder.Seal();
  uint64_t kernels = 0;
  uint64_t sites = 0;
  for (const v1::Batch& batch : testing::TakeBatches(&stream_->queue)) {
    kernels += static_cast<uint64_t>(batch.kernels().duration_size());
    sites += static_cast<uint64_t>(batch.kernel_sites_size());
  }
  EXPECT_EQ(kernels, 40000u);
  EXPECT_EQ(sites, 40u);
}

// Values that take more than four bytes, among others that take one.
TEST_F(DecoderTest, PausesAndKernelsOfSeconds) {
  constexpr uint64_t kSecond = 1'000'000'000;
  RecordBuffer buffer;
  std::vector<uint64_t> starts;
  std::vector<uint64_t> durations;
  uint64_t at = now_;
  for (uint32_t i = 0; i < 300; ++i) {
    const uint64_t duration = i % 70 == 5 ? 40 * kSecond : i % 3 == 0 ? 90 : 5000;
    buffer.Add(Kernel("k", at, at + duration, i % 90 == 7 ? 4'000'000'000u : i));
    starts.push_back(at);
    durations.push_back(duration);
    at = i % 110 == 9 ? at - 3600 * kSecond : at + duration + (i % 100 == 3 ? 2 * kSecond : 700);
  }
  const v1::Batch batch = Decode(buffer);
  EXPECT_EQ(Starts(batch.base_ns(), batch.kernels().start_delta(), batch.kernels().duration()), starts);
  EXPECT_EQ(std::vector<uint64_t>(batch.kernels().duration().begin(), batch.kernels().duration().end()),
            durations);
  const auto correlations = Undelta(batch.kernels().correlation_delta(), 300);
  EXPECT_EQ(correlations[6], 6u);
  EXPECT_EQ(correlations[7], 4'000'000'000u);
  EXPECT_EQ(correlations[8], 8u);
}

// The second of two threads with a buffer at the same time has no cache of sites.
TEST_F(DecoderTest, TwoThreadsAtATime) {
  const CuptiApi api = DecodingApi();
  Decoder decoder(&api, stream_.get());
  decoder.Init();
  std::vector<std::string> names;
  for (int i = 0; i < 40; ++i) names.push_back("kernel_" + std::to_string(i));
  RecordBuffer buffers[2];
  for (uint32_t i = 0; i < 2000; ++i)
    buffers[i % 2].Add(Kernel(names[i % 40].c_str(), now_ + i, now_ + i + 1, i));
  std::vector<std::thread> threads;
  for (RecordBuffer& buffer : buffers) {
    threads.emplace_back([&] {
      for (int round = 0; round < 4; ++round) decoder.DecodeBuffer(buffer.data(), buffer.size());
    });
  }
  for (std::thread& thread : threads) thread.join();
  stream_->builder.Seal();
  const auto batches = testing::TakeBatches(&stream_->queue);
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_EQ(batches[0].kernels().site_size(), 8000);
  EXPECT_EQ(batches[0].kernel_sites_size(), 40);
  std::map<uint32_t, std::string> names_of;
  for (const v1::KernelSite& site : batches[0].kernel_sites())
    names_of[site.id()] = testing::Text(batches, site.name());
  const auto correlations = Undelta(batches[0].kernels().correlation_delta(), 8000);
  for (int i = 0; i < 8000; ++i) {
    ASSERT_EQ(names_of[batches[0].kernels().site(i)], names[correlations[static_cast<size_t>(i)] % 40]);
  }
}

TEST_F(DecoderTest, ANameThatMovedToAnotherTextIsNotMistakenForTheOldOne) {
  const CuptiApi api = DecodingApi();
  Decoder decoder(&api, stream_.get());
  decoder.Init();
  char name[16] = "kernel_a";
  RecordBuffer buffer;
  buffer.Add(Kernel(name, now_, now_ + 1, 1));
  decoder.DecodeBuffer(buffer.data(), buffer.size());
  decoder.DecodeBuffer(buffer.data(), buffer.size());
  std::strcpy(name, "kernel_b");  // the module was unloaded, another one loaded in its place
  decoder.DecodeBuffer(buffer.data(), buffer.size());
  stream_->builder.Seal();
  const auto batches = testing::TakeBatches(&stream_->queue);
  ASSERT_EQ(batches.at(0).kernels().site_size(), 3);
  const auto name_of = [&](int i) {
    for (const v1::KernelSite& site : batches[0].kernel_sites()) {
      if (site.id() == batches[0].kernels().site(i)) return testing::Text(batches, site.name());
    }
    return std::string("no site");
  };
  EXPECT_EQ(name_of(0), "kernel_a");
  EXPECT_EQ(name_of(1), "kernel_a");
  EXPECT_EQ(name_of(2), "kernel_b");
}

// The same site in everything but one field each must not be taken for it by the cache.
TEST_F(DecoderTest, EveryFieldOfTheShapeMakesAnotherSite) {
  RecordBuffer buffer;
  auto base = Kernel("k", now_, now_ + 1, 1);
  buffer.Add(base);
  const auto with = [&](auto change) {
    auto kernel = base;
    change(kernel);
    buffer.Add(kernel);
    buffer.Add(base);
  };
  with([](auto& k) { k.deviceId = 1; });
  with([](auto& k) { k.contextId = 2; });
  with([](auto& k) { k.streamId = 8; });
  with([](auto& k) { k.gridX = 2; });
  with([](auto& k) { k.gridY = 2; });
  with([](auto& k) { k.gridZ = 2; });
  with([](auto& k) { k.blockX = 2; });
  with([](auto& k) { k.blockY = 2; });
  with([](auto& k) { k.blockZ = 2; });
  with([](auto& k) { k.staticSharedMemory = 2; });
  with([](auto& k) { k.dynamicSharedMemory = 2; });
  with([](auto& k) { k.registersPerThread = 2; });
  const v1::Batch batch = Decode(buffer);
  EXPECT_EQ(batch.kernel_sites_size(), 13);
  std::set<uint32_t> sites(batch.kernels().site().begin(), batch.kernels().site().end());
  EXPECT_EQ(sites.size(), 13u);
}

// The toolkit's own libcupti walks buffers without a driver: it must agree with the stand-in that the other
// tests use.
TEST_F(DecoderTest, TheToolkitsOwnWalkAgrees) {
  void* handle = dlopen(GPUPROBE_REAL_CUPTI, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) GTEST_SKIP() << "no libcupti at " GPUPROBE_REAL_CUPTI;
  CuptiApi api = DecodingApi();
  api.ActivityGetNextRecord =
      reinterpret_cast<decltype(api.ActivityGetNextRecord)>(dlsym(handle, "cuptiActivityGetNextRecord"));
  ASSERT_NE(api.ActivityGetNextRecord, nullptr);
  RecordBuffer buffer;
  for (uint32_t i = 0; i < 1000; ++i) {
    buffer.Add(Kernel("k", now_ + i, now_ + i + 1, i));
    CUpti_ActivityMemcpy6 copy{};
    copy.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
    copy.start = copy.end = now_;
    buffer.Add(copy);
    CUpti_ActivitySynchronization2 sync{};
    sync.kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
    sync.start = sync.end = now_;
    buffer.Add(sync);
    CUpti_ActivityMemset4 fill{};
    fill.kind = CUPTI_ACTIVITY_KIND_MEMSET;
    fill.start = fill.end = now_;
    buffer.Add(fill);
  }
  Decoder decoder(&api, stream_.get());
  decoder.Init();
  decoder.DecodeBuffer(buffer.data(), buffer.size());
  stream_->builder.Seal();
  const auto batches = testing::TakeBatches(&stream_->queue);
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_EQ(batches[0].kernels().duration_size(), 1000);
  EXPECT_EQ(batches[0].copies().start_delta_size(), 1000);
  EXPECT_EQ(batches[0].syncs().start_delta_size(), 1000);
  EXPECT_EQ(batches[0].memsets().start_delta_size(), 1000);
}

}  // namespace
}  // namespace gpuprobe::injector
