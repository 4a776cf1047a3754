// Launches of CUDA graphs whose collectives do not end: some ranks launched the graph less often, or all
// did.
//
// A graph is matched between ranks by the communicator and sequence number of the first collective captured
// into it, its n-th launch on one with the n-th on another. Sends and receives in graphs, whose sequence
// numbers are each rank's own, are matched in hang_replay_transfers.cc.
#include "collector/analysis/hangs/hang_replays.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

#include "collector/analysis/names.h"
#include "proto/nccl_operations.h"

namespace gpuprobe::analysis {
namespace {

using model::GraphReplays;
using model::IssuedCalls;
using model::ProcessModel;

// A captured plan: one call, or a group of them.
struct Captured {
  uint64_t seq = 0;
  size_t place = 0;  // in Graph::places
  uint64_t bytes = 0;
  uint32_t calls = 0;
  std::string op;
};

// One communicator's collectives in one graph, as one rank knows them.
struct StuckReplay {
  uint32_t process = 0;
  const GraphReplays::Graph* graph = nullptr;  // null: captured, and never made executable
  std::vector<Captured> plans;                 // in the order in which they run, as it was captured
  std::string comm_name;

  uint64_t launches() const { return graph == nullptr ? 0 : graph->launches; }
  const GraphReplays::Launch* Launch(uint64_t number) const {
    if (graph == nullptr) return nullptr;
    return LaunchOfNumber(*graph, number);
  }
};
// Communicator's hash, sequence of the first call, and which of the rank's graphs that begin so.
using ReplayKey = std::tuple<uint64_t, uint64_t, size_t>;

// The graph's collectives by communicator, as it was when it was made.
std::map<uint64_t, StuckReplay> SidesOf(const ProcessModel& process, uint32_t index,
                                        const GraphReplays::Graph& graph) {
  std::map<uint64_t, StuckReplay> sides;
  bool copies = false;
  for (size_t place = 0; place < graph.places.size(); ++place) {
    const model::CarriedPlan& carried = graph.places[place].first;
    copies = copies || carried.copy != 0;
    const auto calls = process.collectives().CallsOf(carried.plan);
    const v1::Communicator* comm = calls.count == 0 ? nullptr : process.FindCommunicator(calls.comm);
    if (comm == nullptr || comm->hash() == 0) continue;
    const std::string& op = process.String(calls.op);
    if (nccl::IsTransfer(op)) continue;
    StuckReplay& side = sides[comm->hash()];
    side.process = index;
    side.graph = &graph;
    if (comm->name() != 0) side.comm_name = process.String(comm->name());
    side.plans.push_back(
        {.seq = calls.seq, .place = place, .bytes = calls.bytes, .calls = calls.count, .op = op});
  }
  // A graph that holds others runs them where they were added, whenever they were captured.
  for (auto& [hash, side] : sides) {
    if (copies) break;
    std::sort(side.plans.begin(), side.plans.end(),
              [](const Captured& a, const Captured& b) { return a.seq < b.seq; });
  }
  return sides;
}

// The process captured such a call, and every graph that it launched is known.
bool CapturedButNotLaunched(const ProcessModel& process, uint64_t hash, uint64_t seq) {
  if (process.collectives().replays().unknown_launches() != 0) return false;
  bool found = false;
  process.collectives().ForEachCaptured([&](uint64_t plan) {
    const auto calls = process.collectives().CallsOf(plan);
    if (found || calls.count == 0 || calls.seq != seq) return;
    const v1::Communicator* comm = process.FindCommunicator(calls.comm);
    found = comm != nullptr && comm->hash() == hash;
  });
  return found;
}

class ReplaySearch {
 public:
  ReplaySearch(const model::JobModel& job, uint64_t until_ns) : job_(job), until_ns_(until_ns) {}

  std::vector<HangSuspect> Run() {
    FindWaiting();
    for (uint32_t i = 0; i < job_.processes().size() && !wanted_.empty(); ++i) Collect(i);
    for (auto& [key, sides] : sides_) Look(key, sides);
    for (ReplaySuspect& transfer : TransfersInReplays(job_, until_ns_)) found_.push_back(std::move(transfer));
    return JoinThoseOfOneLaunch();
  }

 private:
  const ProcessModel& Of(uint32_t process) const { return *job_.processes()[process]; }

  void FindWaiting() {
    for (uint32_t i = 0; i < job_.processes().size(); ++i) {
      for (const auto& [number, graph] : Of(i).collectives().replays().graphs()) {
        if (!IsOpen(graph, until_ns_)) continue;
        for (const auto& [hash, side] : SidesOf(Of(i), i, graph)) wanted_.insert(hash);
      }
    }
  }

  void Collect(uint32_t index) {
    std::map<std::pair<uint64_t, uint64_t>, size_t> seen;
    for (const auto& [number, graph] : Of(index).collectives().replays().graphs()) {
      for (auto& [hash, side] : SidesOf(Of(index), index, graph)) {
        if (!wanted_.contains(hash)) continue;
        const uint64_t seq = side.plans.front().seq;
        sides_[{hash, seq, seen[{hash, seq}]++}].push_back(std::move(side));
      }
    }
  }

  // Whether every rank that reports has the graph, and none of their launches was lost.
  bool Complete(const ReplayKey& key, const IssuedCalls::Communicator& comm,
                std::vector<StuckReplay>& sides) const {
    std::set<uint32_t> known;
    for (const StuckReplay& side : sides) known.insert(side.process);
    for (const IssuedCalls::RankState& rank : comm.ranks) {
      if (rank.process == IssuedCalls::kNoProcess) continue;
      if (!HeardAllLaunches(Of(rank.process))) return false;
      if (known.contains(rank.process)) continue;
      const auto& [hash, seq, nth] = key;
      if (nth != 0 || !CapturedButNotLaunched(Of(rank.process), hash, seq)) return false;
      sides.push_back({.process = rank.process, .graph = nullptr, .plans = {}, .comm_name = ""});
    }
    return sides.size() == comm.heard;
  }

  // The latest launch that is known to be over: its kernels ended on some rank, or the main thread of one has
  // waited for the device since.
  uint64_t OverOf(const StuckReplay& side) const {
    if (side.graph == nullptr) return 0;
    std::vector<size_t> places;
    for (const Captured& plan : side.plans) places.push_back(plan.place);
    uint64_t over = LastOver(*side.graph, places);
    for (const GraphReplays::Launch& launch : side.graph->recent) {
      if (!SinceLastWait(Of(side.process), launch.launch_ns)) over = std::max(over, launch.number);
    }
    return over;
  }

  void Look(const ReplayKey& key, std::vector<StuckReplay>& sides) {
    const auto comm = job_.issued().communicators().find(std::get<0>(key));
    if (comm == job_.issued().communicators().end() || !Complete(key, comm->second, sides)) return;
    uint64_t launched_by_all = UINT64_MAX;
    uint64_t over = 0;
    for (const StuckReplay& side : sides) {
      launched_by_all = std::min(launched_by_all, side.launches());
      over = std::max(over, OverOf(side));
    }
    // A replay that not all have launched is not over, whatever a thread has waited for.
    const uint64_t number = std::min(over, launched_by_all) + 1;
    HangSuspect s;
    for (const StuckReplay& side : sides) {
      if (side.launches() < number) {
        s.missing.push_back(side.process);
      } else if (const GraphReplays::Launch* launch = side.Launch(number); launch != nullptr) {
        s.waiting.push_back({.process = side.process,
                             .issue_ns = launch->launch_ns,
                             .launch = {.correlation = launch->correlation}});
      }
    }
    if (s.waiting.empty()) return;
    Describe(key, sides, number, comm->second, s);
    found_.push_back({.suspect = std::move(s), .comm = std::get<0>(key)});
  }

  // The graph may have been updated since it was made.
  Captured InLaunch(const StuckReplay& side, Captured plan, uint64_t number) const {
    const GraphReplays::Launch* launch = side.Launch(number);
    if (launch == nullptr) return plan;
    const auto calls =
        Of(side.process).collectives().CallsOf(side.graph->places[plan.place].In(*launch).plan);
    if (calls.count == 0) return plan;
    plan.seq = calls.seq;
    plan.bytes = calls.bytes;
    plan.calls = calls.count;
    plan.op = Of(side.process).String(calls.op);
    return plan;
  }

  void Describe(const ReplayKey& key, const std::vector<StuckReplay>& sides, uint64_t number,
                const IssuedCalls::Communicator& comm, HangSuspect& s) const {
    const StuckReplay* told = nullptr;  // best one that launched it
    size_t ended = 0;                   // in the order of the communicator, which runs them so
    for (const StuckReplay& side : sides) {
      if (side.graph == nullptr) continue;
      const GraphReplays::Launch* launch = side.Launch(number);
      const bool better =
          told == nullptr || (told->Launch(number) == nullptr && launch != nullptr) ||
          (told->comm_name.empty() && (launch != nullptr) >= (told->Launch(number) != nullptr));
      if (better) told = &side;
      for (size_t i = 0; launch != nullptr && i < side.plans.size(); ++i) {
        if (HasEnded(*launch, side.plans[i].place)) ended = std::max(ended, i + 1);
      }
    }
    Hang hang;
    hang.comm = CommName(std::get<0>(key));
    hang.comm_name = told->comm_name;
    hang.comm_ranks = static_cast<int>(comm.ranks.size());
    hang.not_heard = static_cast<int>(comm.ranks.size() - comm.heard);
    const Captured plan = InLaunch(*told, told->plans[std::min(ended, told->plans.size() - 1)], number);
    hang.seq = plan.seq;
    hang.shape = {.op = plan.op, .count = 0, .datatype = "", .bytes = plan.bytes, .root = -1};
    HangReplay replay{.number = number, .first_seq = std::get<1>(key)};
    for (size_t i = 0; i < told->plans.size(); ++i) {
      const uint32_t calls = InLaunch(*told, told->plans[i], number).calls;
      replay.collectives += calls;
      if (i < ended) replay.ended += calls;
    }
    hang.replay = replay;
    s.describe = [hang] { return hang; };
    std::map<uint32_t, const GraphReplays::Graph*> graphs;  // by process
    for (const StuckReplay& side : sides) graphs[side.process] = side.graph;
    s.describe_rank = [graphs](uint32_t process, uint64_t now_ns, HangRank& rank) {
      DescribeReplays(graphs.at(process), now_ns, rank);
    };
  }

  // A graph may carry collectives of many communicators, and ranks wait in it for one: of launches that
  // suspects share, the one for which a rank is missing tells all, else the one with most ranks.
  std::vector<HangSuspect> JoinThoseOfOneLaunch() {
    std::vector<size_t> root(found_.size());
    std::iota(root.begin(), root.end(), size_t{0});
    const auto find = [&](size_t at) {
      while (root[at] != at) at = root[at] = root[root[at]];
      return at;
    };
    std::map<std::pair<uint32_t, uint64_t>, size_t> first;
    for (size_t i = 0; i < found_.size(); ++i) {
      for (const HangParty& party : found_[i].suspect.waiting) {
        const auto [at, added] = first.try_emplace({party.process, party.launch.correlation}, i);
        if (!added) root[find(i)] = find(at->second);
      }
    }
    // Transfers that wait for one process are one hang, as those outside of graphs are.
    std::map<std::pair<uint32_t, uint64_t>, size_t> missing;
    for (size_t i = 0; i < found_.size(); ++i) {
      if (!found_[i].suspect.transfer || found_[i].suspect.missing.empty()) continue;
      const auto [at, added] = missing.try_emplace({found_[i].suspect.missing.front(), found_[i].comm}, i);
      if (!added) root[find(i)] = find(at->second);
    }
    std::map<size_t, std::vector<ReplaySuspect*>> joined;
    for (size_t i = 0; i < found_.size(); ++i) joined[find(i)].push_back(&found_[i]);
    std::vector<HangSuspect> out;
    for (auto& [at, together] : joined) Join(together, out);
    return out;
  }

  static void Join(std::vector<ReplaySuspect*>& together, std::vector<HangSuspect>& out) {
    const bool any_missing = std::any_of(together.begin(), together.end(),
                                         [](const ReplaySuspect* s) { return !s->suspect.missing.empty(); });
    // Evidence from all ranks of a communicator is stronger than from two of them.
    std::stable_sort(together.begin(), together.end(), [](const ReplaySuspect* a, const ReplaySuspect* b) {
      return std::tuple(b->suspect.transfer, a->suspect.waiting.size()) >
             std::tuple(a->suspect.transfer, b->suspect.waiting.size());
    });
    std::set<uint64_t> comms;
    for (const ReplaySuspect* s : together) comms.insert(s->comm);
    const size_t begin = out.size();
    std::vector<HangParty> behind;
    std::vector<int> as_well;  // further transfers for the same rank
    for (ReplaySuspect* found : together) {
      HangSuspect* s = &found->suspect;
      std::sort(s->missing.begin(), s->missing.end());
      const auto told = std::find_if(out.begin() + static_cast<ptrdiff_t>(begin), out.end(),
                                     [&](const HangSuspect& other) { return other.missing == s->missing; });
      if ((any_missing && s->missing.empty()) || told != out.end()) {
        behind.insert(behind.end(), s->waiting.begin(), s->waiting.end());
        if (told != out.end()) ++as_well[static_cast<size_t>(told - out.begin()) - begin];
        continue;
      }
      as_well.push_back(0);
      out.push_back(std::move(*s));
    }
    for (size_t i = begin; i < out.size(); ++i) {
      out[i].describe = [describe = std::move(out[i].describe),
                         communicators = static_cast<int>(comms.size()), others = as_well[i - begin]] {
        Hang hang = describe();
        hang.replay->communicators = communicators;
        if (hang.transfer.has_value()) hang.transfer->others_waiting = others;
        return hang;
      };
    }
    out[begin].behind = std::move(behind);
  }

  const model::JobModel& job_;
  const uint64_t until_ns_;
  std::set<uint64_t> wanted_;  // communicators' hashes
  std::map<ReplayKey, std::vector<StuckReplay>> sides_;
  std::vector<ReplaySuspect> found_;
};

}  // namespace

// Looked at for every graph of every rank, once a second: of
// its launches only the latest one before that time is.
bool IsOpen(const GraphReplays::Graph& graph, uint64_t until_ns) {
  if (graph.places.empty()) return false;
  for (auto launch = graph.recent.rbegin(); launch != graph.recent.rend(); ++launch) {
    if (launch->launch_ns > until_ns) {
      if (AnyEnded(*launch)) return false;
      continue;
    }
    for (size_t place = 0; place < graph.places.size(); ++place) {
      if (!HasEnded(*launch, place)) return true;
    }
    return false;
  }
  return false;
}

void DescribeReplays(const GraphReplays::Graph* graph, uint64_t now_ns, HangRank& rank) {
  rank.replays = {.launches = graph == nullptr ? 0 : graph->launches, .last_launch_ago_ns = std::nullopt};
  if (graph != nullptr && !graph->recent.empty())
    rank.replays->last_launch_ago_ns = Since(now_ns, graph->recent.back().launch_ns);
}

std::vector<HangSuspect> ReplaysThatWait(const model::JobModel& job, uint64_t until_ns) {
  return ReplaySearch(job, until_ns).Run();
}

}  // namespace gpuprobe::analysis
