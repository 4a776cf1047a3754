#include "collector/recording/health_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collector/analysis/build_report.h"
#include "collector/analysis/finding_rules.h"
#include "collector/analysis/units.h"
#include "collector/render/text_layout.h"
#include "collector/text/characters.h"

namespace gpuprobe::recording {
namespace {

using analysis::Duration;

constexpr std::chrono::seconds kOthersMayTake{3};

// Whether all ranks of the job have reported work.
bool AllHeard(const model::JobModel& job) {
  int heard = 0;
  int ranks = 0;
  for (const auto& process : job.processes()) {
    ranks = std::max(ranks, process->identity().world_size());
    heard += process->totals().kernels > 0 || process->totals().launches > 0 ? 1 : 0;
  }
  return heard >= ranks;
}

// Steps after the warm-up that every rank has seen; 0 while some rank's warm-up is undecided, or only its
// launches were reported.
uint64_t StepsSeen(const model::JobModel& job) {
  uint64_t least = UINT64_MAX;
  for (const auto& process : job.processes()) {
    if (process->totals().kernels == 0 && process->totals().launches == 0) continue;
    least = std::min(least, process->steps().statistics().total_ns.count());
  }
  return least == UINT64_MAX ? 0 : least;
}

// Each rank counts alike, however many of its records have come.
std::string Overview(const analysis::Report& report) {
  analysis::StepMeans sums;
  double ranks = 0;
  for (const analysis::RankReport& rank : report.ranks) {
    const analysis::StepMeans& means = rank.step_means;
    if (means.steps == 0) continue;
    ranks += 1;
    sums.total_ns += means.total_ns;
    sums.compute_ns += means.compute_ns;
    sums.exposed_comm_ns += means.exposed_comm_ns;
    sums.copy_ns += means.copy_ns;
    sums.idle_ns += means.idle_ns;
  }
  if (ranks == 0) return "no steps";
  const auto share = [&](double part) {
    return analysis::Percent(sums.total_ns > 0 ? part / sums.total_ns : 0);
  };
  return absl::StrCat("a step takes ", Duration(sums.total_ns / ranks), ": compute ", share(sums.compute_ns),
                      ", exposed communication ", share(sums.exposed_comm_ns), ", copy ", share(sums.copy_ns),
                      ", idle ", share(sums.idle_ns));
}

}  // namespace

std::optional<std::string> HealthCheck::Look(model::JobModel& job, bool at_end) {
  if (said_) return std::nullopt;
  const uint64_t seen = StepsSeen(job);
  if (seen < steps_ && !at_end) return std::nullopt;
  const auto now = std::chrono::steady_clock::now();
  if (!enough_since_.has_value()) enough_since_ = now;
  if (!at_end && !AllHeard(job) && now - *enough_since_ < kOthersMayTake) return std::nullopt;
  said_ = true;
  if (seen < steps_) {
    return absl::StrCat("gpuprobe: check: only ", seen, " of ", steps_,
                        " steps after the warm-up were recorded before the command ended\n");
  }
  model::JobModel copy;
  if (absl::Status s = copy.LoadState(job.SaveState()); !s.ok())
    return absl::StrCat("gpuprobe: check failed: ", std::string(s.message()), "\n");
  copy.Finish(/*goes_on=*/true);
  const analysis::Report report = analysis::BuildReport(copy, {});
  const std::string more =
      seen > steps_ ? absl::StrCat(" (", steps_, " requested; more became known at once)") : "";
  std::string out = absl::StrCat("gpuprobe: check after ", seen, seen == 1 ? " step" : " steps", more, ": ",
                                 Overview(report), "\n");
  bool wrong = false;
  for (const analysis::Finding& f : report.findings) {
    if (analysis::RuleOf(f.id).of_the_end || f.severity == analysis::Severity::kInfo) continue;
    wrong = true;
    absl::StrAppend(&out,
                    "gpuprobe: check: ", f.severity == analysis::Severity::kError ? "error " : "warning ",
                    f.id, ": ", text::Printable(f.statement), "\n");
  }
  if (!wrong) absl::StrAppend(&out, "gpuprobe: check: ok, nothing stands out\n");
  return out;
}

}  // namespace gpuprobe::recording
