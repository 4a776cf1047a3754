// libcupti and graphs: capture holds no record, replays tell their nodes, and the graph-level kind replaces
// them.

#include <cuda.h>
#include <cupti.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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

TEST(GraphRecordTest, ReplaysCarryTheirNodesAndTheLaunchsCorrelation) {
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

}  // namespace
}  // namespace gpusim::cupti
