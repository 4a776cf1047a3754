#include "collector/model/process/captures.h"

namespace gpuprobe::model {

void Captures::On(const v1::CaptureState& state) {
  if (state.phase() == v1::CAPTURE_PHASE_ARMED && state.id() != state_.id()) begins_ = true;
  if (state.phase() == v1::CAPTURE_PHASE_ARMED || state.phase() == v1::CAPTURE_PHASE_RECORDING)
    clock_ = static_cast<uint32_t>(state.clock());
  state_ = state;
}

void Captures::On(const RecordedStepRecord& step) {
  const bool goes_on = !begins_ && !step.has_no_steps && !windows_.empty() && windows_.back().has_steps &&
                       step.index == windows_.back().last + 1;
  begins_ = false;
  if (goes_on) {
    windows_.back().last = step.index;
    windows_.back().end_ns = step.end_ns;
    return;
  }
  windows_.push_back({.has_steps = !step.has_no_steps,
                      .first = step.index,
                      .last = step.index,
                      .start_ns = step.begin_ns,
                      .end_ns = step.end_ns});
  if (windows_.size() > kMost) windows_.pop_front();
}

}  // namespace gpuprobe::model
