#include "collector/model/steps/step_statistics.h"

namespace gpuprobe::model {

StepStatistics::StepStatistics() {
  phase_ns.fill(Distribution(kExactLimit));
  phase_idle_ns.fill(Distribution(kExactLimit));
}

void StepStatistics::Add(const StepRecord& record, bool nvtx_phases_known) {
  total_ns.Add(record.total_ns());
  compute_ns.Add(record.compute_ns);
  comm_ns.Add(record.comm_ns);
  exposed_comm_ns.Add(record.exposed_comm_ns);
  overlapped_comm_ns.Add(record.overlapped_comm_ns());
  copy_ns.Add(record.copy_ns);
  idle_ns.Add(record.idle_ns);
  host_bound_ns.Add(record.host_bound_ns);
  input_ns.Add(record.input_ns);
  sync_ns.Add(record.sync_ns);
  memory_ns.Add(record.memory_ns);
  pause_ns.Add(record.pause_ns);
  pause_after_copy_ns.Add(record.pause_after_copy_ns);
  blocked_ns.Add(record.blocked_ns);
  blocked_calls.Add(record.blocked_calls);
  memory_calls.Add(record.memory_calls);
  launch_gap_ns.Add(record.launch_gap_ns);
  unknown_ns.Add(record.unknown_ns);
  for (size_t i = 0; i < kStepPhases; ++i) {
    phase_ns[i].Add(record.phase_ns[i]);
    phase_idle_ns[i].Add(record.phase_idle_ns[i]);
  }
  nvtx_phases += nvtx_phases_known ? 1 : 0;
}

void StepStatistics::Merge(const StepStatistics& other) {
  total_ns.Merge(other.total_ns);
  compute_ns.Merge(other.compute_ns);
  comm_ns.Merge(other.comm_ns);
  exposed_comm_ns.Merge(other.exposed_comm_ns);
  overlapped_comm_ns.Merge(other.overlapped_comm_ns);
  copy_ns.Merge(other.copy_ns);
  idle_ns.Merge(other.idle_ns);
  host_bound_ns.Merge(other.host_bound_ns);
  input_ns.Merge(other.input_ns);
  sync_ns.Merge(other.sync_ns);
  memory_ns.Merge(other.memory_ns);
  pause_ns.Merge(other.pause_ns);
  pause_after_copy_ns.Merge(other.pause_after_copy_ns);
  blocked_ns.Merge(other.blocked_ns);
  blocked_calls.Merge(other.blocked_calls);
  memory_calls.Merge(other.memory_calls);
  launch_gap_ns.Merge(other.launch_gap_ns);
  unknown_ns.Merge(other.unknown_ns);
  for (size_t i = 0; i < kStepPhases; ++i) {
    phase_ns[i].Merge(other.phase_ns[i]);
    phase_idle_ns[i].Merge(other.phase_idle_ns[i]);
  }
  incomplete += other.incomplete;
  nvtx_phases += other.nvtx_phases;
  estimated = estimated || other.estimated;
}

}  // namespace gpuprobe::model
