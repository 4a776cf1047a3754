// How well GPUs were, in words: why one is slower than its peers, and which errors it had.
//
// Example: rank 3's kernels take 1.78 times as long as the same kernels elsewhere. Its GPU ran at 1,110 MHz
// while it computed, the others' at 1,980, and the board kept it down for its temperature 31 % of that time:
// that explains it. Had it run at 1,975 MHz, its clock would explain nothing, and the sentence says so.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collector/report/gpu_health.h"

namespace gpuprobe::model {
class ProcessModel;
}

namespace gpuprobe::analysis {

GpuHealth GpuHealthOf(const model::ProcessModel& process, uint32_t device);
// Each value the median of those that are known.
GpuHealth UsualHealth(const std::vector<GpuHealth>& all);

// How a GPU's clock compares with the usual one, where both were observed for long enough.
enum class ClockComparison { kUnknown, kAsHigh, kLower };
ClockComparison CompareClocks(const GpuHealth& health, const GpuHealth& usual);
// The limit that keeps it down longer than the others; kUnknown: NVML names none.
ClockLimit LimitOf(const GpuHealth& health, const GpuHealth& usual);

// On a GPU whose kernels take `slowdown` times as long as the same ones on its peers ("ranks", "GPUs");
// empty: nothing is known.
std::string ClockText(const GpuHealth& health, const GpuHealth& usual, double slowdown, const char* peers);
// What to do about a lower clock. `place`: "GPU 3 on node7".
std::string ClockAdvice(const GpuHealth& health, const GpuHealth& usual, const std::string& place);

// Whether its link to the host is slower than the others'.
bool HasSlowerLink(const GpuHealth& health, const GpuHealth& usual);
std::string LinkText(const GpuHealth& health, const GpuHealth& usual);

// Who is to blame for an error that the driver reported, as NVIDIA's list of them sees it.
enum class XidBlame { kProgram, kMemory, kLink, kGpu };
struct XidMeaning {
  const char* text;  // "it has fallen off the bus"
  XidBlame blame;
};
// nullptr: the list here has no such number.
const XidMeaning* MeaningOfXid(uint32_t number);

}  // namespace gpuprobe::analysis
