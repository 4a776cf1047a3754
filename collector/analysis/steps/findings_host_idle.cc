// Findings about GPUs that have nothing to do because of their hosts: no CPU, no memory, input, launches,
// synchronisation, pauses.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collector/analysis/finding_rules.h"
#include "collector/analysis/hangs/process_state.h"
#include "collector/analysis/host_time.h"
#include "collector/analysis/median.h"
#include "collector/analysis/stragglers/rank_groups.h"
#include "collector/analysis/thresholds.h"
#include "collector/analysis/units.h"
#include "collector/model/process/process_model.h"
#include "collector/report/report.h"

namespace gpuprobe::analysis {
namespace {

constexpr double kLeastKnown = 0.25;  // of the time: what is known of less says nothing of the rest

// Ranks that the others wait for: their own findings say why.
class BlamedRanks {
 public:
  explicit BlamedRanks(const Report& report) {
    for (const Straggler& s : report.stragglers) {
      if (s.lost_ns_per_step > 0) stragglers_.push_back(&s);
    }
    if (const std::optional<RankGroups> groups = RankGroupsThatWait(report); groups.has_value())
      slower_.insert(groups->slower.begin(), groups->slower.end());
  }
  bool empty() const { return stragglers_.empty() && slower_.empty(); }
  bool Contains(const RankReport& rank) const {
    return (rank.rank.has_value() && slower_.contains(*rank.rank)) ||
           std::any_of(stragglers_.begin(), stragglers_.end(),
                       [&](const Straggler* s) { return s->Is(rank); });
  }
  // How much of what its host does in a step its own finding explains; all of a slower group's.
  double ExplainedNs(const RankReport& rank) const {
    if (rank.rank.has_value() && slower_.contains(*rank.rank)) return rank.step_means.total_ns;
    double ns = 0;
    for (const Straggler* s : stragglers_) {
      if (s->Is(rank)) ns = std::max({ns, s->cause_ns_per_step, s->lost_ns_per_step});
    }
    return ns;
  }

 private:
  std::vector<const Straggler*> stragglers_;
  std::set<int> slower_;
};

using Part = model::Summary StepsReport::*;

// What a few long steps have more of the part than others, as a mean over all steps: they have a finding of
// their own.
double InLongSteps(const Report& report, Part part) {
  using S = StepsReport;
  using C = LongStepsReport::Content;
  static constexpr std::pair<Part, double C::*> kParts[] = {
      {&S::compute_ns, &C::compute_ns},
      {&S::exposed_comm_ns, &C::exposed_comm_ns},
      {&S::copy_ns, &C::copy_ns},
      {&S::host_bound_ns, &C::host_bound_ns},
      {&S::input_ns, &C::input_ns},
      {&S::sync_ns, &C::sync_ns},
      {&S::memory_ns, &C::memory_ns},
      {&S::pause_ns, &C::pause_ns},
      {&S::pause_after_copy_ns, &C::after_copy_ns},
  };
  if (!report.long_steps.has_value()) return 0;
  const LongStepsReport& all = *report.long_steps;
  const auto found =
      std::find_if(std::begin(kParts), std::end(kParts), [part](const auto& of) { return of.first == part; });
  if (found == std::end(kParts) || all.compared_steps == 0) return 0;
  return std::max(all.content.*found->second, 0.0) * static_cast<double>(all.steps.size()) /
         static_cast<double>(all.compared_steps);
}

// The part's length in an ordinary step.
double Usual(const Report& report, const StepsReport& steps, Part part) {
  const model::Summary& all = steps.*part;
  if (!report.long_steps.has_value()) return all.mean;
  return std::max(all.mean - InLongSteps(report, part), std::min(all.mean, all.p50));
}

// Median over the processes that are not blamed, of two the lower one: one rank's trouble is not the job's.
// If all are blamed, each for a little, what is left of theirs is the job's. Of several GPUs of a process the
// one with least of it: while another one works, the host may wait for that.
double UsualOfRanks(const Report& report, Part part) {
  const BlamedRanks blamed(report);
  const bool all = std::all_of(report.ranks.begin(), report.ranks.end(), [&](const RankReport& r) {
    return blamed.Contains(r) || !r.steps.has_value();
  });
  std::vector<double> usual;
  std::map<std::pair<std::string, uint32_t>, double> of_processes;  // with several
  for (const RankReport& r : report.ranks) {
    if (!r.steps.has_value() || (blamed.Contains(r) && !all)) continue;
    const double own = std::max(Usual(report, *r.steps, part) - (all ? blamed.ExplainedNs(r) : 0), 0.0);
    if (!r.is_device) {
      usual.push_back(own);
      continue;
    }
    const auto [known, added] = of_processes.try_emplace({r.host, r.pid}, own);
    known->second = std::min(known->second, own);
  }
  for (const auto& [process, value] : of_processes) usual.push_back(value);
  return usual.empty() ? 0 : LowerMedian(std::move(usual));
}

bool DrivesSeveral(const Report& report) {
  return std::any_of(report.ranks.begin(), report.ranks.end(),
                     [](const RankReport& r) { return r.is_device; });
}

std::string OfTheStep(const Report& report, double ns) { return Percent(ns / report.steps->time_ns.mean); }

// What a finding says: the mean of the table of steps, unless something else explains part of that.
double SaidOf(const Report& report, Part part) {
  const bool alone = BlamedRanks(report).empty() && !report.long_steps.has_value() && !DrivesSeveral(report);
  return alone ? ((*report.steps).*part).mean : UsualOfRanks(report, part);
}

// What of the step this part takes, if it takes `least` of it on the median rank. The figure is the step
// table's, unless single ranks or a few long steps, which have findings of their own, contribute to that.
std::optional<double> TakenBy(const Report& report, Part part, double least) {
  if (UsualOfRanks(report, part) < least * report.steps->time_ns.mean) return std::nullopt;
  return SaidOf(report, part);
}

// The GPU has nothing to do because of the host, for reasons that a host without a CPU would give, too: not
// because of calls that allocate memory, or copies to the host, which are seen themselves.
double HostIdle(const Report& report) {
  double ns = -UsualOfRanks(report, &StepsReport::pause_after_copy_ns);
  for (const auto part :
       {&StepsReport::host_bound_ns, &StepsReport::input_ns, &StepsReport::sync_ns, &StepsReport::pause_ns})
    ns += UsualOfRanks(report, part);
  return std::max(ns, 0.0);
}

// What recorded calls say needs no samples.
std::string SampleCount(uint64_t samples) {
  return samples == 0 ? "measured" : absl::StrCat(Count(samples), samples == 1 ? " sample" : " samples");
}

// What the host does while the GPU is idle for this cause, as far as that is known.
struct HostCause {
  const HostPlaceReport* place = nullptr;  // that explains most of it
  std::string besides = {};                // other places; all, if none explains most
  uint64_t samples = 0;
  double known = 1;  // share of the time of which it is known where the host is

  // ": it is in ...", or nothing
  std::string Text() const { return place == nullptr ? "" : absl::StrCat(": ", HostDoesWhat(*place)); }
  // A sentence, or nothing.
  std::string Besides() const {
    if (besides.empty()) return "";
    if (place != nullptr) return absl::StrCat(" Besides: ", besides, ".");
    if (known < kLeastKnown)
      return absl::StrCat(" It is known where the host is for ", Percent(known), " of that time (",
                          SampleCount(samples), "), which says nothing of the rest: ", besides, ".");
    return absl::StrCat(" The host is in several places (", SampleCount(samples), "): ", besides, ".");
  }
};

// In place of evidence.
constexpr char kNoSamples[] =
    " Samples of the host would show it, and none were taken (GPUPROBE_HOST_SAMPLES).";

HostCause HostCauseOf(const Report& report, model::IdleCause cause) {
  const HostTimeReport* const time = HostTimeOf(report.host_time, cause);
  if (time == nullptr) return {};
  const HostPlaceReport* const place = ExplainedBy(time->places, time->ns_per_step);
  return {.place = place,
          .besides = PlacesText(time->places, place),
          .samples = time->samples,
          .known = 1 - time->not_sampled_ns_per_step / std::max(time->ns_per_step, 1.0)};
}

// Hosts that waited for what their kernel counts, a CPU or memory: the median rank's share of the time, how
// long GPUs are idle because of their hosts, and how much of that it explains; 0 where that is less than most
// of it.
struct HostWait {
  double share = 0;
  double idle_ns = 0;
  double ns = 0;
  double sampled_share = 0;  // of what samples say of that idle time
};

// What the kernel counts is of the whole run: it says something of steps that are most of it.
bool StepsAreMostOf(const RankReport& r) {
  return r.steps.has_value() && r.host_load.observed_s > 0 &&
         static_cast<double>(r.steps->time_ns.total) >=
             thresholds::kWarmupRunShare * 1e9 * r.host_load.observed_s;
}

HostWait WaitOf(const Report& report, double HostLoad::*waits) {
  std::vector<double> shares;
  for (const RankReport& r : report.ranks) {
    if (StepsAreMostOf(r)) shares.push_back(r.host_load.*waits);
  }
  if (shares.empty()) return {};
  HostWait wait{.share = LowerMedian(std::move(shares)), .idle_ns = HostIdle(report)};
  const double waits_ns = wait.share * report.steps->time_ns.mean;
  if (waits_ns >= thresholds::kStarvedIdleShare * wait.idle_ns) wait.ns = std::min(waits_ns, wait.idle_ns);
  return wait;
}

// The same for a CPU, of which samples of the launching threads say more than counters of all threads.
HostWait CpuWaitOf(const Report& report) {
  HostWait wait = WaitOf(report, &HostLoad::waits_for_cpu);
  double known_ns = 0;
  double no_cpu_ns = 0;
  for (const HostTimeReport& time : report.host_time) {
    if (time.cause == model::IdleCause::kBlocked) continue;
    known_ns += time.ns_per_step - time.not_sampled_ns_per_step;
    for (const HostPlaceReport& place : time.places) no_cpu_ns += place.no_cpu ? place.ns_per_step : 0;
  }
  const double idle_ns = HostIdle(report);
  if (known_ns <= 0 || 2 * known_ns < idle_ns || no_cpu_ns < thresholds::kStarvedIdleShare * known_ns)
    return wait;
  wait.idle_ns = idle_ns;
  wait.ns = std::max(wait.ns, std::min(no_cpu_ns, idle_ns));
  wait.sampled_share = no_cpu_ns / known_ns;
  return wait;
}

}  // namespace

bool EnoughSteps(const Report& report) {
  if (!report.steps.has_value()) return false;
  const StepsReport& s = *report.steps;  // time_ns counts those of all ranks
  return s.count >= s.warmup_count + thresholds::kSteadySteps &&
         s.time_ns.count >= thresholds::kSteadySteps && s.time_ns.mean > 0;
}

std::vector<HostLoad> HostLoadsOf(const Report& report) {
  std::vector<HostLoad> loads;
  for (const RankReport& r : report.ranks) loads.push_back(r.host_load);
  return loads;
}

bool Starved(const Report& report) {
  return EnoughSteps(report) &&
         CpuWaitOf(report).ns >= thresholds::kStarvedStepShare * report.steps->time_ns.mean;
}

namespace {

// How kernels are launched already, if not one by one: shares of all kernels.
struct Launching {
  double by_graphs = 0;
  double compiled = 0;
};

Launching LaunchingOf(const Report& report) {
  uint64_t by_graphs = 0;
  for (const RankReport& r : report.ranks) by_graphs += r.graph_kernels;
  const auto kernels = static_cast<double>(report.compute.kernels);
  return {.by_graphs = static_cast<double>(by_graphs) / kernels,
          .compiled = static_cast<double>(report.compute.compiled_kernels) / kernels};
}

std::string LaunchedAlready(const Launching& launching) {
  std::string text;
  if (launching.by_graphs > 0)
    absl::StrAppend(&text, " CUDA graphs launch ", Percent(launching.by_graphs), " of them.");
  if (launching.compiled > 0)
    absl::StrAppend(&text, " torch.compile made ", Percent(launching.compiled), " of them.");
  return text;
}

// Leaves out what the program does already.
std::string LaunchAdvice(const Launching& launching, bool fused_optimizer) {
  const std::string fewer = fused_optimizer ? "larger batches need fewer launches."
                                            : "fused optimizers and larger batches need fewer launches.";
  if (launching.by_graphs >= thresholds::kMostKernels)
    return absl::StrCat("Make fewer and longer graphs, with the optimizer inside; ", fewer);
  if (launching.by_graphs > 0)
    return absl::StrCat("Move the kernels that are launched one by one into CUDA graphs, too; ", fewer);
  if (launching.compiled > 0)
    return absl::StrCat("torch.compile(mode=\"reduce-overhead\") launches what is compiled as CUDA graphs; ",
                        fewer);
  return absl::StrCat("CUDA graphs or torch.compile launch many kernels at once; ", fewer);
}

// Graphs that are made anew instead of being launched again: where they are, a host that launches late, or
// pauses, does that.
bool MakesGraphsAnew(const Report& report) {
  const ComputeReport& c = report.compute;
  return c.graphs >= thresholds::kSteadySteps * report.ranks.size() &&
         static_cast<double>(c.graph_launches) <
             thresholds::kGraphLaunchesWorthIt * static_cast<double>(c.graphs);
}

std::string NewGraphsText(const Report& report) {
  return absl::StrCat(" ", Count(report.compute.graphs), " CUDA graphs were launched ",
                      Count(report.compute.graph_launches),
                      " times in all: capturing and instantiating them takes the host's time.");
}

constexpr char kKeepGraphs[] =
    "A graph pays if it is launched often: pad batches to a few lengths and keep one graph for each, or "
    "leave "
    "what changes its shape out of graphs (torch.compile without mode=\"reduce-overhead\").";

void CpuStarved(const Report& report, std::vector<Finding>& out) {
  if (!Starved(report)) return;
  const HostWait wait = CpuWaitOf(report);
  const HostLoad* throttled = nullptr;
  for (const RankReport& r : report.ranks) {
    if (StepsAreMostOf(r) && (throttled == nullptr || r.host_load.throttled > throttled->throttled))
      throttled = &r.host_load;
  }
  std::string evidence =
      wait.share > 0
          ? absl::StrFormat(
                "On the median rank, a thread is ready to run and has no CPU %s of the time, and "
                "the GPU is idle because of its host for %s per step.",
                Percent(wait.share), Duration(wait.idle_ns))
          : absl::StrFormat("The GPU is idle because of its host for %s per step.", Duration(wait.idle_ns));
  if (wait.sampled_share > 0)
    absl::StrAppend(&evidence, " Samples of the launching threads: they could run, and had no CPU, for ",
                    Percent(wait.sampled_share), " of what is known of that idle time.");
  const bool quota = throttled != nullptr && throttled->throttled >= thresholds::kStarvedStepShare;
  if (quota)
    absl::StrAppend(&evidence,
                    absl::StrFormat(" A cgroup's quota of %.3g CPUs runs out in up to %s of its periods.",
                                    throttled->quota_cpus, Percent(throttled->throttled)));
  out.push_back({.statement = absl::StrFormat(
                     "The hosts wait for a CPU, and the GPUs for them: %s per step (%s of the step).",
                     Duration(wait.ns), OfTheStep(report, wait.ns)),
                 .evidence = std::move(evidence),
                 .advice = quota ? "Raise the CPU quota, or start fewer threads and data-loader workers."
                                 : kGiveMoreCpus,
                 .cost_ns_per_step = wait.ns});
}

void MemoryStarved(const Report& report, std::vector<Finding>& out) {
  if (!EnoughSteps(report)) return;
  const HostWait wait = WaitOf(report, &HostLoad::memory_stall);
  if (wait.ns < thresholds::kStarvedStepShare * report.steps->time_ns.mean) return;
  uint64_t swapped_bytes = 0;
  for (const RankReport& r : report.ranks) swapped_bytes = std::max(swapped_bytes, r.host_load.swapped_bytes);
  std::string evidence = absl::StrFormat(
      "On the median rank, everything in its cgroup (or on its host) waits for memory %s of the time, and "
      "the GPU is idle because of its host for %s per step.",
      Percent(wait.share), Duration(wait.idle_ns));
  if (swapped_bytes > 0)
    absl::StrAppend(&evidence, " Up to ", Bytes(swapped_bytes), " of a process is swapped out.");
  out.push_back({.statement = absl::StrFormat(
                     "The hosts wait for memory, and the GPUs for them: %s per step (%s of the step).",
                     Duration(wait.ns), OfTheStep(report, wait.ns)),
                 .evidence = std::move(evidence),
                 .advice = "Use less memory on the hosts (data-loader workers, batches that are prefetched, "
                           "states that are offloaded), or raise the container's limit.",
                 .cost_ns_per_step = wait.ns});
}

void InputBound(const Report& report, std::vector<Finding>& out) {
  if (!EnoughSteps(report) || Starved(report)) return;
  const std::optional<double> taken_ns = TakenBy(report, &StepsReport::input_ns, thresholds::kInputStepShare);
  if (!taken_ns.has_value()) return;
  const double input_ns = *taken_ns;
  const HostCause host = HostCauseOf(report, model::IdleCause::kInput);
  // Where a step begins with a copy, what the host does before is most often loading; only samples show it.
  const bool loads = host.place != nullptr && host.place->task == model::HostTask::kLoads;
  const std::string statement =
      loads ? absl::StrFormat("The GPUs wait %s per step for input (%s of the step)%s.", Duration(input_ns),
                              OfTheStep(report, input_ns), host.Text())
            : absl::StrFormat("The GPUs wait %s per step (%s of the step) before their input comes%s.",
                              Duration(input_ns), OfTheStep(report, input_ns), host.Text());
  out.push_back({.statement = statement,
                 .evidence = absl::StrCat(
                     "Nothing runs on the GPU and the host launches nothing, ",
                     loads ? "and it loads data."
                           : "until a copy to the GPU begins the step, or in a range that is named after "
                             "loading.",
                     host.place == nullptr && host.samples == 0
                         ? " That the host loads data meanwhile is likely, and not recorded."
                         : "",
                     host.Besides()),
                 .advice = host.place != nullptr && !loads
                               ? AdviceFor(*host.place, kDoItElsewhere)
                               : "Use more data-loader workers, prefetching, pinned memory, or preprocessing "
                                 "ahead of time; check whether the storage keeps up.",
                 .cost_ns_per_step = input_ns});
}

// Short kernels that are launched one by one to a GPU that has nothing else to do: each starts some
// microseconds after its launch, which nobody sees where the next launches are queued already.
bool StartsLate(const Report& report) {
  const ComputeReport& c = report.compute;
  const double gaps_ns = UsualOfRanks(report, &StepsReport::launch_gap_ns);
  return UsualOfRanks(report, &StepsReport::host_bound_ns) >= thresholds::kRunsDryShare * gaps_ns &&
         2 * c.short_kernels > c.kernels;
}

// nullopt: it is not worth a finding.
std::optional<double> IdleForLaunches(const Report& report) {
  double usual_ns = UsualOfRanks(report, &StepsReport::host_bound_ns);
  double said_ns = SaidOf(report, &StepsReport::host_bound_ns);
  if (StartsLate(report)) {
    usual_ns += UsualOfRanks(report, &StepsReport::launch_gap_ns);
    said_ns += SaidOf(report, &StepsReport::launch_gap_ns);
  }
  if (usual_ns < thresholds::kLaunchStepShare * report.steps->time_ns.mean) return std::nullopt;
  return said_ns;
}

void LaunchBound(const Report& report, std::vector<Finding>& out) {
  if (!EnoughSteps(report) || Starved(report)) return;
  const std::optional<double> idle_ns = IdleForLaunches(report);
  if (!idle_ns.has_value()) return;
  const double host_ns = *idle_ns;
  // Without kernels, as in a program that only copies, there is no launching that could be too slow.
  const ComputeReport& c = report.compute;
  if (c.calls_per_step < 1) return;
  const Launching launching = LaunchingOf(report);
  const HostTimeReport* const time = HostTimeOf(report.host_time, model::IdleCause::kHostBound);
  const std::string host = time == nullptr ? "" : PlacesText(time->places, nullptr);
  out.push_back(
      {.statement = absl::StrFormat(
           "The host launches too slowly: the GPUs run out of work for %s per step (%s of the step).",
           Duration(host_ns), OfTheStep(report, host_ns)),
       .evidence =
           absl::StrFormat(
               "%.0f kernels per step and rank compute for %s each on average; %s of the run's kernels are "
               "shorter than %s.%s",
               c.calls_per_step, Duration(c.ns_per_step / c.calls_per_step),
               Percent(static_cast<double>(c.short_kernels) / static_cast<double>(c.kernels)),
               Duration(static_cast<double>(model::ProcessModel::kShortKernelNs)),
               MakesGraphsAnew(report) ? NewGraphsText(report) : LaunchedAlready(launching)) +
           (host.empty() ? ""
                         : absl::StrCat(" Where the host is meanwhile (", SampleCount(time->samples),
                                        "): ", host, ".")),
       .advice = MakesGraphsAnew(report) ? kKeepGraphs : LaunchAdvice(launching, c.fused_optimizer),
       .cost_ns_per_step = host_ns});
}

void SyncInLoop(const Report& report, std::vector<Finding>& out) {
  if (!EnoughSteps(report) || Starved(report)) return;
  const std::optional<double> taken_ns = TakenBy(report, &StepsReport::sync_ns, thresholds::kSyncStepShare);
  if (!taken_ns.has_value()) return;
  const double sync_ns = *taken_ns;
  const double calls = UsualOfRanks(report, &StepsReport::blocked_calls);
  // A host that only launches the next work needs some tens of microseconds after such a call.
  const double after_each_ns = sync_ns / std::max(calls, 1.0);
  const bool works = after_each_ns >= thresholds::kWorksAfterSyncNs;
  std::string evidence = absl::StrFormat(
      "%.1f synchronising calls and copies to the host per step and rank block the host for %s per step.",
      calls, Duration(UsualOfRanks(report, &StepsReport::blocked_ns)));
  const HostCause host = HostCauseOf(report, model::IdleCause::kSync);
  if (works)
    absl::StrAppend(&evidence, " After each it launches nothing for ", Duration(after_each_ns),
                    " on average: it does something else first",
                    host.place == nullptr ? ", which is not recorded." : ".");
  const HostCause call = HostCauseOf(report, model::IdleCause::kBlocked);
  // If it does nothing else, it is the call that is to blame, and what comes next is the next launch.
  const bool call_explains = !works && call.place != nullptr;
  if (!call_explains) {
    absl::StrAppend(&evidence, host.Besides());
    if (call.place != nullptr)
      absl::StrAppend(&evidence, " Most of that blocking: ", HostPlaceText(*call.place), " (",
                      HowSure(*call.place), ").");
  } else if (host.place != nullptr) {
    absl::StrAppend(&evidence, " While nothing runs: ", HostPlaceText(*host.place), " (",
                    HowSure(*host.place), ").");
  }
  out.push_back(
      {.statement = absl::StrFormat("The host synchronises with the GPU within the step and then launches "
                                    "late: nothing runs for %s per step (%s of the step)%s.",
                                    Duration(sync_ns), OfTheStep(report, sync_ns),
                                    call_explains ? call.Text() : host.Text()),
       .evidence = evidence,
       .advice = works && host.place != nullptr
                     ? AdviceFor(*host.place,
                                 "Without the call (.item(), .cpu(), printed tensors, "
                                 "torch.cuda.synchronize) the host would do that while the GPU "
                                 "works.")
                 : works ? "Without the call (.item(), .cpu(), printed tensors, torch.cuda.synchronize) the "
                           "host would do that while the GPU works. gpuprobe stacks PID shows what it is: "
                           "logging, an optimizer on the CPU, a lock."
                         : "Look for .item(), .cpu(), printed tensors, nonzero and torch.cuda.synchronize in "
                           "the loop; read values every n-th step, or asynchronously.",
       .cost_ns_per_step = sync_ns});
}

void MemoryCalls(const Report& report, std::vector<Finding>& out) {
  if (!EnoughSteps(report)) return;
  const std::optional<double> taken_ns = TakenBy(report, &StepsReport::memory_ns, thresholds::kSyncStepShare);
  if (!taken_ns.has_value()) return;
  const double memory_ns = *taken_ns;
  const HostCause host = HostCauseOf(report, model::IdleCause::kMemory);
  out.push_back(
      {.statement = absl::StrFormat("GPU memory is allocated and released within the step, and nothing runs "
                                    "meanwhile: %s per step (%s of the step)%s.",
                                    Duration(memory_ns), OfTheStep(report, memory_ns), host.Text()),
       .evidence = absl::StrFormat("%.1f calls per step and rank allocate or release memory (cudaMalloc, "
                                   "cudaFree and their like). cudaFree waits for the GPU.%s",
                                   UsualOfRanks(report, &StepsReport::memory_calls), host.Besides()),
       .advice =
           host.place != nullptr && host.place->task == model::HostTask::kEmptiesCache
               ? AdviceFor(*host.place, "")
               : "Remove torch.cuda.empty_cache() from the loop; if the allocator itself goes to the driver "
                 "in every step, memory is nearly full or shapes vary: "
                 "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True. Elsewhere: allocate once, or use "
                 "cudaMallocAsync.",
       .cost_ns_per_step = memory_ns});
}

void HostPause(const Report& report, std::vector<Finding>& out) {
  if (!EnoughSteps(report)) return;
  const std::optional<double> taken_ns = TakenBy(report, &StepsReport::pause_ns, thresholds::kInputStepShare);
  if (!taken_ns.has_value()) return;
  const double pause_ns = *taken_ns;
  const double after_copy_ns = std::min(UsualOfRanks(report, &StepsReport::pause_after_copy_ns), pause_ns);
  const bool copies = after_copy_ns >= thresholds::kExplainedDelayShare * pause_ns;
  if (!copies && Starved(report)) return;
  if (!copies && MakesGraphsAnew(report)) {
    out.push_back({.statement = absl::StrFormat("The host makes CUDA graphs anew: it launches nothing "
                                                "meanwhile, and the GPUs are idle for %s per step (%s of the "
                                                "step).",
                                                Duration(pause_ns), OfTheStep(report, pause_ns)),
                   .evidence = NewGraphsText(report).substr(1),
                   .advice = kKeepGraphs,
                   .cost_ns_per_step = pause_ns});
    return;
  }
  const HostCause host = HostCauseOf(report, model::IdleCause::kPause);
  // Gradients are copied to it, and nothing is launched while it works.
  if (copies && host.place != nullptr && host.place->task == model::HostTask::kOptimizes) {
    out.push_back(
        {.statement =
             absl::StrFormat("The optimizer computes on the host, and the GPUs wait for it: %s per step (%s "
                             "of the step): it is in %s (%s).",
                             Duration(pause_ns), OfTheStep(report, pause_ns), HostPlaceText(*host.place),
                             HowSure(*host.place)),
         .evidence =
             absl::StrCat(Duration(after_copy_ns), " of it follow copies to the host.", host.Besides()),
         .advice = "Keep the optimizer's state on the GPU if there is room, sharded over the ranks if there "
                   "is not; "
                   "else use a vectorised optimizer for the host (DeepSpeedCPUAdam), more threads for it "
                   "(OMP_NUM_THREADS), or let it work while the GPU computes.",
         .cost_ns_per_step = pause_ns});
    return;
  }
  if (host.place != nullptr) {
    out.push_back(
        {.statement =
             absl::StrFormat("The GPUs wait %s per step (%s of the step) while the host launches nothing%s.",
                             Duration(pause_ns), OfTheStep(report, pause_ns), host.Text()),
         .evidence = absl::StrCat(
             copies ? absl::StrCat(Duration(after_copy_ns), " of it follow copies to the host.")
             : host.place->call.empty() ? "No synchronising call and no copy is around these pauses."
                                        : "Nothing runs on the GPU while that call goes on.",
             host.Besides()),
         .advice = AdviceFor(*host.place, kDoItElsewhere),
         .cost_ns_per_step = pause_ns});
    return;
  }
  out.push_back(
      {.statement = copies ? absl::StrFormat("The host copies data back from the GPU and then launches "
                                             "nothing: the GPUs are idle for %s per step (%s of the step).",
                                             Duration(pause_ns), OfTheStep(report, pause_ns))
                           : absl::StrFormat("The host does something else: it launches nothing, and the "
                                             "GPUs are idle for %s per step (%s of the step).",
                                             Duration(pause_ns), OfTheStep(report, pause_ns)),
       .evidence = absl::StrCat(
           copies ? absl::StrFormat(
                        "%s of it follow copies to the host: the data are written, or worked on there.",
                        Duration(after_copy_ns))
                  : "No synchronising call, no allocation, no copy and no range named after loading is "
                    "around these pauses, so their cause is unknown: code between launches, garbage "
                    "collection, a lock, or a batch that needs no copy.",
           host.Besides(), report.host_time.empty() ? kNoSamples : ""),
       .advice = copies ? "Write checkpoints and metrics from another thread, or in fewer steps."
                        : "gpuprobe stacks PID shows what the host does; NVTX ranges around the loop's "
                          "parts name it in the report.",
       .cost_ns_per_step = pause_ns});
}

}  // namespace

std::vector<FindingRule> HostIdleRules() {
  return {
      {"cpu-starved", FindingTopic::kSteps, Severity::kWarning,
       absl::StrFormat(
           "the median rank's host is ready to run and has no CPU for %s of the step or more, which is "
           "%s or more of what its GPU is idle because of its host, and steps are %s of the run or more; "
           "this replaces input-bound, launch-bound and sync-in-loop, and a host-pause that nothing explains",
           condition::Share(thresholds::kStarvedStepShare), condition::Share(thresholds::kStarvedIdleShare),
           condition::Share(thresholds::kWarmupRunShare)),
       CpuStarved, "waits_for_cpu"},
      {"memory-starved", FindingTopic::kSteps, Severity::kWarning,
       absl::StrFormat("everything in the median rank's cgroup, or on its host, waits for memory for %s of "
                       "the step or more, which is %s or more of what its GPU is idle because of its host, "
                       "and steps are %s of "
                       "the run or more",
                       condition::Share(thresholds::kStarvedStepShare),
                       condition::Share(thresholds::kStarvedIdleShare),
                       condition::Share(thresholds::kWarmupRunShare)),
       MemoryStarved},
      {"input-bound", FindingTopic::kSteps, Severity::kWarning,
       absl::StrCat(
           "the median rank's GPU waits for input for ", condition::Share(thresholds::kInputStepShare),
           " of the step or more: its host launches nothing, and loads data, as samples of it or a range "
           "named after loading say; without samples, a copy to the GPU that follows does"),
       InputBound, "idle_input"},
      {"launch-bound", FindingTopic::kSteps, Severity::kWarning,
       absl::StrCat("the median rank's GPU is idle for ", condition::Share(thresholds::kLaunchStepShare),
                    " of the step or more while its host is launching, or, if most kernels are short, until "
                    "what it launched late starts"),
       LaunchBound, "idle_launch"},
      {"sync-in-loop", FindingTopic::kSteps, Severity::kWarning,
       absl::StrCat("the median rank's GPU is idle after synchronising calls for ",
                    condition::Share(thresholds::kSyncStepShare), " of the step or more"),
       SyncInLoop, "idle_sync"},
      {"memory-calls", FindingTopic::kSteps, Severity::kWarning,
       absl::StrCat("the median rank's GPU is idle for ", condition::Share(thresholds::kSyncStepShare),
                    " of the step or more while its host allocates or releases memory"),
       MemoryCalls, "idle_memory"},
      {"host-pause", FindingTopic::kSteps, Severity::kWarning,
       absl::StrCat(
           "the median rank's GPU is idle for ", condition::Share(thresholds::kInputStepShare),
           " of the step or more while its host launches nothing and does something else than to load data, "
           "allocate memory or wait for the GPU; samples of it say what"),
       HostPause, "idle_pause"},
  };
}

}  // namespace gpuprobe::analysis
