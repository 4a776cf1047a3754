#include "collector/cli/autopsy_screen.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "collector/analysis/trust/last_moments_text.h"
#include "collector/analysis/units.h"
#include "collector/report/json.h"
#include "proto/flight_ring.h"

namespace gpuprobe::cli {
namespace {

using analysis::LastCall;
using analysis::LastMoments;

constexpr size_t kCallsShown = 4;
constexpr size_t kThreadsShown = 4;

// The collective calls of one process on the communicator.
const LastCall* CallOn(const LastMoments& moments, const std::string& communicator) {
  const auto found = std::find_if(moments.calls.begin(), moments.calls.end(), [&](const LastCall& call) {
    return call.communicator == communicator && !call.peer.has_value();
  });
  return found == moments.calls.end() ? nullptr : &*found;
}

std::string SharedCommunicator(const std::vector<LastMoments>& all) {
  std::map<std::string, std::pair<size_t, uint64_t>> users;  // and the calls of the busiest
  for (const LastMoments& moments : all) {
    for (const LastCall& call : moments.calls) {
      auto& [count, calls] = users[call.communicator];
      ++count;
      calls = std::max(calls, call.calls);
    }
  }
  const auto most = std::max_element(users.begin(), users.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == users.end() ? "" : most->first;
}

void AddLine(std::string& text, const std::string& title, const std::string& line) {
  constexpr size_t kColumn = 11;
  absl::StrAppend(&text, "  ", title, std::string(kColumn - std::min(kColumn, title.size()), ' '), line,
                  "\n");
}

std::string HowItEnded(const LastMoments& moments) {
  const auto when = [](uint64_t time_ns) {
    return absl::FormatTime("%Y-%m-%d %H:%M:%E3S UTC", absl::FromUnixNanos(static_cast<int64_t>(time_ns)),
                            absl::UTCTimeZone());
  };
  if (moments.ended_ns != 0)
    return absl::StrCat(moments.collector_ended ? "the collector ended at " : "ended at ",
                        when(moments.ended_ns));
  return absl::StrCat("no end was seen; last sign of life at ", when(moments.seen_ns));
}

std::string SectionOf(const LastMoments& moments) {
  std::string text = absl::StrCat(moments.Name(), ": ");
  if (!moments.unreadable.empty()) return absl::StrCat(text, "not readable: ", moments.unreadable, "\n");
  absl::StrAppend(&text, HowItEnded(moments), "\n");
  if (!moments.job.empty() || !moments.attempt.empty())
    AddLine(text, "job",
            absl::StrCat(moments.job,
                         moments.attempt.empty() ? "" : absl::StrCat(", restart ", moments.attempt)));
  for (size_t i = 0; i < std::min(moments.calls.size(), kCallsShown); ++i) {
    const LastCall& call = moments.calls[i];
    AddLine(text, i == 0 ? "NCCL" : "",
            absl::StrCat(call.left_ns == 0 ? "inside " : "", analysis::CallText(moments, call)));
  }
  if (moments.calls.size() > kCallsShown)
    AddLine(text, "",
            absl::StrCat("and of ", moments.calls.size() - kCallsShown, " more communicators (--json)"));
  if (moments.stack.has_value()) {
    std::string title = "Python";
    for (const analysis::PythonFrame& frame : moments.stack->python) {
      AddLine(
          text, title,
          absl::StrCat(
              analysis::PythonFrameText(frame),
              title.empty() ? "" : absl::StrCat(", ", analysis::TimeBefore(moments, moments.stack->at_ns))));
      title.clear();
    }
  }
  for (size_t i = 0; i < std::min(moments.threads.size(), kThreadsShown); ++i) {
    const analysis::LastThread& thread = moments.threads[i];
    const std::string who = thread.main ? "main thread" : absl::StrCat("thread ", thread.tid);
    if (!thread.ranges.empty())
      AddLine(text, "range", absl::StrCat(absl::StrJoin(thread.ranges, " > "), " (", who, ")"));
    if (thread.launches > 0)
      AddLine(text, "launches",
              absl::StrCat(analysis::Count(thread.launches), " (", who, "), the last ",
                           analysis::TimeBefore(moments, thread.launched_ns)));
  }
  for (const analysis::LastFailure& failure : moments.failures)
    AddLine(text, "failed",
            absl::StrCat(failure.call.empty() ? failure.kind : failure.call, " with error ", failure.code,
                         failure.bytes > 0 ? absl::StrCat(", ", analysis::Bytes(failure.bytes)) : "", ", ",
                         analysis::TimeBefore(moments, failure.at_ns)));
  if (moments.torn > 0)
    AddLine(
        text, "torn",
        absl::StrCat(moments.torn, moments.torn == 1 ? " record is" : " records are", " torn, and left out"));
  if (moments.threads_left_out > 0)
    AddLine(text, "left out",
            absl::StrCat(moments.threads_left_out, " threads beyond the first ", flight::kThreads));
  if (moments.communicators_left_out > 0)
    AddLine(text, "left out",
            absl::StrCat(moments.communicators_left_out, " communicators, for younger ones"));
  return text;
}

}  // namespace

void SortByProgress(std::vector<LastMoments>& all) {
  const std::string shared = SharedCommunicator(all);
  std::stable_sort(all.begin(), all.end(), [&](const LastMoments& a, const LastMoments& b) {
    const LastCall* x = CallOn(a, shared);
    const LastCall* y = CallOn(b, shared);
    if ((x == nullptr) != (y == nullptr)) return y == nullptr;
    if (x != nullptr && x->sequence != y->sequence) return x->sequence < y->sequence;
    return a.seen_ns < b.seen_ns;
  });
}

std::string AutopsyText(const std::vector<LastMoments>& all) {
  std::vector<std::string> parts;
  parts.reserve(all.size());
  for (const LastMoments& moments : all) parts.push_back(SectionOf(moments));
  return absl::StrJoin(parts, "\n");
}

nlohmann::ordered_json AutopsyJson(const std::vector<LastMoments>& all) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const LastMoments& moments : all) json.push_back(report::ToJson(moments));
  return {{"processes", json}};
}

}  // namespace gpuprobe::cli
