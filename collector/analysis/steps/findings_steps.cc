// Findings about the steps as a whole, and about hardware that they share: copies, model FLOPs, warm-up,
// whether there are steps, and whether anything stands out at all.
#include <algorithm>
#include <string>
#include <utility>
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

constexpr size_t kMostPlaces = 4;  // named in a finding

double Share(const model::Summary& part, const model::Summary& whole) {
  return whole.mean > 0 ? part.mean / whole.mean : 0;
}

void PageableCopies(const Report& report, std::vector<Finding>& out) {
  if (!EnoughSteps(report)) return;
  for (const auto& [direction, p] : report.compute.pageable) {
    const double ns = p.ns_per_step;
    if (ns < thresholds::kPageableStepShare * report.steps->time_ns.mean) continue;
    std::string evidence = absl::StrFormat("They run at %s", Rate(p.gbytes_per_s));
    if (p.pinned_gbytes_per_s.has_value())
      absl::StrAppend(&evidence, "; other copies in that direction run at ", Rate(*p.pinned_gbytes_per_s));
    if (report.compute.host_peak_gbytes_per_s.has_value())
      absl::StrAppend(&evidence, "; the bus supports ", Rate(*report.compute.host_peak_gbytes_per_s));
    out.push_back(
        {.statement = absl::StrFormat(
             "%.1f copies per step and rank %s go through pageable memory, %s per step.", p.copies_per_step,
             direction == v1::COPY_DIRECTION_H2D ? "to the GPU" : "from the GPU", Duration(ns)),
         .evidence = evidence + ". Such a copy is staged, and the host waits for it.",
         .advice = kPinMemory,
         // A copy that overlaps with computing costs nothing: at most what copies alone take.
         .cost_ns_per_step = std::min(ns, report.steps->copy_ns.mean)});
  }
}

void StepsUnknown(const Report& report, std::vector<Finding>& out) {
  const ComputeReport& c = report.compute;
  if (report.steps.has_value() || c.kernels < thresholds::kKernelsOfAJob) return;
  if (!report.conditions.step_marker.empty()) return;  // which is then mistaken
  // The range, or else the collective, that came most often: it may mark steps.
  std::string marker;
  uint64_t most = thresholds::kSteadySteps - 1;
  for (const PhaseReport& phase : report.phases) {
    if (phase.depth != 0 || phase.host_ns.count <= most) continue;
    most = phase.host_ns.count;
    marker = absl::StrCat("nvtx:", phase.name);
  }
  if (marker.empty()) {
    for (const CollectiveReport& call : report.collectives) {
      if (call.fused || call.calls <= most) continue;
      most = call.calls;
      marker = absl::StrCat("collective:", call.op);
    }
  }
  out.push_back(
      {.statement = "No steps were recognised, so step times are unknown, and so is what slows them.",
       .evidence = absl::StrFormat("Launches, collectives and ranges do not repeat as those of a training "
                                   "step do, or not often enough; %s kernels were recorded.",
                                   Count(c.kernels)),
       .advice = marker.empty()
                     ? "If the program has a loop, put an NVTX range around its body, and pass --step-marker "
                       "nvtx:NAME."
                     : absl::StrCat("If this ends each step, say so: gpuprobe report DIR --step-marker '",
                                    marker, "'.")});
}

void LowMfu(const Report& report, std::vector<Finding>& out) {
  const UtilisationReport& u = report.utilisation;
  if (!u.mfu.has_value() || *u.mfu >= thresholds::kLowMfuShare) return;
  std::vector<std::string> parts;
  const StepsReport& s = *report.steps;
  for (const auto& [name, part] : {std::pair<const char*, const model::Summary*>{"compute", &s.compute_ns},
                                   {"exposed communication", &s.exposed_comm_ns},
                                   {"copies", &s.copy_ns},
                                   {"idle", &s.idle_ns}})
    parts.push_back(absl::StrCat(name, " ", Percent(Share(*part, s.time_ns))));
  double gemm = 0;
  for (const KernelClassReport& k : report.compute.classes) {
    const KernelClass of = k.kernel_class;
    if (of == KernelClass::kGemm || of == KernelClass::kConvolution || of == KernelClass::kAttention)
      gemm += k.share;
  }
  out.push_back({.statement = absl::StrFormat("The step uses %s of the GPUs' %s peak (MFU).", Percent(*u.mfu),
                                              report::Word(u.type)),
                 .evidence = absl::StrCat("Step time: ", absl::StrJoin(parts, ", "),
                                          ". Matrix products, convolutions and attention take ",
                                          Percent(gemm), " of kernel time."),
                 .advice = "Start with the largest part that is not compute; if compute dominates, try lower "
                           "precision, larger matrix products and fused kernels."});
}

void WarmupDominated(const Report& report, std::vector<Finding>& out) {
  if (!EnoughSteps(report) || report.conditions.duration_ns == 0) return;
  // What was left out on request, or to hold the budget, may have been steps, too.
  if (report.conditions.steps_recorded.has_value() || report.conditions.on_demand.has_value() ||
      report.trust.outside_window > 0)
    return;
  if (!report.hangs.empty()) return;  // it stands still: no time in which it could train
  const double ranks = static_cast<double>(std::max<size_t>(report.ranks.size(), 1));
  const double steady_ns = static_cast<double>(report.steps->time_ns.total) / ranks;
  const double share = 1 - steady_ns / static_cast<double>(report.conditions.duration_ns);
  if (report.steps->warmup_count == 0 || share < thresholds::kWarmupRunShare) return;
  out.push_back(
      {.statement = absl::StrFormat(
           "%s of the run is not steady training: %d warm-up step%s, startup, evaluation and shutdown.",
           Percent(share), report.steps->warmup_count, report.steps->warmup_count == 1 ? "" : "s"),
       .evidence = absl::StrFormat("%d steps after the warm-up take %s of %s.",
                                   report.steps->count - report.steps->warmup_count, Duration(steady_ns),
                                   Duration(static_cast<double>(report.conditions.duration_ns))),
       .advice = "Fine for a trial. In production, cache compiled kernels and autotuning results."});
}

// "ranks 0, 1 on GPU 0 of n1"; "rank 0 (pid 7), pid 8 on GPU 0 of n1" where ranks alone do not name the
// processes.
std::string UsersText(const SharedDevice& device) {
  std::string users;
  if (device.ranks.size() == device.processes.size()) {
    users = absl::StrCat("ranks ", absl::StrJoin(device.ranks, ", "));
  } else {
    users = absl::StrJoin(device.processes, ", ", [](std::string* out, const std::string& label) {
      absl::StrAppend(out, label.starts_with("pid ") ? "" : "rank ", label);
    });
  }
  return absl::StrCat(users, " on GPU ", device.ordinal, " of ", device.host);
}

void SharedDevices(const Report& report, std::vector<Finding>& out) {
  const std::vector<SharedDevice>& shared = report.conditions.shared_devices;
  if (shared.empty()) return;
  std::vector<std::string> places;
  bool ranks = true;
  for (const SharedDevice& device : shared) {
    ranks = ranks && device.ranks.size() == device.processes.size();
    if (places.size() < kMostPlaces) places.push_back(UsersText(device));
  }
  if (shared.size() > kMostPlaces) places.push_back(absl::StrCat(shared.size() - kMostPlaces, " more"));
  const std::string who = ranks ? "Several ranks" : "Several processes";
  out.push_back(
      {.statement = shared.size() == 1 ? absl::StrCat(who, " share one GPU, so their kernels take turns.")
                                       : absl::StrCat(who, " share a GPU, on ", shared.size(),
                                                      " GPUs, so their kernels take turns."),
       .evidence =
           absl::StrCat(absl::StrJoin(places, "; "),
                        ". Kernel and collective times, and therefore bandwidths, include this waiting."),
       .advice = "Use one GPU per rank: torch.cuda.set_device(LOCAL_RANK), and check CUDA_VISIBLE_DEVICES.",
       .urgent = true});
}

void MixedHardware(const Report& report, std::vector<Finding>& out) {
  if (report.conditions.differing.empty()) return;
  out.push_back(
      {.statement = "The ranks run on different hardware or software.",
       .evidence = absl::StrCat(absl::StrJoin(report.conditions.differing, "; "), "."),
       .advice = "The slowest GPU sets the pace for all ranks: use identical GPUs, or give it less work."});
}

Finding NothingStandsOut(const Report& report) {
  if (report.call_trace.has_value() && report.call_trace->late_rank.has_value()) {
    return {.statement =
                absl::StrCat("The others wait for rank ", *report.call_trace->late_rank,
                             " in collectives, and nothing that was captured shows why, or that steps "
                             "are longer for it.")};
  }
  if (!EnoughSteps(report)) {
    std::vector<Finding> unknown;
    StepsUnknown(report, unknown);
    return {.statement = report.steps.has_value() ? "Nothing stands out in the few steps that were recorded."
                         : unknown.empty()
                             ? "Nothing stands out. No steps were recognised, so step times are unknown."
                             : "Nothing stands out in what can be seen without steps."};
  }
  const StepsReport& s = *report.steps;
  std::string statement = absl::StrCat(
      "Nothing stands out. ", Percent(Share(s.compute_ns, s.time_ns)), " of the step is compute, ",
      Percent(Share(s.exposed_comm_ns, s.time_ns)), " exposed communication");
  double low = 0;
  double high = 0;
  for (const RankReport& r : report.ranks) {
    if (!r.steps.has_value()) continue;
    const double mean = r.steps->compute_ns.mean;
    low = low == 0 ? mean : std::min(low, mean);
    high = std::max(high, mean);
  }
  if (report.ranks.size() > 1 && low > 0)
    absl::StrAppend(&statement, "; compute differs by ", Percent(high / low - 1), " across ranks");
  // What then varies from step to step may be due to that.
  const double waits = CpuWaitOfBusyMachine(HostLoadsOf(report));
  return {.statement = statement + ".",
          .evidence = waits == 0 ? ""
                                 : absl::StrCat("Hosts are ready to run and have no CPU ", Percent(waits),
                                                " of the time: ranks that are late now and then, and single "
                                                "long steps, may be due to that.")};
}

// REQUIRES: `out` has what all other rules found.
void Healthy(const Report& report, std::vector<Finding>& out) {
  const bool well = std::none_of(out.begin(), out.end(), [](const Finding& f) {
    return f.severity != Severity::kInfo || !f.about.steps.empty();
  });
  // That a job waits before its first step is what there is to say of it.
  const bool waits = std::any_of(report.hangs.begin(), report.hangs.end(),
                                 [](const Hang& hang) { return hang.idle && hang.steps == 0; });
  if (well && !waits && !report.ranks.empty()) out.insert(out.begin(), NothingStandsOut(report));
}

}  // namespace

std::vector<FindingRule> StepRules() {
  return {
      {"shared-device", FindingTopic::kHardware, Severity::kWarning,
       "two or more processes ran kernels on the same GPU at the same time", SharedDevices, "ranks"},
      {"pageable-copies", FindingTopic::kSteps, Severity::kWarning,
       absl::StrCat("copies through pageable memory take ", condition::Share(thresholds::kPageableStepShare),
                    " of the step or more"),
       PageableCopies, "copies"},
      {"low-mfu", FindingTopic::kSteps, Severity::kWarning,
       absl::StrCat("model FLOPs utilisation (MFU), if requested, is below ",
                    condition::Share(thresholds::kLowMfuShare)),
       LowMfu, "compute"},
      {"mixed-hardware", FindingTopic::kHardware, Severity::kWarning,
       "ranks differ in GPU, memory, driver, CUDA or NCCL version", MixedHardware},
      {"healthy", FindingTopic::kHealth, Severity::kInfo,
       "no other finding is a warning or an error, and no steps are unusually long", Healthy, "whole_step"},
      {"steps-unknown", FindingTopic::kSteps, Severity::kInfo,
       absl::StrFormat("no steps were recognised, without a step marker and with %d kernels or more",
                       thresholds::kKernelsOfAJob),
       StepsUnknown},
      {"warmup-dominated", FindingTopic::kSteps, Severity::kInfo,
       absl::StrCat("warm-up, startup and everything else but steady steps take ",
                    condition::Share(thresholds::kWarmupRunShare), " of the run or more"),
       WarmupDominated, "warmup"},
  };
}

}  // namespace gpuprobe::analysis
