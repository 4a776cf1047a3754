// Memory: high-water marks and what made them, what holds it, how it grows, and allocations that failed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collector/model/memory/memory_lifetimes.h"
#include "collector/model/statistics/distribution.h"
#include "collector/model/steps/step_record.h"
#include "collector/report/words.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::report {

template <>
struct EnumWords<v1::MemoryKind> {
  static Words Of() {
    Words words = WireWords(*v1::MemoryKind_descriptor());
    words[v1::MEMORY_KIND_PINNED].second = "host_pinned";
    return words;
  }
};

}  // namespace gpuprobe::report

namespace gpuprobe::analysis {

struct MemoryReport {
  uint64_t high_water_bytes = 0;
  uint64_t high_water_error_bytes = 0;
  uint64_t high_water_at_ns = 0;
  uint64_t live_bytes = 0;
  uint64_t allocations = 0;
  uint64_t frees = 0;
  uint64_t small = 0;
  uint64_t failed = 0;
  uint64_t largest_failed_bytes = 0;
  std::string high_water_range;
  std::string high_water_path;
  struct Held {
    uint64_t bytes = 0;
    std::string path;

    static constexpr void Declare(auto& fields) {
      fields("bytes", &Held::bytes, "its size");
      fields("path", &Held::path, "the ranges in which it was made").NullIfZero();
    }
  };
  std::vector<Held> largest;

  static constexpr void Declare(auto& fields) {
    fields("high_water_bytes", &MemoryReport::high_water_bytes, "the highest level").InSummary();
    fields("high_water_error_bytes", &MemoryReport::high_water_error_bytes,
           "how far the mark may be off either way, because calls of several threads overlapped; 0 if none "
           "did. With `GPUPROBE_MIN_ALLOCATION_BYTES` it may be larger than it would be without");
    fields("high_water_at_ns", &MemoryReport::high_water_at_ns, "when; `null`: never").NullIfZero();
    fields("high_water_range", &MemoryReport::high_water_range, "the innermost range that was open then")
        .NullIfZero();
    fields("high_water_path", &MemoryReport::high_water_path,
           "with those around it, joined by `/` (`?`: name not known)")
        .NullIfZero();
    fields("largest", &MemoryReport::largest,
           "the five largest allocations that were live then, largest first");
    fields("live_bytes", &MemoryReport::live_bytes, "at the end");
    fields("allocations", &MemoryReport::allocations, "calls");
    fields("frees", &MemoryReport::frees, "calls");
    fields(
        "small", &MemoryReport::small,
        "allocations below `GPUPROBE_MIN_ALLOCATION_BYTES`; they are in all numbers here and have no record");
    fields("failed", &MemoryReport::failed, "allocations that were refused");
    fields("largest_failed_bytes", &MemoryReport::largest_failed_bytes, "the largest of these");
  }
};

// How much of a device's memory is held across steps and how much lives within one (memory_trend.h).
struct MemoryTrend {
  uint64_t held_bytes = 0;
  uint64_t within_step_bytes = 0;
  uint64_t peak_bytes = 0;
  std::optional<double> growth_bytes_per_step;
  std::optional<double> steps_until_full;

  static constexpr void Declare(auto& fields) {
    fields("held_bytes", &MemoryTrend::held_bytes,
           "the lowest level at the end (weights, optimizer, caches)");
    fields("within_step_bytes", &MemoryTrend::within_step_bytes,
           "what a usual step adds (activations, gradients)");
    fields("peak_bytes", &MemoryTrend::peak_bytes, "the highest level after the warm-up");
    fields("growth_bytes_per_step", &MemoryTrend::growth_bytes_per_step,
           "growth of what is held across steps; `null` if it does not grow");
    fields("steps_until_full", &MemoryTrend::steps_until_full,
           "at that rate; `null` without growth, or if the capacity is not known");
  }
};

// How high the level was in each step, and in the phases of the host's timeline.
struct MemoryBySteps {
  model::Summary step_peak_bytes;
  struct Phase {
    model::StepPhase name = model::StepPhase::kOther;
    uint64_t steps = 0;
    double mean_peak_bytes = 0;
    uint64_t peak_bytes = 0;

    static constexpr void Declare(auto& fields) {
      fields("name", &Phase::name, "of the phase");
      fields("steps", &Phase::steps, "steps that had it");
      fields("mean_peak_bytes", &Phase::mean_peak_bytes, "mean of the highest levels in it");
      fields("peak_bytes", &Phase::peak_bytes, "the highest of them");
    }
  };
  std::vector<Phase> phases;

  static constexpr void Declare(auto& fields) {
    fields("step_peak_bytes", &MemoryBySteps::step_peak_bytes, "the highest level in each step");
    fields("phases", &MemoryBySteps::phases,
           "the highest level in each phase of the host's timeline. A phase begins with the launch of its "
           "first kernel, so what the phase before left counts until it is given back");
  }
};

// What the highest level within a step was made of, by when its allocations were made and freed, and what of
// one size is made in every step and never freed (lifetime_report.h).
struct MemoryLifetimesReport {
  std::string why_not;
  uint64_t steps = 0;
  uint64_t peak_step = 0;
  uint64_t peak_at_ns = 0;
  uint64_t peak_bytes = 0;
  struct Part {
    model::Lifetime lifetime = model::Lifetime::kOther;
    uint64_t bytes = 0;

    static constexpr void Declare(auto& fields) {
      fields("lifetime", &Part::lifetime, "when it was allocated, and freed (below)");
      fields("bytes", &Part::bytes, "how much of it there was");
    }
  };
  std::vector<Part> parts;
  uint64_t from_backward_bytes_per_step = 0;
  // memory_holdings.h
  struct Holding {
    std::string what;
    model::Lifetime lifetime = model::Lifetime::kOther;
    uint64_t bytes = 0;
    std::string evidence;
    bool inferred = false;

    static constexpr void Declare(auto& fields) {
      fields("what", &Holding::what, "`weights`, `gradients` ...; `other, ...` for the rest");
      fields("lifetime", &Holding::lifetime, "the part that it is, or is of");
      fields("bytes", &Holding::bytes, "its size");
      fields("evidence", &Holding::evidence, "the fact that agrees with the lifetime; `null`: none is needed")
          .NullIfZero();
      fields("inferred", &Holding::inferred, "true: it follows from that fact; false: it was seen");
    }
  };
  std::vector<Holding> holdings;
  struct Growth {
    uint64_t size_bytes = 0;
    std::string phase;
    double allocations_per_step = 0;
    double bytes_per_step = 0;

    static constexpr void Declare(auto& fields) {
      fields("size_bytes", &Growth::size_bytes, "of each; `null`: many sizes").NullIfZero();
      fields("phase", &Growth::phase, "in which they are allocated");
      fields("allocations_per_step", &Growth::allocations_per_step, "how many");
      fields("bytes_per_step", &Growth::bytes_per_step, "how much");
    }
  };
  std::vector<Growth> growth;
  uint64_t unknown_frees = 0;
  uint64_t missed_frees = 0;
  uint64_t not_followed = 0;

  static constexpr void Declare(auto& fields) {
    using L = MemoryLifetimesReport;
    fields("why_not", &L::why_not,
           "why lifetimes cannot be seen: a caching allocator keeps what the driver gave it. The other "
           "fields say nothing then. `null`: they can")
        .NullIfZero();
    fields("steps", &L::steps, "steps that were classed: all but the last");
    fields("peak_step", &L::peak_step, "the step with the highest level");
    fields("peak_at_ns", &L::peak_at_ns, "when it was reached");
    fields("peak_bytes", &L::peak_bytes, "the level");
    fields("parts", &L::parts, "what it was made of, by lifetime, largest first; adds up to `peak_bytes`");
    fields("from_backward_bytes_per_step", &L::from_backward_bytes_per_step,
           "allocated in backward of a usual step and freed later");
    fields("holdings", &L::holdings,
           "what the parts are, where a second fact agrees with the lifetime, largest first; adds up to "
           "`peak_bytes`");
    fields("growth", &L::growth,
           "what of one size is allocated in one phase of at least every other step after the first three, "
           "and never freed; largest first");
    fields("unknown_frees", &L::unknown_frees, "frees of memory whose allocation was not seen");
    fields("missed_frees", &L::missed_frees,
           "addresses that were handed out again although no free was seen");
    fields("not_followed", &L::not_followed, "allocations that were not followed, for lack of room");
  }
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
  report::WordMap<v1::MemoryKind, uint64_t> at_high_water;
  std::optional<MemoryTrend> trend;
  std::optional<MemoryBySteps> by_step;
  std::optional<MemoryLifetimesReport> lifetimes;

  static constexpr void Declare(auto& fields) {
    using D = DeviceMemoryReport;
    fields("device", &D::device, "ordinal of the device");
    fields.Computed(
        "source", [](const D&) -> std::string { return "driver_allocations"; },
        "`driver_allocations`: what driver calls obtained. The context, loaded modules and CUPTI's buffers "
        "are not in it, so `nvidia-smi` shows more. Managed memory may be on the host");
    fields("capacity_bytes", &D::capacity_bytes, "memory of the device; `null`: not known");
    fields("high_water_bytes", &D::high_water_bytes,
           "the highest level of device, pool, array, vmm and managed memory together");
    fields("high_water_error_bytes", &D::high_water_error_bytes, "as in `memory`");
    fields("high_water_at_ns", &D::high_water_at_ns, "when; `null`: never").NullIfZero();
    fields("at_high_water", &D::at_high_water, "what it consisted of: bytes by kind");
    fields("by_step", &D::by_step, "the levels in steps and phases, over all steps; `null` without any");
    fields("lifetimes", &D::lifetimes,
           "what the highest level within a step was made of; `null` without two steps");
    fields("trend", &D::trend,
           "what is held and how it grows, over the steps after the warm-up; `null` with fewer than 10");
    fields("live_bytes", &D::live_bytes, "at the end");
  }
};

// PyTorch's caching allocator on one device: the memory of tensors, and the memory it held for them.
struct PytorchMemoryReport {
  uint32_t device = 0;
  uint64_t allocated_bytes = 0;
  uint64_t reserved_bytes = 0;
  uint64_t peak_allocated_bytes = 0;
  uint64_t peak_reserved_bytes = 0;
  std::optional<uint64_t> fragmentation_bytes;
  uint64_t refusals = 0;
  uint64_t last_refused_bytes = 0;
  std::string last_refused_path;
  uint64_t last_refused_allocated_bytes = 0;
  uint64_t last_refused_reserved_bytes = 0;
  std::optional<MemoryTrend> trend;
  std::optional<MemoryBySteps> by_step;
  std::optional<MemoryLifetimesReport> lifetimes;

  static constexpr void Declare(auto& fields) {
    using P = PytorchMemoryReport;
    constexpr auto kRefused = [](const auto& p) { return p.refusals > 0; };
    fields("device", &P::device, "ordinal of the device");
    fields("allocated_bytes", &P::allocated_bytes, "what tensors had at the end");
    fields("reserved_bytes", &P::reserved_bytes, "what it held for them at the end");
    fields("peak_allocated_bytes", &P::peak_allocated_bytes, "what tensors had at most (exact)");
    fields("peak_reserved_bytes", &P::peak_reserved_bytes, "what it held at most (exact)");
    fields("fragmentation_bytes", &P::fragmentation_bytes,
           "peak reserved minus peak allocated; `null` if this version does not tell what it reserved");
    fields("refusals", &P::refusals, "allocations that it refused");
    fields("last_refused_bytes", &P::last_refused_bytes, "the last of them; `null` without any")
        .NullUnless(kRefused);
    fields("last_refused_path", &P::last_refused_path, "the ranges in which it was asked for").NullIfZero();
    fields("last_refused_allocated_bytes", &P::last_refused_allocated_bytes, "what tensors had then")
        .NullUnless(kRefused);
    fields("last_refused_reserved_bytes", &P::last_refused_reserved_bytes, "what it held then")
        .NullUnless(kRefused);
    fields("by_step", &P::by_step, "levels of the tensors' bytes in steps and phases; `null` without any");
    fields("lifetimes", &P::lifetimes,
           "what their highest level within a step was made of; `null` without two steps. It covers what the "
           "allocator handed out and took back, one by one");
    fields("trend", &P::trend,
           "what tensors hold and how it grows; `null` with fewer than 10 steps after the warm-up");
  }
};

// A stream-ordered memory pool, as the driver counts it.
struct PoolReport {
  uint32_t pool = 0;
  uint32_t device = 0;
  uint64_t used_bytes = 0;
  uint64_t reserved_bytes = 0;
  uint64_t at_ns = 0;
  uint64_t used_high_water_bytes = 0;
  uint64_t used_high_water_at_ns = 0;
  uint64_t reserved_high_water_bytes = 0;
  uint64_t reserved_high_water_at_ns = 0;
  uint64_t release_threshold_bytes = 0;
  uint64_t trims = 0;
  bool destroyed = false;

  static constexpr void Declare(auto& fields) {
    using P = PoolReport;
    fields("pool", &P::pool, "its number, from 1");
    fields("device", &P::device, "ordinal of the device");
    fields("used_bytes", &P::used_bytes,
           "what allocations take, rounded as the driver does it, after the pool's last operation; memory "
           "that it gives back while the program waits shows with its next operation");
    fields("reserved_bytes", &P::reserved_bytes, "what the pool holds of the device then");
    fields("at_ns", &P::at_ns, "the time of that operation");
    fields("used_high_water_bytes", &P::used_high_water_bytes, "the most that allocations took");
    fields("used_high_water_at_ns", &P::used_high_water_at_ns, "when; `null`: never").NullIfZero();
    fields("reserved_high_water_bytes", &P::reserved_high_water_bytes, "the most that it held");
    fields("reserved_high_water_at_ns", &P::reserved_high_water_at_ns, "when; `null`: never").NullIfZero();
    fields("release_threshold_bytes", &P::release_threshold_bytes,
           "what the pool keeps when the program synchronises");
    fields("trims", &P::trims, "calls that trimmed it");
    fields("destroyed", &P::destroyed, "whether the program destroyed it");
  }
};

// An allocation that failed: out of memory.
struct RefusalReport {
  uint64_t time_ns = 0;
  v1::MemoryKind memory = v1::MEMORY_KIND_UNKNOWN;
  uint64_t asked_bytes = 0;
  uint32_t device = 0;
  std::string path;
  report::WordMap<v1::MemoryKind, uint64_t> live;
  uint64_t device_live_bytes = 0;
  std::optional<uint64_t> capacity_bytes;
  std::optional<uint64_t> free_at_most_bytes;

  static constexpr void Declare(auto& fields) {
    using R = RefusalReport;
    fields("time_ns", &R::time_ns, "when (absolute)");
    fields("memory", &R::memory, "kind of memory");
    fields("asked_bytes", &R::asked_bytes, "what was asked for");
    fields("device", &R::device, "ordinal of the device");
    fields("path", &R::path, "the ranges in which it was asked for").NullIfZero();
    fields("live_bytes", &R::live,
           "what the process had then: bytes by kind, of this device and of pinned memory");
    fields("device_live_bytes", &R::device_live_bytes, "the same without managed and pinned memory");
    fields("capacity_bytes", &R::capacity_bytes,
           "memory of the device; `null` for page-locked memory, which belongs to the host");
    fields("free_at_most_bytes", &R::free_at_most_bytes, "`capacity_bytes` minus `device_live_bytes`");
  }
};

}  // namespace gpuprobe::analysis
