// Capture, fork and join, replay, and kernels whose end others decide.
#include <unistd.h>

#include <atomic>
#include <memory>
#include <set>

#include "tests/sim/core/nccl_seam.h"
#include "tests/sim/test_node.h"

namespace gpusim {
namespace {

class GraphTest : public NodeTest {
 protected:
  void SetUp() override {
    NodeTest::SetUp();
    a_ = NewStream();
    b_ = NewStream();
    ASSERT_CUDA(cudaEventCreateWithFlags(&fork_, cudaEventDisableTiming));
    ASSERT_CUDA(cudaEventCreateWithFlags(&join_, cudaEventDisableTiming));
  }
  void TearDown() override {
    EXPECT_CUDA(cudaEventDestroy(fork_));
    EXPECT_CUDA(cudaEventDestroy(join_));
    EXPECT_CUDA(cudaStreamDestroy(a_));
    EXPECT_CUDA(cudaStreamDestroy(b_));
    NodeTest::TearDown();
  }

  // fast; then slow beside fast; then fast.
  cudaGraph_t CaptureDiamond() {
    cudaGraph_t graph = nullptr;
    EXPECT_CUDA(cudaStreamBeginCapture(a_, cudaStreamCaptureModeGlobal));
    Launch(Fast(), a_);
    EXPECT_CUDA(cudaEventRecord(fork_, a_));
    EXPECT_CUDA(cudaStreamWaitEvent(b_, fork_, 0));
    Launch(Slow(), b_);
    Launch(Fast(), a_);
    EXPECT_CUDA(cudaEventRecord(join_, b_));
    EXPECT_CUDA(cudaStreamWaitEvent(a_, join_, 0));
    Launch(Fast(), a_);
    EXPECT_CUDA(cudaStreamEndCapture(a_, &graph));
    return graph;
  }

  cudaStream_t a_ = nullptr;
  cudaStream_t b_ = nullptr;
  cudaEvent_t fork_ = nullptr;
  cudaEvent_t join_ = nullptr;
};

// As NCCL captures its own streams: brought in, without dependencies, and joined by a node that is added by
// hand.
TEST_F(GraphTest, ACapturedStreamsDependenciesAreReplaced) {
  ASSERT_CUDA(cudaStreamBeginCapture(a_, cudaStreamCaptureModeGlobal));
  Launch(Fast(), a_);
  ASSERT_CUDA(cudaEventRecord(fork_, a_));
  ASSERT_CUDA(cudaStreamWaitEvent(b_, fork_, 0));
  ASSERT_CUDA(cudaStreamUpdateCaptureDependencies(b_, nullptr, nullptr, 0, cudaStreamSetCaptureDependencies));
  Launch(Slow(), b_);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t graph = nullptr;
  const cudaGraphNode_t* nodes = nullptr;
  size_t count = 0;
  ASSERT_CUDA(cudaStreamGetCaptureInfo(b_, &status, nullptr, &graph, &nodes, nullptr, &count));
  ASSERT_EQ(count, 1U);
  size_t waits_for = 9;
  ASSERT_CUDA(cudaGraphNodeGetDependencies(nodes[0], nullptr, nullptr, &waits_for));
  EXPECT_EQ(waits_for, 0U);
  // A node of another graph is refused.
  cudaGraph_t other = nullptr;
  ASSERT_CUDA(cudaGraphCreate(&other, 0));
  cudaGraphNode_t foreign = nullptr;
  ASSERT_CUDA(cudaGraphAddEmptyNode(&foreign, other, nullptr, 0));
  EXPECT_EQ(cudaStreamUpdateCaptureDependencies(b_, &foreign, nullptr, 1, cudaStreamAddCaptureDependencies),
            cudaErrorInvalidValue);
  // What the stream did is left behind; a node by hand is nobody's unjoined work.
  cudaGraphNode_t record = nullptr;
  ASSERT_CUDA(cudaGraphAddEventRecordNode(&record, graph, nodes, count, join_));
  ASSERT_CUDA(cudaStreamUpdateCaptureDependencies(b_, &record, nullptr, 1, cudaStreamSetCaptureDependencies));
  cudaGraph_t captured = nullptr;
  EXPECT_CUDA(cudaStreamEndCapture(a_, &captured));
  ASSERT_NE(captured, nullptr);
  EXPECT_CUDA(cudaGraphDestroy(captured));
  EXPECT_CUDA(cudaGraphDestroy(other));
}

TEST_F(GraphTest, AUserObjectIsDestroyedWhenNoGraphRefersToItAnyMore) {
  static std::atomic<int> destroyed;
  destroyed = 0;
  cudaGraph_t graph = CaptureDiamond();
  cudaUserObject_t object = nullptr;
  ASSERT_CUDA(cudaUserObjectCreate(
      &object, &destroyed, [](void* counter) { ++*static_cast<std::atomic<int>*>(counter); }, 1,
      cudaUserObjectNoDestructorSync));
  ASSERT_CUDA(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
  cudaGraphExec_t exec = nullptr;
  ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  cudaGraph_t clone = nullptr;
  ASSERT_CUDA(cudaGraphClone(&clone, graph));
  ASSERT_CUDA(cudaGraphDestroy(graph));
  ASSERT_CUDA(cudaGraphDestroy(clone));
  ASSERT_CUDA(cudaGraphLaunch(exec, a_));
  EXPECT_EQ(destroyed, 0);
  ASSERT_CUDA(cudaGraphExecDestroy(exec));  // while it runs
  EXPECT_EQ(destroyed, 0) << "its launch has not ended";
  ASSERT_CUDA(cudaStreamSynchronize(a_));
  for (int i = 0; i < 5000 && destroyed == 0; ++i) usleep(1000);
  EXPECT_EQ(destroyed, 1);
  EXPECT_EQ(cudaUserObjectRelease(object, 1), cudaErrorInvalidValue) << "it is gone";
}

TEST_F(GraphTest, CapturedWorkDoesNotRun) {
  cudaGraph_t graph = CaptureDiamond();
  ASSERT_NE(graph, nullptr);
  ASSERT_CUDA(cudaDeviceSynchronize());
  EXPECT_TRUE(Activities(ActivityKind::kKernel).empty());
  size_t nodes = 0;
  ASSERT_CUDA(cudaGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_EQ(nodes, 4U);
  size_t edges = 0;
  ASSERT_CUDA(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
  EXPECT_EQ(edges, 4U);
  cudaStreamCaptureStatus status{};
  ASSERT_CUDA(cudaStreamIsCapturing(b_, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  EXPECT_CUDA(cudaGraphDestroy(graph));
}

TEST_F(GraphTest, EveryReplayKeepsTheShapeAndTheNodeIds) {
  cudaGraph_t graph = CaptureDiamond();
  cudaGraphExec_t exec = nullptr;
  ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  ASSERT_CUDA(cudaGraphDestroy(graph));
  ASSERT_CUDA(cudaGraphLaunch(exec, a_));
  ASSERT_CUDA(cudaGraphLaunch(exec, a_));
  ASSERT_CUDA(cudaStreamSynchronize(a_));
  const std::vector<Activity> kernels = Activities(ActivityKind::kKernel);
  ASSERT_EQ(kernels.size(), 8U);
  std::set<uint64_t> ids;
  for (size_t replay = 0; replay < 2; ++replay) {
    const Activity* k = &kernels[replay * 4];  // in order of ends: first, the branch's fast one, slow, last
    EXPECT_EQ(k[1].start_ns, k[0].end_ns);
    EXPECT_EQ(k[2].start_ns, k[0].end_ns);
    EXPECT_EQ(k[2].end_ns - k[2].start_ns, kSlowNs);
    EXPECT_EQ(k[3].start_ns, k[2].end_ns);
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(k[i].correlation, k[0].correlation) << "the launch's";
      EXPECT_NE(k[i].graph_node, 0U);
      EXPECT_EQ(k[i].graph_node, kernels[static_cast<size_t>(i)].graph_node);
      EXPECT_EQ(k[i].graph, kernels[0].graph);
      ids.insert(k[i].graph_node);
    }
  }
  EXPECT_EQ(ids.size(), 4U);
  EXPECT_NE(kernels[0].correlation, kernels[4].correlation);
  EXPECT_EQ(kernels[4].start_ns, kernels[3].end_ns) << "the second launch follows the first";
  EXPECT_CUDA(cudaGraphExecDestroy(exec));
}

TEST_F(GraphTest, NodesAreAnnouncedAndTheirClonesNameThem) {
  cudaGraph_t graph = CaptureDiamond();
  cudaGraphExec_t exec = nullptr;
  ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  std::set<void*> created;
  std::set<void*> originals;
  std::set<uint64_t> clone_ids;
  for (const Resource& resource : Resources()) {
    if (resource.event == ResourceEvent::kGraphNodeCreated) created.insert(resource.node);
    if (resource.event != ResourceEvent::kGraphNodeCloned) continue;
    originals.insert(resource.original_node);
    clone_ids.insert(resource.node_id);
    EXPECT_EQ(GraphNodeId(resource.node), resource.node_id);
    EXPECT_EQ(resource.original_graph, graph);
  }
  EXPECT_EQ(created.size(), 4U);
  EXPECT_EQ(originals, created);
  ASSERT_CUDA(cudaGraphLaunch(exec, a_));
  ASSERT_CUDA(cudaStreamSynchronize(a_));
  for (const Activity& kernel : Activities(ActivityKind::kKernel))
    EXPECT_EQ(clone_ids.count(kernel.graph_node), 1U);
  EXPECT_CUDA(cudaGraphExecDestroy(exec));
  EXPECT_CUDA(cudaGraphDestroy(graph));
}

TEST_F(GraphTest, ABranchThatIsNotJoinedSpoilsTheCapture) {
  cudaGraph_t graph = nullptr;
  ASSERT_CUDA(cudaStreamBeginCapture(a_, cudaStreamCaptureModeGlobal));
  ASSERT_CUDA(cudaEventRecord(fork_, a_));
  ASSERT_CUDA(cudaStreamWaitEvent(b_, fork_, 0));
  Launch(Fast(), b_);
  EXPECT_EQ(cudaStreamEndCapture(b_, &graph), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(cudaStreamEndCapture(a_, &graph), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(graph, nullptr);
  Launch(Fast(), b_);  // out of the capture again
  ASSERT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(Activities(ActivityKind::kKernel).size(), 1U);
  cudaGetLastError();
}

TEST_F(GraphTest, WaitingForACapturingStreamInvalidatesTheCapture) {
  cudaGraph_t graph = nullptr;
  ASSERT_CUDA(cudaStreamBeginCapture(a_, cudaStreamCaptureModeGlobal));
  EXPECT_EQ(cudaStreamSynchronize(a_), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaLaunchKernel(Fast(), dim3(1), dim3(32), nullptr, 0, a_), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamEndCapture(a_, &graph), cudaErrorStreamCaptureInvalidated);
  cudaGetLastError();
}

TEST_F(GraphTest, TheDefaultStreamMayNotWaitForACapture) {
  cudaStream_t blocking = NewStream(cudaStreamDefault);
  cudaGraph_t graph = nullptr;
  ASSERT_CUDA(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed));
  EXPECT_EQ(cudaLaunchKernel(Fast(), dim3(1), dim3(32), nullptr, 0, nullptr), cudaErrorStreamCaptureImplicit);
  EXPECT_CUDA(cudaStreamEndCapture(blocking, &graph));
  EXPECT_CUDA(cudaGraphDestroy(graph));
  EXPECT_CUDA(cudaStreamDestroy(blocking));
  cudaGetLastError();
}

TEST_F(GraphTest, AGraphMadeByHandCopiesFillsAndRecords) {
  void* device = nullptr;
  void* pinned = nullptr;
  cudaEvent_t event = nullptr;
  ASSERT_CUDA(cudaMalloc(&device, 4096));
  ASSERT_CUDA(cudaMallocHost(&pinned, 4096));
  ASSERT_CUDA(cudaEventCreate(&event));
  cudaGraph_t graph = nullptr;
  ASSERT_CUDA(cudaGraphCreate(&graph, 0));
  cudaGraphNode_t fill = nullptr;
  cudaGraphNode_t copy = nullptr;
  cudaGraphNode_t record = nullptr;
  cudaMemsetParams params{};
  params.dst = device;
  params.value = 0x2B;
  params.elementSize = 1;
  params.width = 4096;
  params.height = 1;
  ASSERT_CUDA(
      cudaGraphAddMemcpyNode1D(&copy, graph, nullptr, 0, pinned, device, 4096, cudaMemcpyDeviceToHost));
  ASSERT_CUDA(cudaGraphAddMemsetNode(&fill, graph, nullptr, 0, &params));
  ASSERT_CUDA(cudaGraphAddDependencies(graph, &fill, &copy, nullptr, 1));  // against the order of creation
  EXPECT_EQ(cudaGraphAddDependencies(graph, &copy, &fill, nullptr, 1), cudaErrorInvalidValue) << "a cycle";
  ASSERT_CUDA(cudaGraphAddEventRecordNode(&record, graph, &copy, 1, event));
  cudaGraphExec_t exec = nullptr;
  ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  ASSERT_CUDA(cudaGraphLaunch(exec, a_));
  ASSERT_CUDA(cudaEventSynchronize(event));
  EXPECT_EQ(static_cast<char*>(pinned)[4095], 0x2B);
  EXPECT_CUDA(cudaGraphExecDestroy(exec));
  EXPECT_CUDA(cudaGraphDestroy(graph));
  EXPECT_CUDA(cudaEventDestroy(event));
  EXPECT_CUDA(cudaFree(device));
  EXPECT_CUDA(cudaFreeHost(pinned));
  cudaGetLastError();
}

// A meeting whose end the test decides.
struct Gate {
  std::atomic<uint64_t> arrived_ns{0};
  std::atomic<bool> open{false};
  std::atomic<int> meetings{0};
};

class GatedMeeting : public Rendezvous {
 public:
  explicit GatedMeeting(Gate* gate) : gate_(gate) { ++gate_->meetings; }
  void Arrive(uint64_t ready_ns) override {
    ready_ns_ = ready_ns;
    gate_->arrived_ns = ready_ns;
  }
  bool Resolve(Interval* interval) override {
    if (!gate_->open) return false;
    *interval = {ready_ns_, ready_ns_ + 12'345'678};
    return true;
  }

 private:
  Gate* gate_;
  uint64_t ready_ns_ = 0;
};

RendezvousLaunch GatedLaunch(const std::shared_ptr<Gate>& gate) {
  RendezvousLaunch launch;
  launch.kernel_name = "_Z9gatedKernv";
  launch.factory = [](void* state) -> std::shared_ptr<Rendezvous> {
    return std::make_shared<GatedMeeting>(static_cast<Gate*>(state));
  };
  launch.state = gate;
  CollectiveTruth call;
  call.op = "AllReduce";
  call.comm = "00000000000000ab";
  call.bytes = 4096;
  launch.calls.push_back(call);
  return launch;
}

TEST_F(GraphTest, AKernelThatMeetsOthersHoldsItsStreamUntilTheyCame) {
  const auto gate = std::make_shared<Gate>();
  Launch(Slow(), a_);
  ASSERT_EQ(LaunchRendezvousKernel(a_, GatedLaunch(gate)), CUDA_SUCCESS);
  Launch(Fast(), a_);
  Launch(Fast(), b_);
  ASSERT_CUDA(cudaStreamSynchronize(b_));
  EXPECT_EQ(cudaStreamQuery(a_), cudaErrorNotReady);
  gate->open = true;
  ASSERT_CUDA(cudaStreamSynchronize(a_));
  const std::vector<Activity> kernels = Activities(ActivityKind::kKernel);
  ASSERT_EQ(kernels.size(), 4U);  // in order of ends: b's, then the three of a
  const Activity& meeting = kernels[2];
  EXPECT_STREQ(meeting.name, "_Z9gatedKernv");
  EXPECT_EQ(meeting.start_ns, gate->arrived_ns.load());
  EXPECT_EQ(meeting.start_ns, kernels[1].end_ns) << "of the slow one before it";
  EXPECT_EQ(meeting.end_ns - meeting.start_ns, 12'345'678U);
  EXPECT_EQ(kernels[3].start_ns, meeting.end_ns);
  cudaGetLastError();
}

TEST_F(GraphTest, EachReplayOfACapturedMeetingIsANewOne) {
  const auto gate = std::make_shared<Gate>();
  gate->open = true;
  cudaGraph_t graph = nullptr;
  ASSERT_CUDA(cudaStreamBeginCapture(a_, cudaStreamCaptureModeGlobal));
  ASSERT_EQ(LaunchRendezvousKernel(a_, GatedLaunch(gate)), CUDA_SUCCESS);
  ASSERT_CUDA(cudaStreamEndCapture(a_, &graph));
  EXPECT_EQ(gate->meetings, 0);
  cudaGraphExec_t exec = nullptr;
  ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) ASSERT_CUDA(cudaGraphLaunch(exec, a_));
  ASSERT_CUDA(cudaStreamSynchronize(a_));
  EXPECT_EQ(gate->meetings, 3);
  const std::vector<Activity> kernels = Activities(ActivityKind::kKernel);
  ASSERT_EQ(kernels.size(), 3U);
  EXPECT_EQ(kernels[1].start_ns, kernels[0].end_ns);
  size_t collectives = 0;
  for (const std::string& line : TruthLines())
    collectives += line.find("\"kind\":\"collective\"") != std::string::npos ? 1 : 0;
  EXPECT_EQ(collectives, 3U);
  EXPECT_CUDA(cudaGraphExecDestroy(exec));
  EXPECT_CUDA(cudaGraphDestroy(graph));
}

}  // namespace
}  // namespace gpusim
