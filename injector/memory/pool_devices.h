// Where the memory of a stream-ordered pool is: on which device, or in the host.
//
// Separate because an allocation names its pool, which need not be one of the current context's device, and
// asking the driver inside a callback is out of the question. Thread: any. Allocation: none. Failure: of a
// pool for which there is no place, or that was made before the probe was there, nothing is known;
// LOSS_DEFINITIONS_FULL is counted.
#pragma once

#include <cstdint>

namespace gpuprobe::injector {

inline constexpr int kMaxPools = 1024;
inline constexpr int32_t kPoolInHost = -1;
inline constexpr int32_t kPoolUnknown = -2;

// The pool exists on this device, or kPoolInHost. A handle that is used again takes its new device.
void NotePoolDevice(const void* pool, int32_t device) noexcept;

int32_t DeviceOfPool(const void* pool) noexcept;

void ClearPoolDevicesForTest() noexcept;

}  // namespace gpuprobe::injector
