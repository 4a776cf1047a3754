// Measures what launching kernels costs the program, and how much of that is CUPTI's recording.
//
// The guard times our own code. What CUPTI does inside and around a launch cannot be timed directly, but it
// shows when the same program launches for a moment without it. So launches are timed from entry to exit (one
// in kSampling), and if the program spends much of its time in them, we compare its pace once: kernels
// recorded, not recorded, in turns of a few milliseconds. The pace is the time between consecutive launches
// of a thread with nothing in between: the value that an eighth of the gaps stay below. A program that waits
// for its device at every launch pays nothing, and none shows; for one that waits now and then this is an
// upper bound. Kernels launched while recording is off have no GPU times; they are counted.
//
// This class has the rule and the arithmetic; probe_thread.cc does the switching. Thread: the one that holds
// the builder's lock, except PickLaunch. Allocation: none.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gpuprobe::injector {

class LaunchCost {
 public:
  static constexpr uint32_t kSampling = 16;  // one launch in this many is timed; during turns, every one
  // A launch that takes longer waits: for room in the stream's queue, or for its module to be loaded.
  static constexpr uint64_t kMaxLaunchNs = 20'000;
  static constexpr int kTurns = 6;  // of each kind
  static constexpr uint64_t kTurnNs = 2'000'000;

  struct Turn {
    uint64_t begin_ns;
    uint64_t end_ns;
    bool recorded;
    bool whole;  // false: something ended it early, and its launches are not compared
  };

  // Adds a timed kernel launch, which stands for `weight` launches. `since_last_ns`: time since that thread
  // entered its previous launch; 0: not known.
  void Took(uint64_t entered_ns, uint64_t duration_ns, uint64_t since_last_ns, uint64_t weight) noexcept;
  // Whether kernels are recorded from here on, outside of the turns.
  void SetRecorded(bool recorded) noexcept { recorded_ = recorded; }

  // Whether the comparison is worth its recording gap now: it was not made yet, and launches took a good part
  // of the last kLookNs. `now_ns`: CLOCK_REALTIME.
  bool WantsComparison(uint64_t now_ns) noexcept;
  // Sets the turns as they went, once; their launches are added afterwards (Took). `callbacks_ns`: how long
  // CUPTI takes to call us before and after a launch; 0: not known.
  void Compare(const Turn* turns, int count, uint64_t callbacks_ns) noexcept;

  // Time in all kernel launches, from entry to exit, each at most kMaxLaunchNs; estimated from the sample.
  uint64_t launch_ns() const noexcept { return launch_ns_; }
  uint64_t launches() const noexcept { return launches_; }                    // estimated, too
  uint64_t recorded_launches() const noexcept { return recorded_launches_; }  // of these
  struct Pace {
    uint64_t recorded_ns;
    uint64_t unrecorded_ns;
    uint64_t error_ns;  // of their difference: standard error, from the spread among turns
  };
  // False: not known.
  [[nodiscard]] bool Compared(Pace* pace) const noexcept;
  // What CUPTI has added to launches since the comparison; what came before it does not count against the
  // budget. 0: not known.
  uint64_t cupti_ns() const noexcept;
  uint64_t callbacks_ns() const noexcept { return callbacks_ns_; }
  // Launches whose records were given up for the comparison.
  uint64_t unrecorded_launches() const noexcept { return unrecorded_launches_; }

 private:
  static constexpr uint64_t kLookNs = 1'000'000'000;
  static constexpr uint64_t kWorthPercent = 5;  // of the time, in launches
  static constexpr size_t kKept = 256;          // of a turn
  static constexpr size_t kUndisturbed = 8;     // one gap in this many is shorter than the pace
  static constexpr uint32_t kFewest = 20;       // of a turn
  static constexpr int kFewestTurns = 4;        // of a kind
  static constexpr uint64_t kEdgeNs = 50'000;   // at a turn's edges, which belong to neither kind

  uint64_t launch_ns_ = 0;
  uint64_t launches_ = 0;
  uint64_t recorded_launches_ = 0;
  bool recorded_ = true;
  uint64_t looked_ns_ = 0;
  uint64_t launch_ns_then_ = 0;
  bool compared_ = false;
  Turn turns_[2 * kTurns] = {};
  int turn_count_ = 0;
  uint64_t last_turn_end_ns_ = 0;
  uint64_t callbacks_ns_ = 0;
  uint64_t launches_before_ = 0;  // the comparison; and of these, recorded
  uint64_t recorded_before_ = 0;
  uint64_t unrecorded_launches_ = 0;
  uint32_t gaps_[2 * kTurns][kKept] = {};
  uint32_t kept_[2 * kTurns] = {};
};

// The process's own; under the builder's lock.
extern LaunchCost launch_cost;

// Launches whose number, mixed, is not above this are timed. Set by the probe's thread; read by any.
extern std::atomic<uint32_t> timed_launches;
inline constexpr uint32_t kTimeSome = UINT32_MAX / LaunchCost::kSampling;
inline constexpr uint32_t kTimeAll = UINT32_MAX;

// 0: this launch is not timed; else how many it stands for. Correlation ids advance in step with a program's
// loops, so they are mixed first.
inline uint32_t PickLaunch(uint32_t correlation) noexcept {
  const uint32_t limit = timed_launches.load(std::memory_order_relaxed);
  if (correlation * 0x9E3779B1u > limit) [[likely]]
    return 0;
  return limit == kTimeAll ? 1 : LaunchCost::kSampling;
}

}  // namespace gpuprobe::injector
