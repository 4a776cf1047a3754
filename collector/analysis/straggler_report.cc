#include "collector/analysis/straggler_report.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "collector/analysis/lateness.h"
#include "collector/analysis/root_of_squares.h"
#include "collector/analysis/slow_ranks.h"
#include "collector/analysis/straggler_verdict.h"
#include "collector/analysis/thresholds.h"
#include "collector/model/calls/collective_kernels.h"
#include "collector/model/job/job_model.h"

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
double LastCallOf(const model::ProcessModel& process) {
  double latest_ns = 0;
  double time_ns = 0;
  for (const auto& [key, call] : process.steps().communication().calls()) {
    if (call.backward_steps == 0) continue;
    const double after_ns =
        static_cast<double>(call.after_backward_ns) / static_cast<double>(call.backward_steps);
    if (after_ns < latest_ns) continue;
    latest_ns = after_ns;
    time_ns = static_cast<double>(call.time_ns) / static_cast<double>(call.steps);
  }
  return time_ns;
}

// Mean per step: threads per call times calls per step, because a job that still runs has reported more of
// one rank than of another.
double LaunchedThreads(const model::ProcessModel& process) {
  double threads = 0;
  double all_calls = 0;
  process.ForEachSite([&](uint32_t name, const model::LaunchGeometry& geometry, uint64_t calls) {
    if (model::IsCollectiveKernel(process.String(name))) return;
    double each = 1;
    for (const uint32_t extent : geometry.grid) each *= std::max(extent, 1u);
    for (const uint32_t extent : geometry.block) each *= std::max(extent, 1u);
    threads += each * static_cast<double>(calls);
    all_calls += static_cast<double>(calls);
  });
  const model::StepWork& work = process.steps().work();
  double calls = 0;
  for (const auto& kernel : process.kernels()) calls += static_cast<double>(work.Of(kernel->token).calls);
  if (calls == 0 || all_calls == 0)
    return threads / static_cast<double>(std::max<uint64_t>(process.steps().count(), 1));
  return threads / all_calls * calls / static_cast<double>(work.steps());
}

// The evidence of each rank that has steps, and its label beside it.
struct Candidates {
  std::vector<RankEvidence> evidence;
  std::vector<const RankReport*> labels;
};

Candidates CollectCandidates(const model::JobModel& job, const std::vector<RankReport>& ranks) {
  const std::vector<model::LateSteps::Rank> late_steps = job.comparison().late_steps().Summarize().ranks;
  const std::vector<Lateness> lateness = LatenessOf(late_steps);
  Candidates out;
  for (size_t i = 0; i < job.processes().size(); ++i) {
    const model::ProcessModel& process = *job.processes()[i];
    const auto label = std::find_if(ranks.begin(), ranks.end(), [&](const RankReport& rank) {
      return rank.rank.has_value() && rank.pid == process.identity().pid() &&
             rank.host == process.identity().host();
    });
    if (label == ranks.end()) continue;
    RankEvidence evidence{.means = StepMeansOf(process),
                          .caused = CausedWaitOf(job, i),
                          .lateness = i < lateness.size() ? lateness[i] : Lateness{},
                          .when_late = {},
                          .threads = LaunchedThreads(process),
                          .last_call_ns = LastCallOf(process)};
    if (evidence.means.steps == 0) continue;
    if (evidence.lateness.late > 0)
      evidence.when_late = ExcessWhenLate(late_steps[i].levels[evidence.lateness.level]);
    out.evidence.push_back(std::move(evidence));
    out.labels.push_back(&*label);
  }
  return out;
}

}  // namespace

StepMeans StepMeansOf(const model::ProcessModel& process) {
  const model::StepStatistics& s = process.steps().statistics();
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
  out.launch_gap_ns = mean(s.launch_gap_ns);
  return out;
}

CausedWait CausedWaitOf(const model::JobModel& job, size_t process) {
  CausedWait out;
  const auto& all = job.comparison().blame();
  if (process >= all.size()) return out;
  const model::RankComparison::Blame& blame = all[process];
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
  out.first_blamed_step += static_cast<uint64_t>(
      job.comparison().alignment().Behind(static_cast<uint32_t>(process), out.first_blamed_step));
  out.last_blamed_step += static_cast<uint64_t>(
      job.comparison().alignment().Behind(static_cast<uint32_t>(process), out.last_blamed_step));
  if (blame.skipped + blame.estimated > 0 && AnyLost(job)) ScaleUp(all, blame, out);
  return out;
}

namespace {

// The load of their hosts, compared with that of the other ranks' hosts.
void AddHostLoads(const std::vector<RankReport>& ranks, std::vector<Straggler>& stragglers) {
  for (Straggler& s : stragglers) {
    std::vector<HostLoad> others;
    for (const RankReport& r : ranks) {
      if (r.rank == s.rank) {
        s.load = r.host_load;
      } else {
        others.push_back(r.host_load);
      }
    }
    s.usual_load = UsualLoad(others);
  }
}

// Takes the slow rank of that number out of the list, if it is there.
std::optional<Straggler> TakeRank(std::vector<Straggler>& slow, int rank) {
  const auto found =
      std::find_if(slow.begin(), slow.end(), [&](const Straggler& s) { return s.rank == rank; });
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
  std::vector<Straggler> out;
  for (size_t i = 0; i < field.ranks.size(); ++i) {
    const RankEvidence& evidence = field.ranks[i];
    const RankReport& label = *candidates.labels[i];
    const bool slow_kernels =
        std::any_of(slow.begin(), slow.end(), [&](const Straggler& s) { return s.rank == *label.rank; });
    const std::optional<StragglerVerdict> verdict = Judge(field, evidence, slow_kernels, pipeline);
    if (!verdict.has_value()) continue;
    Straggler s = TakeRank(slow, *label.rank).value_or(Straggler{});
    s.rank = *label.rank;
    s.host = label.host;
    s.device = label.device;
    s.caused = evidence.caused;
    s.slow_stage = verdict->slow_stage;
    s.late_steps = verdict->late_steps;
    s.compared_steps = verdict->compared_steps;
    s.since_step = verdict->since_step;
    s.stretch = verdict->stretch;
    s.persistent = verdict->persistent;
    s.cause = verdict->cause;
    s.cause_ns_per_step = verdict->cause_ns_per_step;
    s.lost_ns_per_step = verdict->lost_ns_per_step;
    s.throughput_loss = s.lost_ns_per_step / field.step_ns;
    if (s.slowdown == 0) s.slowdown = ComputeRatio(field, evidence).value_or(0);
    s.work_ratio = WorkRatio(field, evidence);
    out.push_back(std::move(s));
  }
  // Ranks with slower kernels that nobody is known to wait for. More threads are more work, not slower work.
  for (Straggler& s : slow) {
    const auto label = std::find_if(candidates.labels.begin(), candidates.labels.end(),
                                    [&](const RankReport* each) { return *each->rank == s.rank; });
    if (label != candidates.labels.end()) {
      const RankEvidence& evidence = field.ranks[static_cast<size_t>(label - candidates.labels.begin())];
      s.caused = evidence.caused;
      s.work_ratio = WorkRatio(field, evidence);
    }
    if (s.work_ratio - 1 <= thresholds::kMoreWorkShare * (s.slowdown - 1)) out.push_back(std::move(s));
  }
  AddHostLoads(ranks, out);
  std::stable_sort(out.begin(), out.end(), [](const Straggler& a, const Straggler& b) {
    return std::pair(a.lost_ns_per_step, a.caused.per_step_ns) >
           std::pair(b.lost_ns_per_step, b.caused.per_step_ns);
  });
  return out;
}

}  // namespace gpuprobe::analysis
