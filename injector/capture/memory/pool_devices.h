// Maps each stream-ordered pool to the location of its memory: a device, the host, or managed.
//
// An allocation names its pool, which need not belong to the current context's device, and the driver must
// not be asked inside a callback. Thread: any. Allocation: none. Failure: a pool for which there is no place,
// or that was made before the probe was there, is unknown; LOSS_DEFINITIONS_FULL is counted.
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

}  // namespace gpuprobe::injector
