// One training step of one process: when it was, and where its time went.
//
// Separate because it is what all analyses of steps exchange. The parts are lengths within [start_ns, end_ns)
// by interval algebra over all streams of the process's devices, and add up to the nanosecond:
//   compute + exposed_comm + copy + idle == end - start, less what the clock was set by meanwhile
//   host_bound + input + sync + memory + pause + launch_gap + unknown == idle
//   sum of phase_ns == the same; phase_idle_ns is the part of each phase in which nothing ran
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "collector/model/state/members.h"

namespace gpuprobe::model {

// The phase of an instant: that in which the running compute was launched; else communication; else the
// running copy; else, when idle, input wait, or the phase of the work that the device waits for. Example: the
// host launches backward's kernels slowly, and the device is idle between them: that time is backward's.
enum class StepPhase : uint8_t { kInput, kH2d, kForward, kBackward, kOptimizer, kCommunication, kOther };
inline constexpr size_t kStepPhases = 7;

// The source of step boundaries, in order of preference.
enum class StepSource : uint8_t { kNone, kMarker, kNvtx, kCollectives, kKernels, kOptimizer };

// To which step and phase an operation of the device was counted. It is known by its times.
struct PlacedOperation {
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  uint64_t step = 0;  // StepRecord.index
  StepPhase phase = StepPhase::kOther;
};

struct StepRecord {
  uint64_t index = 0;  // from 0; the same on every rank that saw every step
  // The device's timeline: from the end of the last operation launched before the step to the end of the last
  // one launched in it.
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  uint64_t first_launch_ns = 0;  // host time of its first launch
  uint64_t compute_ns = 0;       // union of kernels (without NCCL's) and memsets
  uint64_t comm_ns = 0;          // union of NCCL's kernels
  uint64_t exposed_comm_ns = 0;  // the part without compute at the same time
  uint64_t copy_ns = 0;          // copies that neither covers
  uint64_t idle_ns = 0;          // nothing ran
  // Idle: until the launch of the work that ended it. One cause for each gap, by evidence (step_timeline.h).
  uint64_t host_bound_ns = 0;  // the host was launching, at its usual pace, and came late
  uint64_t input_ns =
      0;                 // the host launched nothing, and a copy to the device ended that, or a range says so
  uint64_t sync_ns = 0;  // the host was blocked in a synchronising call when the device ran dry
  uint64_t memory_ns = 0;            // the host was in calls that allocate or release memory
  uint64_t pause_ns = 0;             // the host launched nothing, and nothing says why
  uint64_t pause_after_copy_ns = 0;  // the part of pause_ns that followed copies to the host
  // and from there on
  uint64_t launch_gap_ns = 0;  // launched, but not started
  uint64_t unknown_ns = 0;     // the launch of the work that ended it was not seen
  // The host was blocked in a synchronising call during the step, and in how many; in no sum.
  uint64_t blocked_ns = 0;
  uint32_t blocked_calls = 0;
  uint32_t memory_calls = 0;  // that allocated or released memory and ended in the step
  std::array<uint64_t, kStepPhases> phase_ns{};
  std::array<uint64_t, kStepPhases> phase_idle_ns{};
  uint32_t operations = 0;
  uint32_t lost = 0;          // operations whose records never came; taken from the usual step if it has them
  int64_t clock_step_ns = 0;  // by which the clock was set in it: part of end - start, and of nothing else
  uint64_t error_ns = 0;      // by how much its start or end may be off for that; 0: both were seen
  bool warmup = false;        // much longer than later ones: in no statistics
  bool incomplete = false;    // records were lost in it: its parts are estimates, or may be wrong

  uint64_t total_ns() const { return end_ns - start_ns - static_cast<uint64_t>(clock_step_ns); }
  // Idle because of what the host did, or did not do.
  uint64_t host_ns() const { return host_bound_ns + sync_ns + memory_ns + pause_ns; }
  uint64_t overlapped_comm_ns() const { return comm_ns - exposed_comm_ns; }
  uint64_t phase_busy_ns(StepPhase phase) const {
    return phase_ns[static_cast<size_t>(phase)] - phase_idle_ns[static_cast<size_t>(phase)];
  }

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, index, start_ns, end_ns, first_launch_ns, compute_ns, comm_ns, exposed_comm_ns,
                    copy_ns, idle_ns, host_bound_ns, input_ns, sync_ns, memory_ns, pause_ns,
                    pause_after_copy_ns, launch_gap_ns, unknown_ns, blocked_ns, blocked_calls, memory_calls,
                    phase_ns, phase_idle_ns, operations, lost, error_ns, clock_step_ns, warmup, incomplete);
  }
};

}  // namespace gpuprobe::model
