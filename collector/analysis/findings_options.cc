// What the records contradict of what a person told.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collector/analysis/finding_rules.h"
#include "collector/analysis/units.h"

namespace gpuprobe::analysis {
namespace {

constexpr double kMostOfPeak = 1.1;  // in-network reduction carries a little more than the links do

void ImpossibleUtilisation(const Report& report, std::vector<Finding>& out) {
  const UtilisationReport& u = report.utilisation;
  if (!u.mfu.has_value() || *u.mfu <= 1) return;
  out.push_back(
      {.statement =
           absl::StrFormat("MFU of %s cannot be: no device computes more than its peak.", Percent(*u.mfu)),
       .evidence =
           absl::StrFormat("%.3g FLOPs a step, on %d devices of %.3g FLOP/s (%s) each, in steps of %s.",
                           u.flops_per_step, u.devices, u.peak_flops.value_or(0), u.type,
                           Duration(report.steps.has_value() ? report.steps->time_ns.mean : 0)),
       .advice = "--params is the whole model's, --tokens-per-step what one step of all ranks takes; a step "
                 "here is what the boundaries make it (--step-marker)."});
}

void ImpossibleLink(const Report& report, std::vector<Finding>& out) {
  const CommunicationReport& c = report.communication;
  if (c.link_peak_source != "--link-peak") return;
  const CollectiveReport* most = nullptr;
  for (const CollectiveReport& call : report.collectives) {
    if (!call.peak_share.has_value() || *call.peak_share <= kMostOfPeak) continue;
    if (most == nullptr || *call.peak_share > *most->peak_share) most = &call;
  }
  if (most == nullptr) return;
  out.push_back(
      {.statement = absl::StrFormat("Transfers reach %s of --link-peak: it is more than %s.",
                                    Percent(*most->peak_share), Rate(*c.link_peak)),
       .evidence = absl::StrFormat("%s of %s over %d ranks: %s bus bandwidth.", most->op,
                                   most->size_bytes == 0 ? "mixed sizes" : Bytes(most->size_bytes),
                                   most->comm_ranks, Rate(*most->peak_share * *c.link_peak)),
       .advice = "Give what a rank's links carry in one direction, in GB/s of 1e9 bytes; within a host that "
                 "is NVLink or PCIe, not the network."});
}

void MarkerWithoutSteps(const Report& report, std::vector<Finding>& out) {
  if (report.conditions.step_marker.empty() || report.steps.has_value()) return;
  out.push_back({.statement = absl::StrCat("--step-marker ", report.conditions.step_marker,
                                           " marks no steps: what a step costs is not known."),
                 .evidence = "It matches nothing that was recorded, or hardly anything.",
                 .advice =
                     "A name must match as a whole, a * stands for any text (nvtx:step*). gpuprobe export "
                     "shows the ranges, kernels and collectives by name; without a marker, steps are looked "
                     "for."});
}

}  // namespace

void OptionsMistaken(const Report& report, std::vector<Finding>& out) {
  ImpossibleUtilisation(report, out);
  ImpossibleLink(report, out);
  MarkerWithoutSteps(report, out);
}

}  // namespace gpuprobe::analysis
