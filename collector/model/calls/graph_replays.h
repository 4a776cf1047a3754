// Launches of executable CUDA graphs that carry collectives, and which of them may still be running.
//
// The tracker of calls times replays once their kernels have ended; a hanging replay has no kernels to
// report, and is found here. The captured plans that a graph carries are reported when it is instantiated, or
// else learned from its kernels; updating an executable graph replaces the plans in the same places. One
// executable graph runs its launches one after another, so anything that ran in one ends those before it.
// Memory: the launches that are not over, bounded; beyond, the oldest is forgotten.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "collector/model/state/members.h"
#include "collector/records/carried_plan.h"

namespace gpuprobe::model {

class GraphReplays {
 public:
  static constexpr uint32_t kUnseenGraph = UINT32_MAX;  // as Launches.graph
  static constexpr size_t kMaxOpen = 1024;              // launches of one graph: more than a driver queues
  static constexpr size_t kMaxEmpty = 16;               // of one that is not known to carry anything
  static constexpr uint64_t kKeptOver = 4;              // for kernels that come late
  static constexpr size_t kMaxGraphs = 4096;
  static constexpr size_t kMaxNodes = 65536;  // of one graph, that carry plans

  struct Launch {
    uint64_t number = 0;  // of this graph, from 1
    uint64_t correlation = 0;
    uint64_t launch_ns = 0;
    bool over = false;
    std::vector<bool> ended;  // by place in Graph::places; may be shorter

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, number, correlation, launch_ns, over, ended);
    }
  };
  // Where the graph carries a plan. Ranks update their graphs at different times, so a place is matched
  // across ranks by the plan that was there first.
  struct Place {
    CarriedPlan first;
    CarriedPlan now;
    CarriedPlan before;
    uint64_t since = 0;  // first launch, a correlation id, that carries `now`
    CarriedPlan In(const Launch& launch) const { return launch.correlation >= since ? now : before; }

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, first, now, before, since);
    }
  };
  struct Graph {
    uint64_t launches = 0;
    std::vector<Place> places;
    std::deque<Launch> recent;
    absl::flat_hash_map<uint64_t, size_t> place_of;  // by node: those of one plan share it
    absl::flat_hash_map<CarriedPlan, size_t> place_with;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, launches, places, recent, place_of, place_with);
      for (const auto& [node, place] : place_of) archive.Require(place < places.size());
      for (const auto& [plan, place] : place_with) archive.Require(place < places.size());
    }
  };

  // The graph's node carries the plan, in launches from that correlation id on.
  void Carries(uint32_t graph, uint64_t node, CarriedPlan plan, uint64_t from_correlation);
  void Launched(uint32_t graph, uint64_t correlation, uint64_t time_ns);
  // The node's kernel, of the plan, has ended in the launch with this correlation id.
  void Ended(uint64_t correlation, uint64_t node, CarriedPlan plan);
  // The whole launch with this correlation id has ended.
  void Over(uint64_t correlation);

  const std::map<uint32_t, Graph>& graphs() const { return graphs_; }
  // Launches of graphs whose instantiation was not seen, or that were beyond kMaxGraphs.
  uint64_t unknown_launches() const { return unknown_launches_; }

 private:
  Graph* Find(uint32_t graph);
  Launch* LaunchOf(uint64_t correlation, Graph** graph);
  void ForgetBefore(Graph& graph, uint64_t number);

  std::map<uint32_t, Graph> graphs_;
  absl::flat_hash_map<uint64_t, uint32_t> graph_of_;  // by correlation, of the launches in `recent`
  uint64_t unknown_launches_ = 0;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, graphs_, graph_of_, unknown_launches_);
  }
};

}  // namespace gpuprobe::model
