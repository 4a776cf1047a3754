// The addresses of NCCL's own functions: one column for each way in which a call reaches us.
//
// Wrappers, hooks and the patcher all need the address behind a name, but differ in how they got it. Thread:
// any. Allocation: none of ours; the first call of each exported wrapper asks the dynamic linker once.
// Failure: null, and the wrapper returns ncclSystemError.
#pragma once

#include <atomic>
#include <cstddef>

#include "injector/capture/nccl/entry_points.h"

namespace gpuprobe::injector::nccl {

// Ways in. The exported nccl* and pnccl* symbols are apart because a program may bring wrappers of its own
// for one of them.
inline constexpr int kExportedWay = 0;
inline constexpr int kExportedProfilingWay = 1;
inline constexpr int kFirstProviderWay = 2;  // patched relocations, one way for each copy of NCCL
inline constexpr int kMaxProviders = 4;
inline constexpr int kWays = kFirstProviderWay + kMaxProviders;

extern std::atomic<void*> real_functions[kWays][kEntryPoints];

// Asks the dynamic linker what comes behind our exported symbol, else finds the first object that has it;
// remembers the answer.
void* ResolveExported(int way, EntryPoint entry_point) noexcept;

inline void* RealAddress(int way, EntryPoint entry_point) noexcept {
  void* known = real_functions[way][static_cast<size_t>(entry_point)].load(std::memory_order_relaxed);
  if (known != nullptr || way >= kFirstProviderWay) return known;
  return ResolveExported(way, entry_point);
}

template <typename Function>
Function RealFunction(int way, EntryPoint entry_point) noexcept {
  return reinterpret_cast<Function>(RealAddress(way, entry_point));
}

}  // namespace gpuprobe::injector::nccl
