// Memory that processes share: how one process exports a piece of its own, and how another one maps it.
//
// All memory of the node is private to the process until it is exported: then it moves, contents and all,
// into an unnamed file that anyone who may inspect the process can open. Memory mapped from such a file is
// real and visible to both; it belongs to its exporter, so no ledger counts it twice.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "tests/sim/core/memory.h"

namespace gpusim {

// What travels between processes, inside CUDA's opaque structures of 64 bytes.
struct SharedMemory {
  uint64_t mark = 0;  // kMark, or it is something else
  int32_t process = 0;
  int32_t file = -1;  // of that process
  int32_t device = 0;
  uint32_t reserved = 0;
  uint64_t bytes = 0;
  static constexpr uint64_t kMark = 0x6d656d2d6d697367;
};

// Shares the allocation of this class that begins at the address.
CUresult Share(MemoryClass memory, uint64_t address, SharedMemory* shared);
// Maps what another process shared. CUDA_ERROR_INVALID_VALUE if it is gone or never was.
CUresult Map(const SharedMemory& shared, MemoryClass memory, uint64_t* address);
// Maps a part of a file that somebody else made.
CUresult MapFile(int file, uint64_t offset, uint64_t bytes, int device, MemoryClass memory,
                 uint64_t* address);
// Removes only the mapping.
CUresult Unmap(MemoryClass memory, uint64_t address);

}  // namespace gpusim
