// The truth log: what the node scheduled, one JSON object a line in GPUSIM_TRUTH/<pid>.jsonl.
//
// Independent of CUPTI's records on purpose: a report is checked against this file, so nothing that a
// profiler touches may shape it. A line is written with one write() when its work has ended, so that the file
// is complete whatever way the process goes.
#pragma once

#include <cstdint>
#include <string>

#include "tests/sim/core/cupti_seam.h"
#include "tests/sim/core/nccl_seam.h"

namespace gpusim {

bool TruthWanted();

// Appends the line of a finished activity (kernel, memcpy, memset, sync) to `lines`. kMemory has
// TruthOfMemory.
void AppendTruth(const Activity& activity, std::string* lines);
void AppendTruth(const Activity& kernel, const CollectiveTruth& call, std::string* lines);
// `memory` is "device", "pinned", "managed", "pool", "array" or "vmm".
void AppendMemoryTruth(bool is_free, const char* memory, uint64_t bytes, uint64_t address, uint64_t time_ns,
                       uint32_t device, uint32_t correlation, bool failed, std::string* lines);

// A pool as it is after `event`.
void AppendPoolTruth(const char* event, int device, uint64_t pool, uint64_t used_bytes,
                     uint64_t reserved_bytes, uint64_t time_ns, std::string* lines);

// A call of a driver function that may be slow. From `start_ns` to `end_ns` it did its work; with a
// profiler's callbacks it took from `began_ns` to `left_ns`. Only calls of kLoggedCallNs or more are logged.
struct DriverCallTruth {
  const char* function = nullptr;
  uint64_t began_ns = 0;
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  uint64_t left_ns = 0;
  int result = 0;
};
constexpr uint64_t kLoggedCallNs = 15'000;
bool MayBeSlow(const char* function);
void AppendDriverCallTruth(const DriverCallTruth& call, std::string* lines);

// A function of the driver's or the runtime's API.
void AppendCallTruth(const char* name, std::string* lines);

// Writes whole lines. A file that cannot be opened or written is said once on stderr.
void WriteTruth(const std::string& lines);

}  // namespace gpusim
