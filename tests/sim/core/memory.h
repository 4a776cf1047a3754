// Memory: device capacity, what every address is, pools, virtual memory, and the truth's alloc and free
// lines.
//
// All of it is host memory mapped without reserve, so that copies move real bytes and an untouched gigabyte
// costs nothing. Capacity is counted per device and process, in the bytes that were asked for. Own mutex;
// never taken while the schedule's is wanted.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "tests/sim/core/pool.h"

namespace gpusim {

// kImported: another process's or another API's, which cuMemFree unmaps; kOpened: by cuIpcOpenMemHandle. The
// truth knows nothing of either: they are no memory of this process.
enum class MemoryClass {
  kDevice,
  kPinned,
  kRegistered,
  kManaged,
  kPool,
  kArray,
  kVmm,
  kGraph,
  kImported,
  kOpened
};

struct Range {
  uint64_t base = 0;
  uint64_t bytes = 0;  // as asked for
  MemoryClass memory = MemoryClass::kDevice;
  int device = 0;
  CUcontext context = nullptr;
  CUmemoryPool pool = nullptr;
  unsigned host_flags = 0;
  int file = -1;            // through which other processes can map it
  bool given_back = false;  // to its pool, as soon as the stream comes to it: the truth has its end
};

// Allocates, accounts and reports. `host_flags` are those of cuMemHostAlloc. A refusal is reported with
// `asked_bytes`, what the program asked for before anything was padded; 0: `bytes`.
CUresult Allocate(MemoryClass memory, uint64_t bytes, unsigned host_flags, uint64_t* address,
                  uint64_t asked_bytes = 0);
CUresult AllocateFromPool(CUmemoryPool pool, uint64_t bytes, uint64_t* address);
// Frees what starts at `address`, if it is of this class.
CUresult Free(MemoryClass memory, uint64_t address);
// Reports the release now; the memory goes when `TakeBack` is called at the end of the stream's work.
CUresult BeginFreeToPool(uint64_t address);
void TakeBack(uint64_t address);
CUresult RegisterHost(void* address, uint64_t bytes, unsigned flags);
CUresult UnregisterHost(void* address);
void FreeMemoryOfContext(CUcontext context);

// What an address is. False for ordinary host memory.
bool FindRange(uint64_t address, Range* range);
// Marks a module's variable of the context.
uint64_t AllocateGlobal(int device, uint64_t bytes);

// Addresses of a graph's allocation: no memory of the device yet (graph_memory.h).
uint64_t MapGraphMemory(int device, uint64_t bytes);
bool ReserveDeviceMemory(int device, uint64_t bytes);
void ReturnDeviceMemory(int device, uint64_t bytes);

void MemoryInfo(int device, uint64_t* free_bytes, uint64_t* total_bytes);

// Device capacity for a VMM handle, and the truth's line about it. Memory of the host is pinned memory.
CUresult AccountVmm(int device, uint64_t bytes, uint64_t id, bool in_host);
void ReleaseVmm(int device, uint64_t bytes, uint64_t id, bool in_host);
// A mapping of a handle makes its addresses device memory.
void NoteMapping(uint64_t address, uint64_t bytes, int device);
void ForgetMapping(uint64_t address);

}  // namespace gpusim
