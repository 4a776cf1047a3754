// GPUs that a process has and does not use, or not as it uses another one.
#include <algorithm>
#include <cctype>
#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/finding_rules.h"
#include "collector/analysis/hangs/process_state.h"
#include "collector/analysis/thresholds.h"
#include "collector/analysis/units.h"
#include "collector/report/report.h"

namespace gpuprobe::analysis {
namespace {

constexpr size_t kMostGpus = 8;     // ranges in a list
constexpr size_t kMostKernels = 3;  // named
constexpr size_t kKernelWidth = 40;

// "GPU 1", "GPUs 1-3"
std::string Gpus(const std::vector<int>& ordinals) {
  return absl::StrCat(ordinals.size() == 1 ? "GPU " : "GPUs ", RankList(ordinals, kMostGpus));
}

using Rows = std::vector<const RankReport*>;

// GPUs of the process that `first` is a GPU of, with steps.
Rows GpusOfProcess(const Report& report, const RankReport& first) {
  Rows rows;
  for (const RankReport& r : report.ranks) {
    if (r.is_device && r.device.has_value() && r.pid == first.pid && r.host == first.host &&
        r.step_means.steps > 0)
      rows.push_back(&r);
  }
  return rows;
}

// "FusedAdam (16.0 ms per step) and GatherLoss (4.00 ms) run there alone."
std::string OnlyThere(const RankReport& busiest, const Rows& others) {
  std::set<std::string> elsewhere;
  for (const RankReport* other : others) {
    for (const KernelReport& k : other->top_kernels) elsewhere.insert(k.name);
  }
  std::vector<std::string> names;
  for (const KernelReport& k : busiest.top_kernels) {
    if (elsewhere.contains(k.name) || !k.steady.has_value() || k.steady->time_ns <= 0) continue;
    names.push_back(absl::StrFormat("%s (%s%s)", KernelName(k.name, kKernelWidth),
                                    Duration(k.steady->time_ns), names.empty() ? " per step" : ""));
    if (names.size() == kMostKernels) break;
  }
  if (names.empty()) return "";
  return absl::StrCat(" ", Listed(names), names.size() == 1 ? " runs" : " run", " there alone.");
}

bool Gathers(const RankReport& busiest) {
  const auto copies = busiest.copies.find(v1::COPY_DIRECTION_P2P);
  return copies != busiest.copies.end() && copies->second.count > 0;
}

void DeviceImbalance(const Report& report, std::vector<Finding>& out) {
  for (const RankReport& first : report.ranks) {
    if (!first.is_device || !first.is_first) continue;
    Rows rows = GpusOfProcess(report, first);
    if (rows.size() < 2) continue;
    const auto most =
        std::max_element(rows.begin(), rows.end(), [](const RankReport* a, const RankReport* b) {
          return a->step_means.compute_ns < b->step_means.compute_ns;
        });
    const RankReport& busiest = **most;
    rows.erase(most);
    const StepMeans& m = busiest.step_means;
    double others_ns = 0;
    double waits_ns = 0;
    std::vector<int> ordinals;
    for (const RankReport* r : rows) {
      others_ns += r->step_means.compute_ns / static_cast<double>(rows.size());
      waits_ns += r->step_means.exposed_comm_ns / static_cast<double>(rows.size());
      ordinals.push_back(static_cast<int>(*r->device));
    }
    std::sort(ordinals.begin(), ordinals.end());
    // Those that wait in collectives have a finding of their own.
    if (m.compute_ns < thresholds::kBusyDeviceStepShare * m.total_ns ||
        m.compute_ns < thresholds::kBusyDeviceRatio * others_ns || waits_ns > others_ns)
      continue;
    const auto gpus = static_cast<double>(rows.size() + 1);
    const double even_ns = (m.compute_ns + others_ns * (gpus - 1)) / gpus;
    const double cost_ns = m.compute_ns - even_ns;
    out.push_back(
        {.statement = absl::StrFormat(
             "%s does most of the work of its process: it computes for %s of the step, %s for %s.",
             busiest.Name(), Percent(m.compute_ns / m.total_ns), Gpus(ordinals),
             Percent(others_ns / m.total_ns)),
         .evidence = absl::StrFormat(
             "%s per step, and %s on each of the others; spread evenly, the work would "
             "take %s.%s",
             Duration(m.compute_ns), Duration(others_ns), Duration(even_ns), OnlyThere(busiest, rows)),
         .advice = Gathers(busiest)
                       ? "If this is torch.nn.DataParallel, use DistributedDataParallel with one process per "
                         "GPU: it has no GPU that gathers outputs and updates the weights for all."
                       : "Move work to the idle GPUs, or run the program on fewer of them.",
         .cost_ns_per_step = cost_ns});
  }
}

void DeviceIdle(const Report& report, std::vector<Finding>& out) {
  std::vector<std::string> hosts;
  for (const IdleDevice& d : report.conditions.idle_devices) {
    if (hosts.empty() || hosts.back() != d.host) hosts.push_back(d.host);
  }
  for (const std::string& host : hosts) {
    std::vector<int> ordinals;
    std::vector<std::string> each;
    uint64_t kernels = 0;
    for (const IdleDevice& d : report.conditions.idle_devices) {
      if (d.host != host || (d.peak_bytes < thresholds::kStrayBytes && d.kernels == 0)) continue;
      ordinals.push_back(d.ordinal);
      kernels += d.kernels;
      each.push_back(absl::StrCat("GPU ", d.ordinal, ": ", Bytes(d.peak_bytes)));
    }
    if (ordinals.empty()) continue;
    const bool one = ordinals.size() == 1;
    out.push_back(
        {.statement = absl::StrFormat("%s of %s %s idle, although the program opened %s.", Gpus(ordinals),
                                      host, one ? "is" : "are", one ? "it" : "them"),
         .evidence = absl::StrCat(
             kernels == 0
                 ? "No kernel ran there"
                 : absl::StrCat("Only ", Count(kernels), kernels == 1 ? " kernel" : " kernels", " ran there"),
             ", and the program held memory: ", absl::StrJoin(each, ", "), "."),
         .advice =
             "Use them, or leave them to others: CUDA_VISIBLE_DEVICES. Memory there is often a model or "
             "a checkpoint that was moved to the wrong GPU."});
  }
}

void DeviceUnused(const Report& report, std::vector<Finding>& out) {
  const Conditions& c = report.conditions;
  if (c.ranks_heard != 1 || c.world_size > 1 || c.devices_used == 0 || report.ranks.empty() ||
      report.ranks.front().rank.has_value())
    return;
  std::vector<int> ordinals;
  for (const IdleDevice& d : c.idle_devices) {
    if (d.peak_bytes < thresholds::kStrayBytes && d.kernels == 0) ordinals.push_back(d.ordinal);
  }
  if (ordinals.empty()) return;
  out.push_back({.statement = absl::StrFormat("The program sees %d GPUs and does not use %s.",
                                              c.devices.size(), Gpus(ordinals)),
                 .evidence = "",
                 .advice = "If it was meant to use them, start one rank per GPU; else hide them from it with "
                           "CUDA_VISIBLE_DEVICES."});
}

constexpr size_t kMostEnds = 4;  // named in a finding

bool UsedItsGpu(const RankReport& r) {
  const auto counted = [](const auto& each) { return each.second.count > 0; };
  const auto allocated = [](const auto& each) { return each.second.allocations + each.second.failed > 0; };
  return r.kernel_count + r.memset_count > 0 || !r.collectives.empty() || !r.out_of_memory.empty() ||
         std::any_of(r.copies.begin(), r.copies.end(), counted) ||
         std::any_of(r.memory.begin(), r.memory.end(), allocated);
}

bool Failed(const RankReport& r) {
  return r.end.has_value() && (r.end->signal.has_value() || r.end->exit_code.value_or(0) != 0);
}

void NoGpuWork(const Report& report, std::vector<Finding>& out) {
  const Trust& t = report.trust;
  // Work may have been there and not been recorded, or it was about to be called a hang.
  if (report.ranks.empty() || t.lost_total + t.outside_window + t.unrecorded_frames > 0 || t.cupti_taken ||
      t.yields > 0 || report.conditions.steps_recorded.has_value() ||
      report.conditions.on_demand.has_value() || !report.hangs.empty() || !report.past_hangs.empty() ||
      std::any_of(report.ranks.begin(), report.ranks.end(), UsedItsGpu))
    return;
  std::vector<std::string> ends;
  size_t failed = 0;
  for (const RankReport& r : report.ranks) {
    failed += Failed(r) ? 1 : 0;
    if (r.end.has_value() && ends.size() < kMostEnds)
      ends.push_back(absl::StrCat(r.Name(), " ", HaltText(*r.end)));
  }
  std::string evidence = absl::StrJoin(ends, "; ");
  if (!ends.empty() && report.ranks.size() > ends.size())
    absl::StrAppend(&evidence, "; ", report.ranks.size() - ends.size(), " more");
  if (!evidence.empty()) {
    evidence.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(evidence.front())));
    evidence.push_back('.');
  }
  const std::string who =
      report.ranks.size() == 1 ? "the process" : absl::StrCat(report.ranks.size(), " processes");
  out.push_back({.statement = absl::StrFormat(
                     "Nothing ran on a GPU: %s initialised CUDA, and no kernel, copy, allocation or "
                     "NCCL call was recorded in %s.",
                     who, Duration(static_cast<double>(report.conditions.duration_ns))),
                 .evidence = evidence,
                 .advice = failed > 0 ? "It failed before it used a GPU: its own output says why."
                                      : "If it was meant to use a GPU, look whether it fell back to the CPU "
                                        "(torch.cuda.is_available()), or ended before it began to train."});
}

}  // namespace

std::vector<FindingRule> DeviceRules() {
  return {
      {"gpu-idle", FindingTopic::kHardware, Severity::kWarning,
       absl::StrCat("a process holds ", condition::Mib(thresholds::kStrayBytes),
                    " or more on a GPU, or runs a few kernels there, and nobody computes on it, while "
                    "processes of the same host compute on others"),
       DeviceIdle, "idle_gpus"},
      {"gpu-imbalance", FindingTopic::kRanks, Severity::kWarning,
       absl::StrFormat(
           "a process drives several GPUs, one of them computes for %s of the step or more and at "
           "least %s as long as the others, which do not wait for it in collectives",
           condition::Share(thresholds::kBusyDeviceStepShare),
           condition::Ratio(thresholds::kBusyDeviceRatio)),
       DeviceImbalance, "compute_by_gpu"},
      {"no-gpu-work", FindingTopic::kHardware, Severity::kWarning,
       "processes initialised CUDA, and no kernel, copy, allocation or NCCL call was recorded of any of them",
       NoGpuWork},
      {"gpu-unused", FindingTopic::kHardware, Severity::kInfo,
       "the job is one process without a rank, and does not use some of the GPUs that it sees", DeviceUnused,
       "gpus"},
  };
}

}  // namespace gpuprobe::analysis
