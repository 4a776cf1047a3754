#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/finding_rules.h"
#include "collector/analysis/hangs/process_state.h"
#include "collector/analysis/host_time.h"
#include "collector/analysis/thresholds.h"
#include "collector/analysis/units.h"
#include "collector/report/report.h"

namespace gpuprobe::analysis {
namespace {

using model::StepPart;

constexpr char kKeepsMore[] =
    "See what this goes through that becomes longer from step to step: lists that are kept, hooks that are "
    "registered again, a graph that is kept alive.";

struct GrowthWords {
  StepPart part;
  bool of_host;      // a host that lacks a CPU would show it, too
  const char* text;  // before a time
  const char* advice;
};

constexpr char kHostGrows[] =
    "The host does more in each step: hooks or callbacks that are registered again, lists that are kept and "
    "gone through, a graph that is kept alive. gpuprobe stacks PID early and late in the run shows what.";

constexpr GrowthWords kPartWords[] = {
    {StepPart::kCompute, false, "compute", nullptr},
    {StepPart::kExposedComm, false, "exposed communication, on every rank",
     "Compare the size of calls early and late; else look at the network, and at ranks that are not recorded "
     "here."},
    {StepPart::kCopy, false, "copies", "Copy what a step needs, and not what was collected so far."},
    {StepPart::kHostBound, true, "late launches, which leave the GPU idle", kHostGrows},
    {StepPart::kInput, true, "waiting for input",
     "The loader falls behind: samples that become longer or farther apart on disk, a cache that fills, "
     "workers "
     "that keep what they read."},
    {StepPart::kSync, true, "idle time after synchronising calls", kHostGrows},
    {StepPart::kMemory, false, "calls that allocate or release memory",
     "Allocations grow from step to step: see which tensors are kept, and allocate once."},
    {StepPart::kPause, true, "pauses of the host", kHostGrows},
    {StepPart::kLaunchGap, false, "gaps between launch and start", kHostGrows},
};

// The idle time that is this part of a step.
std::optional<model::IdleCause> CauseOf(StepPart part) {
  switch (part) {
    case StepPart::kHostBound:
      return model::IdleCause::kHostBound;
    case StepPart::kInput:
      return model::IdleCause::kInput;
    case StepPart::kSync:
      return model::IdleCause::kSync;
    case StepPart::kMemory:
      return model::IdleCause::kMemory;
    case StepPart::kPause:
      return model::IdleCause::kPause;
    default:
      return std::nullopt;
  }
}

// What the host does in most of that idle time of the whole run. Samples do not say when in the run they were
// taken; but what grows is in the end most of it.
const HostPlaceReport* PlaceOf(const Report& report, StepPart part) {
  const std::optional<model::IdleCause> cause = CauseOf(part);
  const HostTimeReport* time = cause.has_value() ? HostTimeOf(report.host_time, *cause) : nullptr;
  const HostPlaceReport* place = time == nullptr ? nullptr : ExplainedBy(time->places, time->ns_per_step);
  return place == nullptr || place->no_cpu ? nullptr : place;
}

const GrowthWords& WordsOf(StepPart part) {
  return *std::find_if(std::begin(kPartWords), std::end(kPartWords),
                       [&](const GrowthWords& words) { return words.part == part; });
}

bool MemoryGrows(const Report& report) {
  const auto grows = [](const DeviceMemoryReport& m) {
    return m.trend.has_value() && m.trend->growth_bytes_per_step.has_value();
  };
  return std::any_of(report.ranks.begin(), report.ranks.end(), [&](const RankReport& r) {
    return std::any_of(r.device_memory.begin(), r.device_memory.end(), grows);
  });
}

// What the kernel that grows most says of the reason.
struct KernelWords {
  std::string evidence;
  const char* advice = "Compare kernels of early and late steps: gpuprobe export.";
};

KernelWords WordsOfKernel(const Report& report, const StepGrowth& growth) {
  KernelWords words;
  if (growth.kernel.empty()) return words;
  constexpr size_t kLength = 40;
  words.evidence = absl::StrFormat(" %s takes %s per step in the last quarter of the steps, %s in the first",
                                   KernelName(growth.kernel, kLength), Duration(growth.kernel_ns.last),
                                   Duration(growth.kernel_ns.first));
  const auto kernel = std::find_if(report.top_kernels.begin(), report.top_kernels.end(),
                                   [&](const KernelReport& k) { return k.name == growth.kernel; });
  if (kernel == report.top_kernels.end() || !kernel->steady.has_value()) {
    words.evidence.push_back('.');
    return words;
  }
  // More sizes than a step has calls: they are not those of its layers.
  if (kernel->geometries > 1 && kernel->geometries > kernel->steady->calls) {
    absl::StrAppend(&words.evidence, ", in ", kernel->geometries, " sizes: the work grows.");
    words.advice =
        "Growing sequences, a curriculum or a memory bank do so; if that is meant, nothing is wrong. Else "
        "see "
        "what is appended to from step to step: a cache of keys and values, predictions that are kept.";
    return words;
  }
  absl::StrAppend(&words.evidence, ", and its launches do not change in size.");
  words.advice =
      "Check clocks, temperature and power limit of the GPUs over the run; kernels that get more data with "
      "the "
      "same launches look alike.";
  return words;
}

void GrowingSteps(const Report& report, std::vector<Finding>& out) {
  if (!report.step_growth.has_value()) return;
  const StepGrowth& g = *report.step_growth;
  const double grown_ns = g.total_ns.growth();
  const GrowthWords* most = g.parts.empty() ? nullptr : &WordsOf(g.parts.front().part);
  if (most != nullptr && g.parts.front().growth_ns < thresholds::kGrowthPartShare * grown_ns) most = nullptr;
  // Hosts had no CPU for as long.
  if ((most == nullptr || most->of_host) && CpuWaitOfBusyMachine(HostLoadsOf(report)) * g.mean_ns >= grown_ns)
    return;
  std::vector<std::string> parts;
  for (const auto& [part, ns] : g.parts)
    parts.push_back(absl::StrCat(WordsOf(part).text, " (", Duration(ns), ")"));
  std::string evidence = parts.empty() ? "No part of the step grows by much alone."
                                       : absl::StrCat("What grows: ", absl::StrJoin(parts, ", "), ".");
  std::string advice = "Find out what is kept or done anew from step to step.";
  if (most != nullptr && most->part == StepPart::kCompute) {
    const KernelWords kernel = WordsOfKernel(report, g);
    evidence += kernel.evidence;
    advice = kernel.advice;
  } else if (most != nullptr) {
    advice = most->advice;
    if (const HostPlaceReport* place = PlaceOf(report, most->part); place != nullptr) {
      absl::StrAppend(&evidence, " Over the run, in most of that time ", HostDoesWhat(*place), ".");
      advice = AdviceFor(*place, kKeepsMore);
    }
  }
  if (g.rank.has_value())
    absl::StrAppend(&evidence, " It grows on rank ", *g.rank,
                    ", and the others wait for it longer and longer.");
  if (MemoryGrows(report)) evidence += " Memory grows, too: something is kept from step to step.";
  // A rise that begins late costs less than half of itself; single long steps are no part of it.
  const double cost_ns = std::min(grown_ns / 2, std::max(g.mean_ns - g.total_ns.first, 0.0));
  Finding f{.statement = absl::StrFormat(
                "Steps take longer and longer: %s at the beginning, %s at the end of %d steps; were all as "
                "short as the first, the average step would be shorter by %s (%s).",
                Duration(g.total_ns.first), Duration(g.total_ns.last), g.steps, Duration(cost_ns),
                Percent(cost_ns / g.mean_ns)),
            .evidence = evidence,
            .advice = advice,
            .cost_ns_per_step = cost_ns};
  if (g.rank.has_value()) f.about.ranks = {*g.rank};
  out.push_back(std::move(f));
}

}  // namespace

std::vector<FindingRule> GrowthRules() {
  return {
      {"growing-steps", FindingTopic::kSteps, Severity::kWarning,
       absl::StrFormat(
           "steps take longer and longer: over %d steps or more after the warm-up, a rising trend up to the "
           "end by the Mann-Kendall test (z > %g), by %s or more and by more than neighbouring steps differ, "
           "that is no single jump and, if it is the "
           "host's, more than hosts had to wait for a CPU",
           thresholds::kGrowthSteps, thresholds::kGrowthZScore, condition::Share(thresholds::kGrowthShare)),
       GrowingSteps},
  };
}

}  // namespace gpuprobe::analysis
