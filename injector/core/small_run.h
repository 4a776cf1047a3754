// Sums up allocations and releases that are too small for records of their own, until something else happens
// to the level that they change.
//
// A run says how far the level rose and where it ended, so that a high-water mark stays right to the byte. If
// calls of several threads overlapped, it also says how much more may have been obtained at any one moment of
// the run, and how much less released. The moments lie between the ends of calls; those that are more than
// kMoments calls old share their extremes, which makes these bounds wider but never wrong. Thread: the
// draining one. Allocation: none.
#pragma once

#include <algorithm>
#include <cstdint>

#include "injector/core/events.h"

namespace gpuprobe::injector {

class SmallRun {
 public:
  // Calls of one direction that began before another call, which ended earlier, was over.
  struct Overlap {
    uint64_t bytes = 0;         // the most that were under way at one moment of the run
    uint64_t before_bytes = 0;  // the sum of those that began before the run
    uint64_t since_ns = 0;      // when the first of these began
  };

  bool empty() const noexcept { return allocations_ + frees_ == 0; }
  bool Fits(const AllocationEvent& event) const noexcept {
    return empty() || (event.memory == memory_ && event.device == device_);
  }

  // Calls come in the order of their ends. `last_ns`: the end of the last one that was recorded, in this run
  // or before it.
  void Add(const AllocationEvent& event, uint64_t last_ns) noexcept {
    if (empty()) {
      device_ = event.device;
      memory_ = event.memory;
      highest_ns_ = event.time_ns;
      range_id_ = event.range_id;
      begin_ns_ = last_ns;
      moments_[0] = {.since_ns = last_ns};
      moment_count_ = 1;
    }
    const bool release = static_cast<wire::AllocationOp>(event.op) == wire::AllocationOp::kAllocationOpFree;
    if (event.began_ns != 0 && event.began_ns < last_ns) Overlaps(event, release);
    end_ns_ = std::max(end_ns_, event.time_ns);
    NextMoment(std::max(last_ns, event.time_ns));
    if (release) {
      ++frees_;
      change_bytes_ -= static_cast<int64_t>(event.bytes);
      return;
    }
    ++allocations_;
    change_bytes_ += static_cast<int64_t>(event.bytes);
    if (change_bytes_ <= static_cast<int64_t>(rise_bytes_)) return;
    rise_bytes_ = static_cast<uint64_t>(change_bytes_);
    highest_ns_ = end_ns_;
    range_id_ = event.range_id;
  }

  uint64_t highest_ns() const noexcept { return highest_ns_; }
  uint64_t end_ns() const noexcept { return end_ns_; }
  uint64_t allocations() const noexcept { return allocations_; }
  uint64_t frees() const noexcept { return frees_; }
  // Above the level before the run, at its highest.
  uint64_t rise_bytes() const noexcept { return rise_bytes_; }
  int64_t change_bytes() const noexcept { return change_bytes_; }
  // Innermost when it was highest.
  uint64_t range_id() const noexcept { return range_id_; }
  int32_t device() const noexcept { return device_; }
  uint8_t memory() const noexcept { return memory_; }
  const Overlap& obtained() const noexcept { return obtained_; }
  const Overlap& released() const noexcept { return released_; }

 private:
  static constexpr uint32_t kMoments = 32;

  // From the end of a call, or from before, to the end of the next one.
  struct Moment {
    uint64_t since_ns = 0;
    uint64_t obtained_bytes = 0;  // by calls that were under way
    uint64_t released_bytes = 0;
  };

  void Overlaps(const AllocationEvent& event, bool release) noexcept {
    Overlap& overlap = release ? released_ : obtained_;
    if (event.began_ns < begin_ns_) {
      if (overlap.before_bytes == 0 || event.began_ns < overlap.since_ns) overlap.since_ns = event.began_ns;
      overlap.before_bytes += event.bytes;
    }
    uint32_t i = moment_count_;
    do {
      Moment& moment = moments_[--i];
      uint64_t& bytes = release ? moment.released_bytes : moment.obtained_bytes;
      bytes += event.bytes;
      overlap.bytes = std::max(overlap.bytes, bytes);
    } while (i > 0 && moments_[i].since_ns > event.began_ns);
  }

  void NextMoment(uint64_t since_ns) noexcept {
    if (moment_count_ == kMoments) {
      moments_[1].since_ns = moments_[0].since_ns;
      moments_[1].obtained_bytes = std::max(moments_[0].obtained_bytes, moments_[1].obtained_bytes);
      moments_[1].released_bytes = std::max(moments_[0].released_bytes, moments_[1].released_bytes);
      std::copy(moments_ + 1, moments_ + kMoments, moments_);
      --moment_count_;
    }
    moments_[moment_count_++] = {.since_ns = since_ns};
  }

  uint64_t begin_ns_ = 0;  // the end of the call before
  uint64_t highest_ns_ = 0;
  uint64_t end_ns_ = 0;
  uint64_t allocations_ = 0;
  uint64_t frees_ = 0;
  uint64_t rise_bytes_ = 0;
  int64_t change_bytes_ = 0;
  uint64_t range_id_ = 0;
  Overlap obtained_;
  Overlap released_;
  int32_t device_ = 0;
  uint8_t memory_ = 0;
  uint32_t moment_count_ = 0;
  Moment moments_[kMoments];
};

}  // namespace gpuprobe::injector
