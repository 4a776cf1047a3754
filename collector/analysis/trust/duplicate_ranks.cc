#include "collector/analysis/trust/duplicate_ranks.h"

#include <algorithm>
#include <map>
#include <utility>

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

// Those that were there while another was. One that has reported nothing was not.
std::vector<const ProcessModel*> Coinciding(std::vector<const ProcessModel*> processes) {
  std::erase_if(processes, [](const ProcessModel* p) { return LastReportNs(*p) < JoinedNs(*p); });
  std::stable_sort(processes.begin(), processes.end(),
                   [](const ProcessModel* a, const ProcessModel* b) { return JoinedNs(*a) < JoinedNs(*b); });
  std::vector<const ProcessModel*> found;
  uint64_t until_ns = 0;  // of those before
  for (size_t i = 0; i < processes.size(); ++i) {
    const uint64_t last_ns = LastReportNs(*processes[i]);
    const bool with_next = i + 1 < processes.size() && JoinedNs(*processes[i + 1]) < last_ns;
    if (JoinedNs(*processes[i]) < until_ns || with_next) found.push_back(processes[i]);
    until_ns = std::max(until_ns, last_ns);
  }
  return found;
}

}  // namespace

std::vector<DuplicateRankProcesses> DuplicateRanksOf(const model::JobModel& job) {
  std::map<int, std::vector<const ProcessModel*>> by_rank;
  for (const auto& process : job.processes()) {
    if (HasRank(process->identity())) by_rank[process->identity().rank()].push_back(process.get());
  }
  const Bystanders bystanders(job);
  std::vector<DuplicateRankProcesses> found;
  for (auto& [rank, processes] : by_rank) {
    if (processes.size() < 2) continue;
    std::erase_if(processes, [&](const ProcessModel* process) { return bystanders.Has(*process); });
    DuplicateRankProcesses duplicate{.rank = rank, .processes = Coinciding(std::move(processes))};
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
