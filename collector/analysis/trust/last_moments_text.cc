#include "collector/analysis/trust/last_moments_text.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/names.h"
#include "collector/analysis/units.h"

namespace gpuprobe::analysis {
namespace {

// The end, or the last sign of life where nobody saw it.
const char* EndWord(const LastMoments& moments) {
  if (moments.ended_ns == 0) return "the last sign of life";
  return moments.collector_ended ? "the collector's end" : "the end";
}

}  // namespace

std::string TimeBefore(const LastMoments& moments, uint64_t time_ns) {
  if (time_ns == 0) return "at a time that is not known";
  const uint64_t until_ns = moments.until_ns();
  return absl::StrCat(Duration(static_cast<double>(until_ns - std::min(until_ns, time_ns))), " before ",
                      EndWord(moments));
}

std::string CallText(const LastMoments& moments, const LastCall& call) {
  std::vector<std::string> what;
  if (call.bytes > 0) what.push_back(Bytes(call.bytes));
  if (call.peer.has_value()) what.push_back(absl::StrCat("with rank ", *call.peer));
  if (call.ranks > 0) what.push_back(absl::StrCat(call.ranks, call.ranks == 1 ? " rank" : " ranks"));
  const bool hash = TellingName(call.communicator).empty();
  what.push_back(absl::StrCat("communicator ", hash ? ShortComm(call.communicator) : call.communicator));
  const std::string name =
      absl::StrCat(call.operation, " ", call.sequence, " (", absl::StrJoin(what, ", "), ")");
  if (call.left_ns == 0)
    return absl::StrCat(name, ", entered ", TimeBefore(moments, call.entered_ns), " and not returned");
  return absl::StrCat(name, ", which had returned ", TimeBefore(moments, call.left_ns),
                      call.result != 0 ? absl::StrCat(" with NCCL's error ", call.result) : "");
}

std::string MomentsText(const LastMoments& moments) {
  std::vector<std::string> parts;
  if (!moments.calls.empty())
    parts.push_back(absl::StrCat(moments.calls.front().left_ns == 0 ? "inside " : "last called ",
                                 CallText(moments, moments.calls.front())));
  if (!moments.threads.empty() && moments.threads.front().main && !moments.threads.front().ranges.empty())
    parts.push_back(absl::StrCat("in the range ", moments.threads.front().ranges.back()));
  if (moments.stack.has_value() && !moments.stack->python.empty())
    parts.push_back(absl::StrCat("at ", PythonPlace(moments.stack->python), " ",
                                 TimeBefore(moments, moments.stack->at_ns)));
  return absl::StrJoin(parts, "; ");
}

}  // namespace gpuprobe::analysis
