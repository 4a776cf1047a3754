// Activity buffers as CUPTI 13.0 lays them out, and a stand-in for its functions.
#pragma once

#include <cupti.h>

#include <cstring>
#include <vector>

#include "injector/capture/cupti/function_table.h"

namespace gpuprobe::injector::testing {

// Bytes that one record of `kind` takes in CUPTI 13.0; 0 for kinds that we never ask for.
inline size_t RecordBytes(CUpti_ActivityKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return sizeof(CUpti_ActivityKernel10);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return sizeof(CUpti_ActivityMemcpy6);
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
      return sizeof(CUpti_ActivityMemcpyPtoP4);
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return sizeof(CUpti_ActivityMemset4);
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
      return sizeof(CUpti_ActivitySynchronization2);
    case CUPTI_ACTIVITY_KIND_DEVICE:
      return sizeof(CUpti_ActivityDevice5);
    case CUPTI_ACTIVITY_KIND_MEMORY2:
      return sizeof(CUpti_ActivityMemory4);
    case CUPTI_ACTIVITY_KIND_MEMORY_POOL:
      return sizeof(CUpti_ActivityMemoryPool3);
    case CUPTI_ACTIVITY_KIND_OVERHEAD:
      return sizeof(CUpti_ActivityOverhead3);
    case CUPTI_ACTIVITY_KIND_ENVIRONMENT:
      return sizeof(CUpti_ActivityEnvironment);
    default:
      return 0;
  }
}

// A buffer that records are appended to.
class RecordBuffer {
 public:
  template <typename Record>
  void Add(const Record& record) {
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof(Record));
    std::memcpy(bytes_.data() + at, &record, sizeof(Record));
  }
  uint8_t* data() { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }

 private:
  std::vector<uint8_t> bytes_;
};

// Walks a buffer like cuptiActivityGetNextRecord: a zero kind is an error, the end another.
inline CUptiResult CUPTIAPI FakeGetNextRecord(uint8_t* buffer, size_t valid_bytes, CUpti_Activity** record) {
  size_t at = 0;
  if (*record != nullptr) {
    at = static_cast<size_t>(reinterpret_cast<uint8_t*>(*record) - buffer) + RecordBytes((*record)->kind);
  }
  if (at + sizeof(CUpti_ActivityKind) > valid_bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  auto* next = reinterpret_cast<CUpti_Activity*>(buffer + at);
  const size_t bytes = RecordBytes(next->kind);
  if (bytes == 0) return CUPTI_ERROR_INVALID_KIND;
  if (at + bytes > valid_bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = next;
  return CUPTI_SUCCESS;
}

inline CUpti_ActivityKernel10 Kernel(const char* name, uint64_t start_ns, uint64_t end_ns,
                                     uint32_t correlation) {
  CUpti_ActivityKernel10 kernel{};
  kernel.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  kernel.name = name;
  kernel.start = start_ns;
  kernel.end = end_ns;
  kernel.correlationId = correlation;
  kernel.gridX = 128;
  kernel.gridY = 1;
  kernel.gridZ = 1;
  kernel.blockX = 256;
  kernel.blockY = 1;
  kernel.blockZ = 1;
  kernel.streamId = 7;
  kernel.contextId = 1;
  kernel.registersPerThread = 24;
  return kernel;
}

inline CuptiApi DecodingApi(uint32_t version = CUPTI_API_VERSION) {
  CuptiApi api;
  api.version = version;
  api.ActivityGetNextRecord = FakeGetNextRecord;
  return api;
}

}  // namespace gpuprobe::injector::testing
