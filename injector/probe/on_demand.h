// Level idle: records nothing until the collector orders a capture, and again after it.
//
//   order      kinds enabled, gate armed        what runs before the begin is left out
//   begin      the gate opens                   on the thread that begins the step or issues the call
//   end        the gate closes                  there, or here at the time limit
//   settled    kinds disabled, gate at rest     half a second later, when no more of it comes
//
// The end and the limit are kept here and in the gate, so a capture ends although its collector has died.
// Kinds are enabled long before the begin and disabled after the end: what runs while they are switched may
// lose its record (docs/real-hardware.md), and it is none of the window's.
//
// Thread: the probe's own. Allocation: none. Failure: an order that cannot be obeyed is answered with the
// reason, and nothing is recorded.
#pragma once

#include <cstdint>

#include "injector/capture/cupti/session.h"
#include "injector/core/step_gate.h"
#include "injector/ledgers/stream.h"
#include "injector/probe/capture_order.h"

namespace gpuprobe::injector {

class OnDemand {
 public:
  OnDemand(CuptiSession* session, Stream* stream) noexcept : session_(session), stream_(stream) {}

  // The answer goes with the next batch.
  void Obey(const CaptureOrder& order) noexcept;
  // Call before each flush.
  void Tick() noexcept;

  // No capture is under way: there is nothing to flush.
  bool IsParked() const noexcept;
  // The device has not done all of a window's work, nor what was launched before it, from which it begins.
  bool MustKeepSteps() const noexcept { return IsActive() && step_gate.unreported() < kMostUnreported; }
  // Longest time until the next Tick, of `usual_ms` at level full.
  int64_t PeriodMs(int64_t usual_ms) const noexcept;

 private:
  static constexpr uint64_t kMostUnreported = StepGate::kWindows / 2;

  bool IsActive() const noexcept {
    return phase_ == wire::CapturePhase::kCapturePhaseArmed ||
           phase_ == wire::CapturePhase::kCapturePhaseRecording;
  }
  wire::CapturePhase Arm() noexcept;
  void Settle() noexcept;
  void OpenWindowOfTime() noexcept;
  void Answer() noexcept;

  CuptiSession* session_;
  Stream* stream_;
  CaptureOrder order_;
  CaptureOrder question_;  // that came while a capture went on; id 0: none
  wire::CapturePhase phase_ = wire::CapturePhase::kCapturePhaseNone;
  int64_t limit_ms_ = 0;
  bool cut_ = false;
  int64_t settling_since_ms_ = 0;  // 0: the window is not over
  int64_t quiet_since_ms_ = 0;
  uint64_t kept_ = 0;
  uint64_t behind_ = 0;
};

}  // namespace gpuprobe::injector
