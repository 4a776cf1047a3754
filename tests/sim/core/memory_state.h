// What memory.cc, pool.cc and shared_memory.cc share: every range and pool of the process, under one mutex.
#pragma once

#include <map>
#include <mutex>
#include <set>

#include "tests/sim/core/cupti_seam.h"
#include "tests/sim/core/memory.h"
#include "tests/sim/core/pool.h"

namespace gpusim {

struct MemoryState {
  std::mutex mutex;
  std::map<uint64_t, Range> ranges;  // by base
  std::map<int, uint64_t> used;      // by device
  uint64_t pinned = 0;               // page-locked memory of the host
  std::map<PoolPlace, CUmemoryPool> default_pool;
  std::map<PoolPlace, CUmemoryPool> current_pool;
  std::set<CUmemoryPool> pools;  // all that hold memory or can be allocated from
};

MemoryState& Memory();

// Pages of the host for so many bytes.
uint64_t MappedBytes(uint64_t bytes);

PoolState StateOfLocked(CUmemoryPool pool);
void FillPool(const PoolState& state, Activity* activity);
void WritePoolTruth(const PoolState& state, const char* event, uint64_t time_ns);
void GiveBackLocked(CUmemoryPool pool, uint64_t keep);
// Nobody works on it any more. What a pool gave goes back to the pool.
void DropLocked(const Range& range);

}  // namespace gpusim
