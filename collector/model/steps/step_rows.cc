#include "collector/model/steps/step_rows.h"

#include <algorithm>
#include <array>
#include <utility>

namespace gpuprobe::model {
namespace {

// The members that are the same number in both.
template <typename Step, typename Row, typename Visitor>
void ForEachPart(Step& step, Row& row, const Visitor& visit) {
  visit(step.index, row.index);
  visit(step.start_ns, row.start_ns);
  visit(step.end_ns, row.end_ns);
  visit(step.first_launch_ns, row.first_launch_ns);
  visit(step.compute_ns, row.compute_ns);
  visit(step.comm_ns, row.comm_ns);
  visit(step.exposed_comm_ns, row.exposed_comm_ns);
  visit(step.copy_ns, row.copy_ns);
  visit(step.idle_ns, row.idle_ns);
  visit(step.host_bound_ns, row.host_bound_ns);
  visit(step.input_ns, row.input_ns);
  visit(step.sync_ns, row.sync_ns);
  visit(step.memory_ns, row.memory_ns);
  visit(step.pause_ns, row.pause_ns);
  visit(step.pause_after_copy_ns, row.pause_after_copy_ns);
  visit(step.launch_gap_ns, row.launch_gap_ns);
  visit(step.unknown_ns, row.unknown_ns);
  visit(step.blocked_ns, row.blocked_ns);
  visit(step.blocked_calls, row.blocked_calls);
  visit(step.memory_calls, row.memory_calls);
  visit(step.operations, row.operations);
  visit(step.lost, row.lost);
  visit(step.clock_step_ns, row.clock_step_ns);
  visit(step.error_ns, row.error_ns);
  visit(step.incomplete, row.incomplete);
  const auto phase = [&](StepPhase which, auto& whole, auto& idle) {
    visit(step.phase_ns[static_cast<size_t>(which)], whole);
    visit(step.phase_idle_ns[static_cast<size_t>(which)], idle);
  };
  phase(StepPhase::kInput, row.phase_input_ns, row.idle_input_ns);
  phase(StepPhase::kH2d, row.phase_h2d_ns, row.idle_h2d_ns);
  phase(StepPhase::kForward, row.phase_forward_ns, row.idle_forward_ns);
  phase(StepPhase::kBackward, row.phase_backward_ns, row.idle_backward_ns);
  phase(StepPhase::kOptimizer, row.phase_optimizer_ns, row.idle_optimizer_ns);
  phase(StepPhase::kCommunication, row.phase_communication_ns, row.idle_communication_ns);
  phase(StepPhase::kOther, row.phase_other_ns, row.idle_other_ns);
}

}  // namespace

RankStepRecord RowOf(const StepRecord& step) {
  RankStepRecord row{};
  ForEachPart(step, row, [](const auto& from, auto& to) { to = from; });
  return row;
}

StepRecord RecordOf(const RankStepRecord& row) {
  StepRecord step;
  ForEachPart(step, row, [](auto& to, const auto& from) { to = from; });
  // From another host: parts may be anything, an end is never before its start.
  step.end_ns = std::max(step.start_ns, step.end_ns);
  return step;
}

}  // namespace gpuprobe::model
