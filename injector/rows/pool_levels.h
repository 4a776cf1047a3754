// Levels of the stream-ordered memory pools, from CUPTI's records, until a batch takes them.
//
// Allocations are what the program asked for; a pool holds more than it gives out, and only the driver knows
// how much. CUPTI reports it with each allocation, release and trim (we do not call the driver's own
// cuMemPoolGetAttribute: on the program's threads it would run inside a callback, on ours it could meet a
// pool that the program destroys at that moment). One row per pool and batch, however often it was used: the
// peaks are exact, the levels those of the last operation. Records come in any order; the latest time wins.
// Thread: the one that holds the builder's lock. Allocation: none. Failure: a pool for which there is no
// place is counted as LOSS_DEFINITIONS_FULL, once.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuprobe::injector {

enum class PoolOperation : uint8_t { kUse, kCreate, kDestroy, kTrim };

// One CUPTI record.
struct PoolSample {
  PoolOperation operation;
  uint64_t address;  // which pool
  uint64_t time_ns;
  uint64_t used_bytes;
  uint64_t reserved_bytes;
  uint64_t release_threshold_bytes;
  uint32_t device;
};

// What is reported about a pool.
struct PoolLevel {
  uint64_t address;
  uint64_t since_ns;  // when it was made, 0: before the first report
  uint64_t time_ns;
  uint64_t used_bytes;
  uint64_t reserved_bytes;
  uint64_t peak_used_bytes;
  uint64_t peak_used_ns;
  uint64_t peak_reserved_bytes;
  uint64_t peak_reserved_ns;
  uint64_t release_threshold_bytes;
  uint64_t trims;
  uint32_t pool;  // from 1; 0: a free place
  uint32_t device;
  bool destroyed;
  bool changed;  // since it was last reported
};

class PoolLevels {
 public:
  static constexpr size_t kMaxPools = 256;  // that are alive

  void Note(const PoolSample& sample) noexcept;

  uint32_t changed() const noexcept { return changed_; }

  // Calls put(level) for each pool that changed.
  template <typename Put>
  void TakeChanged(Put put) noexcept {
    for (size_t i = 0; changed_ != 0 && i < count_; ++i) {
      if (!pools_[i].changed) continue;
      pools_[i].changed = false;
      --changed_;
      put(pools_[i]);
    }
  }
  // The levels taken were not delivered: reports everything again.
  void TellAgain() noexcept;

 private:
  PoolLevel* PoolFor(const PoolSample& sample) noexcept;

  PoolLevel pools_[kMaxPools] = {};
  size_t count_ = 0;      // places that were ever used
  uint32_t changed_ = 0;  // pools
  uint32_t next_pool_ = 1;
  bool full_ = false;
};

}  // namespace gpuprobe::injector
