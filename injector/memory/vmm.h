// Physical memory of the virtual memory API: how long each handle's memory lives.
//
// Memory made by cuMemCreate is there until the handle was released as often as it was obtained (create,
// retain) and every mapping of it is gone. Separate from the callbacks (part.cc) because it is plain
// counting. Thread: any. Allocation: none: two fixed tables. Failure: what finds no place is not tracked: its
// end is not reported, and LOSS_DEFINITIONS_FULL is counted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuprobe::injector::vmm {

inline constexpr size_t kMaxHandles = 16384;
inline constexpr size_t kMaxMappings = 65536;

void Created(uint64_t handle) noexcept;
void Retained(uint64_t handle) noexcept;
// True when the memory is gone with it; the same for unmapping, once for each handle that ends, in `ended`
// (at most `capacity`).
bool Released(uint64_t handle) noexcept;
void Mapped(uint64_t address, uint64_t bytes, uint64_t handle) noexcept;
size_t Unmapped(uint64_t address, uint64_t bytes, uint64_t* ended, size_t capacity) noexcept;

void ClearForTest() noexcept;

}  // namespace gpuprobe::injector::vmm
