#include "collector/model/graph_replays.h"

#include <algorithm>

namespace gpuprobe::model {

GraphReplays::Graph* GraphReplays::Find(uint32_t graph) {
  if (graph == kUnseenGraph) return nullptr;
  const auto found = graphs_.find(graph);
  if (found != graphs_.end()) return &found->second;
  return graphs_.size() < kMaxGraphs ? &graphs_[graph] : nullptr;
}

void GraphReplays::Carries(uint32_t graph, uint64_t plan) {
  Graph* known = Find(graph);
  if (known == nullptr || known->plans.size() >= kMaxPlans) return;
  if (known->places.try_emplace(plan, known->plans.size()).second) known->plans.push_back(plan);
}

void GraphReplays::Launched(uint32_t graph, uint64_t correlation, uint64_t time_ns) {
  Graph* known = Find(graph);
  if (known == nullptr) {
    ++unknown_launches_;
    return;
  }
  known->recent.push_back({.number = ++known->launches,
                           .correlation = correlation,
                           .launch_ns = time_ns,
                           .over = false,
                           .ended = {}});
  graph_of_[correlation] = graph;
  const size_t most = known->plans.empty() ? kMaxEmpty : kMaxOpen;
  if (known->recent.size() > most) ForgetBefore(*known, known->recent.front().number + 1);
}

GraphReplays::Launch* GraphReplays::LaunchOf(uint64_t correlation, Graph** graph) {
  const auto of = graph_of_.find(correlation);
  if (of == graph_of_.end()) return nullptr;
  *graph = &graphs_[of->second];
  auto& recent = (*graph)->recent;
  const auto launch = std::find_if(recent.begin(), recent.end(),
                                   [&](const Launch& l) { return l.correlation == correlation; });
  return launch == recent.end() ? nullptr : &*launch;
}

void GraphReplays::Ended(uint64_t correlation, uint64_t plan) {
  Graph* graph = nullptr;
  Launch* launch = LaunchOf(correlation, &graph);
  if (launch == nullptr) return;
  Carries(graph_of_[correlation], plan);
  const auto place = graph->places.find(plan);
  if (place == graph->places.end()) return;
  if (launch->ended.size() < graph->plans.size()) launch->ended.resize(graph->plans.size());
  launch->ended[place->second] = true;
  ForgetBefore(*graph, launch->number > kKeptOver ? launch->number - kKeptOver : 0);
}

void GraphReplays::Over(uint64_t correlation) {
  Graph* graph = nullptr;
  Launch* launch = LaunchOf(correlation, &graph);
  if (launch == nullptr) return;
  launch->over = true;
  ForgetBefore(*graph, launch->number > kKeptOver ? launch->number - kKeptOver : 0);
}

void GraphReplays::ForgetBefore(Graph& graph, uint64_t number) {
  while (!graph.recent.empty() && graph.recent.front().number < number) {
    graph_of_.erase(graph.recent.front().correlation);
    graph.recent.pop_front();
  }
}

}  // namespace gpuprobe::model
