// Writes the last moments of this process into the flight recorder's ring (proto/flight_ring.h).
//
// Until a collector has passed a ring, and in a forked child, it writes into memory of our own, so that no
// event has to ask whether there is one. The pointer to the ring is on the page that the kernel zeroes in
// children (base/lifecycle.h). Thread: what takes a ThreadState, on that thread inside a guard;
// RecordReading, the stack and AdoptRing on the probe's own. Allocation: none for an event; AdoptRing makes
// one mapping of 64 KiB for each collector that the process meets, eight at most, for good. Cost: no lock and
// no system call; tests/injector/core/flight_recorder_bench.cc measures it. Failure: what has no place in the
// ring is left out, and the next reading counts it.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "injector/base/lifecycle.h"
#include "injector/base/own_descriptor.h"
#include "injector/core/events.h"
#include "injector/core/thread_state.h"
#include "proto/flight_ring.h"

namespace gpuprobe::injector {

extern flight::Process unshared_moments;

inline flight::Process& Moments() noexcept {
  auto* const ring = static_cast<flight::Ring*>(lifecycle_page.shared_ring.load(std::memory_order_relaxed));
  return ring != nullptr ? ring->process : unshared_moments;
}

// Cut where it is longer, and filled with zeros.
template <size_t kBytes>
void FillText(char (&to)[kBytes], std::string_view text) noexcept {
  const size_t size = text.size() < kBytes ? text.size() : kBytes;
  std::memset(to, 0, kBytes);  // of a fixed size, so that it is a few stores
  if (size > 0) std::memcpy(to, text.data(), size);
}

// Null: the thread is beyond those that have a record. The place may have been another thread's.
inline flight::ThreadPlace* MomentsOf(const ThreadState& thread) noexcept {
  if (thread.place >= flight::kThreads) return nullptr;
  flight::ThreadPlace& place = Moments().threads[thread.place];
  if (place.thread.tid != thread.tid) [[unlikely]]
    place.thread = {.tid = thread.tid, .depth = 0, .launches = 0, .launched = 0, .changed = 0, .check = 0};
  return &place;
}

inline void RecordLaunch(const ThreadState& thread, uint64_t stamp) noexcept {
  flight::ThreadPlace* const place = MomentsOf(thread);
  if (place == nullptr) return;
  ++place->thread.launches;
  place->thread.launched = stamp;
  flight::Seal(place->thread);
}

// The range that is the thread's innermost now; `depth` counts those around it.
inline void RecordRangeOpened(const ThreadState& thread, int depth, std::string_view name,
                              uint64_t stamp) noexcept {
  flight::ThreadPlace* const place = MomentsOf(thread);
  if (place == nullptr) return;
  flight::Range& range = place->ranges[static_cast<uint64_t>(depth) % flight::kRanges];
  range.opened = stamp;
  range.level = static_cast<uint64_t>(depth) + 1;
  range.name_bytes = name.size();
  FillText(range.name, name);
  flight::Seal(range);
  place->thread.depth = range.level;
  place->thread.changed = stamp;
  flight::Seal(place->thread);
}

// Moves the ranges above a closed one down, which only domains that overlap bring about.
void MoveRangesDown(flight::ThreadPlace& place, uint64_t to, uint64_t depth) noexcept;

// The range at `depth` was closed, and the thread's own depth says so.
inline void RecordRangeClosed(const ThreadState& thread, int depth, uint64_t stamp) noexcept {
  flight::ThreadPlace* const place = MomentsOf(thread);
  if (place == nullptr) return;
  const auto left = static_cast<uint64_t>(thread.range_depth);
  if (static_cast<uint64_t>(depth) < left) [[unlikely]]
    MoveRangesDown(*place, static_cast<uint64_t>(depth), left);
  place->thread.depth = left;
  place->thread.changed = stamp;
  flight::Seal(place->thread);
}

// A call on a communicator is about to enter NCCL.
void RecordCallEntered(const ThreadState& thread, const CollectiveEvent& call,
                       std::string_view operation) noexcept;
// It, or the group that it is in, has returned to the program; or somebody else than our wrappers saw it.
void RecordCallLeft(const ThreadState& thread, const CollectiveEvent& call,
                    std::string_view operation) noexcept;
void RecordCommunicator(const CommunicatorEvent& event, std::string_view name) noexcept;

struct FailedCall {
  flight::FailureKind kind;
  int32_t code;
  uint64_t bytes;    // of an allocation
  const char* name;  // may be null
};
void RecordFailure(const ThreadState& thread, const FailedCall& failed) noexcept;

// The clocks, and what found no place.
void RecordReading() noexcept;

// The record of stacks that is to be written next; EndStack makes it the last one.
flight::Stack& BeginStack() noexcept;
void EndStack(flight::Stack& stack) noexcept;

// Maps a ring that the collector has passed, with all that is recorded so far, and closes the descriptor. An
// event that another thread records in the same microseconds may be missing. False: it is none, or there is
// no address space; all goes on as before.
bool AdoptRing(OwnDescriptor& descriptor) noexcept;

}  // namespace gpuprobe::injector
