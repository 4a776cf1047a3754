// Physical memory and its mappings, as vmm.cc and multicast.cc share them.
//
// Physical memory that is not shareable is all in one anonymous file, so that one handle can be mapped at
// several addresses; a handle is an offset into it. A piece that can be exported has a file of its own, whose
// descriptor is what travels. A handle's memory is given back with its last reference; a mapping is a
// reference, and so is a binding to a multicast object, which has no memory itself, and a tile of a sparse
// array.
#pragma once

#include <sys/types.h>

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/sim/cuda/api.h"

namespace gpusim {

struct Multicast {
  struct Bound {
    CUmemGenericAllocationHandle memory = 0;
    size_t bytes = 0;
  };
  CUmulticastObjectProp properties{};
  std::vector<CUdevice> devices;
  std::map<std::pair<CUdevice, size_t>, Bound> bindings;  // by device and offset
};

struct Physical {
  int device = 0;
  bool in_host = false;
  bool imported = false;  // another process's: no ledger has it here
  size_t bytes = 0;
  int file = -1;  // its own; -1: the common one
  off_t offset = 0;
  int references = 1;
  CUmemAllocationProp properties{};
  std::shared_ptr<Multicast> multicast;
};

struct Mapping {
  CUmemGenericAllocationHandle handle = 0;
  size_t bytes = 0;
};

// A part of a sparse array: its level or mip tail, layer, offsets and extents, as they were given.
using Tile = std::pair<const void*, std::array<unsigned long long, 9>>;

struct VirtualMemory {
  std::mutex mutex;
  int file = -1;
  off_t file_bytes = 0;
  CUmemGenericAllocationHandle next_handle = 1;
  std::vector<CUmemGenericAllocationHandle> given_back;  // are given out again, the last one first
  std::map<CUmemGenericAllocationHandle, Physical> handles;
  std::map<CUdeviceptr, size_t> reservations;
  std::map<CUdeviceptr, Mapping> mappings;
  std::map<Tile, CUmemGenericAllocationHandle> tiles;
};

VirtualMemory& Virtual();
// The array goes, and what is mapped into it with it.
void DropTiles(const void* array);

CUmemGenericAllocationHandle NewHandle();
// The last one takes the memory along, and what is bound to a multicast object.
CUresult DropReference(CUmemGenericAllocationHandle handle);
// What is mapped at the address; null: nothing.
const Mapping* MappingAtLocked(CUdeviceptr address);

}  // namespace gpusim
