#include "collector/records/host_stretches.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/records/system_calls.h"

namespace gpuprobe::model {
namespace {

bool IsSamePlace(const HostSampleRecord& a, const HostSampleRecord& b) {
  return a.frame == b.frame && a.call == b.call && a.system_call == b.system_call && a.file == b.file &&
         a.state == b.state;
}

}  // namespace

HostStretch HostStretches::Begin(const HostSampleRecord& r, uint64_t not_before_ns) {
  const uint64_t start_ns = r.in_gap ? std::max(r.since_ns, not_before_ns) : r.time_ns;
  return {.last = r,
          .start_ns = std::min(start_ns, r.time_ns),
          .end_ns = r.time_ns,
          .run_delay_ns = r.run_delay_ns,
          .samples = 1};
}

bool HostStretches::Extend(HostStretch& stretch, const HostSampleRecord& r) {
  const bool follows =
      r.in_gap && stretch.last.in_gap && r.since_ns <= stretch.end_ns && r.time_ns >= stretch.end_ns;
  if (!follows || !IsSamePlace(stretch.last, r)) return false;
  stretch.last = r;
  stretch.end_ns = r.time_ns;
  stretch.run_delay_ns += r.run_delay_ns;
  ++stretch.samples;
  return true;
}

std::string_view ThreadStateWord(v1::ThreadState state) {
  switch (state) {
    case v1::THREAD_STATE_RUNNING:
      return "running";
    case v1::THREAD_STATE_SLEEPING:
      return "sleeping";
    case v1::THREAD_STATE_UNINTERRUPTIBLE:
      return "uninterruptible";
    case v1::THREAD_STATE_STOPPED:
      return "stopped";
    default:
      return "";
  }
}

std::string_view HostPlaceName(const HostSampleRecord& r, const Definitions& definitions) {
  if (r.call != 0 && definitions.Knows(r.call)) return definitions.String(r.call);
  for (const v1::HostFrame* frame = definitions.FindFrame(r.frame); frame != nullptr;
       frame = definitions.FindFrame(frame->caller())) {
    if (!definitions.String(frame->function()).empty()) return definitions.String(frame->function());
  }
  const std::string_view system_call = r.system_call < 0 ? "" : SystemCallOf(r.system_call).name;
  if (!system_call.empty()) return system_call;
  const std::string_view state = ThreadStateWord(r.state);
  return state.empty() ? "not known" : state;
}

std::vector<std::string> PythonStackOf(const HostSampleRecord& r, const Definitions& definitions) {
  std::vector<std::string> stack;
  for (const v1::HostFrame* frame = definitions.FindFrame(r.frame); frame != nullptr;
       frame = definitions.FindFrame(frame->caller())) {
    if (stack.size() == kDeepestShown) {
      stack.back() = "...";
      break;
    }
    const std::string& file = definitions.String(frame->file());
    std::string text = definitions.String(frame->function());
    if (text.empty()) text = "?";
    if (!file.empty()) {
      const std::string line = frame->line() == 0 ? "" : absl::StrCat(":", frame->line());
      absl::StrAppend(&text, " (", file, line, ")");
    }
    stack.push_back(std::move(text));
  }
  return stack;
}

}  // namespace gpuprobe::model
