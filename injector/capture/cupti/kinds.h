// The activity kinds that we enable, each with the record kinds that need it.
#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>

#include "injector/capture/cupti/guest_records.h"
#include "injector/core/recording.h"

namespace gpuprobe::injector {

struct RecordedKind {
  CUpti_ActivityKind kind;
  uint32_t wanted_for;  // RecordKinds
};
inline constexpr RecordedKind kRecordedKinds[] = {
    {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, kRecordKernels},
    {CUPTI_ACTIVITY_KIND_MEMCPY, kRecordCopies},
    {CUPTI_ACTIVITY_KIND_MEMCPY2, kRecordCopies},
    {CUPTI_ACTIVITY_KIND_MEMSET, kRecordMemsets},
    {CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, kRecordSyncs},
    {CUPTI_ACTIVITY_KIND_DEVICE, kRecordAll},
    {CUPTI_ACTIVITY_KIND_MEMORY2, kRecordMemory},
    {CUPTI_ACTIVITY_KIND_MEMORY_POOL, kRecordMemory},
    {CUPTI_ACTIVITY_KIND_OVERHEAD, kRecordDeviceWork},
};

// Size of a kernel record in CUDA 13.0: the estimate for a buffer that may not be read.
inline constexpr size_t kTypicalRecordBytes = 216;

// Whether we want a record found in one of our buffers; another tool may have enabled its kind
// (guest_records.h). The receiver of an overhead record owns its details and has to free them: once another
// tool records overheads, that is the other tool.
inline bool IsRecorded(CUpti_ActivityKind kind) noexcept {
  if (kind == CUPTI_ACTIVITY_KIND_OVERHEAD && IsGuestsKind(kind)) return false;
  if (kind == CUPTI_ACTIVITY_KIND_GRAPH_TRACE) return (recording.kinds & kRecordGraphsWhole) != 0;
  for (const RecordedKind& recorded : kRecordedKinds) {
    if (recorded.kind == kind) return recording.Wants(recorded.wanted_for);
  }
  return false;
}

}  // namespace gpuprobe::injector
