#include "collector/analysis/steps/step_report.h"

#include <algorithm>

#include "collector/analysis/root_of_squares.h"
#include "collector/model/job/job_model.h"
#include "collector/report/report.h"
#include "collector/report/words.h"

namespace gpuprobe::analysis {
namespace {

// Sums from which shares of overlap are made. What could be hidden at most is the smaller of a rank's compute
// and communication.
struct OverlapSums {
  double compute_ns = 0;
  double comm_ns = 0;
  double overlapped_ns = 0;
  double hideable_ns = 0;

  void Add(const model::StepStatistics& statistics) {
    const auto compute = static_cast<double>(statistics.compute_ns.total());
    const auto comm = static_cast<double>(statistics.comm_ns.total());
    compute_ns += compute;
    comm_ns += comm;
    overlapped_ns += static_cast<double>(statistics.overlapped_comm_ns.total());
    hideable_ns += std::min(compute, comm);
  }
};

// Standard error of a mean, times 1.96. Not less because the lost steps are so many of finitely many: a step
// is the same for all ranks, so that those which are left of several ranks are fewer than they look.
double MeanError(const model::Summary& seen) {
  return seen.count == 0 ? 0 : 1.96 * seen.std / std::sqrt(static_cast<double>(seen.count));
}

StepErrors ErrorsOf(const StepsReport& r) {
  const auto error = [](const model::Summary& seen) { return MeanError(seen); };
  StepErrors errors{.total_ns = error(r.time_ns),
                    .compute_ns = error(r.compute_ns),
                    .comm_ns = error(r.comm_ns),
                    .exposed_comm_ns = error(r.exposed_comm_ns),
                    .copy_ns = error(r.copy_ns),
                    .idle_ns = error(r.idle_ns),
                    .overlap_efficiency = std::nullopt};
  if (r.overlap_efficiency.has_value()) {
    // The error of a quotient; correlation between its parts would only make it smaller.
    const auto relative = [&](const model::Summary& seen) {
      return seen.mean > 0 ? error(seen) / seen.mean : 0;
    };
    const model::Summary& hideable = r.comm_ns.mean < r.compute_ns.mean ? r.comm_ns : r.compute_ns;
    errors.overlap_efficiency =
        *r.overlap_efficiency * RootOfSquares(relative(r.overlapped_comm_ns), relative(hideable));
  }
  return errors;
}

void Fill(const model::StepStatistics& statistics, const OverlapSums& sums, StepsReport& r) {
  r.time_ns = statistics.total_ns.Summarize();
  r.compute_ns = statistics.compute_ns.Summarize();
  r.comm_ns = statistics.comm_ns.Summarize();
  r.exposed_comm_ns = statistics.exposed_comm_ns.Summarize();
  r.overlapped_comm_ns = statistics.overlapped_comm_ns.Summarize();
  r.copy_ns = statistics.copy_ns.Summarize();
  r.idle_ns = statistics.idle_ns.Summarize();
  r.host_bound_ns = statistics.host_bound_ns.Summarize();
  r.input_ns = statistics.input_ns.Summarize();
  r.sync_ns = statistics.sync_ns.Summarize();
  r.memory_ns = statistics.memory_ns.Summarize();
  r.pause_ns = statistics.pause_ns.Summarize();
  r.pause_after_copy_ns = statistics.pause_after_copy_ns.Summarize();
  r.blocked_ns = statistics.blocked_ns.Summarize();
  r.blocked_calls = statistics.blocked_calls.Summarize();
  r.memory_calls = statistics.memory_calls.Summarize();
  r.launch_gap_ns = statistics.launch_gap_ns.Summarize();
  r.unknown_ns = statistics.unknown_ns.Summarize();
  r.incomplete_count = statistics.incomplete;
  r.estimated = statistics.estimated;
  if (sums.hideable_ns > 0) {
    r.overlap_efficiency = sums.overlapped_ns / sums.hideable_ns;
    r.hidden_comm_share = sums.overlapped_ns / sums.comm_ns;
  }
  if (r.incomplete_count > 0) r.errors = ErrorsOf(r);
  using Source = StepsReport::Phase::Source;
  const Source source = statistics.nvtx_phases == 0                             ? Source::kInferred
                        : statistics.nvtx_phases == statistics.total_ns.count() ? Source::kNvtx
                                                                                : Source::kMixed;
  for (size_t i = 0; i < model::kStepPhases; ++i) {
    r.phases.push_back({.name = static_cast<model::StepPhase>(i),
                        .source = source,
                        .time_ns = statistics.phase_ns[i].Summarize(),
                        .idle_ns = statistics.phase_idle_ns[i].Summarize()});
  }
}

std::optional<double> SpreadOf(const std::vector<RankReport>& all, double StepMeans::*part) {
  double sum = 0;
  double squares = 0;
  double ranks = 0;
  for (const RankReport& r : all) {
    if (r.step_means.steps == 0) continue;
    ranks += 1;
    sum += r.step_means.*part;
  }
  if (ranks < 2) return std::nullopt;
  for (const RankReport& r : all) {
    const double off = r.step_means.*part - sum / ranks;
    if (r.step_means.steps > 0) squares += off * off;
  }
  return std::sqrt(squares / (ranks - 1));
}

// What came too late to be put in its place makes the steps around it as doubtful as what was lost.
double ConfidenceOf(const model::Member& member) {
  const model::OperationJoiner::Totals& joins = member.process->joins();
  const uint64_t all = joins.joined + joins.unattributed;
  const double late = all == 0 ? 0 : static_cast<double>(joins.late) / static_cast<double>(all);
  return member.steps().confidence() * (1 - std::min(1.0, late));
}

}  // namespace

BetweenRanks BetweenRanksOf(const std::vector<RankReport>& ranks) {
  return {.total_ns = SpreadOf(ranks, &StepMeans::total_ns),
          .compute_ns = SpreadOf(ranks, &StepMeans::compute_ns),
          .exposed_comm_ns = SpreadOf(ranks, &StepMeans::exposed_comm_ns),
          .copy_ns = SpreadOf(ranks, &StepMeans::copy_ns),
          .idle_ns = SpreadOf(ranks, &StepMeans::idle_ns)};
}

std::optional<StepsReport> StepsOf(const model::Member& member, bool with_records) {
  const model::ProcessModel& process = *member.process;
  const model::StepTracker& steps = member.steps();
  if (steps.count() == 0) return std::nullopt;
  StepsReport r;
  r.count = steps.count();
  r.warmup_count = steps.warmup_count();
  r.source = (member.Follows() ? process.steps() : steps).source();
  r.confidence = ConfidenceOf(member);
  OverlapSums sums;
  sums.Add(steps.statistics());
  Fill(steps.statistics(), sums, r);
  if (with_records) {
    r.records.assign(steps.steps().begin(), steps.steps().end());
    // As the clock said.
    for (model::StepRecord& record : r.records) {
      const uint64_t back_ns = process.SetBackAt(record.end_ns);
      record.clock_step_ns -= static_cast<int64_t>(back_ns - process.SetBackAt(record.start_ns));
      record.start_ns = process.Realtime(record.start_ns);
      record.first_launch_ns = process.Realtime(record.first_launch_ns);
      record.end_ns -= back_ns;
    }
  }
  return r;
}

std::optional<StepsReport> StepsOf(const model::JobModel& job) {
  StepsReport r;
  r.confidence = 1;
  model::StepStatistics statistics;
  OverlapSums sums;
  for (const model::Member& member : job.ReportedMembers()) {
    const model::StepTracker& steps = member.steps();
    if (steps.count() == 0) continue;
    if (steps.count() > r.count) r.source = steps.source();
    r.count = std::max(r.count, steps.count());
    r.warmup_count = std::max(r.warmup_count, steps.warmup_count());
    r.confidence = std::min(r.confidence, ConfidenceOf(member));
    statistics.Merge(steps.statistics());
    sums.Add(steps.statistics());
  }
  if (r.count == 0) return std::nullopt;
  Fill(statistics, sums, r);
  return r;
}

}  // namespace gpuprobe::analysis
