#include "collector/model/calls/graph_replays.h"

#include <algorithm>

namespace gpuprobe::model {

GraphReplays::Graph* GraphReplays::Find(uint32_t graph) {
  if (graph == kUnseenGraph) return nullptr;
  const auto found = graphs_.find(graph);
  if (found != graphs_.end()) return &found->second;
  return graphs_.size() < kMaxGraphs ? &graphs_[graph] : nullptr;
}

void GraphReplays::Carries(uint32_t graph, uint64_t node, CarriedPlan plan, uint64_t from_correlation) {
  Graph* known = Find(graph);
  if (known == nullptr) return;
  const auto at = known->place_of.find(node);
  const bool is_new = at == known->place_of.end();
  if (is_new && (plan.plan == 0 || known->place_of.size() >= kMaxNodes)) return;
  if (!is_new && (from_correlation == 0 || known->places[at->second].now == plan)) return;
  // Another node of the same plan was reported before.
  const auto with = plan.plan == 0 ? known->place_with.end() : known->place_with.find(plan);
  if (with != known->place_with.end()) {
    known->place_of[node] = with->second;
    return;
  }
  // Nodes that shared a plan and do not any more: the second one gets a place.
  if (is_new || known->places[at->second].since == from_correlation) {
    if (plan.plan == 0) return;
    known->place_of[node] = known->places.size();
    known->place_with[plan] = known->places.size();
    known->places.push_back({.first = plan, .now = plan, .before = plan, .since = from_correlation});
    return;
  }
  Place& place = known->places[at->second];
  known->place_with.erase(place.now);
  if (plan.plan != 0) known->place_with[plan] = at->second;
  place.before = place.now;
  place.now = plan;
  place.since = from_correlation;
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
  const size_t most = known->places.empty() ? kMaxEmpty : kMaxOpen;
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

void GraphReplays::Ended(uint64_t correlation, uint64_t node, CarriedPlan plan) {
  Graph* graph = nullptr;
  Launch* launch = LaunchOf(correlation, &graph);
  if (launch == nullptr) return;
  Carries(graph_of_[correlation], node, plan, 0);
  const auto place = graph->place_of.find(node);
  if (place == graph->place_of.end()) return;
  if (launch->ended.size() < graph->places.size()) launch->ended.resize(graph->places.size());
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
