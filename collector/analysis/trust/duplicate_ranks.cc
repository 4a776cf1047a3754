#include "collector/analysis/trust/duplicate_ranks.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "collector/analysis/hangs/bystander.h"
#include "collector/analysis/names.h"

namespace gpuprobe::analysis {
namespace {

using model::ProcessModel;

uint64_t JoinedNs(const ProcessModel& process) { return process.hello().clock().realtime_ns(); }

uint64_t LastReportNs(const ProcessModel& process) {
  return std::max(process.totals().last_ns, process.totals().last_clock_ns);
}

bool Coincide(const ProcessModel& a, const ProcessModel& b) {
  return JoinedNs(a) < LastReportNs(b) && JoinedNs(b) < LastReportNs(a);
}

}  // namespace

std::vector<DuplicateRankProcesses> DuplicateRanksOf(const model::JobModel& job) {
  std::map<int, std::vector<const ProcessModel*>> by_rank;
  for (const auto& process : job.processes()) {
    if (HasRank(process->identity())) by_rank[process->identity().rank()].push_back(process.get());
  }
  std::vector<DuplicateRankProcesses> found;
  for (auto& [rank, processes] : by_rank) {
    if (processes.size() < 2) continue;
    std::erase_if(processes, [&job](const ProcessModel* process) { return IsBystander(*process, job); });
    DuplicateRankProcesses duplicate{.rank = rank, .processes = {}};
    for (const ProcessModel* process : processes) {
      const bool coincides = std::any_of(
          processes.begin(), processes.end(),
          [process](const ProcessModel* other) { return other != process && Coincide(*process, *other); });
      if (coincides) duplicate.processes.push_back(process);
    }
    if (!duplicate.processes.empty()) found.push_back(std::move(duplicate));
  }
  return found;
}

ProcessLabels::ProcessLabels(const model::JobModel& job) {
  for (const DuplicateRankProcesses& duplicate : DuplicateRanksOf(job))
    duplicates_.insert(duplicate.processes.begin(), duplicate.processes.end());
}

std::string ProcessLabels::Of(const ProcessModel& process) const {
  const v1::Identity& id = process.identity();
  if (!HasRank(id)) return absl::StrCat("pid ", id.pid());
  return IsDuplicate(process) ? absl::StrCat(id.rank(), " (pid ", id.pid(), ")") : absl::StrCat(id.rank());
}

}  // namespace gpuprobe::analysis
