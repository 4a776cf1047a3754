// Launches of executable CUDA graphs that carry collectives, and which of them are not known to be over.
//
// Separate from the tracker of calls, which times replays once their kernels have ended: a replay that hangs
// has no kernels to tell of. Which captured plans a graph carries is told when it is instantiated, or else
// learned from its kernels. One executable graph runs its launches one after another, so anything that ran in
// one ends those before it. Memory: the launches that are not over, bounded; beyond, the oldest is forgotten.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace gpuprobe::model {

class GraphReplays {
 public:
  static constexpr uint32_t kUnseenGraph = UINT32_MAX;  // as Launches.graph
  static constexpr size_t kMaxOpen = 1024;              // launches of one graph: more than a driver queues
  static constexpr size_t kMaxEmpty = 16;               // of one that is not known to carry anything
  static constexpr uint64_t kKeptOver = 4;              // for kernels that come late
  static constexpr size_t kMaxGraphs = 4096;
  static constexpr size_t kMaxPlans = 65536;  // of one graph

  struct Launch {
    uint64_t number = 0;  // of this graph, from 1
    uint64_t correlation = 0;
    uint64_t launch_ns = 0;
    bool over = false;
    std::vector<bool> ended;  // by place in Graph::plans; may be shorter
    template <typename Archive>
    void Visit(Archive& archive);  // model_state.cc
  };
  struct Graph {
    uint64_t launches = 0;
    std::vector<uint64_t> plans;  // captured ones that it carries
    std::deque<Launch> recent;
    absl::flat_hash_map<uint64_t, size_t> places;  // of the plans above
    template <typename Archive>
    void Visit(Archive& archive);
  };

  // The graph carries the plan.
  void Carries(uint32_t graph, uint64_t plan);
  void Launched(uint32_t graph, uint64_t correlation, uint64_t time_ns);
  // A kernel of the plan has ended in the launch with this correlation id.
  void Ended(uint64_t correlation, uint64_t plan);
  // All of that launch has.
  void Over(uint64_t correlation);

  const std::map<uint32_t, Graph>& graphs() const { return graphs_; }
  // Of graphs whose instantiation was not seen, or of more than kMaxGraphs.
  uint64_t unknown_launches() const { return unknown_launches_; }
  template <typename Archive>
  void Visit(Archive& archive);  // model_state.cc

 private:
  Graph* Find(uint32_t graph);
  Launch* LaunchOf(uint64_t correlation, Graph** graph);
  void ForgetBefore(Graph& graph, uint64_t number);

  std::map<uint32_t, Graph> graphs_;
  absl::flat_hash_map<uint64_t, uint32_t> graph_of_;  // by correlation, of the launches in `recent`
  uint64_t unknown_launches_ = 0;
};

}  // namespace gpuprobe::model
