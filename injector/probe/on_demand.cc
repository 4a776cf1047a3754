#include "injector/probe/on_demand.h"

#include <utility>

#include "injector/base/futex.h"
#include "injector/base/lock.h"
#include "injector/core/call_clock.h"
#include "injector/core/event_names.h"
#include "injector/core/guard.h"
#include "injector/core/step_gate.h"

namespace gpuprobe::injector {

namespace {

using Phase = wire::CapturePhase;

constexpr int64_t kParkedMs = 1000;  // between looks whether there is an order
constexpr int64_t kActiveMs = 100;
// The window's work is complete when the device has begun with what comes after it, and none of it has come
// for so long. A host may be far ahead of its device; one that does nothing any more is not waited for.
constexpr int64_t kQuietMs = 500;
constexpr int64_t kMostQuietMs = 5'000;
constexpr int64_t kMostSettleMs = 60'000;
// Of an order that names no limit, or one that nobody can have meant.
constexpr uint32_t kUsualLimitMs = 60'000;
constexpr uint32_t kMostLimitMs = 2 * 3'600'000;

}  // namespace

bool OnDemand::IsParked() const noexcept { return step_gate.on_demand() && !IsActive(); }

int64_t OnDemand::PeriodMs(int64_t usual_ms) const noexcept {
  if (!step_gate.on_demand()) return usual_ms;
  if (IsActive()) return usual_ms < kActiveMs ? usual_ms : kActiveMs;
  return usual_ms > kParkedMs ? usual_ms : kParkedMs;
}

void OnDemand::Obey(const CaptureOrder& order) noexcept {
  if (order.clock == wire::CaptureClock::kCaptureClockNone) {
    if (IsActive()) {
      question_ = order;  // a capture that goes on is left alone
      return;
    }
    order_ = order;
    const bool able = step_gate.on_demand() && session_->capturing();
    phase_ = able ? Phase::kCapturePhaseNone : Phase::kCapturePhaseUnable;
    return Answer();
  }
  if (IsActive()) {
    step_gate.Disarm();
    session_->StopKinds();
    step_gate.Rest();
  }
  order_ = order;
  const bool is_taken_back = order.begin >= order.end;
  phase_ = is_taken_back ? Phase::kCapturePhaseNone : Arm();
  Answer();
}

Phase OnDemand::Arm() noexcept {
  settling_since_ms_ = 0;
  cut_ = false;
  limit_ms_ = MonotonicMs() +
              (order_.limit_ms != 0 && order_.limit_ms <= kMostLimitMs ? order_.limit_ms : kUsualLimitMs);
  if (!step_gate.on_demand()) return Phase::kCapturePhaseUnable;
  CaptureWindow window{.clock = order_.clock, .begin = order_.begin, .end = order_.end};
  if (order_.clock == wire::CaptureClock::kCaptureClockCalls) {
    int32_t ranks = 0;
    window.communicator = call_clock.communicator();
    window.calls_per_step = order_.calls_per_step != 0 ? order_.calls_per_step : 1;
    const bool is_meant = event_names.communicator_hash != nullptr &&
                          event_names.communicator_hash(window.communicator, &ranks) == order_.communicator;
    if (!is_meant) return Phase::kCapturePhasePassed;
  }
  step_gate.Wake();
  if (!session_->StartKinds()) {
    step_gate.Rest();
    return Phase::kCapturePhaseUnable;
  }
  if (step_gate.Arm(window)) return Phase::kCapturePhaseArmed;
  session_->StopKinds();
  step_gate.Rest();
  return Phase::kCapturePhasePassed;
}

// The collector learns from it that steps which follow are no continuation of those before.
void OnDemand::OpenWindowOfTime() noexcept {
  const uint64_t now_ns = NowNs();
  if (!step_gate.KeepTime(now_ns)) return;
  const Lock lock(stream_->mutex);
  stream_->builder.Add(wire::RecordedStepRow{.begin_ns = now_ns, .end_ns = order_.end, .has_no_steps = true});
}

void OnDemand::Tick() noexcept {
  if (!IsActive()) {
    if (question_.id != 0) Obey(std::exchange(question_, {}));
    return;
  }
  const int64_t now_ms = MonotonicMs();
  OpenWindowOfTime();
  if (phase_ == Phase::kCapturePhaseArmed && step_gate.steps_captured() > 0)
    phase_ = Phase::kCapturePhaseRecording;
  if (settling_since_ms_ == 0 && !step_gate.Ended() && now_ms >= limit_ms_) {
    cut_ = true;
    step_gate.Disarm();
  }
  if (step_gate.Ended()) Settle();
  Answer();
}

void OnDemand::Settle() noexcept {
  const int64_t now_ms = MonotonicMs();
  step_gate.Disarm();  // a step that was being opened at the limit is closed here
  if (settling_since_ms_ == 0) {
    settling_since_ms_ = quiet_since_ms_ = now_ms;
    behind_ = step_gate.work_behind();
  }
  if (const uint64_t kept = step_gate.work_kept(); kept != kept_) {
    kept_ = kept;
    quiet_since_ms_ = now_ms;
  }
  const int64_t quiet_ms = now_ms - quiet_since_ms_;
  const bool is_complete = quiet_ms >= kQuietMs && step_gate.work_behind() != behind_;
  if (!is_complete && quiet_ms < kMostQuietMs && now_ms - settling_since_ms_ < kMostSettleMs) return;
  session_->StopKinds();
  step_gate.Rest();
  phase_ = cut_ ? Phase::kCapturePhaseCut : Phase::kCapturePhaseDone;
}

void OnDemand::Answer() noexcept {
  CaptureRow row{.id = order_.id,
                 .phase = phase_,
                 .clock = order_.clock,
                 .has_marker = step_gate.rule().marker != StepRule::Marker::kNone,
                 .steps_begun = step_gate.steps_begun(),
                 .steps = step_gate.steps_captured()};
  const uint32_t communicator = call_clock.communicator();
  int32_t ranks = 0;
  if (communicator != 0 && event_names.communicator_hash != nullptr)
    row.communicator = event_names.communicator_hash(communicator, &ranks);
  if (row.communicator != 0) {
    row.communicator_ranks = static_cast<uint32_t>(ranks);
    row.calls = call_clock.calls();
    // Looked for when it is asked for, not while records come.
    if (!IsActive() && !row.has_marker) {
      const CallClock::Period period = call_clock.FindPeriod();
      row.calls_per_step = period.calls;
      row.step_call = period.begin;
    }
  }
  const Lock lock(stream_->mutex);
  stream_->builder.SetCapture(row);
}

}  // namespace gpuprobe::injector
