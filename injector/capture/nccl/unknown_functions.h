// NCCL functions that the program imports from NCCL or looks up there, but that are missing from our table of
// entry points.
//
// Their calls are not seen and cannot be counted, but their importers can. Thread: noted by the thread that
// scans relocations and by any thread inside dlsym, read by the batch builder. Allocation and locking: none;
// kUnknownFunctions places. Failure: functions beyond these, and those with too long names, are only counted,
// up to kOtherFunctions; at most eight importers are counted; two threads that note one name at the same
// moment may take two places.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuprobe::injector::nccl {

inline constexpr size_t kUnknownFunctions = 16;
inline constexpr size_t kOtherFunctions = 256;

// True for the name of an NCCL function that is not in the table and may move data. False for functions of
// others, and for those unrelated to the device's work (error texts, configuration, custom reductions).
bool IsUnknownFunction(const char* symbol) noexcept;

// `symbol` as an object imports it, or as it is looked up. Ignores what IsUnknownFunction denies.
void NoteUnknownFunction(const char* symbol) noexcept;

// The name in this place, empty behind the last one, and how many objects import it.
const char* UnknownFunction(size_t place, uint32_t* imports) noexcept;

// The number of further unknown functions.
uint32_t OtherUnknownFunctions() noexcept;

}  // namespace gpuprobe::injector::nccl
