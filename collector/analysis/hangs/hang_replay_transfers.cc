// Sends and receives in CUDA graphs whose other side's graph was launched less often, or does not finish.
//
// The n-th send from one rank to another is the n-th receive there, also of those that were captured: the
// graph that carries the one is matched with the graph that carries the other, launch by launch.
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "collector/analysis/hangs/hang_replays.h"
#include "collector/analysis/names.h"
#include "collector/analysis/trust/duplicate_ranks.h"
#include "proto/nccl_operations.h"

namespace gpuprobe::analysis {
namespace {

using model::CollectiveTracker;
using model::GraphReplays;
using model::IssuedCalls;
using model::ProcessModel;

// A captured send or receive in one executable graph.
struct ReplayedTransfer {
  uint32_t process = 0;
  const GraphReplays::Graph* graph = nullptr;
  size_t place = 0;
  size_t nth = 0;  // of the place's transfers
  int rank = 0;    // in the communicator
  CollectiveTracker::CapturedTransfer transfer;
  bool sends = false;
};

// Communicator's hash, sender, receiver, ordinal of the transfer, and whether it is the sender's side.
using TransferKey = std::tuple<uint64_t, int, int, uint64_t, bool>;

TransferKey KeyOf(uint64_t hash, const ReplayedTransfer& side, bool sends) {
  const int peer = side.transfer.peer;
  const bool own = side.sends;
  return {hash, own ? side.rank : peer, own ? peer : side.rank, side.transfer.pair, sends};
}

class TransferSearch {
 public:
  TransferSearch(const model::JobModel& job, uint64_t until_ns) : job_(job), until_ns_(until_ns) {}

  std::vector<ReplaySuspect> Run() {
    for (uint32_t i = 0; i < job_.processes().size(); ++i) {
      for (const auto& [number, graph] : Of(i).collectives().replays().graphs()) {
        if (!IsOpen(graph, until_ns_)) continue;
        ForEachSide(i, graph, [&](uint64_t hash, const ReplayedTransfer& side) {
          if (found_.size() < kMaxPairs) Look(hash, side);
        });
      }
    }
    return std::move(found_);
  }

 private:
  const ProcessModel& Of(uint32_t process) const { return *job_.processes()[process]; }

  // As the graph was when it was made; of one plan and peer each direction once.
  template <typename Visitor>
  void ForEachSide(uint32_t index, const GraphReplays::Graph& graph, Visitor&& visit) const {
    const ProcessModel& process = Of(index);
    for (size_t place = 0; place < graph.places.size(); ++place) {
      const uint64_t plan = graph.places[place].first.plan;
      const v1::Communicator* comm = process.FindCommunicator(process.collectives().CallsOf(plan).comm);
      if (comm == nullptr || comm->hash() == 0 || comm->rank() < 0) continue;
      std::set<std::pair<int32_t, uint32_t>> seen;
      size_t nth = 0;
      for (const auto& transfer : process.collectives().TransfersOf(plan)) {
        const size_t at = nth++;
        if (transfer.pair == 0 || transfer.peer == comm->rank()) continue;
        if (!seen.insert({transfer.peer, transfer.op}).second) continue;
        visit(comm->hash(), ReplayedTransfer{.process = index,
                                             .graph = &graph,
                                             .place = place,
                                             .nth = at,
                                             .rank = comm->rank(),
                                             .transfer = transfer,
                                             .sends = nccl::IsSend(process.String(transfer.op))});
      }
    }
  }

  uint32_t ProcessOf(uint64_t hash, int rank) const {
    const auto comm = job_.issued().communicators().find(hash);
    if (comm == job_.issued().communicators().end()) return IssuedCalls::kNoProcess;
    const auto& ranks = comm->second.ranks;
    if (rank < 0 || static_cast<size_t>(rank) >= ranks.size()) return IssuedCalls::kNoProcess;
    return ranks[static_cast<size_t>(rank)].process;
  }

  // All graphs of the process that carry it.
  const std::vector<ReplayedTransfer>& SidesOf(uint32_t process, const TransferKey& key) {
    if (collected_.insert(process).second) {
      for (const auto& [number, graph] : Of(process).collectives().replays().graphs()) {
        ForEachSide(process, graph, [&](uint64_t hash, const ReplayedTransfer& side) {
          sides_[KeyOf(hash, side, side.sends)].push_back(side);
        });
      }
    }
    return sides_[key];
  }

  // Captured there, and in no graph that was made executable; every graph that it launched is known.
  bool CapturedButNotLaunched(uint32_t index, const TransferKey& key) const {
    const ProcessModel& process = Of(index);
    if (process.collectives().replays().unknown_launches() != 0) return false;
    bool found = false;
    process.collectives().ForEachCaptured([&](uint64_t plan) {
      const v1::Communicator* comm = process.FindCommunicator(process.collectives().CallsOf(plan).comm);
      if (found || comm == nullptr || comm->hash() != std::get<0>(key)) return;
      for (const auto& transfer : process.collectives().TransfersOf(plan)) {
        const bool sends = nccl::IsSend(process.String(transfer.op));
        const ReplayedTransfer side{.rank = comm->rank(), .transfer = transfer, .sends = sends};
        found = found || KeyOf(comm->hash(), side, sends) == key;
      }
    });
    return found;
  }

  // The first launch in which the side is not known to be over.
  uint64_t FirstOpen(const ReplayedTransfer& side) const {
    uint64_t over = LastOver(*side.graph, std::vector<size_t>{side.place});
    for (const GraphReplays::Launch& launch : side.graph->recent) {
      if (!SinceLastWait(Of(side.process), launch.launch_ns)) over = std::max(over, launch.number);
    }
    return over + 1;
  }

  void Look(uint64_t hash, const ReplayedTransfer& side) {
    const uint64_t number = FirstOpen(side);
    const GraphReplays::Launch* launch = LaunchOfNumber(*side.graph, number);
    if (launch == nullptr || launch->launch_ns > until_ns_) return;
    const uint32_t peer = ProcessOf(hash, side.transfer.peer);
    if (peer == IssuedCalls::kNoProcess || !HeardAllLaunches(Of(side.process))) return;
    const TransferKey key = KeyOf(hash, side, !side.sends);
    const std::vector<ReplayedTransfer>& others = SidesOf(peer, key);
    // A graph instantiated twice is launched in turns, in an unknown order.
    if (others.size() > 1 || SidesOf(side.process, KeyOf(hash, side, side.sends)).size() > 1) return;
    const ReplayedTransfer* other = others.empty() ? nullptr : &others.front();
    if (other == nullptr && !CapturedButNotLaunched(peer, key)) return;
    HangSuspect s;
    s.transfer = true;
    s.waiting = {{.process = side.process,
                  .issue_ns = launch->launch_ns,
                  .launch = {.plan = 0, .correlation = launch->correlation}}};
    const GraphReplays::Graph* graph = other == nullptr ? nullptr : other->graph;
    if (graph == nullptr || graph->launches < number) {
      s.missing = {peer};
    } else {
      const GraphReplays::Launch* its = LaunchOfNumber(*graph, number);
      const bool open = its != nullptr && !HasEnded(*its, other->place);
      if (open && !side.sends) return;  // reported for the sender
      if (open)
        s.waiting.push_back({.process = peer,
                             .issue_ns = its->launch_ns,
                             .launch = {.plan = 0, .correlation = its->correlation}});
    }
    s.describe_rank = [own = side, graph, peer](uint32_t process, uint64_t now_ns, HangRank& rank) {
      DescribeReplays(process == peer ? graph : own.graph, now_ns, rank);
    };
    s.describe = [hang = Describe(hash, side, peer, number)] { return hang; };
    found_.push_back({.suspect = std::move(s), .comm = hash});
  }

  Hang Describe(uint64_t hash, const ReplayedTransfer& side, uint32_t peer, uint64_t number) const {
    const ProcessModel& process = Of(side.process);
    const GraphReplays::Launch* launch = LaunchOfNumber(*side.graph, number);
    // The graph may have been updated since it was made.
    CollectiveTracker::CapturedTransfer transfer = side.transfer;
    const auto now = process.collectives().TransfersOf(side.graph->places[side.place].In(*launch).plan);
    if (side.nth < now.size() && now[side.nth].op == transfer.op) transfer = now[side.nth];
    Hang hang;
    hang.comm = CommName(hash);
    hang.comm_ranks = static_cast<int>(job_.issued().communicators().at(hash).ranks.size());
    hang.seq = transfer.seq;
    hang.shape = {
        .op = process.String(transfer.op), .count = 0, .datatype = "", .bytes = transfer.bytes, .root = -1};
    hang.replay = HangReplay{.number = number, .collectives = 0, .ended = 0, .first_seq = side.transfer.seq};
    const ProcessLabels labels(job_);
    hang.transfer = HangTransfer{
        .rank = RankOf(process),
        .label = labels.Of(process),
        .peer = RankOf(Of(peer)),
        .peer_label = labels.Of(Of(peer)),
        .counterpart =
            std::string(nccl::NameOf(side.sends ? nccl::Operation::kRecv : nccl::Operation::kSend)),
        .others_waiting = 0};
    return hang;
  }

  const model::JobModel& job_;
  const uint64_t until_ns_;
  std::set<uint32_t> collected_;  // processes whose sides are among those below
  std::map<TransferKey, std::vector<ReplayedTransfer>> sides_;
  std::vector<ReplaySuspect> found_;
};

}  // namespace

std::vector<ReplaySuspect> TransfersInReplays(const model::JobModel& job, uint64_t until_ns) {
  return TransferSearch(job, until_ns).Run();
}

}  // namespace gpuprobe::analysis
