#include "collector/timeline/job_processes.h"

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collector/text/characters.h"

namespace gpuprobe::timeline {
namespace {

// Pids that no process has: Linux gives numbers below 2^22.
constexpr uint32_t kFirstFreePid = uint32_t{1} << 23;

int RankOf(const model::ProcessModel& process) {
  const v1::Identity& id = process.identity();
  return id.rank_source() != v1::RANK_SOURCE_NONE && id.rank() >= 0 ? id.rank() : -1;
}

}  // namespace

std::vector<Process> ProcessesOf(const model::JobModel& job) {
  std::vector<Process> processes;
  std::set<uint32_t> pids;
  for (const auto& model : job.processes()) {
    const v1::Identity& id = model->identity();
    Process process{.index = static_cast<uint32_t>(processes.size()),
                    .rank = RankOf(*model),
                    .world_size = id.world_size(),
                    .pid = id.pid(),
                    .shown_pid = id.pid(),
                    .host = text::ValidUtf8(id.host()),
                    .name = {},
                    .devices = {}};
    if (!pids.insert(id.pid()).second) process.shown_pid = kFirstFreePid + process.index;
    process.name =
        process.rank >= 0 ? absl::StrCat("rank ", process.rank) : absl::StrCat("pid ", process.pid);
    for (const auto& [ordinal, device] : model->devices()) {
      process.devices.push_back({.ordinal = ordinal,
                                 .name = text::ValidUtf8(device.info.name()),
                                 .memory_bytes = device.info.memory_bytes(),
                                 .multiprocessors = device.info.multiprocessors(),
                                 .compute_major = device.info.compute_major(),
                                 .compute_minor = device.info.compute_minor()});
    }
    processes.push_back(std::move(process));
  }
  return processes;
}

GroupRanks GroupRanksOf(const model::JobModel& job) {
  std::map<uint64_t, std::map<int, int>> members;  // by hash: rank of the job, by rank of the communicator
  for (const auto& process : job.processes()) {
    const int rank = RankOf(*process);
    if (rank < 0) continue;
    for (const auto& [id, comm] : process->communicators()) {
      if (comm.hash() != 0 && comm.rank() >= 0) members[comm.hash()][comm.rank()] = rank;
    }
  }
  GroupRanks groups;
  for (const auto& [hash, ranks] : members) {
    groups[hash] = absl::StrCat(
        "[",
        absl::StrJoin(ranks, ", ",
                      [](std::string* out, const auto& member) { absl::StrAppend(out, member.second); }),
        "]");
  }
  return groups;
}

}  // namespace gpuprobe::timeline
