#include "collector/analysis/straggler_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>
#include <utility>

#include "collector/analysis/lateness.h"
#include "collector/analysis/median.h"
#include "collector/analysis/slow_ranks.h"
#include "collector/analysis/thresholds.h"
#include "collector/model/collective_kernels.h"

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
      1.96 * std::hypot(call_error_ns * calls, estimates) / static_cast<double>(wait.steps);
}

// By which parts of its steps exceed the other ranks': means over all its steps, or over those in which it
// was late.
struct Excess {
  double late_ns = 0;  // to be explained
  double compute_ns = 0;
  double host_ns = 0;
  double input_ns = 0;
  double copy_ns = 0;
};

// Per step in which it was late.
Excess ExcessWhenLate(const model::LateSteps::Level& level) {
  const auto late = static_cast<double>(level.late);
  return {.late_ns = static_cast<double>(level.late_by_ns) / late,
          .compute_ns = static_cast<double>(level.compute_ns) / late,
          .host_ns = static_cast<double>(level.host_ns) / late,
          .input_ns = static_cast<double>(level.input_ns) / late,
          .copy_ns = static_cast<double>(level.copy_ns) / late};
}

struct Candidate {
  const RankReport* rank = nullptr;
  StepMeans means;
  CausedWait caused;
  Lateness lateness;
  Excess when_late;
  double threads = 0;       // launched in a step, without NCCL's
  double last_call_ns = 0;  // how long the call takes it that starts last in a step
};

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

// Of one step, on average. Of a job that goes on more was heard of one rank than of another: threads a call,
// times calls a step.
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

std::vector<Candidate> Collect(const model::JobModel& job, const std::vector<RankReport>& ranks) {
  const std::vector<model::LateSteps::Rank> late_steps = job.comparison().late_steps().Summarize().ranks;
  const std::vector<Lateness> lateness = LatenessOf(late_steps);
  std::vector<Candidate> out;
  for (size_t i = 0; i < job.processes().size(); ++i) {
    const model::ProcessModel& process = *job.processes()[i];
    for (const RankReport& rank : ranks) {
      if (!rank.rank.has_value() || rank.pid != process.identity().pid() ||
          rank.host != process.identity().host())
        continue;
      Candidate c{.rank = &rank,
                  .means = StepMeansOf(process),
                  .caused = CausedWaitOf(job, i),
                  .lateness = {},
                  .when_late = {},
                  .threads = LaunchedThreads(process),
                  .last_call_ns = LastCallOf(process)};
      if (i < lateness.size() && lateness[i].late > 0) {
        c.lateness = lateness[i];
        c.when_late = ExcessWhenLate(late_steps[i].levels[lateness[i].level]);
      } else if (i < lateness.size()) {
        c.lateness = lateness[i];
      }
      if (c.means.steps > 0) out.push_back(std::move(c));
      break;
    }
  }
  return out;
}

template <typename Get>
double MedianOfOthers(const std::vector<Candidate>& all, const Candidate& but, Get get) {
  std::vector<double> values;
  for (const Candidate& c : all) {
    if (&c != &but) values.push_back(get(c));
  }
  return Median(std::move(values));
}

// By what it caused in all, where steps cannot be compared: in a pipeline, or where records were lost.
bool StandsOutInAll(const std::vector<Candidate>& all, const Candidate& c, double step_ns) {
  const auto per_step = [](const Candidate& each) { return each.caused.per_step_ns; };
  if (c.caused.per_step_ns < thresholds::kWaitedStepShare * step_ns) return false;
  if (all.size() == 2)
    return c.caused.per_step_ns >= thresholds::kWaitedOfTwoRatio * MedianOfOthers(all, c, per_step);
  if (static_cast<double>(c.caused.steps_blamed) <
      thresholds::kBlamedStepsShare * static_cast<double>(c.caused.steps))
    return false;
  std::vector<double> values;
  values.reserve(all.size());
  for (const Candidate& each : all) values.push_back(per_step(each));
  const double middle = Median(values);
  for (double& v : values) v = std::abs(v - middle);
  const double spread = std::max(kMadToSigma * Median(values), thresholds::kNoiseFloorShare * step_ns);
  return (c.caused.per_step_ns - middle) / spread >= thresholds::kRobustZScore;
}

bool ComparedByStep(const Candidate& c) {
  return c.caused.pairs == 0 && c.lateness.steps * 2 >= c.caused.steps && c.lateness.steps > 0;
}

// `slow_kernels`: its kernels are slower than elsewhere, which tells of each of them: that it is late then is
// no chance, however few steps there are.
bool StandsOut(const std::vector<Candidate>& all, const Candidate& c, double step_ns, bool slow_kernels) {
  if (!ComparedByStep(c)) return StandsOutInAll(all, c, step_ns);
  const bool by_chance =
      c.lateness.by_chance && !(slow_kernels && c.lateness.share() >= thresholds::kPersistentStepsShare);
  return !by_chance && c.lateness.longer_by_ns >= thresholds::kLateLongerStepShare * step_ns &&
         c.lateness.lost_ns_per_step() >= thresholds::kLateCostStepShare * step_ns;
}

Excess ExcessOf(const std::vector<Candidate>& all, const Candidate& c) {
  const auto extra = [&](auto get) { return get(c) - MedianOfOthers(all, c, get); };
  // Of calls that overlap compute the others wait for it in several at a time: by step it is late once.
  const double late_ns = ComparedByStep(c) && c.lateness.late > 0 ? c.lateness.late_by_ns * c.lateness.share()
                                                                  : c.caused.per_step_ns;
  return {.late_ns = late_ns,
          .compute_ns = extra([](const Candidate& each) { return each.means.compute_ns; }),
          .host_ns = extra([](const Candidate& e) { return e.means.host_bound_ns + e.means.sync_ns; }),
          .input_ns = extra([](const Candidate& each) { return each.means.input_ns; }),
          .copy_ns = extra([](const Candidate& each) { return each.means.copy_ns; })};
}

// What part of its step makes it late, and by how much.
std::pair<Straggler::Cause, double> CauseOf(const std::vector<Candidate>& all, const Candidate& c,
                                            const Excess& excess) {
  const std::array<std::pair<Straggler::Cause, double>, 4> parts{{
      {Straggler::Cause::kSlowKernels, excess.compute_ns},
      {Straggler::Cause::kLateLaunch, excess.host_ns},
      {Straggler::Cause::kLateInput, excess.input_ns},
      {Straggler::Cause::kSlowCopies, excess.copy_ns},
  }};
  auto [cause, most] = *std::max_element(parts.begin(), parts.end(),
                                         [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most < thresholds::kExplainedDelayShare * excess.late_ns) return {Straggler::Cause::kUnknown, 0};
  if (cause == Straggler::Cause::kSlowKernels) {
    const double elsewhere_ns =
        MedianOfOthers(all, c, [](const Candidate& each) { return each.means.compute_ns; });
    const double work =
        c.threads / std::max(MedianOfOthers(all, c, [](const auto& e) { return e.threads; }), 1.0);
    const double time = c.means.compute_ns / std::max(elsewhere_ns, 1.0);
    if (work - 1 > thresholds::kMoreWorkShare * (time - 1)) cause = Straggler::Cause::kMoreWork;
  }
  return {cause, most};
}

// A rank that launches late hides less of its own communication, too: launched in time, it would hide what
// the others hide, but for the call that nothing follows.
double ExposedByLateness(const std::vector<Candidate>& all, const Candidate& c) {
  if (c.last_call_ns <= 0) return 0;
  const double hidden_ns = MedianOfOthers(
      all, c, [](const Candidate& each) { return each.means.comm_ns - each.means.exposed_comm_ns; });
  const double in_time_ns = std::max(c.means.comm_ns - hidden_ns, c.last_call_ns);
  return std::max(c.means.exposed_comm_ns - in_time_ns, 0.0);
}

// A step of a pipeline whose stages all compute for as long as the others do: one microbatch after the other,
// and as often as there are more stages nothing; beside that what this rank's device does not compute anyway.
double BalancedPipelineNs(const std::vector<Candidate>& all, const Candidate& c, const Pipeline& pipeline) {
  const double others_ns =
      MedianOfOthers(all, c, [](const Candidate& each) { return each.means.compute_ns; });
  const double stages_before = std::max(pipeline.stages - 1, 0);
  return others_ns * (1 + stages_before / std::max(pipeline.microbatches, 1)) + c.means.idle_ns +
         c.means.copy_ns;
}

bool TakesLongerInPipeline(const std::vector<Candidate>& all, const Candidate& c, double step_ns) {
  return c.caused.pairs > 0 &&
         CauseOf(all, c, ExcessOf(all, c)).second >= thresholds::kSlowStageStepShare * step_ns;
}

// In a pipeline stages wait for their neighbours by design, and who waits for a slow one makes the next one
// wait: the one that waits least for what it makes others wait, and takes longer than the other stages.
bool HoldsUpPipeline(const std::vector<Candidate>& all, const Candidate& c, double step_ns) {
  const auto net = [](const Candidate& each) {
    return each.caused.pair_total_ns - each.caused.pair_waited_ns;
  };
  if (net(c) <= 0 || c.caused.pair_per_step_ns < thresholds::kWaitedStepShare * step_ns) return false;
  if (std::any_of(all.begin(), all.end(), [&](const Candidate& each) { return net(each) > net(c); }))
    return false;
  return TakesLongerInPipeline(all, c, step_ns);
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

// What their hosts did to them, beside what those of the others did.
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

bool BlamedInMost(const Candidate& c) {
  return static_cast<double>(c.caused.steps_blamed) >=
         thresholds::kPersistentStepsShare * static_cast<double>(std::max<uint64_t>(c.caused.steps, 1));
}

}  // namespace

std::vector<Straggler> StragglersOf(const model::JobModel& job, const std::vector<RankReport>& ranks,
                                    const std::optional<Pipeline>& pipeline) {
  std::vector<Straggler> slow = SlowRanksOf(job, ranks);
  const std::vector<Candidate> all = Collect(job, ranks);
  std::vector<double> totals;
  totals.reserve(all.size());
  for (const Candidate& c : all) totals.push_back(c.means.total_ns);
  const double step_ns = Median(totals);
  std::vector<Straggler> out;
  for (const Candidate& c : all) {
    const auto detail =
        std::find_if(slow.begin(), slow.end(), [&](const Straggler& s) { return s.rank == *c.rank->rank; });
    const bool comparable = all.size() > 1 && step_ns > 0;
    const bool stands_out = comparable && StandsOut(all, c, step_ns, detail != slow.end());
    // One of several ranks of a stage makes the others of them wait, too.
    const bool slow_stage = comparable && (stands_out ? TakesLongerInPipeline(all, c, step_ns)
                                                      : HoldsUpPipeline(all, c, step_ns));
    if (!stands_out && !slow_stage) continue;
    Straggler s;
    if (detail != slow.end()) s = *detail;
    s.rank = *c.rank->rank;
    s.host = c.rank->host;
    s.device = c.rank->device;
    s.caused = c.caused;
    s.slow_stage = slow_stage;
    const bool by_step = !slow_stage && ComparedByStep(c);
    if (by_step) {
      s.late_steps = c.lateness.late;
      s.compared_steps = c.lateness.steps;
      // Steps are late from a share of the step on, and a rank whose lateness is about that share crosses it
      // by chance: if it is waited for in most steps, it is late in most, though few of them count as late. A
      // rank that is late by far more is late only in the steps that count.
      constexpr double kAboutThat = 2;
      const bool about_that = c.lateness.late_by_ns < kAboutThat * model::LateSteps::kLateShares[0] * step_ns;
      s.since_step = c.lateness.since_step;
      s.persistent = c.lateness.share() >= thresholds::kPersistentStepsShare ||
                     (about_that && BlamedInMost(c)) || c.lateness.since_step.has_value();
      if (!s.persistent) s.stretch = c.lateness.stretch;
    } else {
      s.persistent = slow_stage || BlamedInMost(c);
    }
    if (by_step && c.lateness.share() < thresholds::kPersistentStepsShare) {
      std::tie(s.cause, s.cause_ns_per_step) = CauseOf(all, c, c.when_late);
      s.cause_ns_per_step *= c.lateness.share();
    } else {
      std::tie(s.cause, s.cause_ns_per_step) = CauseOf(all, c, ExcessOf(all, c));
    }
    if (slow_stage) {
      // A pipeline's step is longer by what its slowest stage takes longer for all microbatches, less what
      // that takes from the time in which it stands still itself.
      s.lost_ns_per_step = s.cause_ns_per_step;
      if (pipeline.has_value()) {
        s.lost_ns_per_step =
            std::clamp(c.means.total_ns - BalancedPipelineNs(all, c, *pipeline), 0.0, s.cause_ns_per_step);
      }
    } else if (by_step) {
      s.lost_ns_per_step = c.lateness.lost_ns_per_step();
      if (s.persistent && s.cause == Straggler::Cause::kLateLaunch)
        s.lost_ns_per_step += ExposedByLateness(all, c);
      s.lost_ns_per_step = std::min(s.lost_ns_per_step, c.caused.per_step_ns);
    } else {
      // Steps are equally long everywhere: what exceeds in the straggler is exposed waiting in the others.
      const double exposed_elsewhere_ns =
          MedianOfOthers(all, c, [](const Candidate& e) { return e.means.exposed_comm_ns; });
      s.lost_ns_per_step =
          std::clamp(exposed_elsewhere_ns - c.means.exposed_comm_ns, 0.0, c.caused.per_step_ns);
    }
    // It is late, and the others wait for another one.
    if (by_step && s.lost_ns_per_step < thresholds::kLateCostStepShare * step_ns) continue;
    if (detail != slow.end()) slow.erase(detail);
    s.throughput_loss = s.lost_ns_per_step / step_ns;
    const double elsewhere = MedianOfOthers(all, c, [](const Candidate& e) { return e.means.compute_ns; });
    if (s.slowdown == 0 && elsewhere > 0) s.slowdown = c.means.compute_ns / elsewhere;
    s.work_ratio =
        c.threads / std::max(MedianOfOthers(all, c, [](const Candidate& e) { return e.threads; }), 1.0);
    out.push_back(std::move(s));
  }
  // Slower kernels for whom nobody waits, or of whom that is not known; more threads are more work, not
  // slower.
  for (Straggler& s : slow) {
    const auto c = std::find_if(all.begin(), all.end(),
                                [&](const Candidate& each) { return *each.rank->rank == s.rank; });
    if (c != all.end()) {
      s.caused = c->caused;
      s.work_ratio =
          c->threads / std::max(MedianOfOthers(all, *c, [](const Candidate& e) { return e.threads; }), 1.0);
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
