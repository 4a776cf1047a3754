// Tracks what PyTorch's caching allocator has handed out and what it holds, by intercepting the function
// through which it reports to its own profiler.
//
// Driver calls show what PyTorch reserved; only its allocator knows what it allocated, and calls
// c10::reportMemoryUsageToProfiler on every malloc and free. Unlike the ledger's records, these are levels,
// of memory that the ledger already knows. Thread: Note... on the application's, under the allocator's lock:
// a handful of relaxed stores and an event; the rest on the probe's. Allocation: none. Failure: a build of
// PyTorch whose function has another signature is not seen; nothing breaks.
#pragma once

#include <cstdint>

namespace gpuprobe::injector::pytorch {

inline constexpr int kMaxDevices = 64;

// The functions under all the names that they have had: the totals were int64_t, then size_t, and at first
// absent.
enum class Function : int32_t {
  kUsage,
  kUsageSigned,
  kUsageWithoutTotals,
  kOutOfMemory,
  kOutOfMemorySigned,
  kCount,
};
inline constexpr int kFunctions = static_cast<int>(Function::kCount);
extern const char* const kSymbols[kFunctions];  // mangled

// Our function of the same signature, which records the call and then calls `real`. The first `real` passed
// is kept.
void* Replacement(Function function, void* real) noexcept;
// The function that ours calls, null if it is not in use.
void* RealFunction(Function function) noexcept;

// Redirects the allocator's calls to us where they are bound by a relocation that can be patched: in all
// loaded objects, or (PatchNewObjects) only if objects appeared since the last time. Works like
// nccl/patching.h. Returns how many slots were written.
uint32_t PatchLoadedObjects() noexcept;
void PatchNewObjects() noexcept;

// On the probe's thread: reports the levels of every device that changed since the last time.
void ReportLevels() noexcept;

}  // namespace gpuprobe::injector::pytorch
