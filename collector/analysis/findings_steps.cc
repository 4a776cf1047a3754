// Findings about what keeps the device from computing, other than other ranks: input, launches,
// synchronisation, copies.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/finding_rules.h"
#include "collector/analysis/median.h"
#include "collector/analysis/report.h"
#include "collector/analysis/thresholds.h"
#include "collector/analysis/units.h"
#include "collector/model/process/process_model.h"

namespace gpuprobe::analysis {
namespace {

constexpr size_t kMostPlaces = 4;  // named in a finding

double Share(const model::Summary& part, const model::Summary& whole) {
  return whole.mean > 0 ? part.mean / whole.mean : 0;
}

// Over the ranks: one rank's trouble is a straggler's, not the job's.
double MedianMean(const Report& report, model::Summary StepsReport::*part) {
  std::vector<double> means;
  for (const RankReport& r : report.ranks) {
    if (r.steps.has_value()) means.push_back(((*r.steps).*part).mean);
  }
  return means.empty() ? 0 : UpperMedian(std::move(means));
}

bool EnoughSteps(const Report& report) {
  if (!report.steps.has_value()) return false;
  const StepsReport& s = *report.steps;  // time_ns counts those of all ranks
  return s.count >= s.warmup_count + thresholds::kSteadySteps &&
         s.time_ns.count >= thresholds::kSteadySteps && s.time_ns.mean > 0;
}

std::string OfTheStep(const Report& report, double ns) { return Percent(ns / report.steps->time_ns.mean); }

double KernelsPerStep(const Report& report) {
  return static_cast<double>(report.compute.kernels) / static_cast<double>(report.steps->count) /
         static_cast<double>(std::max<size_t>(report.ranks.size(), 1));
}

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

}  // namespace

void InputBound(const Report& report, std::vector<Finding>& out) {
  if (!EnoughSteps(report)) return;
  const double input_ns = MedianMean(report, &StepsReport::input_ns);
  if (input_ns < thresholds::kInputStepShare * report.steps->time_ns.mean) return;
  out.push_back({.statement = absl::StrFormat("The GPUs wait %s per step for input (%s of the step).",
                                              Duration(input_ns), OfTheStep(report, input_ns)),
                 .evidence = "Before a step's first launch or input copy, nothing runs on the GPU and the "
                             "host launches nothing.",
                 .advice = "Use more data-loader workers, prefetching, pinned memory, or preprocessing ahead "
                           "of time; check whether the storage keeps up.",
                 .cost_ns_per_step = input_ns});
}

void LaunchBound(const Report& report, std::vector<Finding>& out) {
  if (!EnoughSteps(report)) return;
  const double host_ns = MedianMean(report, &StepsReport::host_bound_ns);
  if (host_ns < thresholds::kLaunchStepShare * report.steps->time_ns.mean) return;
  // Without kernels, as in a program that only copies, there is no launching that could be too slow.
  if (KernelsPerStep(report) < 1) return;
  const ComputeReport& c = report.compute;
  const double mean_ns = static_cast<double>(c.total_ns) / static_cast<double>(c.kernels);
  const Launching launching = LaunchingOf(report);
  out.push_back(
      {.statement = absl::StrFormat(
           "The host launches too slowly: the GPUs run out of work for %s per step (%s of the step).",
           Duration(host_ns), OfTheStep(report, host_ns)),
       .evidence = absl::StrFormat(
           "%.0f kernels per step and rank, %s each on average; %s of them are shorter than %s.%s",
           KernelsPerStep(report), Duration(mean_ns),
           Percent(static_cast<double>(c.short_kernels) / static_cast<double>(c.kernels)),
           Duration(static_cast<double>(model::ProcessModel::kShortKernelNs)), LaunchedAlready(launching)),
       .advice = LaunchAdvice(launching, c.fused_optimizer),
       .cost_ns_per_step = host_ns});
}

void SyncInLoop(const Report& report, std::vector<Finding>& out) {
  if (!EnoughSteps(report)) return;
  const double sync_ns = MedianMean(report, &StepsReport::sync_ns);
  if (sync_ns < thresholds::kSyncStepShare * report.steps->time_ns.mean) return;
  uint64_t calls = 0;
  uint64_t blocked_ns = 0;
  for (const RankReport& r : report.ranks) {
    calls += r.blocked.count;
    blocked_ns += r.blocked.duration_ns;
  }
  const double rank_steps = static_cast<double>(report.steps->count) *
                            static_cast<double>(std::max<size_t>(report.ranks.size(), 1));
  out.push_back(
      {.statement = absl::StrFormat("The host synchronises with the GPU within the step and then launches "
                                    "late: nothing runs for %s per step (%s of the step).",
                                    Duration(sync_ns), OfTheStep(report, sync_ns)),
       .evidence = absl::StrFormat(
           "%.1f synchronising calls per step and rank block the host for %s per step.",
           static_cast<double>(calls) / rank_steps, Duration(static_cast<double>(blocked_ns) / rank_steps)),
       .advice = "Look for .item(), .cpu(), printed tensors, nonzero and torch.cuda.synchronize in the loop; "
                 "read values every n-th step, or asynchronously.",
       .cost_ns_per_step = sync_ns});
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
             direction == "h2d" ? "to the GPU" : "from the GPU", Duration(ns)),
         .evidence = evidence + ". Such a copy is staged, and the host waits for it.",
         .advice = "pin_memory=True in the data loader and non_blocking=True in the copy; cudaHostAlloc or "
                   "cudaHostRegister for buffers of your own.",
         // A copy that overlaps with computing costs nothing: at most what copies alone take.
         .cost_ns_per_step = std::min(ns, report.steps->copy_ns.mean)});
  }
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
    if (k.name == "gemm" || k.name == "convolution" || k.name == "attention") gemm += k.share;
  }
  out.push_back(
      {.statement = absl::StrFormat("The step uses %s of the GPUs' %s peak (MFU).", Percent(*u.mfu), u.type),
       .evidence = absl::StrCat("Step time: ", absl::StrJoin(parts, ", "),
                                ". Matrix products, convolutions and attention take ", Percent(gemm),
                                " of kernel time."),
       .advice = "Start with the largest part that is not compute; if compute dominates, try lower "
                 "precision, larger matrix products and fused kernels."});
}

void WarmupDominated(const Report& report, std::vector<Finding>& out) {
  if (!EnoughSteps(report) || report.conditions.duration_ns == 0) return;
  if (report.conditions.steps_recorded.has_value()) return;  // the others were steps, too
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

namespace {

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

}  // namespace

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
       .advice = "Use one GPU per rank: torch.cuda.set_device(LOCAL_RANK), and check CUDA_VISIBLE_DEVICES."});
}

void MixedHardware(const Report& report, std::vector<Finding>& out) {
  if (report.conditions.differing.empty()) return;
  out.push_back(
      {.statement = "The ranks run on different hardware or software.",
       .evidence = absl::StrCat(absl::StrJoin(report.conditions.differing, "; "), "."),
       .advice = "The slowest GPU sets the pace for all ranks: use identical GPUs, or give it less work."});
}

void Healthy(const Report& report, std::vector<Finding>& out) {
  if (!EnoughSteps(report)) {
    out.push_back(
        {.statement = report.steps.has_value()
                          ? "Nothing stands out in the few steps that were recorded."
                          : "Nothing stands out. No steps were recognised, so step times are unknown.",
         .evidence = "",
         .advice = ""});
    return;
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
  out.push_back({.statement = statement + ".", .evidence = "", .advice = ""});
}

}  // namespace gpuprobe::analysis
