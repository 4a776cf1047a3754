// libcupti and graphs: capture holds no record, replays tell their nodes, and the graph-level kind replaces
// them.

#include <cuda.h>
#include <cupti.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <set>

#include "tests/sim/cupti/tool.h"

namespace gpusim::cupti {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

// Two kernels and a fill, captured.
class CapturedGraph {
 public:
  explicit CapturedGraph(const Application& application) : application_(application) {
    CUdeviceptr memory = 0;
    EXPECT_EQ(cuMemAlloc(&memory, 4096), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamBeginCapture(application.stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    application.Launch(application.fast);
    EXPECT_EQ(cuMemsetD8Async(memory, 1, 4096, application.stream), CUDA_SUCCESS);
    application.Launch(application.fast);
    EXPECT_EQ(cuStreamEndCapture(application.stream, &graph_), CUDA_SUCCESS);
  }
  ~CapturedGraph() {
    if (exec_ != nullptr) {
      EXPECT_EQ(cuGraphExecDestroy(exec_), CUDA_SUCCESS);
    }
    EXPECT_EQ(cuGraphDestroy(graph_), CUDA_SUCCESS);
  }
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  void Instantiate() { EXPECT_EQ(cuGraphInstantiate(&exec_, graph_, 0), CUDA_SUCCESS); }
  void Launch() const { EXPECT_EQ(cuGraphLaunch(exec_, application_.stream), CUDA_SUCCESS); }

 private:
  const Application& application_;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
};

TEST(GraphRecordTest, ACapturedLaunchHoldsNoRecord) {
  const Application application;
  Tool tool;
  tool.Enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  CapturedGraph graph(application);
  tool.Flush();
  EXPECT_THAT(tool.Records<CUpti_ActivityKernel10>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), IsEmpty());
  application.Launch(application.fast);
  application.Synchronize();
  tool.Flush();
  EXPECT_THAT(tool.Records<CUpti_ActivityKernel10>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), SizeIs(1))
      << "an unfinished record would keep the buffer";
}

// In a process of its own, whose first profiling session it is.
TEST(GraphAloneTest, DISABLED_Replays) {
  const Application application;
  Tool tool;
  std::set<uint64_t> told;
  tool.on_callback = [&](CUpti_CallbackDomain domain, uint32_t, const void* data) {
    if (domain == CUPTI_CB_DOMAIN_RESOURCE) {
      const auto* resource = static_cast<const CUpti_ResourceData*>(data);
      const auto* graph = static_cast<const CUpti_GraphData*>(resource->resourceDescriptor);
      uint64_t id = 0;
      EXPECT_EQ(cuptiGetGraphNodeId(graph->node, &id), CUPTI_SUCCESS);
      told.insert(id);
    }
  };
  tool.Listen(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED);
  tool.Listen(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED);
  tool.Listen(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch);
  tool.Enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  tool.Enable(CUPTI_ACTIVITY_KIND_MEMSET);
  CapturedGraph graph(application);
  graph.Instantiate();
  graph.Launch();
  graph.Launch();
  application.Synchronize();
  tool.Flush();
  std::set<uint32_t> launches;
  for (const SeenCall& call : tool.calls) {
    launches.insert(call.correlation);
  }
  EXPECT_THAT(launches, SizeIs(2));
  const auto kernels = tool.Records<CUpti_ActivityKernel10>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  ASSERT_THAT(kernels, SizeIs(4));
  std::set<uint64_t> nodes;
  std::set<uint32_t> correlations;
  for (const auto& kernel : kernels) {
    nodes.insert(kernel.graphNodeId);
    correlations.insert(kernel.correlationId);
    EXPECT_EQ(told.count(kernel.graphNodeId), 1U) << "node " << kernel.graphNodeId;
    EXPECT_NE(kernel.graphId, 0U);
    EXPECT_STREQ(kernel.name, "fast_kernel");
  }
  EXPECT_THAT(nodes, SizeIs(2));
  EXPECT_EQ(correlations, launches);
  EXPECT_THAT(tool.Records<CUpti_ActivityMemset4>(CUPTI_ACTIVITY_KIND_MEMSET), SizeIs(2));
}

// Three replays in as many sessions: under one subscription, in a second one, and with all kinds switched off
// and on in between.
TEST(GraphAloneTest, DISABLED_Sessions) {
  const Application application;
  CapturedGraph graph(application);
  graph.Instantiate();
  const auto matched = [&](Tool& tool) {
    graph.Launch();
    application.Launch(application.fast);
    application.Synchronize();
    tool.Flush();
    const uint32_t launch = tool.calls.back().correlation;
    tool.calls.clear();
    const auto kernels = tool.Records<CUpti_ActivityKernel10>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    return std::count_if(kernels.begin(), kernels.end(),
                         [&](const auto& kernel) { return kernel.correlationId == launch; });
  };
  uint32_t version = 0;
  EXPECT_EQ(cuptiGetVersion(&version), CUPTI_SUCCESS);
  const bool mended = version >= 130101;
  {
    Tool tool;
    tool.Listen(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch);
    tool.Enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    tool.Enable(CUPTI_ACTIVITY_KIND_DEVICE);
    EXPECT_EQ(matched(tool), 2);
    EXPECT_EQ(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), CUPTI_SUCCESS);
    EXPECT_EQ(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), CUPTI_SUCCESS);
    EXPECT_EQ(matched(tool), 2) << "another kind was enabled all the time: still the first session";
    EXPECT_EQ(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), CUPTI_SUCCESS);
    EXPECT_EQ(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_DEVICE), CUPTI_SUCCESS);
    EXPECT_EQ(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), CUPTI_SUCCESS);
    EXPECT_EQ(matched(tool), mended ? 2 : 0);
  }
  Tool tool;
  tool.Listen(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch);
  tool.Enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  EXPECT_EQ(matched(tool), mended ? 2 : 0);
}

TEST(GraphAloneTest, DISABLED_Whole) {
  const Application application;
  Tool tool;
  tool.Enable(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
  CapturedGraph graph(application);
  graph.Instantiate();
  graph.Launch();
  application.Synchronize();
  tool.Flush();
  EXPECT_THAT(tool.Records<CUpti_ActivityGraphTrace>(CUPTI_ACTIVITY_KIND_GRAPH_TRACE), SizeIs(1));
}

TEST(GraphAloneTest, DISABLED_UsedUp) {
  const Application application;
  Tool tool;
  tool.Enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  CapturedGraph graph(application);
  graph.Instantiate();
  for (int i = 0; i < 5; ++i) graph.Launch();
  application.Launch(application.fast);
  application.Synchronize();
  tool.Flush();
  const auto kernels = tool.Records<CUpti_ActivityKernel10>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  EXPECT_THAT(kernels, SizeIs(11));
  EXPECT_EQ(std::count_if(kernels.begin(), kernels.end(),
                          [](const auto& kernel) { return kernel.start != 0 && kernel.end > kernel.start; }),
            7)
      << "six of the graph, and the one that is in no graph";
}

int Alone(const std::string& name, const char* version, const char* fault = "") {
  return RunAlone(name, {{"GPUSIM_CUPTI_VERSION", version}, {"GPUSIM_FAULT", fault}});
}

TEST(GraphRecordTest, ReplaysCarryTheirNodesAndTheLaunchsCorrelation) { EXPECT_EQ(Alone("Replays", ""), 0); }

TEST(GraphRecordTest, CorrelationsOfGraphsAreWrongInLaterSessionsBefore131Update1) {
  EXPECT_EQ(Alone("Sessions", "13.0.1"), 0);
  EXPECT_EQ(Alone("Sessions", "13.1"), 0);
  EXPECT_EQ(Alone("Sessions", "13.1.1"), 0);
}

TEST(GraphRecordTest, TracingAGraphOfCopiesWholeCrashesBefore126) {
  EXPECT_EQ(WTERMSIG(Alone("Whole", "12.5")), SIGSEGV);
  EXPECT_EQ(Alone("Whole", "12.6"), 0);
}

TEST(GraphRecordTest, NodesHaveNoTimesOnceDeviceBuffersAreUsedUp) {
  EXPECT_EQ(Alone("UsedUp", "", "graph_buffers=6"), 0);
}

TEST(GraphRecordTest, TheGraphLevelKindReplacesTheNodesRecords) {
  const Application application;
  Tool tool;
  tool.Enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  tool.Enable(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
  CapturedGraph graph(application);
  graph.Instantiate();
  for (int i = 0; i < 3; ++i) {
    graph.Launch();
  }
  application.Launch(application.fast);
  application.Synchronize();
  tool.Flush();
  EXPECT_THAT(tool.Records<CUpti_ActivityKernel10>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), SizeIs(1));
  const auto runs = tool.Records<CUpti_ActivityGraphTrace2>(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
  ASSERT_THAT(runs, SizeIs(3));
  for (const auto& run : runs) {
    EXPECT_GE(run.end - run.start, 40'000U) << "two kernels of 20 us, one after the other";
    EXPECT_NE(run.graphId, 0U);
  }
}

// By id, the node that each clone was made of; nodes that were made are of none.
class ClonesOf {
 public:
  explicit ClonesOf(Tool& tool) {
    tool.on_callback = [this](CUpti_CallbackDomain, uint32_t cbid, const void* data) {
      const auto* resource = static_cast<const CUpti_ResourceData*>(data);
      const auto* graph = static_cast<const CUpti_GraphData*>(resource->resourceDescriptor);
      if (cbid == CUPTI_CBID_RESOURCE_GRAPH_CLONED) {
        EXPECT_NE(graph->graph, nullptr);
        EXPECT_NE(graph->originalGraph, nullptr);
        ++graphs;
        return;
      }
      uint64_t id = 0;
      uint64_t original = 0;
      EXPECT_EQ(cuptiGetGraphNodeId(graph->node, &id), CUPTI_SUCCESS);
      EXPECT_EQ(cuptiGetGraphNodeId(graph->originalNode, &original), CUPTI_SUCCESS);
      if (graph->nodeType == CU_GRAPH_NODE_TYPE_KERNEL) originals[id] = original;
    };
    tool.Listen(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPH_CLONED);
    tool.Listen(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED);
  }
  uint64_t First(uint64_t id) const {
    const auto of = originals.find(id);
    return of == originals.end() ? id : First(of->second);
  }
  std::map<uint64_t, uint64_t> originals;
  int graphs = 0;
};

TEST(GraphRecordTest, KernelsOfChildGraphsRunUnderIdsThatWereNeverReported) {
  const Application application;
  Tool tool;
  ClonesOf clones(tool);
  tool.Enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  CUgraph child = nullptr;
  ASSERT_EQ(cuStreamBeginCapture(application.stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  application.Launch(application.fast);
  ASSERT_EQ(cuStreamEndCapture(application.stream, &child), CUDA_SUCCESS);
  CUgraphNode made = nullptr;
  size_t count = 1;
  ASSERT_EQ(cuGraphGetNodes(child, &made, &count), CUDA_SUCCESS);
  uint64_t first = 0;
  ASSERT_EQ(cuptiGetGraphNodeId(made, &first), CUPTI_SUCCESS);
  CUgraph middle = nullptr;
  CUgraph top = nullptr;
  CUgraphNode node = nullptr;
  ASSERT_EQ(cuGraphCreate(&middle, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphCreate(&top, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphAddChildGraphNode(&node, middle, nullptr, 0, child), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphAddChildGraphNode(&node, top, nullptr, 0, middle), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphAddChildGraphNode(&node, top, &node, 1, middle), CUDA_SUCCESS);
  EXPECT_EQ(clones.graphs, 5) << "the child, and twice the graph with what it holds";
  CUgraphExec exec = nullptr;
  ASSERT_EQ(cuGraphInstantiate(&exec, top, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphLaunch(exec, application.stream), CUDA_SUCCESS);
  application.Synchronize();
  tool.Flush();
  const auto kernels = tool.Records<CUpti_ActivityKernel10>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  ASSERT_THAT(kernels, SizeIs(2));
  EXPECT_NE(kernels[0].graphNodeId, kernels[1].graphNodeId);
  for (const auto& kernel : kernels) {
    EXPECT_NE(kernel.graphNodeId, first);
    EXPECT_EQ(clones.originals.count(kernel.graphNodeId), 0U);
  }
  const auto of_first = std::count_if(clones.originals.begin(), clones.originals.end(),
                                      [&](const auto& clone) { return clones.First(clone.first) == first; });
  EXPECT_EQ(of_first, 5) << "in the middle, twice at the top, and twice more while it was instantiated";
  for (CUgraph graph : {child, middle, top}) EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
}

TEST(GraphRecordTest, ANodeThatIsSwitchedOffHasNoRecord) {
  const Application application;
  Tool tool;
  tool.Enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  CUgraph graph = nullptr;
  ASSERT_EQ(cuStreamBeginCapture(application.stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  application.Launch(application.fast);
  ASSERT_EQ(cuStreamEndCapture(application.stream, &graph), CUDA_SUCCESS);
  CUgraphNode node = nullptr;
  size_t count = 1;
  ASSERT_EQ(cuGraphGetNodes(graph, &node, &count), CUDA_SUCCESS);
  CUgraphExec exec = nullptr;
  ASSERT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
  for (const unsigned int enabled : {1U, 0U, 1U}) {
    ASSERT_EQ(cuGraphNodeSetEnabled(exec, node, enabled), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphLaunch(exec, application.stream), CUDA_SUCCESS);
  }
  application.Synchronize();
  tool.Flush();
  EXPECT_THAT(tool.Records<CUpti_ActivityKernel10>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), SizeIs(2));
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
}

}  // namespace
}  // namespace gpusim::cupti
