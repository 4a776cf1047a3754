#include "collector/analysis/hangs/hang_evidence.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/hangs/process_state.h"
#include "collector/analysis/names.h"
#include "collector/analysis/thresholds.h"

namespace gpuprobe::analysis {
namespace {

using model::HostProgress;
using model::ProcessModel;

// A launch that so many later ones have overtaken is not what a collective waits for: it has no record (lost,
// or of a kind that is not recorded), or runs beside everything else.
constexpr size_t kOvertaken = 256;

uint64_t LaunchesAfter(const ProcessModel& process, uint64_t time_ns) {
  uint64_t launches = 0;
  process.launches().ForEach([&](const model::CorrelationRing::Slot& slot) {
    if (slot.launched && slot.launch_ns > time_ns) ++launches;
  });
  return launches;
}

}  // namespace

uint64_t AliveNs(const ProcessModel& process) {
  const HostProgress& p = process.progress();
  return std::max(
      {p.last_launch_ns, p.last_device_end_ns, p.last_io_ns, p.last_call.return_ns, p.last_left_out_ns});
}

uint64_t LastHeardNs(const ProcessModel& process) {
  return std::max(process.totals().last_clock_ns, process.totals().last_ns);
}

bool IsGone(const ProcessModel& process, uint64_t now_ns) {
  return Ended(process) && Since(now_ns, LastHeardNs(process)) > thresholds::kHangSilentNs;
}

uint64_t NowOf(const ProcessModel& process, uint64_t now_ns) {
  const uint64_t heard_ns = LastHeardNs(process);
  return Ended(process) || Since(now_ns, heard_ns) > thresholds::kHangSilentNs ? now_ns
                                                                               : std::min(now_ns, heard_ns);
}

bool HeardAllLaunches(const ProcessModel& process) {
  const ProcessModel::Totals& totals = process.totals();
  const v1::DetailLevel level = totals.self.detail_level();
  if (totals.launches == 0 || totals.batches_missing != 0) return false;
  if (!process.has_gpu_times()) return false;
  if (level != v1::DETAIL_LEVEL_FULL && level != v1::DETAIL_LEVEL_GRAPHS) return false;
  const auto lost = [&](v1::LossReason reason) {
    const auto found = totals.losses.find(reason);
    return found != totals.losses.end() && found->second != 0;
  };
  return !lost(v1::LOSS_EVENT_RING_FULL) && !lost(v1::LOSS_THREAD_SLOTS_FULL) &&
         !lost(v1::LOSS_SEND_QUEUE_FULL) && !lost(v1::LOSS_NOT_CONNECTED) && !lost(v1::LOSS_AT_EXIT);
}

LaunchedBefore LaunchesBefore(const ProcessModel& process, LaunchOf from) {
  LaunchedBefore out;
  uint64_t call_correlation = from.correlation != 0 ? from.correlation : UINT64_MAX;
  if (from.plan != 0) {
    process.launches().ForEach([&](const model::CorrelationRing::Slot& slot) {
      if (slot.plan == from.plan) call_correlation = std::min(call_correlation, slot.correlation);
    });
  }
  if (call_correlation != UINT64_MAX) out.correlation = call_correlation;
  std::vector<uint64_t> ended;
  std::vector<std::pair<uint64_t, uint64_t>> unfinished;  // correlation, plan
  process.launches().ForEach([&](const model::CorrelationRing::Slot& slot) {
    if (slot.matched && slot.end_ns != 0) ended.push_back(slot.correlation);  // else it was captured
    if (slot.correlation >= call_correlation || !slot.launched) return;
    if (slot.matched) {
      out.end_ns = std::max(out.end_ns, slot.end_ns);
    } else if (slot.launch_ns > process.progress().last_wait_end_ns) {
      unfinished.emplace_back(slot.correlation, slot.plan);
    }
  });
  uint64_t overtaken = 0;
  if (ended.size() > kOvertaken) {
    const auto at = ended.end() - static_cast<ptrdiff_t>(kOvertaken);
    std::nth_element(ended.begin(), at, ended.end());
    overtaken = *at;
  }
  for (const auto& [correlation, other_plan] : unfinished) {
    if (correlation >= overtaken)
      (other_plan == 0 ? out.others : out.plans).push_back(other_plan == 0 ? correlation : other_plan);
  }
  return out;
}

uint64_t LaunchesSinceLastPlan(const ProcessModel& process, LaunchOf from) {
  uint64_t end = UINT64_MAX;
  uint64_t begin = 0;
  process.launches().ForEach([&](const model::CorrelationRing::Slot& slot) {
    if (from.plan != 0 && slot.plan == from.plan) end = std::min(end, slot.correlation);
  });
  process.launches().ForEach([&](const model::CorrelationRing::Slot& slot) {
    if (slot.plan != 0 && slot.correlation < end) begin = std::max(begin, slot.correlation);
  });
  uint64_t launches = 0;
  process.launches().ForEach([&](const model::CorrelationRing::Slot& slot) {
    if (slot.launched && slot.correlation > begin && slot.correlation < end) ++launches;
  });
  return launches;
}

bool EndedWell(const ProcessModel& process) {
  if (!Ended(process)) return false;
  const v1::ProcessEnd& end = process.condition().end();
  if (end.known()) return end.signal() == 0 && end.exit_code() == 0;
  return process.end_state() == model::EndState::kSaidBye ||
         process.end_state() == model::EndState::kSaidByeIncomplete;
}

std::optional<int> RankOf(const ProcessModel& process) {
  return HasRank(process.identity()) ? std::optional(process.identity().rank()) : std::nullopt;
}

HangRank DescribeRank(const ProcessModel& process, HangRank::State state, uint64_t now_ns) {
  const v1::Identity& id = process.identity();
  const HostProgress& p = process.progress();
  HangRank r;
  r.rank = RankOf(process);
  r.label = r.rank.has_value() ? absl::StrCat(id.rank()) : absl::StrCat("pid ", id.pid());
  r.host = id.host();
  r.pid = id.pid();
  r.state = state;
  r.ended = IsGone(process, now_ns);
  if (p.last_call.issue_ns != 0) {
    r.last_op = process.String(p.last_call.op);
    const v1::Communicator* known = process.FindCommunicator(p.last_call.comm);
    r.last_comm = known == nullptr ? "unknown" : CommName(known->hash());
    r.last_seq = p.last_call.seq;
    r.last_captured = process.collectives().IsCaptured(p.last_call.plan);
    r.last_issue_ago_ns = Since(now_ns, p.last_call.issue_ns);
    if (p.last_call.done_ns != 0) r.last_done_ago_ns = Since(now_ns, p.last_call.done_ns);
    if (!p.last_call.traced) r.launches_since = LaunchesAfter(process, p.last_call.return_ns);
  }
  if (p.last_launch_ns != 0) r.last_launch_ago_ns = Since(now_ns, p.last_launch_ns);
  r.halt = HaltOf(process, now_ns);
  const uint64_t silent_ns = Since(now_ns, LastHeardNs(process));
  if (!Ended(process) && silent_ns > thresholds::kHangSilentNs) r.silent_ns = silent_ns;
  if (p.blocked_in != 0) r.blocked_in = process.String(p.blocked_in);
  r.open_range = absl::StrJoin(p.open_ranges, "/", [&](std::string* out, uint32_t name) {
    absl::StrAppend(out, process.String(name));
  });
  return r;
}

}  // namespace gpuprobe::analysis
