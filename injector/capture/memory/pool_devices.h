// Where the memory of a stream-ordered pool is: on which device, or in the host; or that it is managed.
//
// Separate because an allocation names its pool, which need not be one of the current context's device, and
// asking the driver inside a callback is out of the question. Thread: any. Allocation: none. Failure: of a
// pool for which there is no place, or that was made before the probe was there, nothing is known;
// LOSS_DEFINITIONS_FULL is counted.
#pragma once

#include <cstdint>

namespace gpuprobe::injector {

inline constexpr int kMaxPools = 1024;

enum class PoolMemory : int32_t { kUnknown, kDevice, kHost, kManaged };

struct PoolPlace {
  PoolMemory memory = PoolMemory::kUnknown;
  int32_t device = 0;  // -1: none in particular
};

// The pool exists there. A handle that is used again takes its new place.
void NotePool(const void* pool, PoolPlace place) noexcept;

PoolPlace PlaceOfPool(const void* pool) noexcept;

void ClearPoolDevicesForTest() noexcept;

}  // namespace gpuprobe::injector
