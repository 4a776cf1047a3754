#include "tests/sim/cupti/layout.h"

#include <cupti.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

#include "tests/sim/cupti/knobs.h"
#include "tests/sim/cupti/oracle.h"

namespace gpusim::cupti {
namespace {

constexpr uint32_t kNewest = 130001;
constexpr uint32_t kVersions[] = {18, 19,     20,      21,     22,     23,     24,     26,    27,
                                  28, 130000, kNewest, 130100, 130200, 130300, 130401, 130500};

Activity Kernel() {
  Activity activity;
  activity.kind = ActivityKind::kKernel;
  activity.start_ns = 1000;
  activity.end_ns = 3500;
  activity.device = 2;
  activity.context_uid = 3;
  activity.stream_id = 14;
  activity.correlation = 99;
  activity.graph_node = 0x100000005;
  activity.graph = 7;
  activity.name = "_Z3addv";
  activity.grid[0] = 10;
  activity.grid[1] = 11;
  activity.grid[2] = 12;
  activity.block[0] = 32;
  activity.block[1] = 2;
  activity.dynamic_shared_bytes = 4096;
  activity.registers_per_thread = 40;
  return activity;
}

Activity Copy(ActivityKind kind) {
  Activity activity = Kernel();
  activity.kind = kind;
  activity.bytes = 1 << 20;
  activity.copy_kind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
  activity.src_memory = CUPTI_ACTIVITY_MEMORY_KIND_PINNED;
  activity.dst_memory = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  activity.src_device = 1;
  activity.dst_device = 2;
  activity.memset_value = 0xab;
  activity.asynchronous = true;
  activity.sync_type = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE;
  activity.memory_operation = CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION;
  activity.address = 0x7f0000000000;
  activity.pool_address = 0x5500;
  activity.pool_used = 3000;
  activity.pool_reserved = 4096;
  activity.pool_release_threshold = 2048;
  return activity;
}

// One record of every kind that the node can write.
std::vector<Record> EveryKind(uint32_t version) {
  std::vector<Record> records;
  records.push_back(ActivityRecord(Kernel(), CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, 1, version));
  records.push_back(ActivityRecord(Kernel(), CUPTI_ACTIVITY_KIND_KERNEL, 1, version));
  for (const ActivityKind kind : {ActivityKind::kMemcpy, ActivityKind::kPeerCopy, ActivityKind::kMemset,
                                  ActivityKind::kSync, ActivityKind::kMemory, ActivityKind::kMemoryPool}) {
    records.push_back(ActivityRecord(Copy(kind), 0, 1, version));
  }
  ApiCall call;
  call.domain = CUPTI_CB_DOMAIN_RUNTIME_API;
  records.push_back(ApiRecord(call, 1, 2, 3, version));
  call.domain = CUPTI_CB_DOMAIN_DRIVER_API;
  records.push_back(ApiRecord(call, 1, 2, 3, version));
  records.push_back(ExternalCorrelationRecord(3, 4, 5));
  records.push_back(DeviceRecord(DeviceFacts{}, version));
  records.push_back(ContextRecord(1, 0, 7, version));
  records.push_back(StreamRecord(1, 13, 0, 1, 5));
  records.push_back(
      OverheadRecord({.what = 2 << 16, .start_ns = 3, .end_ns = 4, .correlation = 5}, 1, 2, version));
  records.push_back(GraphTraceRecord(GraphRun{}, version));
  return records;
}

template <typename T>
const T& As(const Record& record) {
  EXPECT_GE(record.size(), sizeof(T));
  return *reinterpret_cast<const T*>(record.data());
}

TEST(LayoutTest, TheRealLibraryWalksEveryKindThatTheNodeWrites) {
  SKIP_WITHOUT_ORACLE();
  std::vector<uint8_t> buffer;
  std::vector<uint32_t> written;
  std::vector<size_t> offsets;
  for (const Record& record : EveryKind(kNewest)) {
    offsets.push_back(buffer.size());
    written.push_back(static_cast<uint32_t>(As<CUpti_Activity>(record).kind));
    buffer.insert(buffer.end(), record.begin(), record.end());
  }
  CUpti_Activity* record = nullptr;
  for (size_t i = 0; i < written.size(); ++i) {
    ASSERT_EQ(Oracle::Get().next_record(buffer.data(), buffer.size(), &record), CUPTI_SUCCESS)
        << "record " << i;
    EXPECT_EQ(static_cast<uint32_t>(record->kind), written[i]);
    EXPECT_EQ(static_cast<size_t>(reinterpret_cast<uint8_t*>(record) - buffer.data()), offsets[i])
        << "after kind " << (i == 0 ? 0 : written[i - 1]);
  }
  EXPECT_EQ(Oracle::Get().next_record(buffer.data(), buffer.size(), &record), CUPTI_ERROR_MAX_LIMIT_REACHED);
}

// What walking `valid` bytes answers, call by call, and where the record is then.
std::vector<std::pair<int, ptrdiff_t>> Walk(std::vector<uint8_t> buffer, size_t valid, bool real) {
  std::vector<std::pair<int, ptrdiff_t>> answers;
  CUpti_Activity* record = nullptr;
  for (int call = 0; call < 6; ++call) {
    const CUptiResult result = real ? Oracle::Get().next_record(buffer.data(), valid, &record)
                                    : NextRecord(buffer.data(), valid, &record, kNewest);
    answers.emplace_back(result, record == nullptr ? -1 : reinterpret_cast<uint8_t*>(record) - buffer.data());
  }
  return answers;
}

std::vector<uint8_t> KernelsOfKinds(const std::vector<uint32_t>& kinds) {
  std::vector<uint8_t> buffer;
  for (const uint32_t kind : kinds) {
    const Record record = ActivityRecord(Kernel(), kind, 1, kNewest);
    buffer.insert(buffer.end(), record.begin(), record.end());
  }
  return buffer;
}

TEST(LayoutTest, DamagedAndCutOffRecordsAreWalkedAsTheRealLibraryDoes) {
  SKIP_WITHOUT_ORACLE();
  constexpr uint32_t kGood = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  constexpr size_t kSize = sizeof(CUpti_ActivityKernel10);
  for (const uint32_t bad : {0U, 9999U, UINT32_MAX}) {
    for (const size_t damaged : {0, 1, 2}) {
      std::vector<uint8_t> buffer = KernelsOfKinds({kGood, kGood, kGood});
      std::memcpy(buffer.data() + damaged * kSize, &bad, sizeof(bad));
      EXPECT_EQ(Walk(buffer, buffer.size(), false), Walk(buffer, buffer.size(), true))
          << "kind " << bad << " in record " << damaged;
    }
  }
  for (const size_t valid : {size_t{0}, size_t{2}, kSize, kSize + 2, 2 * kSize + 100, 3 * kSize}) {
    const std::vector<uint8_t> buffer = KernelsOfKinds({kGood, kGood, kGood});
    EXPECT_EQ(Walk(buffer, valid, false), Walk(buffer, valid, true)) << valid << " valid bytes";
  }
  std::vector<uint8_t> damaged = KernelsOfKinds({kGood, kGood});
  std::memset(damaged.data() + kSize, 0, sizeof(uint32_t));
  const std::pair<int, ptrdiff_t> stuck{CUPTI_ERROR_INVALID_KIND, 0};
  EXPECT_THAT(
      Walk(damaged, damaged.size(), false),
      testing::ElementsAre(std::pair<int, ptrdiff_t>{CUPTI_SUCCESS, 0}, stuck, stuck, stuck, stuck, stuck));
}

TEST(LayoutTest, WhatHasNoValueIsNotWritten) {
  const Record record = ActivityRecord(Kernel(), CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, 1, kNewest);
  std::vector<uint8_t> garbage(record.size(), 0xa5);
  CopyWritten(record, garbage.data(), kNewest);
  const auto& kernel = As<CUpti_ActivityKernel10>(garbage);
  EXPECT_EQ(kernel.start, 1000U);
  EXPECT_EQ(kernel.correlationId, 99U);
  EXPECT_EQ(kernel.graphNodeId, 0x100000005U);
  EXPECT_EQ(kernel.reserved0, reinterpret_cast<void*>(0xa5a5a5a5a5a5a5a5));
  std::vector<uint8_t> zeroed(record.size(), 0);
  CopyWritten(record, zeroed.data(), kNewest);
  EXPECT_EQ(zeroed, record);
}

// The smallest buffer that the real library takes a record of this kind from; 0 if it does not know the kind.
size_t RealSize(uint32_t kind) {
  for (size_t size = sizeof(CUpti_Activity); size <= 1024; size += 8) {
    std::vector<uint8_t> buffer(size);
    reinterpret_cast<CUpti_Activity*>(buffer.data())->kind = static_cast<CUpti_ActivityKind>(kind);
    CUpti_Activity* record = nullptr;
    if (Oracle::Get().next_record(buffer.data(), size, &record) == CUPTI_SUCCESS) {
      return size;
    }
  }
  return 0;
}

TEST(LayoutTest, SizesOfAllKindsAreTheRealOnes) {
  SKIP_WITHOUT_ORACLE();
  for (uint32_t kind = 0; kind < 64; ++kind) {
    EXPECT_EQ(RecordSize(kind, kNewest), RealSize(kind)) << "kind " << kind;
  }
}

TEST(LayoutTest, KernelFieldsAreWhereTheHeaderSaysInEveryVersion) {
  for (const uint32_t version : kVersions) {
    const Record bytes = ActivityRecord(Kernel(), CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, 1, version);
    const auto& record = As<CUpti_ActivityKernel8>(bytes);
    EXPECT_EQ(record.kind, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    EXPECT_EQ(record.start, 1000U);
    EXPECT_EQ(record.end, 3500U);
    EXPECT_EQ(record.deviceId, 2U);
    EXPECT_EQ(record.contextId, 3U);
    EXPECT_EQ(record.streamId, 14U);
    EXPECT_EQ(record.correlationId, 99U);
    EXPECT_EQ(record.graphNodeId, 0x100000005U);
    EXPECT_EQ(record.graphId, 7U);
    EXPECT_STREQ(record.name, "_Z3addv");
    EXPECT_EQ(record.gridX, 10);
    EXPECT_EQ(record.gridY, 11);
    EXPECT_EQ(record.gridZ, 12);
    EXPECT_EQ(record.blockX, 32);
    EXPECT_EQ(record.blockY, 2);
    EXPECT_EQ(record.dynamicSharedMemory, 4096);
    EXPECT_EQ(record.registersPerThread, 40);
    EXPECT_EQ(record.channelType, CUPTI_CHANNEL_TYPE_COMPUTE);
  }
}

TEST(LayoutTest, From134OnRecordsNameTheNodeThatTheirsWasMadeFrom) {
  Activity copy = Copy(ActivityKind::kMemcpy);
  Activity kernel = Kernel();
  copy.graph_node_source = kernel.graph_node_source = 0x700000002;
  const Record of_kernel = ActivityRecord(kernel, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, 1, 130400);
  const Record of_copy = ActivityRecord(copy, 0, 1, 130400);
  ASSERT_EQ(of_kernel.size(), 248U);
  ASSERT_EQ(of_copy.size(), 112U);
  EXPECT_EQ(*reinterpret_cast<const uint64_t*>(of_kernel.data() + 240), 0x700000002U);
  EXPECT_EQ(*reinterpret_cast<const uint64_t*>(of_copy.data() + 104), 0x700000002U);
  EXPECT_EQ(ActivityRecord(kernel, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, 1, 130300).size(), 232U);
}

TEST(LayoutTest, CopyFieldsAreWhereTheHeaderSaysInEveryVersion) {
  for (const uint32_t version : kVersions) {
    const Record bytes = ActivityRecord(Copy(ActivityKind::kMemcpy), 0, 1, version);
    const auto& record = As<CUpti_ActivityMemcpy5>(bytes);
    EXPECT_EQ(record.copyKind, CUPTI_ACTIVITY_MEMCPY_KIND_HTOD);
    EXPECT_EQ(record.srcKind, CUPTI_ACTIVITY_MEMORY_KIND_PINNED);
    EXPECT_EQ(record.dstKind, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE);
    EXPECT_EQ(record.flags, CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC);
    EXPECT_EQ(record.bytes, 1U << 20);
    EXPECT_EQ(record.start, 1000U);
    EXPECT_EQ(record.end, 3500U);
    EXPECT_EQ(record.correlationId, 99U);
    EXPECT_EQ(record.graphNodeId, 0x100000005U);
  }
  const Record peer = ActivityRecord(Copy(ActivityKind::kPeerCopy), 0, 1, kNewest);
  EXPECT_EQ(As<CUpti_ActivityMemcpyPtoP4>(peer).srcDeviceId, 1U);
  EXPECT_EQ(As<CUpti_ActivityMemcpyPtoP4>(peer).dstDeviceId, 2U);
}

TEST(LayoutTest, OtherFieldsAreWhereTheHeaderSays) {
  const Record memset = ActivityRecord(Copy(ActivityKind::kMemset), 0, 1, kNewest);
  EXPECT_EQ(As<CUpti_ActivityMemset4>(memset).value, 0xabU);
  EXPECT_EQ(As<CUpti_ActivityMemset4>(memset).bytes, 1U << 20);
  const Record sync = ActivityRecord(Copy(ActivityKind::kSync), 0, 1, kNewest);
  EXPECT_EQ(As<CUpti_ActivitySynchronization2>(sync).streamId, 14U);
  EXPECT_EQ(As<CUpti_ActivitySynchronization2>(sync).cudaEventId, CUPTI_SYNCHRONIZATION_INVALID_VALUE);
  const Record memory = ActivityRecord(Copy(ActivityKind::kMemory), 0, 77, kNewest);
  EXPECT_EQ(As<CUpti_ActivityMemory4>(memory).address, 0x7f0000000000U);
  EXPECT_EQ(As<CUpti_ActivityMemory4>(memory).processId, 77U);
  EXPECT_EQ(As<CUpti_ActivityMemory4>(memory).memoryOperationType,
            CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION);
}

TEST(LayoutTest, PoolsAreWhereTheHeaderSaysInEveryVersion) {
  for (const uint32_t version : kVersions) {
    const Record memory = ActivityRecord(Copy(ActivityKind::kMemory), 0, 77, version);
    const auto& config = As<CUpti_ActivityMemory3>(memory).memoryPoolConfig;
    EXPECT_EQ(config.memoryPoolType, CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL);
    EXPECT_EQ(config.address, 0x5500U);
    EXPECT_EQ(config.pool.size, 4096U);
    EXPECT_EQ(config.utilizedSize, 3000U);
    EXPECT_EQ(config.releaseThreshold, 2048U);
    const Record pool = ActivityRecord(Copy(ActivityKind::kMemoryPool), 0, 77, version);
    EXPECT_EQ(As<CUpti_ActivityMemoryPool2>(pool).kind, CUPTI_ACTIVITY_KIND_MEMORY_POOL);
    EXPECT_EQ(As<CUpti_ActivityMemoryPool2>(pool).address, 0x5500U);
    EXPECT_EQ(As<CUpti_ActivityMemoryPool2>(pool).size, 4096U);
    EXPECT_EQ(As<CUpti_ActivityMemoryPool2>(pool).utilizedSize, 3000U);
    EXPECT_EQ(As<CUpti_ActivityMemoryPool2>(pool).processId, 77U);
  }
}

TEST(LayoutTest, OlderVersionsHaveTheirOwnSizes) {
  EXPECT_EQ(RecordSize(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, 18), sizeof(CUpti_ActivityKernel8));
  EXPECT_EQ(RecordSize(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, 19), sizeof(CUpti_ActivityKernel9));
  EXPECT_EQ(RecordSize(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, kNewest), sizeof(CUpti_ActivityKernel10));
  EXPECT_EQ(RecordSize(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, 24), sizeof(CUpti_ActivitySynchronization));
  EXPECT_EQ(RecordSize(CUPTI_ACTIVITY_KIND_MEMCPY, 24), sizeof(CUpti_ActivityMemcpy5));
  EXPECT_EQ(RecordSize(CUPTI_ACTIVITY_KIND_OVERHEAD, 19), sizeof(CUpti_ActivityOverhead));
  EXPECT_EQ(RecordSize(CUPTI_ACTIVITY_KIND_OVERHEAD, 21), sizeof(CUpti_ActivityOverhead2));
  EXPECT_EQ(RecordSize(CUPTI_ACTIVITY_KIND_OVERHEAD, 22), sizeof(CUpti_ActivityOverhead3));
  EXPECT_EQ(RecordSize(CUPTI_ACTIVITY_KIND_GRAPH_TRACE, 19), sizeof(CUpti_ActivityGraphTrace));
  EXPECT_EQ(RecordSize(CUPTI_ACTIVITY_KIND_GRAPH_TRACE, 21), sizeof(CUpti_ActivityGraphTrace2));
  EXPECT_EQ(RecordSize(CUPTI_ACTIVITY_KIND_EVENT, 28), 24U);
  EXPECT_EQ(RecordSize(CUPTI_ACTIVITY_KIND_EVENT, kNewest), 0U) << "13.0 has no events";
  EXPECT_EQ(ReportedVersion(VersionNumber("12.0")), 18U) << "as the real one, not as its header says";
}

// Records that are cut at the older size are only right if the newer structure begins with the older one.
TEST(LayoutTest, NewerStructuresBeginWithTheOlderOnes) {
#define SAME_PLACE(older, newer, field) static_assert(offsetof(older, field) == offsetof(newer, field))
  SAME_PLACE(CUpti_ActivityKernel8, CUpti_ActivityKernel10, localMemoryTotal_v2);
  SAME_PLACE(CUpti_ActivityKernel9, CUpti_ActivityKernel10, maxActiveClusters);
  SAME_PLACE(CUpti_ActivityKernel8, CUpti_ActivityKernel10, channelType);
  SAME_PLACE(CUpti_ActivityMemcpy5, CUpti_ActivityMemcpy6, channelType);
  SAME_PLACE(CUpti_ActivitySynchronization, CUpti_ActivitySynchronization2, cudaEventId);
  SAME_PLACE(CUpti_ActivityMemory3, CUpti_ActivityMemory4, memoryPoolConfig);
  SAME_PLACE(CUpti_ActivityMemoryPool2, CUpti_ActivityMemoryPool3, utilizedSize);
  SAME_PLACE(CUpti_ActivityOverhead, CUpti_ActivityOverhead3, end);
  SAME_PLACE(CUpti_ActivityOverhead2, CUpti_ActivityOverhead3, correlationId);
  SAME_PLACE(CUpti_ActivityContext, CUpti_ActivityContext3, nullStreamId);
  SAME_PLACE(CUpti_ActivityContext2, CUpti_ActivityContext3, numMultiprocessors);
  SAME_PLACE(CUpti_ActivityGraphTrace, CUpti_ActivityGraphTrace2, reserved);
  SAME_PLACE(CUpti_ActivityDevice4, CUpti_ActivityDevice5, migUuid);
#undef SAME_PLACE
}

TEST(KnobsTest, VersionsAndFaultsAreUnderstood) {
  std::string complaint;
  const Knobs knobs = ParseKnobs("12.6", "drops=7,lock_over_callbacks,of_another_library", &complaint);
  EXPECT_EQ(complaint, "");
  EXPECT_EQ(knobs.api_version, 24U);
  EXPECT_EQ(knobs.drops, 7U);
  EXPECT_TRUE(knobs.lock_over_callbacks);
  EXPECT_TRUE(knobs.defects.crashes_on_null) << "NULL is allowed since 12.9";
  EXPECT_FALSE(ParseKnobs("13.0", nullptr, &complaint).defects.crashes_on_null);
  EXPECT_EQ(complaint, "");
  ParseKnobs("12.7", nullptr, &complaint);
  EXPECT_THAT(complaint, testing::HasSubstr("12.7"));
  ParseKnobs(nullptr, "drops=x", &complaint);
  EXPECT_THAT(complaint, testing::HasSubstr("drops"));
}

}  // namespace
}  // namespace gpusim::cupti
