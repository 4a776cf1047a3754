// Memory: high-water marks and what made them, what holds it, how it grows, and allocations that failed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collector/model/statistics/distribution.h"

namespace gpuprobe::analysis {

struct MemoryReport {
  uint64_t high_water_bytes = 0;
  uint64_t high_water_error_bytes = 0;  // how far it may be off: calls of several threads overlapped
  uint64_t high_water_at_ns = 0;        // 0: never
  uint64_t live_bytes = 0;
  uint64_t allocations = 0;
  uint64_t frees = 0;
  uint64_t small = 0;  // of the allocations, counted only (GPUPROBE_MIN_ALLOCATION_BYTES)
  uint64_t failed = 0;
  uint64_t largest_failed_bytes = 0;
  std::string high_water_range;
  std::string high_water_path;  // the ranges around it, too
  struct Held {
    uint64_t bytes = 0;
    std::string path;  // where it was allocated
  };
  std::vector<Held> largest;  // live at the mark, largest first
};

// How much of a device's memory is held across steps and how much lives within one (memory_trend.h).
struct MemoryTrend {
  uint64_t held_bytes = 0;                      // least level at the end: weights, optimizer, caches
  uint64_t within_step_bytes = 0;               // what a usual step adds to it: activations, gradients
  uint64_t peak_bytes = 0;                      // after the warm-up
  std::optional<double> growth_bytes_per_step;  // of memory held across steps; absent: it does not grow
  std::optional<double> steps_until_full;       // at that rate; absent without growth or capacity
};

// How high the level was in each step, and in the phases of the host's timeline.
struct MemoryBySteps {
  model::Summary step_peak_bytes;
  struct Phase {
    std::string name;
    uint64_t steps = 0;
    double mean_peak_bytes = 0;
    uint64_t peak_bytes = 0;
  };
  std::vector<Phase> phases;  // those that there were
};

// What the highest level within a step was made of, by when its allocations were made and freed, and what of
// one size is made in every step and never freed (lifetime_report.h).
struct MemoryLifetimesReport {
  std::string why_not;  // not empty: what hides lifetimes; the rest is empty then
  uint64_t steps = 0;   // whose allocations were classed: all but the last one
  uint64_t peak_step = 0;
  uint64_t peak_at_ns = 0;
  uint64_t peak_bytes = 0;
  struct Part {
    std::string lifetime;  // "before_steps", "from_forward", ...
    uint64_t bytes = 0;
  };
  std::vector<Part> parts;  // largest first; they add up to peak_bytes
  uint64_t from_backward_bytes_per_step = 0;
  // Categories of these parts, where there is evidence (memory_holdings.h).
  struct Holding {
    std::string what;      // "weights"; for the rest: "other, allocated before the first step"
    std::string lifetime;  // the part that it is, or is of
    uint64_t bytes = 0;
    std::string evidence;   // empty: none is needed
    bool inferred = false;  // else it was seen
  };
  std::vector<Holding> holdings;  // largest first; they add up to peak_bytes
  struct Growth {
    uint64_t size_bytes = 0;  // of each; 0: of many sizes
    std::string phase;        // in which they are made
    double allocations_per_step = 0;
    double bytes_per_step = 0;
  };
  std::vector<Growth> growth;  // largest first
  uint64_t unknown_frees = 0;
  uint64_t missed_frees = 0;
  uint64_t not_followed = 0;
};

// Memory that driver calls obtained on one device: without the context's, the modules' and the tools' own
// memory.
struct DeviceMemoryReport {
  uint32_t device = 0;
  std::optional<uint64_t> capacity_bytes;
  uint64_t live_bytes = 0;
  uint64_t high_water_bytes = 0;
  uint64_t high_water_error_bytes = 0;
  uint64_t high_water_at_ns = 0;
  std::map<std::string, uint64_t> at_high_water;  // bytes by kind
  std::optional<MemoryTrend> trend;
  std::optional<MemoryBySteps> by_step;
  std::optional<MemoryLifetimesReport> lifetimes;
};

// PyTorch's caching allocator on one device: the memory of tensors, and the memory it held for them.
struct PytorchMemoryReport {
  uint32_t device = 0;
  uint64_t allocated_bytes = 0;  // at the end
  uint64_t reserved_bytes = 0;
  uint64_t peak_allocated_bytes = 0;
  uint64_t peak_reserved_bytes = 0;
  std::optional<uint64_t> fragmentation_bytes;  // peak reserved - peak allocated: held, and never all in use
  uint64_t refusals = 0;
  uint64_t last_refused_bytes = 0;
  std::string last_refused_path;
  uint64_t last_refused_allocated_bytes = 0;  // when it was refused
  uint64_t last_refused_reserved_bytes = 0;
  std::optional<MemoryTrend> trend;      // of the tensors' bytes
  std::optional<MemoryBySteps> by_step;  // of the tensors' bytes
  std::optional<MemoryLifetimesReport> lifetimes;
};

// A stream-ordered memory pool, as the driver counts it.
struct PoolReport {
  uint32_t pool = 0;  // from 1
  uint32_t device = 0;
  uint64_t used_bytes = 0;      // by allocations, after the last operation on the pool
  uint64_t reserved_bytes = 0;  // held of the device for them, likewise
  uint64_t at_ns = 0;           // of that operation
  uint64_t used_high_water_bytes = 0;
  uint64_t used_high_water_at_ns = 0;
  uint64_t reserved_high_water_bytes = 0;
  uint64_t reserved_high_water_at_ns = 0;
  uint64_t release_threshold_bytes = 0;
  uint64_t trims = 0;
  bool destroyed = false;
};

// An allocation that failed: out of memory.
struct RefusalReport {
  uint64_t time_ns = 0;
  std::string memory;
  uint64_t asked_bytes = 0;
  uint32_t device = 0;
  std::string path;
  std::map<std::string, uint64_t> live;  // bytes by kind: the device's, and the process's pinned ones
  uint64_t device_live_bytes = 0;        // resident on the device: all but pinned and managed
  std::optional<uint64_t> capacity_bytes;
  std::optional<uint64_t> free_at_most_bytes;  // capacity - device_live_bytes
};

}  // namespace gpuprobe::analysis
