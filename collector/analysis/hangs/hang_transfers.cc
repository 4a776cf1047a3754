// Sends that wait for a receive, and receives that wait for a send.
#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "collector/analysis/hangs/hang_suspect.h"
#include "collector/analysis/names.h"
#include "collector/analysis/trust/duplicate_ranks.h"
#include "proto/nccl_operations.h"

namespace gpuprobe::analysis {
namespace {

using model::IssuedCalls;
using model::ProcessModel;
using model::Transfers;

// One side of a transfer that is not known to be over.
struct OpenTransfer {
  uint32_t process = 0;
  uint64_t hash = 0;
  std::string op;
  int rank = 0;  // in the communicator
  int peer = 0;
  Transfers::Open open;
};

HangParty PartyOf(const OpenTransfer& side) {
  return {.process = side.process, .issue_ns = side.open.issue_ns, .launch = {.plan = side.open.plan}};
}

Hang Describe(const model::JobModel& job, const OpenTransfer& side, uint32_t other, int waiting) {
  const ProcessModel& process = *job.processes()[side.process];
  Hang hang;
  hang.comm = CommName(side.hash);
  hang.comm_ranks = static_cast<int>(job.issued().communicators().at(side.hash).ranks.size());
  hang.seq = side.open.seq;
  hang.shape = {.op = side.op,
                .count = side.open.count,
                .datatype = process.String(side.open.datatype),
                .bytes = side.open.count * side.open.element_bytes,
                .root = -1};
  const ProcessLabels labels(job);
  hang.transfer = HangTransfer{.rank = RankOf(process),
                               .label = labels.Of(process),
                               .peer = RankOf(*job.processes()[other]),
                               .peer_label = labels.Of(*job.processes()[other]),
                               .counterpart = std::string(nccl::Counterpart(side.op)),
                               .others_waiting = waiting - 1};
  return hang;
}

class Pairs {
 public:
  Pairs(const model::JobModel& job, uint64_t until_ns) : job_(job), until_ns_(until_ns) {}

  std::vector<HangSuspect> Run() {
    for (uint32_t i = 0; i < job_.processes().size(); ++i) Look(i);
    std::vector<HangSuspect> out;
    for (auto& [missing, sides] : waits_for_) out.push_back(Missing(missing.first, sides));
    std::sort(both_.begin(), both_.end(),
              [](const auto& a, const auto& b) { return a.first.open.issue_ns < b.first.open.issue_ns; });
    if (both_.size() > kMaxPairs) both_.resize(kMaxPairs);
    for (auto& [side, other] : both_) out.push_back(Both(side, other));
    return out;
  }

 private:
  void Look(uint32_t index) {
    const ProcessModel& process = *job_.processes()[index];
    for (const auto& [key, known] : process.collectives().transfers().peers()) {
      if (known.open.empty() || known.open.front().issue_ns > until_ns_) continue;
      const auto& [comm_id, peer, op] = key;
      const v1::Communicator* comm = process.FindCommunicator(comm_id);
      if (comm == nullptr || comm->hash() == 0 || comm->rank() < 0 || peer == comm->rank()) continue;
      Classify({.process = index,
                .hash = comm->hash(),
                .op = process.String(op),
                .rank = comm->rank(),
                .peer = peer,
                .open = {}},
               known.open);
    }
  }

  // The oldest of the side's transfers that it can be waiting in.
  void Classify(OpenTransfer side, const std::deque<Transfers::Open>& all) {
    const uint32_t other = ProcessOf(side);
    if (other == IssuedCalls::kNoProcess) return;
    const Transfers::Peer* known = Other(side, other);
    const uint64_t issued = known == nullptr ? 0 : known->issued;
    const ProcessModel& process = *job_.processes()[side.process];
    // NCCL runs the calls of a communicator in order: where a later one has ended, an earlier one has, too,
    // although its record did not come.
    auto first = std::prev(all.end());
    while (first != all.begin() && std::prev(first)->number + 1 == first->number) --first;
    const auto at = std::find_if(first, all.end(), [&](const Transfers::Open& o) {
      return o.number >= issued || SinceLastWait(process, o.issue_ns);
    });
    if (at == all.end() || at->issue_ns > until_ns_) return;
    side.open = *at;
    if (at->number >= issued) {
      waits_for_[{other, side.hash}].push_back(std::move(side));
      return;
    }
    // Both sides are issued. Told once: by the one that sends, or by the only one that is not over.
    const bool open = !known->open.empty() && known->open.front().number <= side.open.number;
    if (open && !nccl::IsSend(side.op)) return;
    std::optional<HangParty> party;
    for (const Transfers::Open& o : known->open) {
      if (o.number == side.open.number)
        party = {.process = other, .issue_ns = o.issue_ns, .launch = {.plan = o.plan}};
    }
    both_.emplace_back(std::move(side), party);
  }

  uint32_t ProcessOf(const OpenTransfer& side) const {
    const auto comm = job_.issued().communicators().find(side.hash);
    if (comm == job_.issued().communicators().end()) return IssuedCalls::kNoProcess;
    const auto& ranks = comm->second.ranks;
    if (side.peer < 0 || static_cast<size_t>(side.peer) >= ranks.size()) return IssuedCalls::kNoProcess;
    return ranks[static_cast<size_t>(side.peer)].process;
  }

  // The peer's transfers of the same pair and direction.
  const Transfers::Peer* Other(const OpenTransfer& side, uint32_t index) const {
    const ProcessModel& other = *job_.processes()[index];
    const std::string_view wanted = nccl::Counterpart(side.op);
    for (const auto& [key, known] : other.collectives().transfers().peers()) {
      const auto& [comm_id, peer, op] = key;
      if (peer != side.rank || other.String(op) != wanted) continue;
      const v1::Communicator* comm = other.FindCommunicator(comm_id);
      if (comm != nullptr && comm->hash() == side.hash) return &known;
    }
    return nullptr;
  }

  HangSuspect Missing(uint32_t missing, std::vector<OpenTransfer>& sides) const {
    std::sort(sides.begin(), sides.end(), [](const OpenTransfer& a, const OpenTransfer& b) {
      return std::tuple(a.open.issue_ns, a.process) < std::tuple(b.open.issue_ns, b.process);
    });
    HangSuspect s;
    s.transfer = true;
    s.missing = {missing};
    for (const OpenTransfer& side : sides) s.waiting.push_back(PartyOf(side));
    s.describe = [job = &job_, side = sides.front(), missing, waiting = static_cast<int>(sides.size())] {
      return Describe(*job, side, missing, waiting);
    };
    return s;
  }

  HangSuspect Both(const OpenTransfer& side, const std::optional<HangParty>& other) const {
    HangSuspect s;
    s.transfer = true;
    s.waiting = {PartyOf(side)};
    if (other.has_value()) s.waiting.push_back(*other);
    s.describe = [job = &job_, side, peer = ProcessOf(side)] { return Describe(*job, side, peer, 1); };
    return s;
  }

  const model::JobModel& job_;
  const uint64_t until_ns_;
  std::map<std::pair<uint32_t, uint64_t>, std::vector<OpenTransfer>>
      waits_for_;  // process, communicator's hash
  std::vector<std::pair<OpenTransfer, std::optional<HangParty>>> both_;
};

}  // namespace

std::vector<HangSuspect> TransfersThatWait(const model::JobModel& job, uint64_t until_ns) {
  return Pairs(job, until_ns).Run();
}

}  // namespace gpuprobe::analysis
