// Activity records as bytes: what each CUPTI release lays out, filled from what the simulated node did.
//
// Separate and pure (no state, no driver) so that a test can hold the bytes against the toolkit's real
// libcupti.
#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/sim/core/cupti_seam.h"

namespace gpusim::cupti {

// One record, ready to be copied into a buffer. Sizes are multiples of eight, as the buffers' alignment is.
using Record = std::vector<uint8_t>;

// Size of a record of `kind` (CUpti_ActivityKind) under `api_version`; 0 for a kind that is not known. Also
// covers the kinds that the simulated node never writes, because cuptiActivityGetNextRecord has to walk
// whatever a tool hands it.
size_t RecordSize(uint32_t kind, uint32_t api_version);

// cuptiActivityGetNextRecord, for the layouts of `api_version`.
CUptiResult NextRecord(uint8_t* buffer, size_t valid_size, CUpti_Activity** record, uint32_t api_version);

// Copies `record` to `to`, but for the bytes that CUPTI does not write: padding, reserved and unset fields
// keep what was there.
void CopyWritten(const Record& record, uint8_t* to, uint32_t api_version);

// A finished piece of work. `kernel_kind` is CONCURRENT_KERNEL or KERNEL; memory records carry `pid`.
Record ActivityRecord(const Activity& activity, uint32_t kernel_kind, uint32_t pid, uint32_t api_version);

// A call of the runtime or the driver (kinds RUNTIME and DRIVER). `result` is the function's return value.
Record ApiRecord(const ApiCall& call, uint32_t pid, uint32_t tid, uint32_t result, uint32_t api_version);

Record ExternalCorrelationRecord(uint32_t external_kind, uint64_t external_id, uint32_t correlation);
Record DeviceRecord(const DeviceFacts& facts, uint32_t api_version);
Record ContextRecord(uint32_t context_uid, uint32_t device, uint32_t null_stream, uint32_t api_version);
Record StreamRecord(uint32_t context_uid, uint32_t stream_id, uint32_t priority, uint32_t flag,
                    uint32_t correlation);
// Time that CUPTI or the driver took on the thread `tid`. `what` is a CUpti_ActivityOverheadKind.
struct OverheadSpan {
  uint32_t what = 0;
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  uint32_t correlation = 0;
};
Record OverheadRecord(const OverheadSpan& span, uint32_t pid, uint32_t tid, uint32_t api_version);
// One of a kind that the node has nothing to say in, without a field but its kind.
Record EmptyRecord(uint32_t kind, uint32_t api_version);

struct GraphRun {
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  uint32_t device = 0;
  uint32_t context_uid = 0;
  uint32_t stream_id = 0;
  uint32_t graph = 0;
  uint32_t correlation = 0;
  uint32_t parts = 0;  // that have ended
};
Record GraphTraceRecord(const GraphRun& run, uint32_t api_version);

}  // namespace gpusim::cupti
