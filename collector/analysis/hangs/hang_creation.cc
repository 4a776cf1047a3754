// Communicators that ranks have been creating for long: NCCL waits in that call, or in the background, for
// all ranks.
#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "collector/analysis/hangs/hang_evidence.h"
#include "collector/analysis/hangs/hang_suspect.h"
#include "collector/analysis/names.h"
#include "collector/analysis/units.h"

namespace gpuprobe::analysis {
namespace {

using model::HostProgress;
using model::IssuedCalls;
using model::ProcessModel;

// By rank of the communicator, an index into JobModel::processes or kNoProcess.
using Members = std::vector<uint32_t>;

// A split has another hash for each color, and all ranks of the parent call it. New ranks that join a
// communicator do not know whose: 0.
uint64_t KeyOf(const HostProgress::Creation& c) { return c.parent != 0 ? c.parent : c.hash; }

bool HasMade(const ProcessModel& process, uint64_t hash) {
  const auto& known = process.communicators();
  return std::any_of(known.begin(), known.end(),
                     [&](const auto& entry) { return hash != 0 && entry.second.hash() == hash; });
}

// By what it was made.
constexpr char kGrow[] = "CommGrow";

// Since when it has done nothing but wait: a process goes on beside what is created in the background.
uint64_t SinceNs(const ProcessModel& process) {
  const HostProgress::Creation& c = process.progress().creating;
  return c.result == 0 ? c.since_ns : std::max(c.since_ns, AliveNs(process));
}

// The processes of the job by their rank, if it has so many.
Members OfTheJob(const model::JobModel& job, size_t ranks) {
  Members members(ranks, IssuedCalls::kNoProcess);
  for (uint32_t i = 0; i < job.processes().size(); ++i) {
    const v1::Identity& id = job.processes()[i]->identity();
    if (!HasRank(id) || static_cast<size_t>(id.rank()) >= ranks ||
        static_cast<size_t>(id.world_size()) != ranks)
      continue;
    uint32_t& member = members[static_cast<size_t>(id.rank())];
    // A rank that was started again is the later process.
    if (member == IssuedCalls::kNoProcess || Ended(*job.processes()[member])) member = i;
  }
  return members;
}

Members MembersOf(const IssuedCalls::Communicator& comm) {
  Members members;
  members.reserve(comm.ranks.size());
  for (const IssuedCalls::RankState& state : comm.ranks) members.push_back(state.process);
  return members;
}

class Creations {
 public:
  explicit Creations(const model::JobModel& job) : job_(job) {}

  std::vector<HangSuspect> Run() {
    std::map<uint64_t, std::vector<uint32_t>> inside;
    for (uint32_t i = 0; i < job_.processes().size(); ++i) {
      const HostProgress::Creation& c = Of(i);
      if (c.since_ns == 0 || KeyOf(c) == 0 || c.ranks > IssuedCalls::kMaxRanks) continue;
      if (c.parent != 0 || c.ranks > 1) inside[KeyOf(c)].push_back(i);
    }
    std::vector<HangSuspect> out;
    out.reserve(inside.size());
    for (const auto& [key, processes] : inside) out.push_back(SuspectOf(key, processes));
    return out;
  }

 private:
  const HostProgress::Creation& Of(uint32_t process) const {
    return job_.processes()[process]->progress().creating;
  }

  // Its ranks, if another communicator or the job has as many and those inside have the same ranks there.
  Members Find(uint64_t key, const std::vector<uint32_t>& inside) const {
    const HostProgress::Creation& c = Of(inside.front());
    const auto& communicators = job_.issued().communicators();
    if (c.parent != 0) {
      const auto parent = communicators.find(key);
      return parent == communicators.end() ? Members{} : MembersOf(parent->second);
    }
    const auto ranks = static_cast<size_t>(c.ranks);
    const auto fits = [&](const Members& members) {
      return members.size() == ranks && std::all_of(inside.begin(), inside.end(), [&](uint32_t process) {
               const int32_t rank = Of(process).rank;
               return rank >= 0 && static_cast<size_t>(rank) < ranks &&
                      members[static_cast<size_t>(rank)] == process;
             });
    };
    if (Members members = OfTheJob(job_, ranks); fits(members)) return members;
    for (const auto& [hash, comm] : communicators) {
      if (hash == c.hash) continue;  // of those that create it in the background
      if (Members members = MembersOf(comm); fits(members)) return members;
    }
    return {};
  }

  // Processes that want to join a communicator of so many ranks, whichever it is.
  std::vector<uint32_t> NewRanks(int32_t ranks) const {
    std::vector<uint32_t> out;
    for (uint32_t i = 0; i < job_.processes().size(); ++i) {
      const HostProgress::Creation& c = Of(i);
      if (c.since_ns != 0 && KeyOf(c) == 0 && c.ranks == ranks) out.push_back(i);
    }
    return out;
  }

  HangSuspect SuspectOf(uint64_t key, const std::vector<uint32_t>& inside) const {
    const HostProgress::Creation& c = Of(inside.front());
    HangSuspect s;
    s.creation = true;
    std::set<int32_t> there;  // ranks of the communicator that are in the call, or have made it
    for (const uint32_t process : inside) {
      s.waiting.push_back(
          {.process = process, .issue_ns = SinceNs(*job_.processes()[process]), .launch = {}});
      if (c.parent == 0) there.insert(Of(process).rank);
    }
    Members members = Find(key, inside);
    if (members.empty()) members.resize(static_cast<size_t>(std::max(c.ranks, 0)), IssuedCalls::kNoProcess);
    for (const auto& process : job_.processes()) {
      for (const auto& [id, known] : process->communicators()) {
        if (c.parent == 0 && known.hash() == c.hash) there.insert(known.rank());
      }
    }
    std::vector<int> absent;
    for (size_t rank = 0; rank < members.size(); ++rank) {
      const uint32_t process = members[rank];
      if (there.contains(static_cast<int32_t>(rank))) continue;
      if (process == IssuedCalls::kNoProcess) {
        absent.push_back(static_cast<int>(rank));
      } else if (std::find(inside.begin(), inside.end(), process) == inside.end() &&
                 !HasMade(*job_.processes()[process], c.hash)) {
        s.missing.push_back(process);
      }
    }
    const std::string made_by(job_.processes()[inside.front()]->String(c.made_by));
    if (c.parent != 0 && made_by == kGrow) {
      for (const uint32_t process : NewRanks(c.ranks)) {
        s.waiting.push_back(
            {.process = process, .issue_ns = SinceNs(*job_.processes()[process]), .launch = {}});
        there.insert(Of(process).rank);
      }
      for (auto rank = static_cast<int32_t>(members.size()); rank < c.ranks; ++rank) {
        if (!there.contains(rank)) absent.push_back(rank);
      }
      members.resize(std::max(members.size(), static_cast<size_t>(std::max(c.ranks, 0))),
                     IssuedCalls::kNoProcess);
    }
    s.absent = absent.size();
    Hang hang;
    hang.kind = Hang::Kind::kCreation;
    hang.background = c.result != 0;
    hang.comm = CommName(key);
    hang.comm_ranks = static_cast<int>(members.size());
    hang.shape.op = made_by;
    hang.not_heard = static_cast<int>(absent.size());
    hang.absent = RankList(absent, 8);
    s.describe = [hang] { return hang; };
    s.describe_rank = [this_job = &job_, hash = c.hash](uint32_t process, uint64_t now_ns, HangRank& r) {
      const HostProgress::Creation& refused = this_job->processes()[process]->progress().refused;
      if (refused.since_ns == 0 || refused.hash != hash) return;
      r.refused_result = refused.result;
      r.refused_ago_ns = Since(now_ns, refused.since_ns);
    };
    return s;
  }

  const model::JobModel& job_;
};

}  // namespace

std::vector<HangSuspect> CreationsThatWait(const model::JobModel& job) { return Creations(job).Run(); }

}  // namespace gpuprobe::analysis
