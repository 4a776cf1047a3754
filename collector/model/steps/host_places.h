// What a process's host did while a device was idle for it, added up over steps.
//
// Example: 40 steps, in each of which the device waits 117 ms. Samples say that the host is in cuMemFree,
// called from empty_cache, called from train.py:14, for 109 ms of that: one place with 4.36 s, and 0.32 s
// that are not sampled. A place is a moment of a thread as the reader of a report tells moments apart:
// Python's function and line, without the rest of its stack. Bounded: of more than kMost places the smaller
// half becomes `other`.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "collector/model/state/members.h"

namespace gpuprobe::model {

// Why a device was idle until the host launched (step_timeline.h). Two are none: kBlocked, the host was in a
// synchronising call, and kBetween, between this step and the one before (an evaluation), while the device
// worked or not.
enum class IdleCause : uint8_t { kHostBound, kInput, kSync, kMemory, kPause, kBlocked, kBetween };
inline constexpr size_t kIdleCauses = 7;

// What code does, as far as its functions' names show.
enum class HostTask : uint8_t { kUnknown, kLoads, kSaves, kCompiles, kLogs, kEmptiesCache, kOptimizes };

// Of Python's code. Texts are StringDefs.
struct HostLine {
  uint32_t function = 0;  // 0: none is known
  uint32_t file = 0;
  uint32_t line = 0;

  // NOLINTNEXTLINE(modernize-use-nullptr): a 0 that is not written
  auto operator<=>(const HostLine&) const = default;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, function, file, line);
  }
};

struct HostPlace {
  enum class Kind : uint8_t {
    kCode,
    kNoCpu,       // it could run, and had no processor
    kMemoryCall,  // in a call that allocates or releases memory
    kLockHeld,    // another thread is there, and has the interpreter's lock, for which this one waits; the
                  // thread may not have been seen
  };
  Kind kind = Kind::kCode;
  HostTask task = HostTask::kUnknown;
  uint32_t call = 0;         // StringDef: a CUDA or NCCL function; 0: none
  int32_t system_call = -1;  // its number; -1: none
  uint32_t file = 0;         // StringDef: what it is about; 0: none
  HostLine at = {};          // the innermost function
  HostLine own = {};         // the innermost of the program's own

  // That a thread sleeps, or runs, says nothing of what for.
  bool IsNamed() const { return at.function != 0 || call != 0 || file != 0 || kind == Kind::kLockHeld; }

  // NOLINTNEXTLINE(modernize-use-nullptr): the same
  auto operator<=>(const HostPlace&) const = default;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, kind, task, call, system_call, file, at, own);
    archive.Require(kind <= Kind::kLockHeld && task <= HostTask::kOptimizes);
  }
};

struct HostTime {
  uint64_t ns = 0;            // that samples stand for, or recorded calls take
  uint64_t measured_ns = 0;   // of this, in calls that are recorded from entry to exit
  uint64_t samples = 0;       // taken in this time
  uint64_t code_samples = 0;  // of these, in no such call
  uint64_t weight = 0;        // of the latter, in kLook

  static constexpr uint64_t kLook = 1'000'000;

  void Add(const HostTime& more) {
    ns += more.ns;
    measured_ns += more.measured_ns;
    samples += more.samples;
    code_samples += more.code_samples;
    weight += more.weight;
  }
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, ns, measured_ns, samples, code_samples, weight);
    archive.Require(measured_ns <= ns && code_samples <= samples);
  }
};

// The part of a step's idle time that one place explains.
struct HostShare {
  IdleCause cause = IdleCause::kHostBound;
  HostPlace place;
  HostTime time;

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, cause, place, time);
    archive.Require(static_cast<size_t>(cause) < kIdleCauses);
  }
};

class HostPlaces {
 public:
  static constexpr size_t kMost = 512;
  static constexpr size_t kLongest = 16;

  struct Step {
    uint64_t index = 0;
    HostTime time;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, index, time);
    }
  };
  struct Total {
    HostTime time;
    uint64_t steps = 0;         // in how many
    std::vector<Step> longest;  // those with most of it, longest first

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, time, steps, longest);
      archive.Require(longest.size() <= kLongest);
    }
  };
  using Key = std::pair<IdleCause, HostPlace>;

  // `step`: its index. At most one share for each cause and place.
  void Add(uint64_t step, std::span<const HostShare> shares);
  const std::map<Key, Total>& places() const { return places_; }
  // Of each cause, what became of places beyond kMost.
  const HostTime& other(IdleCause cause) const { return other_[static_cast<size_t>(cause)]; }

 private:
  void Shrink();

  std::map<Key, Total> places_;
  std::array<HostTime, kIdleCauses> other_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, places_, other_);
    archive.Require(places_.size() <= kMost);
    for (const auto& [key, total] : places_) archive.Require(static_cast<size_t>(key.first) < kIdleCauses);
  }
};

}  // namespace gpuprobe::model
