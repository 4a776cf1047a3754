#include "collector/analysis/members.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "collector/analysis/names.h"
#include "collector/analysis/trust/duplicate_ranks.h"
#include "collector/model/job/job_model.h"
#include "collector/report/stragglers.h"

namespace gpuprobe::analysis {

std::string LabelOf(const model::JobModel& job, const ProcessLabels& labels, const model::Member& member) {
  std::string process = labels.Of(*member.process);
  if (!member.device().has_value()) return process;
  const std::string gpu = absl::StrCat("GPU ", *member.device());
  const bool alone = job.processes().size() == 1 && !HasRank(member.process->identity());
  return alone ? gpu : absl::StrCat(process, "/", gpu);
}

const RankReport* RankReportOf(const std::vector<RankReport>& ranks, const model::Member& member) {
  const v1::Identity& id = member.process->identity();
  const auto found = std::find_if(ranks.begin(), ranks.end(), [&](const RankReport& rank) {
    return rank.pid == id.pid() && rank.host == id.host() &&
           (!rank.is_device || rank.device == member.device());
  });
  return found == ranks.end() ? nullptr : &*found;
}

std::string RankReport::Name() const {
  std::string process = rank.has_value() ? absl::StrCat("rank ", *rank) : absl::StrCat("process ", pid);
  if (!is_device || !device.has_value()) return process;
  const bool alone = label == absl::StrCat("GPU ", *device);
  return alone ? label : absl::StrCat("GPU ", *device, " of ", process);
}

std::string Straggler::Name() const { return gpu.empty() ? absl::StrCat("rank ", rank.value_or(-1)) : gpu; }

bool Straggler::Is(const RankReport& report) const {
  return gpu.empty() ? !report.is_device && report.rank == rank : report.is_device && report.Name() == gpu;
}

void Straggler::IdentifyAs(const RankReport& report) {
  rank = report.rank;
  gpu = report.is_device ? report.Name() : "";
  host = report.host;
  device = report.device;
}

}  // namespace gpuprobe::analysis
