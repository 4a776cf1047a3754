#include "collector/analysis/stragglers/straggler_report.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "collector/analysis/communication/call_trace_report.h"
#include "collector/analysis/hangs/process_state.h"
#include "collector/analysis/host_time.h"
#include "collector/analysis/members.h"
#include "collector/analysis/root_of_squares.h"
#include "collector/analysis/stragglers/lateness.h"
#include "collector/analysis/stragglers/rank_work.h"
#include "collector/analysis/stragglers/slow_ranks.h"
#include "collector/analysis/stragglers/straggler_verdict.h"
#include "collector/analysis/thresholds.h"
#include "collector/analysis/work/gpu_health.h"
#include "collector/model/job/job_model.h"
#include "collector/records/collective_kernels.h"

namespace gpuprobe::analysis {
namespace {

bool AnyLost(const model::JobModel& job) {
  return std::any_of(job.processes().begin(), job.processes().end(), [](const auto& process) {
    const auto& losses = process->totals().losses;
    if (process->totals().batches_missing > 0) return true;
    return std::any_of(losses.begin(), losses.end(), [](const auto& loss) { return loss.second > 0; });
  });
}

// From the calls that could be compared to all of them. Losses come in stretches, so calls of one step are
// compared together or not at all, and who comes last in one often does in the others: a step counts as one
// sample. A rank that never came last among few may have in the others (Laplace's rule), for as long as ranks
// usually do.
void ScaleUp(const std::vector<model::RankComparison::Blame>& all, const model::RankComparison::Blame& blame,
             CausedWait& wait) {
  const auto compared = static_cast<double>(blame.compared + blame.estimated);
  wait.compared_share = 0;
  if (compared == 0) return;
  const double calls = compared + static_cast<double>(blame.skipped);
  const double scale = calls / compared;
  wait.compared_share = static_cast<double>(blame.compared) / calls;
  wait.estimated_share = static_cast<double>(blame.estimated) / calls;
  wait.total_ns = wait.pair_total_ns + (wait.total_ns - wait.pair_total_ns) * scale;
  wait.mean_ns *= scale;
  wait.waited_ns *= scale;
  wait.per_step_ns *= scale;
  if (wait.steps == 0) return;
  double squares = 0;
  double last = 0;
  for (const model::RankComparison::Blame& each : all) {
    squares += static_cast<double>(each.caused_squares);
    last += static_cast<double>(each.last_arrivals);
  }
  const double share = (static_cast<double>(blame.last_arrivals) + 1) / (compared + 2);
  const double mean = static_cast<double>(blame.caused_mean_ns) / compared;
  const double own = static_cast<double>(blame.caused_squares) / compared - mean * mean;
  const double usual = last > 0 ? share * squares / last : 0;
  const double finite = (calls - compared) / std::max(calls - 1, 1.0);
  const double calls_per_step = std::max(calls / static_cast<double>(wait.steps), 1.0);
  const double call_error_ns = std::sqrt(std::max(own, usual) / compared * calls_per_step * finite);
  // Calls that were estimated err alike within a step, too.
  const double estimates = std::sqrt(static_cast<double>(blame.estimated_variance) * calls_per_step) * scale;
  wait.per_step_error_ns =
      1.96 * RootOfSquares(call_error_ns * calls, estimates) / static_cast<double>(wait.steps);
}

// Per step in which it was late.
Excess ExcessWhenLate(const model::LateSteps::Level& level) {
  const auto late = static_cast<double>(level.late);
  return {.late_ns = static_cast<double>(level.late_by_ns) / late,
          .compute_ns = static_cast<double>(level.compute_ns) / late,
          .host_ns = static_cast<double>(level.host_ns) / late,
          .input_ns = static_cast<double>(level.input_ns) / late,
          .copy_ns = static_cast<double>(level.copy_ns) / late};
}

// Mean over its steps; 0 where no backward is known.
double LastCallOf(const model::Member& member) {
  double latest_ns = 0;
  double time_ns = 0;
  for (const auto& [key, call] : member.steps().communication().calls()) {
    if (call.backward_steps == 0) continue;
    const double after_ns =
        static_cast<double>(call.after_backward_ns) / static_cast<double>(call.backward_steps);
    if (after_ns < latest_ns) continue;
    latest_ns = after_ns;
    time_ns = static_cast<double>(call.time_ns) / static_cast<double>(call.steps);
  }
  return time_ns;
}

// The evidence of each rank that has steps, and its label beside it.
struct Candidates {
  std::vector<RankEvidence> evidence;
  std::vector<const RankReport*> labels;
  model::Members members;
};

Candidates CollectCandidates(const model::JobModel& job, const std::vector<RankReport>& ranks) {
  const std::vector<model::LateSteps::Rank> late_steps = job.comparison().late_steps().Summarize().ranks;
  const std::vector<Lateness> lateness = LatenessOf(late_steps);
  const std::optional<CallTraceReport> trace = CallTraceOf(job);
  Candidates out;
  std::vector<RankWork> work;
  for (const model::Member& member : job.ReportedMembers()) {
    const uint32_t i = member.number;
    const RankReport* label = RankReportOf(ranks, member);
    if (label == nullptr || !label->IsCompared()) continue;
    RankEvidence evidence{.means = StepMeansOf(member),
                          .caused = label->caused,
                          .lateness = i < lateness.size() ? lateness[i] : Lateness{},
                          .when_late = {},
                          .work = {},
                          .last_call_ns = LastCallOf(member),
                          .late_at_calls = trace.has_value() && trace->late_rank.has_value() &&
                                           label->rank == trace->late_rank};
    if (evidence.means.steps == 0) continue;
    if (evidence.lateness.late > 0)
      evidence.when_late = ExcessWhenLate(late_steps[i].levels[evidence.lateness.level]);
    out.evidence.push_back(std::move(evidence));
    out.labels.push_back(label);
    out.members.push_back(member);
    work.push_back(KernelWorkOf(member));
  }
  const std::vector<WorkDifference> differences = WorkDifferencesOf(work);
  for (size_t i = 0; i < differences.size(); ++i) out.evidence[i].work = differences[i];
  return out;
}

}  // namespace

StepMeans StepMeansOf(const model::Member& member) {
  const model::StepStatistics& s = member.steps().statistics();
  StepMeans out;
  out.steps = s.total_ns.count();
  if (out.steps == 0) return out;
  const auto mean = [&](const model::Distribution& d) {
    return d.count() == 0 ? 0 : static_cast<double>(d.total()) / static_cast<double>(d.count());
  };
  out.total_ns = mean(s.total_ns);
  out.compute_ns = mean(s.compute_ns);
  out.comm_ns = mean(s.comm_ns);
  out.exposed_comm_ns = mean(s.exposed_comm_ns);
  out.copy_ns = mean(s.copy_ns);
  out.idle_ns = mean(s.idle_ns);
  out.host_bound_ns = mean(s.host_bound_ns);
  out.input_ns = mean(s.input_ns);
  out.sync_ns = mean(s.sync_ns);
  out.memory_ns = mean(s.memory_ns);
  out.pause_ns = mean(s.pause_ns);
  out.pause_after_copy_ns = mean(s.pause_after_copy_ns);
  out.launch_gap_ns = mean(s.launch_gap_ns);
  return out;
}

CausedWait CausedWaitOf(const model::JobModel& job, const model::Member& member, bool pipeline) {
  CausedWait out;
  const auto& all = job.comparison().blame();
  if (member.number >= all.size()) return out;
  const model::RankComparison::Blame& blame = all[member.number];
  out.total_ns = static_cast<double>(blame.caused_ns);
  out.mean_ns = static_cast<double>(blame.caused_mean_ns);
  out.waited_ns = static_cast<double>(blame.waited_ns);
  out.last_arrivals = blame.last_arrivals;
  out.steps = blame.step_ns.count();
  if (out.steps > 0)
    out.per_step_ns = static_cast<double>(blame.step_ns.total()) / static_cast<double>(out.steps);
  out.steps_blamed = blame.steps_blamed;
  out.first_blamed_step = blame.first_blamed;
  out.last_blamed_step = blame.last_blamed;
  out.pairs = blame.pairs;
  out.pair_total_ns = static_cast<double>(blame.pair_caused_ns);
  out.pair_waited_ns = static_cast<double>(blame.pair_waited_ns);
  if (blame.pair_step_ns.count() > 0) {
    out.pair_per_step_ns =
        static_cast<double>(blame.pair_step_ns.total()) / static_cast<double>(blame.pair_step_ns.count());
  }
  if (!pipeline) {
    out.per_step_ns += out.pair_per_step_ns;
    out.pairs = 0;
    out.pair_total_ns = out.pair_per_step_ns = out.pair_waited_ns = 0;
  }
  out.first_blamed_step +=
      static_cast<uint64_t>(job.comparison().alignment().Behind(member.number, out.first_blamed_step));
  out.last_blamed_step +=
      static_cast<uint64_t>(job.comparison().alignment().Behind(member.number, out.last_blamed_step));
  if (blame.skipped + blame.estimated > 0 && AnyLost(job)) ScaleUp(all, blame, out);
  return out;
}

namespace {

// The load of their hosts and the health of their GPUs, compared with those of the other ranks.
void AddConditions(const std::vector<RankReport>& ranks, std::vector<Straggler>& stragglers) {
  for (Straggler& s : stragglers) {
    std::vector<HostLoad> loads;
    std::vector<GpuHealth> healths;
    for (const RankReport& r : ranks) {
      if (s.Is(r)) {
        s.load = r.host_load;
        s.gpu_health = r.gpu_health;
      } else {
        loads.push_back(r.host_load);
        healths.push_back(r.gpu_health);
      }
    }
    s.usual_load = UsualLoad(loads);
    s.usual_gpu_health = UsualHealth(healths);
  }
}

// What its host does while the others wait, of what samples and calls show.
std::vector<HostPlaceReport> HostOf(const model::JobModel& job, const Candidates& candidates, size_t rank,
                                    const Straggler& s) {
  using Cause = Straggler::Cause;
  if (s.cause != Cause::kLateLaunch && s.cause != Cause::kLateInput && s.cause != Cause::kUnknown) return {};
  const model::Member& member = candidates.members[rank];
  if (s.persistent) return HostPlacesBeyond(member, candidates.members);
  std::vector<PacedStep> steps;
  // If nothing in its own steps shows why it is late, it is late when it comes to them.
  for (const uint64_t step : s.step_numbers)
    steps.push_back({.step = step, .member = member.number, .with_previous = s.cause == Cause::kUnknown});
  return HostPlacesIn(job, steps);
}

// Takes that slow rank out of the list, if it is there.
std::optional<Straggler> TakeRank(std::vector<Straggler>& slow, const RankReport& rank) {
  const auto found = std::find_if(slow.begin(), slow.end(), [&](const Straggler& s) { return s.Is(rank); });
  if (found == slow.end()) return std::nullopt;
  Straggler taken = std::move(*found);
  slow.erase(found);
  return taken;
}

}  // namespace

std::vector<Straggler> StragglersOf(const model::JobModel& job, const std::vector<RankReport>& ranks,
                                    const std::optional<Pipeline>& pipeline) {
  std::vector<Straggler> slow = SlowRanksOf(job, ranks);
  Candidates candidates = CollectCandidates(job, ranks);
  const RankField field(std::move(candidates.evidence));
  double mean_step_ns = 0;
  for (const RankEvidence& each : field.ranks)
    mean_step_ns += each.means.total_ns / static_cast<double>(field.ranks.size());
  std::vector<Straggler> out;
  for (size_t i = 0; i < field.ranks.size(); ++i) {
    const RankEvidence& evidence = field.ranks[i];
    const RankReport& label = *candidates.labels[i];
    const bool slow_kernels =
        std::any_of(slow.begin(), slow.end(), [&](const Straggler& s) { return s.Is(label); });
    const std::optional<StragglerVerdict> verdict = Judge(field, evidence, slow_kernels, pipeline);
    if (!verdict.has_value()) continue;
    Straggler s = TakeRank(slow, label).value_or(Straggler{});
    s.IdentifyAs(label);
    s.caused = evidence.caused;
    s.slow_stage = verdict->slow_stage;
    s.late_steps = verdict->late_steps;
    s.compared_steps = verdict->compared_steps;
    s.since_step = verdict->since_step;
    if (const auto& stretch = verdict->stretch; stretch.has_value())
      s.stretch = Stretch{.first_step = stretch->first, .last_step = stretch->second};
    s.step_numbers = verdict->step_numbers;
    s.pattern = verdict->pattern;
    s.long_for_all = verdict->long_for_all;
    s.slowdown_when_late = verdict->slowdown_when_late;
    s.persistent = verdict->persistent;
    s.cause = verdict->cause;
    s.host_does = HostDoesOf(field, evidence);
    s.host_places = HostOf(job, candidates, i, s);
    s.cause_ns_per_step = verdict->cause_ns_per_step;
    s.lost_ns_per_step = verdict->lost_ns_per_step;
    s.throughput_loss = s.lost_ns_per_step / mean_step_ns;
    s.work = evidence.work;
    // Of steps, if possible: in the warm-up kernels are slow on all ranks.
    if (s.work.known) {
      s.slowdown = s.work.slowdown;
    } else if (s.slowdown == 0) {
      s.slowdown = ComputeRatio(field, evidence).value_or(0);
    }
    if (s.kernel.empty() || !s.work.kernel.name.empty()) {
      s.kernel = s.work.kernel.name;
      s.kernel_mean_ns = s.work.kernel.mean_ns;
      s.kernel_elsewhere_ns = s.work.kernel.usual_mean_ns;
    }
    out.push_back(std::move(s));
  }
  // Ranks with slower kernels that nobody is known to wait for. More work is not slower work.
  for (Straggler& s : slow) {
    const auto label = std::find_if(candidates.labels.begin(), candidates.labels.end(),
                                    [&](const RankReport* each) { return s.Is(*each); });
    if (label != candidates.labels.end()) {
      const RankEvidence& evidence = field.ranks[static_cast<size_t>(label - candidates.labels.begin())];
      s.caused = evidence.caused;
      s.work = evidence.work;
    }
    if (!s.work.IsMore()) out.push_back(std::move(s));
  }
  AddConditions(ranks, out);
  std::erase_if(out, [&](const Straggler& s) { return MachineExplains(s, field.step_ns); });
  std::stable_sort(out.begin(), out.end(), [](const Straggler& a, const Straggler& b) {
    return std::pair(a.lost_ns_per_step, a.caused.per_step_ns) >
           std::pair(b.lost_ns_per_step, b.caused.per_step_ns);
  });
  return out;
}

}  // namespace gpuprobe::analysis
