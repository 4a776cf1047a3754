#include "collector/analysis/straggler_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>
#include <utility>

#include "collector/analysis/slow_ranks.h"
#include "collector/model/collective_kernels.h"

namespace gpuprobe::analysis {
namespace {

constexpr double kMadToSigma = 1.4826;
constexpr double kNoiseFloor = 0.01;  // of a step

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(middle), values.end());
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle] +
          *std::max_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(middle))) /
         2;
}

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

struct Candidate {
  const RankReport* rank = nullptr;
  StepMeans means;
  CausedWait caused;
  double threads = 0;  // launched, without NCCL's
};

double LaunchedThreads(const model::ProcessModel& process) {
  double threads = 0;
  process.ForEachSite([&](uint32_t name, const model::LaunchGeometry& geometry, uint64_t calls) {
    if (model::IsCollectiveKernel(process.String(name))) return;
    double each = 1;
    for (const uint32_t extent : geometry.grid) each *= std::max(extent, 1u);
    for (const uint32_t extent : geometry.block) each *= std::max(extent, 1u);
    threads += each * static_cast<double>(calls);
  });
  return threads;
}

std::vector<Candidate> Collect(const model::JobModel& job, const std::vector<RankReport>& ranks) {
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
                  .threads = LaunchedThreads(process)};
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

bool StandsOut(const std::vector<Candidate>& all, const Candidate& c, double step_ns) {
  const auto per_step = [](const Candidate& each) { return each.caused.per_step_ns; };
  if (c.caused.per_step_ns < kLeastShare * step_ns) return false;
  if (all.size() == 2) return c.caused.per_step_ns >= 3 * MedianOfOthers(all, c, per_step);
  std::vector<double> values;
  for (const Candidate& each : all) values.push_back(per_step(each));
  const double middle = Median(values);
  for (double& v : values) v = std::abs(v - middle);
  const double spread = std::max(kMadToSigma * Median(values), kNoiseFloor * step_ns);
  const bool persistent = c.caused.steps_blamed * 2 >= c.caused.steps;
  // What happened once, in one stretch of the run, does not come and go.
  const bool once = (c.caused.last_blamed_step - c.caused.first_blamed_step) * 3 < c.caused.steps;
  if (!persistent && once) return false;
  if ((c.caused.per_step_ns - middle) / spread >= kRobustScoreThreshold) return true;
  if (c.caused.steps_blamed < kLeastStepsBlamed) return false;
  const double in_blamed_ns =
      c.caused.per_step_ns * static_cast<double>(c.caused.steps) / static_cast<double>(c.caused.steps_blamed);
  if (in_blamed_ns < kLeastIntermittentShare * step_ns) return false;
  return std::all_of(all.begin(), all.end(), [&](const Candidate& each) {
    return &each == &c || each.caused.steps_blamed * 3 + 3 <= c.caused.steps_blamed;
  });
}

// What part of its step makes it late, and by how much.
std::pair<Straggler::Cause, double> CauseOf(const std::vector<Candidate>& all, const Candidate& c) {
  const auto extra = [&](auto get) { return get(c) - MedianOfOthers(all, c, get); };
  const double compute = extra([](const Candidate& each) { return each.means.compute_ns; });
  const std::array<std::pair<Straggler::Cause, double>, 4> parts{{
      {Straggler::Cause::kSlowKernels, compute},
      {Straggler::Cause::kLateLaunch,
       extra([](const Candidate& each) { return each.means.host_bound_ns + each.means.sync_ns; })},
      {Straggler::Cause::kLateInput, extra([](const Candidate& each) { return each.means.input_ns; })},
      {Straggler::Cause::kSlowCopies, extra([](const Candidate& each) { return each.means.copy_ns; })},
  }};
  auto [cause, most] = *std::max_element(parts.begin(), parts.end(),
                                         [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most < kLeastExplained * c.caused.per_step_ns) return {Straggler::Cause::kUnknown, 0};
  if (cause == Straggler::Cause::kSlowKernels) {
    const double work =
        c.threads / std::max(MedianOfOthers(all, c, [](const auto& e) { return e.threads; }), 1.0);
    const double time = c.means.compute_ns / std::max(c.means.compute_ns - compute, 1.0);
    if (work - 1 > 0.5 * (time - 1)) cause = Straggler::Cause::kMoreWork;
  }
  return {cause, most};
}

// In a pipeline stages wait for their neighbours by design, and who waits for a slow one makes the next one
// wait: the one that waits least for what it makes others wait, and takes longer than the other stages.
bool HoldsUpPipeline(const std::vector<Candidate>& all, const Candidate& c, double step_ns) {
  if (c.caused.pairs == 0) return false;
  const auto net = [](const Candidate& each) {
    return each.caused.pair_total_ns - each.caused.pair_waited_ns;
  };
  if (net(c) <= 0 || c.caused.pair_per_step_ns < kLeastShare * step_ns) return false;
  if (std::any_of(all.begin(), all.end(), [&](const Candidate& each) { return net(each) > net(c); }))
    return false;
  return CauseOf(all, c).second >= kLeastStageExcess * step_ns;
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

std::vector<Straggler> StragglersOf(const model::JobModel& job, const std::vector<RankReport>& ranks) {
  std::vector<Straggler> slow = SlowRanksOf(job, ranks);
  const std::vector<Candidate> all = Collect(job, ranks);
  std::vector<double> totals;
  for (const Candidate& c : all) totals.push_back(c.means.total_ns);
  const double step_ns = Median(totals);
  std::vector<Straggler> out;
  for (const Candidate& c : all) {
    const auto detail =
        std::find_if(slow.begin(), slow.end(), [&](const Straggler& s) { return s.rank == *c.rank->rank; });
    const bool comparable = all.size() > 1 && step_ns > 0;
    const bool stands_out = comparable && StandsOut(all, c, step_ns);
    const bool slow_stage = comparable && !stands_out && HoldsUpPipeline(all, c, step_ns);
    if (!stands_out && !slow_stage) continue;
    Straggler s;
    if (detail != slow.end()) {
      s = *detail;
      slow.erase(detail);
    }
    s.rank = *c.rank->rank;
    s.host = c.rank->host;
    s.device = c.rank->device;
    s.caused = c.caused;
    std::tie(s.cause, s.cause_ns_per_step) = CauseOf(all, c);
    s.slow_stage = slow_stage;
    if (slow_stage) {
      // A pipeline's step is longer by what its slowest stage takes longer for all microbatches.
      s.lost_ns_per_step = s.cause_ns_per_step;
    } else {
      // Steps are equally long everywhere: what exceeds in the straggler is exposed waiting in the others.
      const double exposed_elsewhere_ns =
          MedianOfOthers(all, c, [](const Candidate& e) { return e.means.exposed_comm_ns; });
      s.lost_ns_per_step =
          std::clamp(exposed_elsewhere_ns - c.means.exposed_comm_ns, 0.0, c.caused.per_step_ns);
    }
    s.throughput_loss = s.lost_ns_per_step / step_ns;
    s.persistent =
        slow_stage || static_cast<double>(c.caused.steps_blamed) >=
                          kPersistentShare * static_cast<double>(std::max<uint64_t>(c.caused.steps, 1));
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
    if (s.work_ratio - 1 <= 0.5 * (s.slowdown - 1)) out.push_back(std::move(s));
  }
  std::stable_sort(out.begin(), out.end(), [](const Straggler& a, const Straggler& b) {
    return a.caused.per_step_ns > b.caused.per_step_ns;
  });
  return out;
}

}  // namespace gpuprobe::analysis
