#include "tests/e2e/programs/random_graphs.h"

#include <algorithm>
#include <map>
#include <thread>
#include <vector>

#include "tests/e2e/programs/random_body.h"

namespace random_collectives {
namespace {

void Capture(const Shared& shared, const Where& around, const Tree& tree,
             const std::vector<RankState*>& ranks, uint64_t salt, std::map<int, cudaGraph_t>& graphs) {
  const Where where{.branch = around.branch, .captured = true, .forked = tree.forked};
  const auto first = static_cast<size_t>(std::max(where.branch, 0));
  const size_t second = where.branch >= 0 ? kStreams - 1 : 1;
  const auto mode = salt % 2 == 0 ? cudaStreamCaptureModeThreadLocal : cudaStreamCaptureModeRelaxed;
  for (RankState* rank : ranks) {
    rank->Use();
    CHECK(cudaStreamBeginCapture(rank->streams[first], mode));
    if (tree.forked) Order(rank->streams[first], rank->streams[second]);
  }
  const Crew crew{.shared = shared, .ranks = ranks, .where = where};
  BodyRunner(crew).Run(tree.body);
  for (RankState* rank : ranks) {
    rank->Use();
    if (tree.forked) Order(rank->streams[second], rank->streams[first]);
    CHECK(cudaStreamEndCapture(rank->streams[first], &graphs[rank->rank]));
  }
}

// After everything that is there.
void AddChild(cudaGraph_t parent, cudaGraph_t child, bool move) {
  size_t count = 0;
  CHECK(cudaGraphGetNodes(parent, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  if (count != 0) CHECK(cudaGraphGetNodes(parent, nodes.data(), &count));
  cudaGraphNode_t node = nullptr;
  if (!move) {
    CHECK(cudaGraphAddChildGraphNode(&node, parent, nodes.data(), count, child));
    CHECK(cudaGraphDestroy(child));
    return;
  }
  cudaGraphNodeParams params{};
  params.type = cudaGraphNodeTypeGraph;
  params.graph.graph = child;
  params.graph.ownership = cudaGraphChildGraphOwnershipMove;
  CHECK(cudaGraphAddNode(&node, parent, nodes.data(), nullptr, count, &params));
}

std::map<int, cudaGraph_t> BuildGraphs(const Crew& crew, const Tree& tree, const std::set<int>& comms,
                                       bool jointly, uint64_t salt) {
  std::vector<RankState*> taking_part;
  for (RankState* rank : crew.ranks) {
    if (std::any_of(comms.begin(), comms.end(), [&](int comm) { return crew.IsIn(*rank, comm); }))
      taking_part.push_back(rank);
  }
  std::map<int, cudaGraph_t> graphs;
  if (jointly) {
    Capture(crew.shared, crew.where, tree, taking_part, salt, graphs);
  } else {
    for (RankState* rank : taking_part) Capture(crew.shared, crew.where, tree, {rank}, salt, graphs);
  }
  for (const Tree& child : tree.children) {
    for (const auto& [rank, graph] : BuildGraphs(crew, child, comms, jointly, salt + 1))
      AddChild(graphs[rank], graph, child.moved);
  }
  for (auto& [rank, graph] : graphs) {
    if (!tree.cloned) continue;
    cudaGraph_t clone = nullptr;
    CHECK(cudaGraphClone(&clone, graph));
    CHECK(cudaGraphDestroy(graph));
    graph = clone;
  }
  return graphs;
}

}  // namespace

void KeepGraph(const Crew& crew, const Step& step) {
  for (const auto& [rank, graph] : BuildGraphs(crew, step.tree, step.comms, step.jointly, step.salt)) {
    for (RankState* state : crew.ranks) {
      if (state->rank == rank) state->graphs[step.graph] = graph;
    }
  }
}

void InstantiateGraph(RankState& rank, const Step& step) {
  if (rank.graphs.count(step.graph) == 0) return;
  CHECK(cudaGraphInstantiate(&rank.execs[step.exec], rank.graphs[step.graph], 0));
}

void DropGraph(RankState& rank, int graph) {
  if (rank.graphs.count(graph) == 0) return;
  CHECK(cudaGraphDestroy(rank.graphs[graph]));
  rank.graphs.erase(graph);
}

void DropExec(RankState& rank, int exec) {
  if (rank.execs.count(exec) == 0) return;
  CHECK(cudaGraphExecDestroy(rank.execs[exec]));
  rank.execs.erase(exec);
}

void UpdateGraph(const Crew& crew, const Step& step) {
  for (const auto& [rank, graph] : BuildGraphs(crew, step.tree, step.comms, step.jointly, step.salt)) {
    for (RankState* state : crew.ranks) {
      if (state->rank != rank) continue;
      cudaGraphExecUpdateResultInfo info{};
      CHECK(cudaGraphExecUpdate(state->execs.at(step.exec), graph, &info));
    }
    CHECK(cudaGraphDestroy(graph));
  }
}

void LaunchGraph(const Crew& crew, const Step& step) {
  const auto launch = [&crew, &step] {
    for (int i = 0; i < step.times; ++i) {
      for (RankState* rank : crew.ranks) {
        const auto exec = rank->execs.find(step.exec);
        if (exec == rank->execs.end()) continue;
        rank->Use();
        const size_t stream = crew.where.StreamOf(*rank, step.salt + static_cast<uint64_t>(i));
        // A thread's own stream ends with it.
        CHECK(cudaGraphLaunch(exec->second, rank->streams[step.on_thread ? stream % kPlainStreams : stream]));
      }
    }
  };
  if (step.on_thread) {
    std::thread(launch).join();
  } else {
    launch();
  }
}

void RunGraph(const Crew& crew, const Tree& tree, const std::set<int>& comms, int launches, uint64_t salt) {
  std::map<int, cudaGraph_t> graphs = BuildGraphs(crew, tree, comms, false, salt);
  std::map<int, cudaGraphExec_t> execs;
  for (const auto& [rank, graph] : graphs) {
    CHECK(cudaGraphInstantiate(&execs[rank], graph, 0));
    if (salt % 2 == 0) CHECK(cudaGraphDestroy(graph));
  }
  for (int i = 0; i < launches; ++i) {
    for (RankState* rank : crew.ranks) {
      if (execs.count(rank->rank) == 0) continue;
      rank->Use();
      CHECK(cudaGraphLaunch(execs[rank->rank],
                            rank->streams[crew.where.StreamOf(*rank, Mix(salt, static_cast<uint64_t>(i)))]));
    }
  }
  for (const auto& [rank, exec] : execs) CHECK(cudaGraphExecDestroy(exec));
  if (salt % 2 != 0) {
    for (const auto& [rank, graph] : graphs) CHECK(cudaGraphDestroy(graph));
  }
}

}  // namespace random_collectives
