#include "collector/analysis/communication/communicator_report.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/analysis/names.h"
#include "collector/model/job/job_model.h"

namespace gpuprobe::analysis {
namespace {

std::string HowText(const model::ProcessModel& process, const model::RanAs& how) {
  std::string text = absl::StrCat(process.String(how.algorithm), " ", process.String(how.protocol));
  if (how.channels > 0)
    absl::StrAppend(&text, ", ", how.channels, how.channels == 1 ? " channel" : " channels");
  return text;
}

using HostCounts = std::map<std::string, int>;

void AddRank(const model::ProcessModel& process, const v1::Communicator& comm, CommunicatorReport& report,
             HostCounts& ranks_of_host) {
  ++report.ranks_heard;
  const v1::Identity& id = process.identity();
  ++ranks_of_host[id.host()];
  if (HasRank(id)) report.members.push_back(id.rank());
  if (comm.ranks() > 0) report.ranks = comm.ranks();
  if (report.name.empty() && comm.name() != 0) report.name = process.String(comm.name());
  if (report.made_by.empty() && comm.made_by() != 0) report.made_by = process.String(comm.made_by());
  const v1::Communicator* parent = comm.parent() == 0 ? nullptr : process.FindCommunicator(comm.parent());
  if (report.parent.empty() && parent != nullptr)
    report.parent = parent->hash() == 0 ? "unknown" : CommName(parent->hash());
  ++report.states[comm.state()];
}

}  // namespace

std::vector<CommunicatorReport> CommunicatorsOf(const model::JobModel& job) {
  // By hash; those whose hash is not known are each process's own.
  std::map<std::pair<uint64_t, uint64_t>, CommunicatorReport> all;
  std::map<CommunicatorReport*, std::map<std::string, uint64_t>> ways;  // how NCCL ran the calls
  std::map<CommunicatorReport*, HostCounts> hosts;
  for (uint32_t index = 0; index < job.processes().size(); ++index) {
    const model::ProcessModel& process = *job.processes()[index];
    std::map<uint32_t, CommunicatorReport*> by_id;
    for (const auto& [id, comm] : process.communicators()) {
      const uint64_t own = comm.hash() == 0 ? uint64_t{index + 1} << 32 | id : 0;
      CommunicatorReport& report = all[{comm.hash(), own}];
      report.comm = comm.hash() == 0 ? "unknown" : CommName(comm.hash());
      AddRank(process, comm, report, hosts[&report]);
      by_id[id] = &report;
      if (comm.time_ns() != 0) report.made_ns = std::min(report.made_ns.value_or(UINT64_MAX), comm.time_ns());
    }
    for (const auto& series : process.collectives().series()) {
      const auto found = by_id.find(series->comm);
      if (found == by_id.end()) continue;
      for (const model::RanAs& how : series->ran_as) ways[found->second][HowText(process, how)] += how.calls;
      for (const auto& part : series->parts) {
        CommunicatorReport::Operation& operation = found->second->operations[process.String(part.op)];
        operation.calls += part.calls;
        operation.bytes += part.bytes;
      }
    }
  }
  for (auto& [report, calls] : ways) {
    report->ran_as = std::max_element(calls.begin(), calls.end(), [](const auto& a, const auto& b) {
                       return a.second < b.second;
                     })->first;
  }
  for (auto& [report, ranks] : hosts) {
    const auto [least, most] = std::minmax_element(
        ranks.begin(), ranks.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    report->hosts = static_cast<int>(ranks.size());
    report->ranks_per_host = {least->second, most->second};
  }
  std::vector<CommunicatorReport> out;
  for (auto& [key, report] : all) {
    std::sort(report.members.begin(), report.members.end());
    report.members.erase(std::unique(report.members.begin(), report.members.end()), report.members.end());
    if (report.members.size() > CommunicatorReport::kMaxMembers)
      report.members.resize(CommunicatorReport::kMaxMembers);
    out.push_back(std::move(report));
  }
  std::stable_sort(out.begin(), out.end(), [](const CommunicatorReport& a, const CommunicatorReport& b) {
    return a.made_ns.value_or(UINT64_MAX) < b.made_ns.value_or(UINT64_MAX);
  });
  return out;
}

}  // namespace gpuprobe::analysis
