// Shared parts of the search for collectives and transfers in launches of CUDA graphs that do not finish.
//
// Separate because collectives are matched by communicator and sequence number over all its ranks, but sends
// with their receives by their order between two (hang_replays.cc, hang_replay_transfers.cc). Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "collector/analysis/hangs/hang_suspect.h"
#include "collector/model/calls/graph_replays.h"

namespace gpuprobe::analysis {

struct ReplaySuspect {
  HangSuspect suspect;
  uint64_t comm = 0;  // hash
};

inline bool HasEnded(const model::GraphReplays::Launch& launch, size_t place) {
  return launch.over || (place < launch.ended.size() && launch.ended[place]);
}

inline bool AnyEnded(const model::GraphReplays::Launch& launch) {
  return launch.over || std::find(launch.ended.begin(), launch.ended.end(), true) != launch.ended.end();
}

// Null: it is no longer remembered, or the graph was not launched that often.
inline const model::GraphReplays::Launch* LaunchOfNumber(const model::GraphReplays::Graph& graph,
                                                         uint64_t number) {
  const auto at = std::find_if(graph.recent.begin(), graph.recent.end(),
                               [&](const auto& launch) { return launch.number == number; });
  return at == graph.recent.end() ? nullptr : &*at;
}

// The latest launch in which all the plans at `places` are known to have ended.
template <typename Places>
uint64_t LastOver(const model::GraphReplays::Graph& graph, const Places& places) {
  uint64_t over = graph.launches - graph.recent.size();
  for (const model::GraphReplays::Launch& launch : graph.recent) {
    if (AnyEnded(launch)) over = std::max(over, launch.number - 1);
    if (std::all_of(places.begin(), places.end(), [&](size_t place) { return HasEnded(launch, place); }))
      over = launch.number;
  }
  return over;
}

// Whether something of it has waited since before that time.
bool IsOpen(const model::GraphReplays::Graph& graph, uint64_t until_ns);

// Describes a rank: how often it launched the graph, and when last.
void DescribeReplays(const model::GraphReplays::Graph* graph, uint64_t now_ns, HangRank& rank);

// Sends and receives in launches that have waited since before `until_ns`: one suspect for each that waits
// for a process which launched its part less often, or for one that did not.
std::vector<ReplaySuspect> TransfersInReplays(const model::JobModel& job, uint64_t until_ns);

}  // namespace gpuprobe::analysis
