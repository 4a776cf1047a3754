#include "collector/analysis/communication/call_trace_report.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "collector/analysis/names.h"
#include "collector/analysis/thresholds.h"
#include "collector/analysis/units.h"
#include "collector/model/job/job_model.h"

namespace gpuprobe::analysis {
namespace {

using Trace = model::CallTrace;

TracedRank RankOf(const v1::Identity& id, const Trace::Process& its, const Trace::Sums& sums) {
  TracedRank r;
  if (HasRank(id)) r.rank = id.rank();
  r.pid = id.pid();
  r.calls = its.calls;
  r.steps = its.steps;
  if (its.steps > 0) r.step_ns = static_cast<double>(its.steps_ns) / static_cast<double>(its.steps);
  r.longest_step_ns = static_cast<double>(its.longest_step_ns);
  r.timed_calls = its.timed;
  r.gpu_ns = static_cast<double>(its.gpu_ns);
  r.compared_calls = sums.compared;
  r.last_calls = sums.last;
  r.late_ns = static_cast<double>(sums.late_ns);
  r.early_ns = static_cast<double>(sums.early_ns);
  if (its.last_ns > its.first_ns) r.late_share = r.late_ns / static_cast<double>(its.last_ns - its.first_ns);
  return r;
}

std::string HowCompared(bool by_gpu) {
  return by_gpu ? "by the time that each collective was on each GPU, as NCCL reports it"
                : "by when hosts issued them; a slow GPU that its host runs ahead of does not show "
                  "(GPUPROBE_NCCL_TIMES=1 asks NCCL for times on the GPU)";
}

std::string Statement(const CallTraceReport& report, const TracedRank* late, bool by_gpu) {
  if (report.compared_by.empty())
    return "No collective was compared across ranks, so it is not known whether one is late.";
  if (late == nullptr) {
    return absl::StrCat("No rank is late at collectives by ", Percent(thresholds::kLateCallsShare),
                        " of the time or more: compared ", HowCompared(by_gpu), ".");
  }
  const auto share = static_cast<double>(late->last_calls) / static_cast<double>(late->compared_calls);
  const std::string a_step =
      late->steps == 0
          ? ""
          : absl::StrCat(", ", Duration(late->late_ns / static_cast<double>(late->steps)), " a step");
  return absl::StrCat("The other ranks wait for rank ", *late->rank, " in collectives, ",
                      Percent(late->late_share), " of the time", a_step, ": it is the last at ",
                      Percent(share), " of ", Count(late->compared_calls), " collectives, compared ",
                      HowCompared(by_gpu),
                      ". How much of the wait their computation hides is not known at this level.");
}

RaisedDetail RaiseOf(const v1::DetailRaise& raise) {
  RaisedDetail r;
  r.decided_ns = raise.decided_ns();
  r.reason = raise.reason();
  if (raise.rank() >= 0) r.rank = raise.rank();
  r.ranks.assign(raise.ranks().begin(), raise.ranks().end());
  r.outcome = raise.outcome();
  r.failed = raise.failed();
  return r;
}

}  // namespace

std::optional<CallTraceReport> CallTraceOf(const model::JobModel& job) {
  const Trace& trace = job.trace();
  const bool by_gpu = trace.compares_gpus();
  std::optional<CallTraceReport> report;
  for (size_t i = 0; i < job.processes().size(); ++i) {
    const model::ProcessModel& process = *job.processes()[i];
    if (process.hello().level() != v1::RECORDING_LEVEL_CALLS) continue;
    if (!report.has_value()) report.emplace();
    static const Trace::Process kNothing;
    const Trace::Process& its = i < trace.processes().size() ? trace.processes()[i] : kNothing;
    report->ranks.push_back(RankOf(process.identity(), its, trace.SumsOf(its)));
    if (report->ranks.back().compared_calls > 0) report->compared_by = by_gpu ? "gpu" : "host";
  }
  if (!report.has_value()) return report;
  std::stable_sort(report->ranks.begin(), report->ranks.end(), [](const TracedRank& a, const TracedRank& b) {
    return a.rank.value_or(INT32_MAX) < b.rank.value_or(INT32_MAX);
  });
  const auto latest =
      std::max_element(report->ranks.begin(), report->ranks.end(),
                       [](const TracedRank& a, const TracedRank& b) { return a.late_share < b.late_share; });
  const bool is_late = latest->rank.has_value() && latest->late_share >= thresholds::kLateCallsShare;
  if (is_late) report->late_rank = latest->rank;
  report->statement = Statement(*report, is_late ? &*latest : nullptr, by_gpu);
  for (const v1::DetailRaise& raise : trace.raises()) report->raises.push_back(RaiseOf(raise));
  return report;
}

}  // namespace gpuprobe::analysis
