// Allocations and releases that are too small for records of their own, added up until something else happens
// to the level that they change.
//
// Separate from the drain because it is arithmetic: a run tells how far the level rose and where it ended,
// and with that a high-water mark stays right to the byte. Thread: whoever drains. Allocation: none.
#pragma once

#include <cstdint>

#include "injector/stream/events.h"

namespace gpuprobe::injector {

struct SmallRun {
  uint64_t highest_ns = 0;
  uint64_t end_ns = 0;
  uint64_t allocations = 0;
  uint64_t frees = 0;
  uint64_t rise_bytes = 0;   // above the level before the run, at its highest
  int64_t change_bytes = 0;  // so far
  uint64_t overlapping_bytes = 0;
  uint64_t range_id = 0;  // when it was highest
  int32_t device = 0;
  uint8_t memory = 0;

  bool empty() const noexcept { return allocations + frees == 0; }
  bool Fits(const AllocationEvent& event) const noexcept {
    return empty() || (event.memory == memory && event.device == device);
  }

  // `overlaps`: its call began before one that ended earlier was over.
  void Add(const AllocationEvent& event, bool overlaps) noexcept {
    if (overlaps) overlapping_bytes += event.bytes;
    if (empty()) {
      device = event.device;
      memory = event.memory;
      highest_ns = event.time_ns;
      range_id = event.range_id;
    }
    end_ns = event.time_ns > end_ns ? event.time_ns : end_ns;
    if (static_cast<wire::AllocationOp>(event.op) == wire::AllocationOp::kAllocationOpFree) {
      ++frees;
      change_bytes -= static_cast<int64_t>(event.bytes);
      return;
    }
    ++allocations;
    change_bytes += static_cast<int64_t>(event.bytes);
    if (change_bytes <= static_cast<int64_t>(rise_bytes)) return;
    rise_bytes = static_cast<uint64_t>(change_bytes);
    highest_ns = end_ns;
    range_id = event.range_id;
  }
};

}  // namespace gpuprobe::injector
