// Launches of CUDA graphs whose collectives do not end: some ranks did not launch the graph so often, or all
// did.
//
// A graph is matched between ranks by the communicator and sequence number of the first collective captured
// into it, its n-th launch on one with the n-th on another. Not looked at: sends and receives in graphs,
// whose sequence numbers are each rank's own.
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

#include "collector/analysis/hang_evidence.h"
#include "collector/analysis/names.h"

namespace gpuprobe::analysis {
namespace {

using model::GraphReplays;
using model::IssuedCalls;
using model::ProcessModel;

// A captured plan: one call, or a group of them.
struct Captured {
  uint64_t seq = 0;
  size_t place = 0;  // in Graph::plans
  uint64_t bytes = 0;
  uint32_t calls = 0;
  std::string op;
};

// One communicator's collectives in one graph, as one rank knows them.
struct Side {
  uint32_t process = 0;
  const GraphReplays::Graph* graph = nullptr;  // null: captured, and never made executable
  std::vector<Captured> plans;                 // by seq
  std::string comm_name;

  uint64_t launches() const { return graph == nullptr ? 0 : graph->launches; }
  const GraphReplays::Launch* Launch(uint64_t number) const {
    if (graph == nullptr) return nullptr;
    for (const GraphReplays::Launch& launch : graph->recent) {
      if (launch.number == number) return &launch;
    }
    return nullptr;
  }
};
// Communicator's hash, sequence of the first call, and which of the rank's graphs that begin so.
using Key = std::tuple<uint64_t, uint64_t, size_t>;

bool HasEnded(const GraphReplays::Launch& launch, size_t place) {
  return launch.over || (place < launch.ended.size() && launch.ended[place]);
}

bool AnyEnded(const GraphReplays::Launch& launch) {
  return launch.over || std::find(launch.ended.begin(), launch.ended.end(), true) != launch.ended.end();
}

// The latest launch in which all the plans at `places` are known to have ended.
template <typename Places>
uint64_t LastOver(const GraphReplays::Graph& graph, const Places& places) {
  uint64_t over = graph.launches - graph.recent.size();
  for (const GraphReplays::Launch& launch : graph.recent) {
    if (AnyEnded(launch)) over = std::max(over, launch.number - 1);
    if (std::all_of(places.begin(), places.end(), [&](size_t place) { return HasEnded(launch, place); }))
      over = launch.number;
  }
  return over;
}

// Something of it waits since before that time. Looked at for every graph of every rank, once a second: of
// its launches only the latest one before that time is.
bool IsOpen(const GraphReplays::Graph& graph, uint64_t until_ns) {
  if (graph.plans.empty()) return false;
  for (auto launch = graph.recent.rbegin(); launch != graph.recent.rend(); ++launch) {
    if (launch->launch_ns > until_ns) {
      if (AnyEnded(*launch)) return false;
      continue;
    }
    for (size_t place = 0; place < graph.plans.size(); ++place) {
      if (!HasEnded(*launch, place)) return true;
    }
    return false;
  }
  return false;
}

// The graph's collectives by communicator.
std::map<uint64_t, Side> SidesOf(const ProcessModel& process, uint32_t index,
                                 const GraphReplays::Graph& graph) {
  std::map<uint64_t, Side> sides;
  for (size_t place = 0; place < graph.plans.size(); ++place) {
    const auto calls = process.collectives().CallsOf(graph.plans[place]);
    const v1::Communicator* comm = calls.count == 0 ? nullptr : process.FindCommunicator(calls.comm);
    if (comm == nullptr || comm->hash() == 0) continue;
    const std::string& op = process.String(calls.op);
    if (op == "Send" || op == "Recv") continue;
    Side& side = sides[comm->hash()];
    side.process = index;
    side.graph = &graph;
    if (comm->name() != 0) side.comm_name = process.String(comm->name());
    side.plans.push_back(
        {.seq = calls.seq, .place = place, .bytes = calls.bytes, .calls = calls.count, .op = op});
  }
  for (auto& [hash, side] : sides) {
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

class Search {
 public:
  Search(const model::JobModel& job, uint64_t until_ns) : job_(job), until_ns_(until_ns) {}

  std::vector<HangSuspect> Run() {
    FindWaiting();
    if (wanted_.empty()) return {};
    for (uint32_t i = 0; i < job_.processes().size(); ++i) Collect(i);
    for (auto& [key, sides] : sides_) Look(key, sides);
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

  // Every rank that is heard has the graph, and nothing of what they launched was lost.
  bool Complete(const Key& key, const IssuedCalls::Communicator& comm, std::vector<Side>& sides) const {
    std::set<uint32_t> known;
    for (const Side& side : sides) known.insert(side.process);
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
  uint64_t OverOf(const Side& side) const {
    if (side.graph == nullptr) return 0;
    std::vector<size_t> places;
    for (const Captured& plan : side.plans) places.push_back(plan.place);
    uint64_t over = LastOver(*side.graph, places);
    for (const GraphReplays::Launch& launch : side.graph->recent) {
      if (!SinceLastWait(Of(side.process), launch.launch_ns)) over = std::max(over, launch.number);
    }
    return over;
  }

  void Look(const Key& key, std::vector<Side>& sides) {
    const auto comm = job_.issued().communicators().find(std::get<0>(key));
    if (comm == job_.issued().communicators().end() || !Complete(key, comm->second, sides)) return;
    uint64_t launched_by_all = UINT64_MAX;
    uint64_t over = 0;
    for (const Side& side : sides) {
      launched_by_all = std::min(launched_by_all, side.launches());
      over = std::max(over, OverOf(side));
    }
    // What not all have launched is not over, whatever a thread has waited for.
    const uint64_t number = std::min(over, launched_by_all) + 1;
    HangSuspect s;
    for (const Side& side : sides) {
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
    found_.push_back(std::move(s));
  }

  void Describe(const Key& key, const std::vector<Side>& sides, uint64_t number,
                const IssuedCalls::Communicator& comm, HangSuspect& s) const {
    const Side* told = nullptr;
    size_t ended = 0;  // in the order of the communicator, which runs them so
    for (const Side& side : sides) {
      if (side.graph == nullptr) continue;
      if (told == nullptr || told->comm_name.empty()) told = &side;
      const GraphReplays::Launch* launch = side.Launch(number);
      for (size_t i = 0; launch != nullptr && i < side.plans.size(); ++i) {
        if (HasEnded(*launch, side.plans[i].place)) ended = std::max(ended, i + 1);
      }
    }
    Hang hang;
    hang.comm = CommName(std::get<0>(key));
    hang.comm_name = told->comm_name;
    hang.comm_ranks = static_cast<int>(comm.ranks.size());
    hang.not_heard = static_cast<int>(comm.ranks.size() - comm.heard);
    const Captured& plan = told->plans[std::min(ended, told->plans.size() - 1)];
    hang.seq = plan.seq;
    hang.shape = {.op = plan.op, .count = 0, .datatype = "", .bytes = plan.bytes, .root = -1};
    HangReplay replay{.number = number, .first_seq = std::get<1>(key)};
    for (size_t i = 0; i < told->plans.size(); ++i) {
      replay.collectives += told->plans[i].calls;
      if (i < ended) replay.ended += told->plans[i].calls;
    }
    hang.replay = replay;
    s.describe = [hang] { return hang; };
    std::map<uint32_t, std::pair<uint64_t, uint64_t>> launches;  // process: how many, when the last
    for (const Side& side : sides) {
      const bool any = side.graph != nullptr && !side.graph->recent.empty();
      launches[side.process] = {side.launches(), any ? side.graph->recent.back().launch_ns : 0};
    }
    s.describe_rank = [launches](uint32_t process, uint64_t now_ns, HangRank& rank) {
      const auto& [count, last_ns] = launches.at(process);
      rank.replays = {.launches = count, .last_launch_ago_ns = std::nullopt};
      if (last_ns != 0) rank.replays->last_launch_ago_ns = Since(now_ns, last_ns);
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
      for (const HangParty& party : found_[i].waiting) {
        const auto [at, added] = first.try_emplace({party.process, party.launch.correlation}, i);
        if (!added) root[find(i)] = find(at->second);
      }
    }
    std::map<size_t, std::vector<HangSuspect*>> joined;
    for (size_t i = 0; i < found_.size(); ++i) joined[find(i)].push_back(&found_[i]);
    std::vector<HangSuspect> out;
    for (auto& [at, together] : joined) Join(together, out);
    return out;
  }

  static void Join(std::vector<HangSuspect*>& together, std::vector<HangSuspect>& out) {
    const bool any_missing = std::any_of(together.begin(), together.end(),
                                         [](const HangSuspect* s) { return !s->missing.empty(); });
    std::stable_sort(together.begin(), together.end(), [](const HangSuspect* a, const HangSuspect* b) {
      return a->waiting.size() > b->waiting.size();
    });
    const size_t begin = out.size();
    std::vector<HangParty> behind;
    for (HangSuspect* s : together) {
      std::sort(s->missing.begin(), s->missing.end());
      const bool told = std::any_of(out.begin() + static_cast<ptrdiff_t>(begin), out.end(),
                                    [&](const HangSuspect& other) { return other.missing == s->missing; });
      if ((any_missing && s->missing.empty()) || told) {
        behind.insert(behind.end(), s->waiting.begin(), s->waiting.end());
        continue;
      }
      out.push_back(std::move(*s));
      out.back().describe = [describe = std::move(out.back().describe),
                             communicators = static_cast<int>(together.size())] {
        Hang hang = describe();
        hang.replay->communicators = communicators;
        return hang;
      };
    }
    out[begin].behind = std::move(behind);
  }

  const model::JobModel& job_;
  const uint64_t until_ns_;
  std::set<uint64_t> wanted_;  // communicators' hashes
  std::map<Key, std::vector<Side>> sides_;
  std::vector<HangSuspect> found_;
};

}  // namespace

std::vector<HangSuspect> ReplaysThatWait(const model::JobModel& job, uint64_t until_ns) {
  return Search(job, until_ns).Run();
}

}  // namespace gpuprobe::analysis
