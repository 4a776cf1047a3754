// Records only selected steps: follows the program's own step marker and admits the work of the steps that
// were asked for.
//
// Unlike the window in recording.h, which is known beforehand, this one opens and closes while the program
// runs, and device records arrive long after their launch. So the launch decides: each notes under its
// correlation id whether its step is recorded, and a device record is kept if its launch was. From skipped
// steps we keep only the end times that a recorded step starts from: those of the device's work before it and
// of the host's last wait. CUPTI's kinds stay enabled, as recording.h says. The collector cannot do this: it
// sees steps only once their records arrive, and counts steps by the very records that are to be skipped.
//
// At levels idle and calls it is closed until a capture opens it for some steps, which it counts by the
// marker, by calls on a communicator, or not at all (a window of time). Between captures it rests: launches
// are not noted, and events that only a report would read are not made.
//
// Thread: Init on the starting thread, before the probe is live; Opened, Closed, Issued, Reached and Launched
// on the program's; KeepsWork and KeepsWait in the decoder; the rest on the probe's thread with the builder's
// lock. Allocation: none; static tables that the kernel backs as they are used. Failure: a launch that is not
// (or no longer) in the table is not recorded; if more than kWindows steps pass between two looks, the oldest
// are not reported.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "gpuprobe/v1/wire_rows.h"
#include "injector/base/settings.h"

namespace gpuprobe::injector {

// Which steps to record, and what marks their beginning.
struct StepRule {
  enum class Marker : uint8_t { kNone, kRange, kCalls };

  Marker marker = Marker::kNone;
  uint32_t calls = 1;  // calls of the operation per step
  uint32_t text_bytes = 0;
  char text[128] =
      {};  // the range's name, stars included; or NCCL's name of the operation, without its prefix
  uint64_t start = 0;
  uint64_t stop = UINT64_MAX;
  uint64_t every = 1;
  bool on_demand = false;     // levels idle and calls: none until a capture
  bool traces_calls = false;  // level calls: collectives and steps are noted all the same

  std::string_view Text() const noexcept { return {text, text_bytes}; }
  bool Records(uint64_t step) const noexcept {
    return step >= start && step < stop && (step - start) % every == 0;
  }
  bool Matches(std::string_view range) const noexcept;
};

// "nvtx:NAME", where a * stands for any text (proto/name_pattern.h), or "collective:OP/N".
// False when it is none of these.
bool ParseStepMarker(std::string_view text, StepRule* rule) noexcept;

// From GPUPROBE_STEP_MARKER, GPUPROBE_START_STEP, GPUPROBE_STOP_STEP and GPUPROBE_EVERY_STEPS; rejects what
// cannot be used, steps without a marker included. If no steps are to be left out, the marker is kNone.
StepRule ChooseSteps(Settings* settings) noexcept;

// What a capture records: from `begin` on and before `end`, in steps of the marker, in calls on a
// communicator, or in nanoseconds of CLOCK_REALTIME.
struct CaptureWindow {
  wire::CaptureClock clock = wire::CaptureClock::kCaptureClockNone;
  uint64_t begin = 0;
  uint64_t end = 0;
  uint32_t communicator = 0;    // of calls: Communicator.id
  uint32_t calls_per_step = 1;  // of calls
};

class StepGate {
 public:
  static constexpr size_t kWindows = 1024;              // recorded steps that are remembered
  static constexpr size_t kLaunches = size_t{1} << 20;  // correlation ids that are remembered

  void Init(const StepRule& rule) noexcept;
  // False: everything is recorded, and nothing below may be called.
  bool in_use() const noexcept { return on_demand() || rule_.marker != StepRule::Marker::kNone; }
  // Levels idle and calls.
  bool on_demand() const noexcept { return rule_.on_demand; }
  // Level calls.
  bool traces_calls() const noexcept { return rule_.traces_calls; }
  // No capture is under way.
  bool rests() const noexcept { return on_demand() && !awake_.load(std::memory_order_relaxed); }
  bool watches_ranges() const noexcept { return rule_.marker == StepRule::Marker::kRange; }
  bool watches_calls() const noexcept { return rule_.marker == StepRule::Marker::kCalls; }
  // Whether the current step is recorded.
  bool is_open() const noexcept { return open_.load(std::memory_order_relaxed); }
  const StepRule& rule() const noexcept { return rule_; }

  // A range. Only one thread's ranges are steps: the first that opened one. Costs a comparison of names.
  // True: it is a step, or it has its name.
  bool Opened(uint32_t tid, uint64_t id, std::string_view name) noexcept;
  void Closed(uint64_t id) noexcept;
  // NCCL calls of one operation have returned.
  void Issued(std::string_view operation) noexcept;
  // At level calls, after Opened or Issued. True, once for each step: it has begun since.
  bool TakeBegun(uint64_t* index) noexcept;
  // The call with this number on a communicator has been issued, and noted in call_clock.
  void Reached(uint32_t communicator, uint64_t number) noexcept;

  // On demand. Before CUPTI's kinds are enabled, and after they were disabled.
  void Wake() noexcept;
  void Rest() noexcept;
  // Records a window; one at a time. False: its begin has passed, and nothing is recorded.
  [[nodiscard]] bool Arm(const CaptureWindow& window) noexcept;
  // Opens and closes a window of time. True: it was opened just now.
  bool KeepTime(uint64_t now_ns) noexcept;
  // Nothing more is recorded of the window: Ended() is true from now on.
  void Disarm() noexcept;
  // The window is over.
  bool Ended() const noexcept;
  // Steps of this window that were begun; of a window of time, 1.
  uint64_t steps_captured() const noexcept {
    return opened_.load(std::memory_order_acquire) - opened_before_;
  }
  // Records of recorded work that have come, ever.
  uint64_t work_kept() const noexcept { return kept_.load(std::memory_order_relaxed); }
  // Records of work that was launched after the last window, ever: the device has passed its end.
  uint64_t work_behind() const noexcept { return behind_.load(std::memory_order_relaxed); }
  // Windows that are remembered and were not reported.
  uint64_t unreported() const noexcept { return opened_.load(std::memory_order_relaxed) - told_; }

  // Notes a launch under the id that its records will have. True: it is recorded.
  bool Launched(uint32_t correlation) noexcept;
  bool IsRecorded(uint32_t correlation) const noexcept;

  // Work of the device. False: its step is not recorded.
  bool KeepsWork(uint32_t correlation, uint64_t end_ns) noexcept;
  // A synchronising call of the host's.
  bool KeepsWait(uint64_t start_ns, uint64_t end_ns) noexcept;

  // Whether a moment, or any part of a stretch of time, is in a recorded step, as far as times are final.
  bool Holds(uint64_t time_ns) const noexcept;
  bool Overlaps(uint64_t start_ns, uint64_t end_ns) const noexcept;

  // Finalises the marker times that can be converted by now. Call after each reading of the host's clock.
  void TellTimes() noexcept;
  // Reports the steps that were already over at the last call: the device's work before them has been
  // recorded since. `final`: reports all, including the current one.
  void ReportSteps(bool final, void (*report)(void* to, const wire::RecordedStepRow& step) noexcept,
                   void* to) noexcept;
  // Time of the latest launch that was not recorded; 0: none.
  uint64_t left_out_until_ns() const noexcept;
  // Steps that began, recorded or not.
  uint64_t steps_begun() const noexcept { return begun_.load(std::memory_order_relaxed); }

 private:
  struct Window {
    std::atomic<uint64_t> index;
    std::atomic<uint64_t> begin_ns;  // near it at first, then final
    std::atomic<uint64_t> end_ns;    // UINT64_MAX: still open
    std::atomic<uint64_t> begin_stamp;
    std::atomic<uint64_t> end_stamp;
    std::atomic<uint64_t> earlier_launch_stamp;
    std::atomic<uint32_t> first_correlation;  // 0: nothing was launched yet
    // Written from when the window before was opened.
    std::atomic<uint64_t> earlier_end_ns;
    std::atomic<uint64_t> wait_start_ns;
    std::atomic<uint64_t> wait_end_ns;
    std::atomic<bool> has_no_steps;  // a window of time: reported when it was opened
  };

  // Static tables, all zeros so that they take no room in the library's file.
  static Window windows[kWindows];
  static uint8_t launches[kLaunches];  // read and written atomically

  static Window& At(uint64_t number) noexcept { return windows[number % kWindows]; }
  static uint64_t Oldest(uint64_t opened) noexcept { return opened < kWindows ? 0 : opened - kWindows + 1; }
  // Whether a step is to be recorded.
  bool Wants(uint64_t index) const noexcept {
    if (!on_demand()) return rule_.Records(index);
    return index >= from_.load(std::memory_order_seq_cst) && index < until_.load(std::memory_order_relaxed);
  }
  void Begin() noexcept;
  void Open(uint64_t index, bool has_no_steps) noexcept;
  void End() noexcept;
  // The first window that an event precedes, as `precedes(window)` says; the next to be opened if none.
  template <typename Precedes>
  Window& FirstAfter(Precedes precedes) noexcept;

  StepRule rule_;
  std::atomic<uint32_t> marker_tid_{0};
  std::atomic<uint64_t> open_range_{0};  // of the current step
  std::atomic<uint64_t> calls_{0};
  std::atomic<uint64_t> begun_{0};
  std::atomic<uint64_t> traced_{0};  // of those begun
  std::atomic<uint64_t> opened_{0};  // windows
  std::atomic<bool> open_{false};    // the last of them
  std::atomic<uint64_t> earlier_launch_stamp_{0};
  // On demand. The window in steps or calls: none while `from_` is the largest number.
  std::atomic<bool> awake_{false};
  std::atomic<uint64_t> from_{UINT64_MAX};
  std::atomic<uint64_t> until_{0};
  std::atomic<uint32_t> clock_communicator_{0};  // of calls; 0: they do not count
  std::atomic<uint64_t> step_of_calls_{UINT64_MAX};
  std::atomic<uint64_t> kept_{0};
  std::atomic<uint64_t> behind_{0};
  // Probe's thread only.
  CaptureWindow window_;
  bool armed_ = false;
  uint64_t opened_before_ = 0;
  uint64_t final_begins_ = 0;
  uint64_t final_ends_ = 0;
  uint64_t closed_before_ = 0;
  uint64_t told_ = 0;
};

// The process's own.
extern StepGate step_gate;

}  // namespace gpuprobe::injector
