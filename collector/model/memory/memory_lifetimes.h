// Classes allocations by lifetime: the step and phase in which each one was made, and those in which it was
// freed.
//
// The ledger's levels say how much was in use, but not for what. A driver or an allocator sees only one
// difference between weights, optimizer states, gradients and activations: when they are allocated and freed.
// A step's allocations are classed when the step after it is over: those not freed by then are kept. Memory:
// the events since the last but one step, kMaxWaiting; kMaxLive live allocations; kMaxSizes sizes. Not
// thread-safe: one owner.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "collector/model/memory/level_peaks.h"
#include "collector/model/state/members.h"

namespace gpuprobe::model {

enum class Lifetime : uint8_t {
  kBeforeSteps,         // made before the first step
  kFirstSteps,          // made in one of the first steps, and kept
  kFirstStepsBackward,  // made in backward of one of the first steps, and kept
  kFromForward,         // made in forward; freed in a later phase, or by the end of the next step
  kFromBackward,        // made in backward; freed in a later phase, or by the end of the next step
  kWithinPhase,         // made and freed in one phase
  kKept,                // made in a later step, and not freed by the end of the one after it
  kOther,               // made elsewhere in a step and freed by the end of the next one, or not followed
  kNccl,                // made by NCCL for itself, whenever that was
  kWorkspace,           // cuBLAS's, by its size and when it was made
};
inline constexpr size_t kLifetimes = 10;

class MemoryLifetimes {
 public:
  static constexpr size_t kMaxWaiting = size_t{1} << 19;
  static constexpr size_t kMaxLive = size_t{1} << 19;
  static constexpr size_t kMaxSizes = 256;
  static constexpr uint64_t kFirst = 3;  // steps in which permanent allocations are made

  using BytesByLifetime = std::array<uint64_t, kLifetimes>;
  // The highest level in a step.
  struct Peak {
    uint64_t step = 0;
    uint64_t time_ns = 0;
    uint64_t bytes = 0;
    BytesByLifetime parts{};

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, step, time_ns, bytes, parts);
    }
  };
  // Kept allocations of one size, made in one phase after the first steps.
  struct Kept {
    uint64_t allocations = 0;  // kept, and not freed since
    uint64_t bytes = 0;        // their sum
    uint64_t steps = 0;        // in which some were made
    uint64_t last_step = 0;    // the last of these

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, allocations, bytes, steps, last_step);
    }
  };
  // Bytes; where there are too many sizes, the next power of two above. 0: more than there is room for.
  using Size = std::pair<uint64_t, StepPhase>;

  // An allocation of that many bytes, or, if `release`, the end of one. Slight disorder does no harm.
  void Add(uint64_t time_ns, uint64_t address, uint64_t bytes, bool release, bool by_nccl = false);
  // Everything that happened in the step has been added. In order.
  void EndStep(const HostPhases& step);

  // Steps whose allocations are classed, and the ones among these after the first steps.
  uint64_t steps() const { return classed_; }
  uint64_t later_steps() const { return classed_ > kFirst ? classed_ - kFirst : 0; }
  const Peak& peak() const { return peak_; }
  const std::map<Size, Kept>& kept() const { return kept_; }
  // Allocated in backward of a usual step and freed later, over the whole step; 0: no step after the first
  // ones.
  uint64_t from_backward_bytes_per_step() const {
    return later_steps() > 0 ? from_backward_bytes_ / later_steps() : 0;
  }
  uint64_t allocations() const { return allocations_; }      // that were made in steps
  uint64_t unknown_frees() const { return unknown_frees_; }  // of allocations that were not seen
  // Allocations at an address that was still live: the earlier one's end was not seen.
  uint64_t missed_frees() const { return missed_frees_; }
  uint64_t not_followed() const { return not_followed_; }  // no room for them
  // Peaks of live memory, in each classed step and its phases.
  const LevelPeaks& step_peaks() const { return step_peaks_; }

 private:
  struct Event {
    uint64_t time_ns = 0;
    uint64_t address = 0;
    uint64_t bytes = 0;
    uint64_t freed_ns = UINT64_MAX;  // of an allocation
    bool release = false;
    bool by_nccl = false;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, time_ns, address, bytes, freed_ns, release, by_nccl);
    }
  };
  struct Live {
    uint64_t bytes = 0;
    Lifetime lifetime = Lifetime::kOther;
    Size size{0, StepPhase::kOther};  // if kept

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, bytes, lifetime, size);
      archive.Require(static_cast<size_t>(lifetime) < kLifetimes &&
                      static_cast<size_t>(size.second) < kStepPhases);
      if (!archive.ok()) lifetime = Lifetime::kOther;
    }
  };

  // Puts what happened up to `time_ns` into order.
  void Take(uint64_t time_ns);
  void ClassStep(const HostPhases& step, const HostPhases& next);
  Lifetime LifetimeOf(const Event& event, const HostPhases& step, const HostPhases& next);
  // Whether an allocation kept from the first steps is a workspace for matrix products. One is made for each
  // thread that launches them, before its first one: in forward, where nothing else is made to be kept, and
  // then in backward, where a gradient may have the same size, so that only the first one counts.
  bool IsWorkspace(uint64_t bytes, StepPhase phase);
  void Made(const Event& event, Lifetime lifetime, StepPhase phase);
  void Freed(uint64_t address);
  void Removed(const Live& live);
  Kept& KeptOf(Live& live, StepPhase phase);

  std::deque<Event> arrived_;                     // one batch may hold a hundred short steps
  bool arrived_in_order_ = true;                  // of time
  std::deque<Event> waiting_;                     // in order of time
  uint64_t taken_ = 0;                            // position of waiting_.front() among all
  absl::flat_hash_map<uint64_t, uint64_t> open_;  // position of the allocation in waiting_, by address
  std::deque<HostPhases> steps_;                  // the last one, whose allocations wait for the next
  absl::flat_hash_map<uint64_t, Live> live_;      // by address
  uint64_t live_bytes_ = 0;
  BytesByLifetime by_lifetime_{};
  Peak peak_;
  std::map<Size, Kept> kept_;
  uint64_t classed_ = 0;
  uint64_t workspace_bytes_ = 0;  // of forward's workspace; 0: none was seen
  bool backward_workspace_ = false;
  uint64_t from_backward_bytes_ = 0;  // of the steps after the first ones
  uint64_t allocations_ = 0;
  uint64_t unknown_frees_ = 0;
  uint64_t missed_frees_ = 0;
  uint64_t not_followed_ = 0;
  LevelPeaks step_peaks_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, arrived_, arrived_in_order_, waiting_, taken_, open_, steps_, live_, live_bytes_,
                    by_lifetime_, peak_, kept_, classed_, workspace_bytes_, backward_workspace_,
                    from_backward_bytes_, allocations_, unknown_frees_, missed_frees_, not_followed_,
                    step_peaks_);
    for (const auto& [address, position] : open_)
      archive.Require(position >= taken_ && position - taken_ < waiting_.size());
    if (!archive.ok()) open_.clear();
  }
};

}  // namespace gpuprobe::model
