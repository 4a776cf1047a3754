// Known faults of CUPTI's releases, and what the probe therefore leaves out: one table, which the injector
// obeys and the report quotes. Plain constexpr data: no allocation, no dependency, usable inside the profiled
// process.
//
// Example: under CUPTI 13.0 (cuptiGetVersion 130000) the injector never forces a flush. It sends the bit of
// that precaution with its versions, and the report says what is not recorded because of it, and why.
#pragma once

#include <cstdint>
#include <string_view>

namespace gpuprobe::cupti {

// Bits; the numbers are on the wire (Versions.cupti_precautions).
enum Precaution : uint32_t {
  kNoForcedFlush = 1 << 0,
  kKernelsStayEnabled = 1 << 1,
  kGraphsNodeByNode = 1 << 2,
  kNoDeviceWaits = 1 << 3,
  kGraphWorkUnjoined = 1 << 4,
  kNamesUncertain = 1 << 5,
};

struct KnownDefect {
  uint32_t from;    // the first cuptiGetVersion that has it
  uint32_t before;  // the first one that does not
  Precaution precaution;
  std::string_view defect;    // what CUPTI does
  std::string_view left_out;  // what is not recorded because of it
  std::string_view source;
};

// cuptiGetVersion does not distinguish the updates of one 12.x release: what an update fixed is left out in
// all of that release.
inline constexpr KnownDefect kKnownDefects[] = {
    {130000, 130001, kNoForcedFlush, "cuptiActivityFlushAll may crash",
     "no flush was forced: kernels queued behind one that was unfinished at exit have no record",
     "CUPTI 13.0 Update 1, resolved issues"},
    {130000, 130001, kKernelsStayEnabled, "disabling CONCURRENT_KERNEL may deadlock",
     "kernels were recorded at every level of detail", "CUPTI 13.0 Update 1, resolved issues"},
    {130000, 130001, kNoDeviceWaits, "cudaDeviceSynchronize has no synchronisation record",
     "waits for the whole device are missing from the synchronisations",
     "CUPTI 13.0 Update 1, resolved issues"},
    {0, 24, kGraphsNodeByNode, "tracing CUDA graphs whole may crash",
     "CUDA graphs were recorded node by node, although GPUPROBE_KINDS asked for them whole",
     "CUPTI 12.4 Update 1, resolved issues; reports of crashes up to 12.5 Update 1"},
    {0, 130101, kGraphWorkUnjoined,
     "correlation ids of graph launches are wrong after another profiler's session",
     "work in CUDA graphs is not matched with the launches of these graphs",
     "CUPTI 13.1 Update 1, resolved issues"},
    {0, 130401, kNamesUncertain, "kernels may keep the names of modules that were unloaded",
     "the program loaded modules after it unloaded others: kernels in them may have an earlier kernel's name",
     "CUPTI 13.4 Update 1, resolved issues"},
};

constexpr uint32_t PrecautionsFor(uint32_t version) noexcept {
  uint32_t precautions = 0;
  for (const KnownDefect& defect : kKnownDefects) {
    if (version >= defect.from && version < defect.before) precautions |= defect.precaution;
  }
  return precautions;
}

}  // namespace gpuprobe::cupti
