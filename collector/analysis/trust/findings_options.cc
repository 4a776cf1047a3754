// Options that the records contradict.
#include <algorithm>
#include <map>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/finding_rules.h"
#include "collector/analysis/thresholds.h"
#include "collector/analysis/units.h"
#include "collector/report/report.h"

namespace gpuprobe::analysis {
namespace {

void ImpossibleUtilisation(const Report& report, std::vector<Finding>& out) {
  const UtilisationReport& u = report.utilisation;
  if (!u.mfu.has_value() || *u.mfu <= thresholds::kMostMfuShare) return;
  out.push_back(
      {.statement = absl::StrFormat("MFU of %s is impossible: no GPU exceeds its peak.", Percent(*u.mfu)),
       .evidence = absl::StrFormat(
           "%.3g FLOPs per step on %d GPUs with a peak of %.3g FLOP/s (%s) each, in steps of %s.",
           u.flops_per_step, u.devices, u.peak_flops.value_or(0), report::Word(u.type),
           Duration(report.steps.has_value() ? report.steps->time_ns.mean : 0)),
       .advice = "--params counts the whole model, --tokens-per-step one step of all ranks; --step-marker "
                 "corrects the step boundaries."});
}

void ImpossibleLink(const Report& report, std::vector<Finding>& out) {
  const CommunicationReport& c = report.communication;
  if (c.link_peak_source != kLinkPeakOption) return;
  const CollectiveReport* most = nullptr;
  for (const CollectiveReport& call : report.collectives) {
    if (!call.peak_share.has_value() || *call.peak_share <= thresholds::kMostLinkPeakShare) continue;
    if (most == nullptr || *call.peak_share > *most->peak_share) most = &call;
  }
  if (most == nullptr) return;
  out.push_back({.statement = absl::StrFormat("Transfers reach %s of --link-peak, so the peak is above %s.",
                                              Percent(*most->peak_share), Rate(*c.link_peak)),
                 .evidence = absl::StrFormat("%s of %s over %d ranks: %s bus bandwidth.", most->op,
                                             most->mixed_sizes ? "mixed sizes" : Bytes(most->size_bytes),
                                             most->comm_ranks, Rate(*most->peak_share * *c.link_peak)),
                 .advice = "Pass the one-way bandwidth of a rank's links in GB/s (1e9 bytes/s); within a "
                           "host that is NVLink or PCIe, not the network."});
}

// Whether the marker names a range that is none, and which there are.
std::string RangesText(const Report& report) {
  constexpr std::string_view kOfRange = "nvtx:";
  const std::string& marker = report.conditions.step_marker;
  if (!marker.starts_with(kOfRange)) return "";
  std::map<std::string, uint64_t> ranges;  // how many of each
  for (const PhaseReport& phase : report.phases) ranges[phase.name] += phase.host_ns.count;
  if (ranges.empty()) return " The program annotates nothing (NVTX).";
  if (marker.find('*') != std::string::npos || ranges.contains(marker.substr(kOfRange.size()))) return "";
  std::vector<std::pair<uint64_t, std::string>> most;
  most.reserve(ranges.size());
  for (const auto& [name, count] : ranges) most.emplace_back(count, name);
  constexpr size_t kRangesNamed = 8;
  std::sort(most.rbegin(), most.rend());
  std::vector<std::string> names;
  for (const auto& [count, name] : most) {
    if (names.size() < kRangesNamed) names.push_back(name);
  }
  return absl::StrCat(" No range has this name. Ranges: ", absl::StrJoin(names, ", "),
                      most.size() > kRangesNamed ? " ..." : "", ".");
}

void MarkerWithoutSteps(const Report& report, std::vector<Finding>& out) {
  if (report.conditions.step_marker.empty() || report.steps.has_value()) return;
  const std::optional<OnDemand>& demand = report.conditions.on_demand;
  if (demand.has_value() && demand->windows.empty()) return;  // nothing was there to be marked
  out.push_back(
      {.statement = absl::StrCat("--step-marker ", report.conditions.step_marker,
                                 " marks no steps, so step times are unknown."),
       .evidence = absl::StrCat("It matches few or no records.", RangesText(report)),
       .advice = "The name must match as a whole; * stands for any text (nvtx:step*). gpuprobe export lists "
                 "ranges, kernels and collectives by name; without a marker, steps are detected."});
}

void OptionsMistaken(const Report& report, std::vector<Finding>& out) {
  ImpossibleUtilisation(report, out);
  ImpossibleLink(report, out);
  MarkerWithoutSteps(report, out);
}

}  // namespace

std::vector<FindingRule> OptionRules() {
  return {
      {"options-mistaken", FindingTopic::kHardware, Severity::kWarning,
       absl::StrFormat("an option contradicts the records: MFU above %s, transfers above %s of --link-peak, "
                       "or a step marker that marks no steps",
                       condition::Share(thresholds::kMostMfuShare),
                       condition::Share(thresholds::kMostLinkPeakShare)),
       OptionsMistaken},
  };
}

}  // namespace gpuprobe::analysis
