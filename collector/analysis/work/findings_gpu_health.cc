// Errors that the driver reported of GPUs while the job ran.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/finding_rules.h"
#include "collector/analysis/hangs/process_state.h"
#include "collector/analysis/units.h"
#include "collector/analysis/work/gpu_health.h"
#include "collector/report/report.h"

namespace gpuprobe::analysis {
namespace {

constexpr size_t kMostNamed = 4;  // GPUs, and errors of each
// The driver notes it whenever a process ends while it computes.
constexpr uint32_t kCleanedUp = 45;

std::string MeaningText(uint32_t xid) {
  const XidMeaning* meaning = MeaningOfXid(xid);
  return meaning == nullptr ? "" : meaning->text;
}

// "Xid 79 (it has fallen off the bus)"
std::string XidText(uint32_t xid) {
  const std::string meaning = MeaningText(xid);
  return absl::StrCat("Xid ", xid, meaning.empty() ? "" : absl::StrCat(" (", meaning, ")"));
}

struct FaultyGpu {
  const RankReport* rank;
  std::vector<GpuError> errors;  // by time

  uint64_t FirstNs() const { return errors.empty() ? UINT64_MAX : errors.front().time_ns; }
  std::string Name() const {
    return absl::StrCat("GPU ", rank->device.value_or(0), " on ", rank->host, " (", rank->Name(), ")");
  }
  // "Xid 74 (an NVLink had errors) at 18:02:11 UTC, 3 errors of its memory that cannot be corrected"
  std::string Text() const {
    std::vector<std::string> parts;
    for (const GpuError& error : errors) {
      if (parts.size() == kMostNamed) {
        parts.push_back(absl::StrCat(errors.size() - kMostNamed, " more"));
        break;
      }
      parts.push_back(absl::StrCat(XidText(error.xid), " at ", ClockTime(error.time_ns)));
    }
    const GpuHealth& health = rank->gpu_health;
    if (health.ecc_uncorrected > 0)
      parts.push_back(absl::StrCat(Count(health.ecc_uncorrected),
                                   health.ecc_uncorrected == 1 ? " error" : " errors",
                                   " of its memory that cannot be corrected"));
    if (health.remap_failed) parts.push_back("no spare rows left in its memory");
    return absl::StrJoin(parts, ", ");
  }
};

// The earliest first.
std::vector<FaultyGpu> FaultyGpusOf(const Report& report) {
  std::vector<FaultyGpu> faulty;
  for (const RankReport& r : report.ranks) {
    FaultyGpu gpu{.rank = &r, .errors = r.gpu_health.errors};
    std::erase_if(gpu.errors, [](const GpuError& error) { return error.xid == kCleanedUp; });
    if (!gpu.errors.empty() || r.gpu_health.ecc_uncorrected > 0 || r.gpu_health.remap_failed)
      faulty.push_back(std::move(gpu));
  }
  std::stable_sort(faulty.begin(), faulty.end(),
                   [](const FaultyGpu& a, const FaultyGpu& b) { return a.FirstNs() < b.FirstNs(); });
  return faulty;
}

std::string AdviceOn(const FaultyGpu& gpu) {
  const XidMeaning* meaning = gpu.errors.empty() ? nullptr : MeaningOfXid(gpu.errors.front().xid);
  switch (meaning == nullptr ? (gpu.errors.empty() ? XidBlame::kMemory : XidBlame::kGpu) : meaning->blame) {
    case XidBlame::kProgram:
      return "Most often the program itself does this: run it under compute-sanitizer, or with "
             "CUDA_LAUNCH_BLOCKING=1. "
             "If other programs get the error on this GPU, too, have the GPU checked.";
    case XidBlame::kMemory:
      return absl::StrCat(
          "Reset the GPU before the next job (nvidia-smi -r), and have it checked if it happens again: "
          "nvidia-smi -q -d ECC,ROW_REMAPPER on ",
          gpu.rank->host, ".");
    case XidBlame::kLink:
      return absl::StrCat("Look at the links of ", gpu.rank->host,
                          " (nvidia-smi nvlink -e), and take it out of service if their errors grow.");
    default:
      return absl::StrCat(
          "Take ", gpu.rank->host,
          " out of service until the GPU is reset or the host restarted; dmesg there says more. NVIDIA "
          "explains the numbers at docs.nvidia.com/deploy/xid-errors.");
  }
}

void GpuErrors(const Report& report, std::vector<Finding>& out) {
  const std::vector<FaultyGpu> faulty = FaultyGpusOf(report);
  if (faulty.empty()) return;
  const FaultyGpu& first = faulty.front();
  Finding f;
  if (first.errors.empty()) {
    f.statement = absl::StrCat(first.Name(), " has errors in its memory: ", first.Text(), ".");
  } else {
    const std::string meaning = MeaningText(first.errors.front().xid);
    f.statement =
        absl::StrFormat("%s%s had an error: %s (Xid %d, at %s).",
                        faulty.size() > 1 ? absl::StrCat(faulty.size(), " GPUs had errors. The first: ") : "",
                        first.Name(), meaning.empty() ? "the driver reported it" : meaning,
                        first.errors.front().xid, ClockTime(first.errors.front().time_ns));
  }
  std::vector<std::string> each;
  for (const FaultyGpu& gpu : faulty) {
    if (gpu.rank->rank.has_value()) f.about.ranks.push_back(*gpu.rank->rank);
    if (each.size() < kMostNamed) each.push_back(absl::StrCat(gpu.rank->Name(), ": ", gpu.Text()));
  }
  std::sort(f.about.ranks.begin(), f.about.ranks.end());
  f.evidence = absl::StrCat(
      "The driver reported, ", absl::StrJoin(each, "; "),
      faulty.size() > each.size() ? absl::StrCat("; and ", faulty.size() - each.size(), " more GPUs") : "",
      ".");
  f.advice = AdviceOn(first);
  out.push_back(std::move(f));
}

}  // namespace

std::vector<FindingRule> GpuHealthRules() {
  return {{"gpu-error", FindingTopic::kHangs, Severity::kError,
           "the driver reported an error of a GPU (Xid) while the job ran, other than that it cleaned up "
           "after a process, or the GPU's memory has errors that cannot be corrected",
           GpuErrors}};
}

}  // namespace gpuprobe::analysis
