// Maps each CUDA context to its device.
//
// Callbacks name a context, records need a device, and the driver must not be asked inside a callback.
// Thread: any. Allocation: none. Failure: beyond kMaxContexts, or for a context that was never noted, the
// device is -1.
#pragma once

#include <cstdint>

namespace gpuprobe::injector {

inline constexpr int kMaxContexts = 256;

// The context exists on this device. Contexts are noted when they are created; an address that is used again
// takes its new device.
void NoteContextDevice(const void* context, int32_t device) noexcept;

int32_t DeviceOfContext(const void* context) noexcept;

}  // namespace gpuprobe::injector
