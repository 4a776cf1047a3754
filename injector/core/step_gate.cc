#include "injector/core/step_gate.h"

#include <algorithm>
#include <cstring>

#include "injector/base/text.h"
#include "injector/core/call_clock.h"
#include "injector/core/guard.h"
#include "injector/core/host_clock.h"
#include "proto/name_pattern.h"

namespace gpuprobe::injector {

constinit StepGate step_gate;
constinit StepGate::Window StepGate::windows[kWindows] = {};
constinit uint8_t StepGate::launches[kLaunches] = {};

namespace {

// A launch's entry in `launches`: which of the correlation ids that share the slot it has, and whether the
// launch is recorded.
constexpr uint8_t Mark(uint32_t correlation, bool recorded) noexcept {
  return static_cast<uint8_t>((correlation / StepGate::kLaunches) << 2 | 2 | (recorded ? 1 : 0));
}

constexpr std::string_view kRangePrefix = "nvtx:";
constexpr std::string_view kCallsPrefix = "collective:";
constexpr uint32_t kMostCalls = 1'000'000;

void StoreMax(std::atomic<uint64_t>& value, uint64_t candidate) noexcept {
  uint64_t known = value.load(std::memory_order_relaxed);
  while (known < candidate && !value.compare_exchange_weak(known, candidate, std::memory_order_relaxed)) {
  }
}

constexpr char Lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool EqualIgnoringCase(std::string_view a, std::string_view b) noexcept {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (Lower(a[i]) != Lower(b[i])) return false;
  }
  return true;
}

bool SetText(std::string_view text, StepRule* rule) noexcept {
  if (text.empty() || text.size() > sizeof(rule->text)) return false;
  std::memcpy(rule->text, text.data(), text.size());
  rule->text_bytes = static_cast<uint32_t>(text.size());
  return true;
}

// "AllReduce/4".
bool ParseCalls(std::string_view text, StepRule* rule) noexcept {
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return false;
  const std::string_view number = Slice(text, slash + 1);
  uint32_t calls = 0;
  for (const char c : number) {
    if (c < '0' || c > '9' || calls > kMostCalls) return false;
    calls = calls * 10 + static_cast<uint32_t>(c - '0');
  }
  rule->calls = calls;
  rule->marker = StepRule::Marker::kCalls;
  return calls > 0 && calls <= kMostCalls && SetText(Slice(text, 0, slash), rule);
}

}  // namespace

bool StepRule::Matches(std::string_view range) const noexcept { return MatchesPattern(Text(), range); }

bool ParseStepMarker(std::string_view text, StepRule* rule) noexcept {
  if (StartsWith(text, kCallsPrefix)) return ParseCalls(Slice(text, kCallsPrefix.size()), rule);
  if (!StartsWith(text, kRangePrefix)) return false;
  const std::string_view name = Slice(text, kRangePrefix.size());
  rule->marker = StepRule::Marker::kRange;
  return IsNamePattern(name) && SetText(name, rule);
}

StepRule ChooseSteps(Settings* settings) noexcept {
  constexpr size_t kMarker = SettingIndex("GPUPROBE_STEP_MARKER");
  constexpr size_t kStart = SettingIndex("GPUPROBE_START_STEP");
  constexpr size_t kStop = SettingIndex("GPUPROBE_STOP_STEP");
  constexpr size_t kEvery = SettingIndex("GPUPROBE_EVERY_STEPS");
  constexpr size_t kLevel = SettingIndex("GPUPROBE_LEVEL");
  StepRule rule;
  bool on_demand = false;
  bool traces_calls = false;
  if (settings->IsSet(kLevel)) {
    const std::string_view level = settings->Text(kLevel);
    traces_calls = level == "calls";
    on_demand = traces_calls || level == "idle";
    if (!on_demand && level != "full") settings->Reject(kLevel);
  }
  if (settings->IsSet(kMarker) && !ParseStepMarker(settings->Text(kMarker), &rule)) {
    settings->Reject(kMarker);
    rule = {};
  }
  if (on_demand) {
    for (const size_t steps : {kStart, kStop, kEvery}) {
      if (settings->IsSet(steps)) settings->Reject(steps, "gpuprobe capture chooses the steps at this level");
    }
    rule.on_demand = true;
    rule.traces_calls = traces_calls;
    return rule;
  }
  if (rule.marker == StepRule::Marker::kNone) {
    for (const size_t steps : {kStart, kStop, kEvery}) {
      if (settings->IsSet(steps)) settings->Reject(steps, "needs GPUPROBE_STEP_MARKER to say what a step is");
    }
    return {};
  }
  rule.start = static_cast<uint64_t>(settings->Number(kStart));
  rule.every = static_cast<uint64_t>(settings->Number(kEvery));
  if (settings->IsSet(kStop)) {
    const auto stop = static_cast<uint64_t>(settings->Number(kStop));
    if (stop <= rule.start) {
      settings->Reject(kStop, "must be greater than GPUPROBE_START_STEP");
    } else {
      rule.stop = stop;
    }
  }
  // All steps: nothing is left out, not even between steps.
  return rule.start == 0 && rule.stop == UINT64_MAX && rule.every == 1 ? StepRule{} : rule;
}

void StepGate::Init(const StepRule& rule) noexcept {
  rule_ = rule;
  marker_tid_.store(0);
  open_range_.store(0);
  calls_.store(0);
  begun_.store(0);
  traced_.store(0);
  opened_.store(0);
  open_.store(false);
  earlier_launch_stamp_.store(0);
  awake_.store(false);
  from_.store(UINT64_MAX);
  until_.store(0);
  clock_communicator_.store(0);
  window_ = {};
  armed_ = false;
  opened_before_ = 0;
  final_begins_ = final_ends_ = closed_before_ = told_ = 0;
  At(0).earlier_end_ns.store(0);
  At(0).wait_start_ns.store(0);
  At(0).wait_end_ns.store(0);
  // When steps are counted in calls, the first one begins with the program.
  if (watches_calls()) Begin();
}

void StepGate::Begin() noexcept {
  const uint64_t index = begun_.fetch_add(1, std::memory_order_seq_cst);
  if (Wants(index)) Open(index, false);
}

void StepGate::Open(uint64_t index, bool has_no_steps) noexcept {
  const uint64_t number = opened_.load(std::memory_order_relaxed);
  Window& next = At(number + 1);
  next.earlier_end_ns.store(0, std::memory_order_relaxed);
  next.wait_start_ns.store(0, std::memory_order_relaxed);
  next.wait_end_ns.store(0, std::memory_order_relaxed);
  Window& window = At(number);
  window.index.store(index, std::memory_order_relaxed);
  window.has_no_steps.store(has_no_steps, std::memory_order_relaxed);
  window.first_correlation.store(0, std::memory_order_relaxed);
  window.earlier_launch_stamp.store(earlier_launch_stamp_.load(std::memory_order_relaxed),
                                    std::memory_order_relaxed);
  window.end_ns.store(UINT64_MAX, std::memory_order_relaxed);
  window.begin_ns.store(NowNs(), std::memory_order_relaxed);
  window.begin_stamp.store(Stamp(), std::memory_order_relaxed);
  opened_.store(number + 1, std::memory_order_release);
  open_.store(true, std::memory_order_release);
}

void StepGate::End() noexcept {
  // At a capture's limit the probe's thread ends a step, too.
  if (!open_.load(std::memory_order_relaxed) || !open_.exchange(false, std::memory_order_acq_rel)) return;
  Window& window = At(opened_.load(std::memory_order_relaxed) - 1);
  window.end_stamp.store(Stamp(), std::memory_order_relaxed);
  window.end_ns.store(NowNs(), std::memory_order_release);
}

bool StepGate::Opened(uint32_t tid, uint64_t id, std::string_view name) noexcept {
  if (!rule_.Matches(name)) return false;
  uint32_t owner = 0;
  if (!marker_tid_.compare_exchange_strong(owner, tid, std::memory_order_relaxed) && owner != tid)
    return true;
  uint64_t none = 0;
  if (open_range_.compare_exchange_strong(none, id, std::memory_order_relaxed)) Begin();
  return true;
}

void StepGate::Closed(uint64_t id) noexcept {
  if (open_range_.load(std::memory_order_relaxed) != id) return;
  End();
  open_range_.store(0, std::memory_order_release);
}

void StepGate::Issued(std::string_view operation) noexcept {
  if (!EqualIgnoringCase(operation, rule_.Text())) return;
  const uint64_t calls = calls_.fetch_add(1, std::memory_order_acq_rel) + 1;
  if (calls % rule_.calls != 0) return;
  End();
  Begin();
}

bool StepGate::TakeBegun(uint64_t* index) noexcept {
  if (!traces_calls()) return false;
  const uint64_t begun = begun_.load(std::memory_order_relaxed);
  if (begun == 0 || traced_.exchange(begun, std::memory_order_relaxed) == begun) return false;
  *index = begun - 1;
  return true;
}

// Steps of calls have the number of their first call, in steps, so that a later capture's are higher.
void StepGate::Reached(uint32_t communicator, uint64_t number) noexcept {
  if (communicator != clock_communicator_.load(std::memory_order_seq_cst)) return;
  const uint64_t from = from_.load(std::memory_order_seq_cst);
  const uint64_t next = number + 1;
  if (from == UINT64_MAX || next < from) return;
  const uint64_t per_step = window_.calls_per_step;
  const bool is_over = next >= until_.load(std::memory_order_relaxed);
  const uint64_t step = is_over ? UINT64_MAX : (next - from % per_step) / per_step;
  if (step_of_calls_.exchange(step, std::memory_order_acq_rel) == step) return;
  End();
  if (!is_over) Open(step, false);
}

void StepGate::Wake() noexcept {
  // Marks of another capture's launches.
  for (uint8_t& launch : launches) {
    const std::atomic_ref mark(launch);
    if (mark.load(std::memory_order_relaxed) != 0) mark.store(0, std::memory_order_relaxed);
  }
  awake_.store(true, std::memory_order_release);
}

void StepGate::Rest() noexcept { awake_.store(false, std::memory_order_release); }

// Either the thread that passes the begin sees the window, or we see that it has passed.
bool StepGate::Arm(const CaptureWindow& window) noexcept {
  window_ = window;
  opened_before_ = opened_.load(std::memory_order_acquire);
  step_of_calls_.store(UINT64_MAX, std::memory_order_relaxed);
  armed_ = true;
  if (window.clock == wire::CaptureClock::kCaptureClockTime) return true;
  until_.store(window.end, std::memory_order_seq_cst);
  from_.store(window.begin, std::memory_order_seq_cst);
  bool passed = false;
  if (window.clock == wire::CaptureClock::kCaptureClockCalls) {
    clock_communicator_.store(window.communicator, std::memory_order_seq_cst);
    passed = call_clock.calls() >= window.begin;
  } else {
    passed = begun_.load(std::memory_order_seq_cst) > window.begin;
  }
  if (passed) Disarm();
  return !passed;
}

bool StepGate::KeepTime(uint64_t now_ns) noexcept {
  if (!armed_ || window_.clock != wire::CaptureClock::kCaptureClockTime) return false;
  if (now_ns >= window_.end) Disarm();
  if (!armed_ || now_ns < window_.begin || steps_captured() > 0) return false;
  Open(0, true);
  return true;
}

void StepGate::Disarm() noexcept {
  from_.store(UINT64_MAX, std::memory_order_seq_cst);
  clock_communicator_.store(0, std::memory_order_seq_cst);
  armed_ = false;
  End();
}

bool StepGate::Ended() const noexcept {
  if (!armed_) return true;
  if (is_open() || window_.clock == wire::CaptureClock::kCaptureClockTime) return false;
  if (window_.clock == wire::CaptureClock::kCaptureClockCalls) return call_clock.calls() >= window_.end;
  const uint64_t opened = opened_.load(std::memory_order_acquire);
  const bool was_last =
      opened > opened_before_ && At(opened - 1).index.load(std::memory_order_relaxed) + 1 == window_.end;
  return was_last || begun_.load(std::memory_order_relaxed) > window_.end;
}

bool StepGate::IsRecorded(uint32_t correlation) const noexcept {
  const std::atomic_ref mark(launches[correlation % kLaunches]);
  return mark.load(std::memory_order_relaxed) == Mark(correlation, true);
}

bool StepGate::Launched(uint32_t correlation) noexcept {
  if (rests()) {
    // That it goes on launching is all that is noted, and not at each launch: other threads read this line.
    constexpr uint64_t kApart = uint64_t{1} << 27;  // of stamps: some tens of milliseconds
    const uint64_t now = Stamp();
    if (now - earlier_launch_stamp_.load(std::memory_order_relaxed) > kApart)
      earlier_launch_stamp_.store(now, std::memory_order_relaxed);
    return false;
  }
  const bool recorded = open_.load(std::memory_order_acquire);
  const std::atomic_ref mark(launches[correlation % kLaunches]);
  mark.store(Mark(correlation, recorded), std::memory_order_relaxed);
  if (!recorded) {
    earlier_launch_stamp_.store(Stamp(), std::memory_order_relaxed);
    return false;
  }
  std::atomic<uint32_t>& first = At(opened_.load(std::memory_order_relaxed) - 1).first_correlation;
  uint32_t none = 0;
  if (first.load(std::memory_order_relaxed) == 0)
    first.compare_exchange_strong(none, correlation, std::memory_order_relaxed);
  return true;
}

template <typename Precedes>
StepGate::Window& StepGate::FirstAfter(Precedes precedes) noexcept {
  const uint64_t opened = opened_.load(std::memory_order_acquire);
  uint64_t number = opened;
  const uint64_t oldest = Oldest(opened);
  while (number > oldest && precedes(At(number - 1))) --number;
  return At(number);
}

bool StepGate::KeepsWork(uint32_t correlation, uint64_t end_ns) noexcept {
  if (IsRecorded(correlation)) {
    if (on_demand()) kept_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  Window& window = FirstAfter([correlation](const Window& w) noexcept {
    const uint32_t first = w.first_correlation.load(std::memory_order_relaxed);
    return first == 0 || static_cast<int32_t>(first - correlation) > 0;
  });
  StoreMax(window.earlier_end_ns, end_ns);
  if (on_demand() && &window == &At(opened_.load(std::memory_order_relaxed)))
    behind_.fetch_add(1, std::memory_order_relaxed);
  return false;
}

bool StepGate::KeepsWait(uint64_t start_ns, uint64_t end_ns) noexcept {
  if (Holds(start_ns)) return true;
  Window& window = FirstAfter(
      [start_ns](const Window& w) noexcept { return w.begin_ns.load(std::memory_order_relaxed) > start_ns; });
  if (end_ns > window.wait_end_ns.load(std::memory_order_relaxed)) {
    window.wait_start_ns.store(start_ns, std::memory_order_relaxed);
    window.wait_end_ns.store(end_ns, std::memory_order_relaxed);
  }
  return false;
}

bool StepGate::Holds(uint64_t time_ns) const noexcept { return Overlaps(time_ns, time_ns); }

bool StepGate::Overlaps(uint64_t start_ns, uint64_t end_ns) const noexcept {
  const uint64_t opened = opened_.load(std::memory_order_acquire);
  const uint64_t oldest = Oldest(opened);
  for (uint64_t number = opened; number > oldest; --number) {
    const Window& window = At(number - 1);
    if (window.end_ns.load(std::memory_order_relaxed) <= start_ns) return false;  // and all before it
    if (window.begin_ns.load(std::memory_order_relaxed) <= end_ns) return true;
  }
  return false;
}

uint64_t StepGate::left_out_until_ns() const noexcept {
  const uint64_t stamp = earlier_launch_stamp_.load(std::memory_order_relaxed);
  return stamp == 0 ? 0 : host_clock.RealtimeNs(stamp);
}

void StepGate::TellTimes() noexcept {
  const uint64_t opened = opened_.load(std::memory_order_acquire);
  final_begins_ = std::max(final_begins_, Oldest(opened));
  final_ends_ = std::max(final_ends_, Oldest(opened));
  for (; final_begins_ < opened; ++final_begins_) {
    Window& window = At(final_begins_);
    const uint64_t stamp = window.begin_stamp.load(std::memory_order_relaxed);
    if (!host_clock.IsFinal(stamp)) break;
    window.begin_ns.store(host_clock.RealtimeNs(stamp), std::memory_order_relaxed);
  }
  for (; final_ends_ < final_begins_; ++final_ends_) {
    Window& window = At(final_ends_);
    if (window.end_ns.load(std::memory_order_acquire) == UINT64_MAX) break;
    const uint64_t stamp = window.end_stamp.load(std::memory_order_relaxed);
    if (!host_clock.IsFinal(stamp)) break;
    window.end_ns.store(host_clock.RealtimeNs(stamp), std::memory_order_relaxed);
  }
}

void StepGate::ReportSteps(bool final, void (*report)(void* to, const wire::RecordedStepRow& step) noexcept,
                           void* to) noexcept {
  if (final) {
    End();
    TellTimes();
  }
  const uint64_t until = final ? final_ends_ : closed_before_;
  closed_before_ = final_ends_;
  for (told_ = std::max(told_, Oldest(opened_.load(std::memory_order_acquire))); told_ < until; ++told_) {
    const Window& window = At(told_);
    if (window.has_no_steps.load(std::memory_order_relaxed)) continue;
    const uint64_t begin_ns = window.begin_ns.load(std::memory_order_relaxed);
    const uint64_t launch_stamp = window.earlier_launch_stamp.load(std::memory_order_relaxed);
    report(to, {.begin_ns = begin_ns,
                .end_ns = std::max(begin_ns, window.end_ns.load(std::memory_order_relaxed)),
                .index = window.index.load(std::memory_order_relaxed),
                .earlier_end_ns = window.earlier_end_ns.load(std::memory_order_relaxed),
                .earlier_launch_ns = launch_stamp == 0 ? 0 : host_clock.RealtimeNs(launch_stamp),
                .wait_start_ns = window.wait_start_ns.load(std::memory_order_relaxed),
                .wait_end_ns = window.wait_end_ns.load(std::memory_order_relaxed)});
  }
}

}  // namespace gpuprobe::injector
