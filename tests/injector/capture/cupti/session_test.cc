#include "injector/capture/cupti/session.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "injector/base/lock.h"
#include "injector/base/losses.h"
#include "injector/capture/cupti/callbacks.h"
#include "injector/capture/cupti/launches.h"
#include "injector/core/guard.h"
#include "injector/core/recording.h"
#include "injector/core/self_report.h"
#include "injector/core/step_gate.h"
#include "tests/injector/support/frames.h"
#include "tests/injector/support/lifecycle.h"
#include "tests/injector/support/records.h"

namespace gpuprobe::injector {
namespace {

// A CUPTI of one process-wide state, like the real one.
struct FakeCupti {
  CUptiResult subscribe_result = CUPTI_SUCCESS;
  CUptiResult attribute_result = CUPTI_SUCCESS;
  CUptiResult enable_result = CUPTI_SUCCESS;
  CUpti_CallbackFunc callback = nullptr;
  void* user_data = nullptr;
  CUpti_BuffersCallbackRequestFunc request = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete = nullptr;
  std::set<CUpti_ActivityKind> kinds;
  std::set<std::pair<CUpti_CallbackDomain, CUpti_CallbackId>> callbacks;
  std::vector<uint32_t> flushes;
  std::function<void()> on_flush;
  size_t dropped = 0;
  int attribute_calls = 0;
  bool subscribed = false;
};
FakeCupti* fake = nullptr;

CuptiApi FakeApi() {
  CuptiApi api = testing::DecodingApi();
  api.Subscribe = [](CUpti_SubscriberHandle* handle, CUpti_CallbackFunc callback, void* user_data) {
    *handle = reinterpret_cast<CUpti_SubscriberHandle>(fake);
    fake->callback = callback;
    fake->user_data = user_data;
    fake->subscribed = fake->subscribe_result == CUPTI_SUCCESS;
    return fake->subscribe_result;
  };
  api.Unsubscribe = [](CUpti_SubscriberHandle) {
    fake->subscribed = false;
    return CUPTI_SUCCESS;
  };
  api.EnableCallback = [](uint32_t enable, CUpti_SubscriberHandle, CUpti_CallbackDomain domain,
                          CUpti_CallbackId cbid) {
    if (enable != 0) fake->callbacks.insert({domain, cbid});
    return CUPTI_SUCCESS;
  };
  api.ActivityRegisterCallbacks = [](CUpti_BuffersCallbackRequestFunc request,
                                     CUpti_BuffersCallbackCompleteFunc complete) {
    fake->request = request;
    fake->complete = complete;
    return CUPTI_SUCCESS;
  };
  api.ActivityEnable = [](CUpti_ActivityKind kind) {
    if (fake->enable_result == CUPTI_SUCCESS) fake->kinds.insert(kind);
    return fake->enable_result;
  };
  api.ActivityDisable = [](CUpti_ActivityKind kind) {
    fake->kinds.erase(kind);
    return CUPTI_SUCCESS;
  };
  api.ActivityFlushAll = [](uint32_t flag) {
    fake->flushes.push_back(flag);
    if (fake->on_flush) fake->on_flush();
    return CUPTI_SUCCESS;
  };
  api.ActivityGetNumDroppedRecords = [](CUcontext, uint32_t, size_t* dropped) {
    *dropped = std::exchange(fake->dropped, 0);
    return CUPTI_SUCCESS;
  };
  api.ActivitySetAttribute = [](CUpti_ActivityAttribute, size_t*, void*) {
    ++fake->attribute_calls;
    return fake->attribute_result;
  };
  return api;
}

class SessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake = &fake_;
    ASSERT_TRUE(MapRings());
    SetLive(true);
    stream_ = std::make_unique<Stream>();
    ASSERT_TRUE(stream_->Init(size_t{64} << 20));
    session_ = std::make_unique<CuptiSession>(stream_.get());
  }
  void TearDown() override {
    stream_->drain.Drain(UINT64_MAX);
    SetLive(false);
  }
  CuptiSession::StartResult Start(uint32_t buffers = 2) { return Start(FakeApi(), buffers); }
  CuptiSession::StartResult Start(const CuptiApi& api, uint32_t buffers = 2) {
    session_->Bind(api);
    return session_->Start(buffers, 65536);
  }
  // With a driver that is up and a buffer that was asked for.
  void StartVersion(uint32_t version) {
    CuptiApi api = FakeApi();
    api.version = version;
    ASSERT_EQ(Start(api), CuptiSession::StartResult::kCapturing);
    CUpti_ResourceData up{};
    fake_.callback(fake_.user_data, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_CU_INIT_FINISHED, &up);
    size_t bytes = 0;
    ASSERT_NE(Request(&bytes), nullptr);
  }
  uint8_t* Request(size_t* bytes) {
    uint8_t* buffer = nullptr;
    size_t max_records = 1;
    fake_.request(&buffer, bytes, &max_records);
    EXPECT_EQ(max_records, 0u);
    return buffer;
  }
  uint64_t Kernels() {
    uint64_t kernels = 0;
    stream_->builder.Seal();
    for (const v1::Batch& batch : testing::TakeBatches(&stream_->queue)) {
      kernels += static_cast<uint64_t>(batch.kernels().duration_size());
    }
    return kernels;
  }
  static size_t Fill(uint8_t* buffer, uint32_t records) {
    testing::RecordBuffer filled;
    const uint64_t now = NowNs();
    for (uint32_t i = 0; i < records; ++i) filled.Add(testing::Kernel("k", now, now + 1, i));
    std::memcpy(buffer, filled.data(), filled.size());
    return filled.size();
  }

  FakeCupti fake_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<CuptiSession> session_;
};

TEST_F(SessionTest, StartEnablesTheKindsAndTheFunctionsThatHooksWant) {
  AddLaunchHooks();
  ASSERT_EQ(Start(), CuptiSession::StartResult::kCapturing);
  EXPECT_TRUE(session_->capturing());
  EXPECT_TRUE(fake_.kinds.contains(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
  EXPECT_FALSE(fake_.kinds.contains(CUPTI_ACTIVITY_KIND_KERNEL)) << "serialises the program's kernels";
  EXPECT_FALSE(fake_.kinds.contains(CUPTI_ACTIVITY_KIND_RUNTIME));
  EXPECT_FALSE(fake_.kinds.contains(CUPTI_ACTIVITY_KIND_DRIVER));
  for (const CUpti_CallbackId cbid :
       {CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz,
        CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel, CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2,
        CUPTI_DRIVER_TRACE_CBID_cuMemsetD32Async, CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch}) {
    EXPECT_TRUE(fake_.callbacks.contains({CUPTI_CB_DOMAIN_DRIVER_API, cbid})) << cbid;
  }
  EXPECT_FALSE(
      fake_.callbacks.contains({CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchHostFunc}));
}

TEST_F(SessionTest, AnotherSubscriberIsNamedAsTheReason) {
  fake_.subscribe_result = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  EXPECT_EQ(Start(), CuptiSession::StartResult::kOtherProfiler);
  EXPECT_FALSE(session_->capturing());
  EXPECT_TRUE(fake_.kinds.empty());
  EXPECT_EQ(LastCuptiError(), CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
}

TEST_F(SessionTest, TimesOfAClockThatNobodyKnowsAreLost) {
  ASSERT_EQ(Start(), CuptiSession::StartResult::kCapturing);
  size_t bytes = 0;
  uint8_t* buffer = Request(&bytes);
  testing::RecordBuffer filled;
  const uint64_t now = NowNs();
  constexpr uint64_t kTicks = 40'000'000'000'000;  // some hours after the start of a processor of 3 GHz
  filled.Add(testing::Kernel("k", now, now + 1, 1));
  filled.Add(testing::Kernel("k", kTicks, kTicks + 1, 2));
  filled.Add(testing::Kernel("k", 3 * now, 3 * now + 1, 3));
  std::memcpy(buffer, filled.data(), filled.size());
  fake_.complete(nullptr, 0, buffer, bytes, filled.size());
  EXPECT_EQ(Kernels(), 1u);
  EXPECT_EQ(LossCount(wire::LossReason::kLossInvalidTimestamp), 2u);
}

TEST_F(SessionTest, RefusedKindsLeaveTheSessionOff) {
  fake_.enable_result = CUPTI_ERROR_UNKNOWN;
  EXPECT_EQ(Start(), CuptiSession::StartResult::kRefused);
  EXPECT_FALSE(session_->capturing());
}

TEST_F(SessionTest, AttributesRefusedWhileTheDriverStartsAreSetOnceItIsUp) {
  fake_.attribute_result = CUPTI_ERROR_UNKNOWN;
  const uint64_t errors = SelfCount(SelfCounter::kCuptiErrors);
  ASSERT_EQ(Start(), CuptiSession::StartResult::kCapturing);
  EXPECT_EQ(SelfCount(SelfCounter::kCuptiErrors), errors) << "expected at that time";
  session_->Tick();
  EXPECT_EQ(fake_.attribute_calls, 1) << "not before the driver is up";
  fake_.callback(fake_.user_data, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_CU_INIT_FINISHED, nullptr);
  fake_.attribute_result = CUPTI_SUCCESS;
  session_->Tick();
  EXPECT_EQ(fake_.attribute_calls, 2);
  session_->Tick();
  EXPECT_EQ(fake_.attribute_calls, 2);
}

TEST_F(SessionTest, ACompletedBufferBecomesRecordsAndIsUsedAgain) {
  ASSERT_EQ(Start(1), CuptiSession::StartResult::kCapturing);
  for (int round = 0; round < 3; ++round) {
    size_t bytes = 0;
    uint8_t* buffer = Request(&bytes);
    ASSERT_EQ(bytes, 65536u);
    fake_.complete(nullptr, 0, buffer, bytes, Fill(buffer, 10));
  }
  EXPECT_EQ(Kernels(), 30u);
  EXPECT_EQ(session_->pool().outstanding(), 0u);
}

TEST_F(SessionTest, AnExhaustedPoolDeclinesAndCountsWhatWasDropped) {
  ASSERT_EQ(Start(1), CuptiSession::StartResult::kCapturing);
  size_t bytes = 0;
  uint8_t* buffer = Request(&bytes);
  EXPECT_EQ(Request(&bytes), nullptr);
  EXPECT_EQ(bytes, 0u);
  fake_.dropped = 17;
  fake_.complete(nullptr, 0, buffer, 65536, Fill(buffer, 10));
  EXPECT_EQ(Kernels(), 10u);
  EXPECT_EQ(LossCount(wire::LossReason::kLossBufferPoolEmpty), 17u);
  EXPECT_EQ(LossCount(wire::LossReason::kLossCuptiDropped), 0u);
}

TEST_F(SessionTest, BeforeCupti129AnExhaustedPoolCountsWhatItCouldNotKeep) {
  CuptiApi api = FakeApi();
  api.version = 26;
  ASSERT_EQ(Start(api, 1), CuptiSession::StartResult::kCapturing);
  size_t bytes = 0;
  Request(&bytes);
  uint8_t* discard = Request(&bytes);
  fake_.complete(nullptr, 0, discard, bytes, Fill(discard, 10));
  EXPECT_EQ(Kernels(), 0u);
  EXPECT_EQ(LossCount(wire::LossReason::kLossBufferPoolEmpty), 10u);
}

TEST_F(SessionTest, AForeignBufferIsNeitherReadNorTouched) {
  ASSERT_EQ(Start(), CuptiSession::StartResult::kCapturing);
  std::vector<uint8_t> foreign(65536, 0xab);
  fake_.complete(nullptr, 0, foreign.data(), foreign.size(), 4096);
  EXPECT_EQ(foreign, std::vector<uint8_t>(65536, 0xab));
  EXPECT_EQ(LossCount(wire::LossReason::kLossForeignBuffer), 1u);
  EXPECT_EQ(Kernels(), 0u);
}

TEST_F(SessionTest, RecordsThatCuptiDroppedAreCounted) {
  ASSERT_EQ(Start(), CuptiSession::StartResult::kCapturing);
  size_t bytes = 0;
  uint8_t* buffer = Request(&bytes);
  fake_.dropped = 17;
  fake_.complete(nullptr, 0, buffer, bytes, 0);
  EXPECT_EQ(LossCount(wire::LossReason::kLossCuptiDropped), 17u);
}

TEST_F(SessionTest, NothingIsFlushedBeforeTheDriverIsUpAndCuptiAskedForABuffer) {
  ASSERT_EQ(Start(), CuptiSession::StartResult::kCapturing);
  session_->Flush(false);
  EXPECT_TRUE(fake_.flushes.empty()) << "the driver may still be inside cuInit";
  size_t bytes = 0;
  Request(&bytes);
  session_->Flush(false);
  EXPECT_TRUE(fake_.flushes.empty()) << "nor then: CUPTI asks for the devices' records inside cuInit";
  CUpti_ResourceData up = {};
  fake_.callback(fake_.user_data, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_CU_INIT_FINISHED, &up);
  session_->Flush(false);
  session_->Flush(true);
  EXPECT_EQ(fake_.flushes, (std::vector<uint32_t>{0, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED}));
}

TEST_F(SessionTest, LessDetailNeverEndsCuptisSession) {
  StartVersion(130001);
  session_->StopKinds();
  EXPECT_EQ(fake_.kinds, std::set<CUpti_ActivityKind>{CUPTI_ACTIVITY_KIND_DEVICE});
  session_->Flush(true);
  EXPECT_EQ(fake_.flushes, std::vector<uint32_t>{CUPTI_ACTIVITY_FLAG_FLUSH_FORCED});
  EXPECT_EQ(session_->felt_precautions(), 0u);
  session_->Stop();
  EXPECT_TRUE(fake_.kinds.empty());
}

TEST_F(SessionTest, TheFirst130IsNeitherForcedToFlushNorAskedToStopRecordingKernels) {
  StartVersion(130000);
  session_->StopKinds();
  EXPECT_EQ(fake_.kinds, (std::set<CUpti_ActivityKind>{CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                                       CUPTI_ACTIVITY_KIND_DEVICE}));
  session_->Flush(true);
  session_->FlushUnfinished();
  EXPECT_EQ(fake_.flushes, (std::vector<uint32_t>{0, 0}));
  EXPECT_EQ(session_->felt_precautions(),
            cupti::kNoForcedFlush | cupti::kKernelsStayEnabled | cupti::kNoDeviceWaits);
  session_->Stop();
  EXPECT_TRUE(fake_.kinds.contains(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
}

TEST_F(SessionTest, GraphsAreNotRecordedWholeBefore126) {
  recording.kinds = kRecordAll | kRecordGraphsWhole;
  StartVersion(23);
  EXPECT_FALSE(fake_.kinds.contains(CUPTI_ACTIVITY_KIND_GRAPH_TRACE));
  EXPECT_EQ(session_->felt_precautions(), cupti::kGraphsNodeByNode);
  EXPECT_EQ(recording.kinds, kRecordAll);
  fake_.kinds.clear();
  recording.kinds = kRecordAll | kRecordGraphsWhole;
  session_ = std::make_unique<CuptiSession>(stream_.get());
  StartVersion(24);
  EXPECT_TRUE(fake_.kinds.contains(CUPTI_ACTIVITY_KIND_GRAPH_TRACE));
  EXPECT_EQ(session_->felt_precautions(), 0u);
  recording = {};
}

TEST_F(SessionTest, StopGivesEverythingBackAndLateBuffersAreOnlyRecycled) {
  ASSERT_EQ(Start(), CuptiSession::StartResult::kCapturing);
  size_t bytes = 0;
  uint8_t* buffer = Request(&bytes);
  CloseLifecycle();
  session_->Stop();
  EXPECT_TRUE(fake_.kinds.empty());
  EXPECT_FALSE(fake_.subscribed);
  fake_.complete(nullptr, 0, buffer, bytes, Fill(buffer, 10));
  EXPECT_EQ(session_->pool().outstanding(), 0u);
  EXPECT_EQ(Kernels(), 0u);
}

TEST_F(SessionTest, ALaunchBecomesAnEventWithTheRangesThatWereOpen) {
  AddLaunchHooks();
  ASSERT_EQ(Start(), CuptiSession::StartResult::kCapturing);
  CUpti_CallbackData data{};
  data.callbackSite = CUPTI_API_ENTER;
  data.correlationId = 5;
  const auto call = [&](CUpti_CallbackId cbid) {
    fake_.callback(fake_.user_data, CUPTI_CB_DOMAIN_DRIVER_API, cbid, &data);
  };
  ThreadState& thread = CurrentThread();
  thread.range_ids[0] = 77;
  thread.range_depth = 1;
  call(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
  call(CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoD_v2);  // made by the same call
  thread.range_depth = 0;
  main_thread_range = 88;
  data.correlationId = 6;
  call(CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch);
  data.callbackSite = CUPTI_API_EXIT;
  data.correlationId = 7;
  call(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
  main_thread_range = 0;
  stream_->drain.Drain(UINT64_MAX);
  stream_->builder.Seal();
  const auto batches = testing::TakeBatches(&stream_->queue);
  ASSERT_EQ(batches.size(), 1u);
  ASSERT_EQ(batches[0].launches_size(), 1);
  const v1::Launches& launches = batches[0].launches(0);
  EXPECT_EQ(testing::Undelta(launches.correlation_delta(), 2), (std::vector<uint64_t>{5, 6}));
  EXPECT_EQ(testing::Undelta(launches.range_delta(), 2), (std::vector<uint64_t>{77, 0}));
  EXPECT_EQ(testing::Undelta(launches.fallback_range_delta(), 2), (std::vector<uint64_t>{0, 88}));
  EXPECT_EQ(launches.time_delta_size(), 2);
}

TEST_F(SessionTest, CallbacksOnAThreadThatIsInsideTheProbeAreIgnored) {
  AddLaunchHooks();
  ASSERT_EQ(Start(), CuptiSession::StartResult::kCapturing);
  CUpti_CallbackData data{};
  data.callbackSite = CUPTI_API_ENTER;
  data.correlationId = 1001;
  const Guard inside;
  fake_.callback(fake_.user_data, CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, &data);
  stream_->drain.Drain(UINT64_MAX);
  stream_->builder.Seal();
  EXPECT_EQ(testing::TakeBatches(&stream_->queue).at(0).launches_size(), 0);
}

TEST(RuntimeVersions, TheFileNameOfTheRuntimeSaysWhichCudaTheProgramUses) {
  EXPECT_EQ(CudaMajorOfRuntime("/usr/local/cuda/lib64/libcudart.so.13"), 13);
  EXPECT_EQ(CudaMajorOfRuntime("/opt/venv/nvidia/cuda_runtime/lib/libcudart.so.12"), 12);
  EXPECT_EQ(CudaMajorOfRuntime("/opt/torch.libs/libcudart-1f6c6a2d.so.12.4.127"), 12);
  EXPECT_EQ(CudaMajorOfRuntime("/opt/libcudart.so"), 0);
  EXPECT_EQ(CudaMajorOfRuntime("/opt/other.so.12"), 0);
}

TEST(DriverVersions, TheFileNameOfTheDriverSaysWhichCuptiFits) {
  EXPECT_EQ(CudaMajorOfDriver("/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06"), 13);
  EXPECT_EQ(CudaMajorOfDriver("/usr/lib/libcuda.so.535.104.05"), 12);
  EXPECT_EQ(CudaMajorOfDriver("/usr/lib/libcuda.so.520.61.05"), 11);
  EXPECT_EQ(CudaMajorOfDriver("/opt/libcuda.so.1"), 0);
  EXPECT_EQ(CudaMajorOfDriver("/opt/other.so"), 0);
}

// Ids of nodes are their addresses here.
std::vector<std::pair<uint64_t, uint64_t>> seen_nodes;
bool nodes_wanted = true;
int libraries = 0;

CUgraphNode Node(uintptr_t id) { return reinterpret_cast<CUgraphNode>(id); }  // NOLINT

TEST_F(SessionTest, NodesOfGraphsAndNewLibrariesReachTheHooks) {
  seen_nodes.clear();
  graph_node_hooks = {[](const ThreadState&, bool, bool) noexcept { return nodes_wanted; },
                      [](ThreadState&, uint64_t id, uint64_t original, uint64_t, bool) noexcept {
                        seen_nodes.emplace_back(id, original);
                      }};
  new_library_hook = []() noexcept { ++libraries; };
  CuptiApi api = FakeApi();
  api.GetGraphNodeId = [](CUgraphNode node, uint64_t* id) {
    *id = reinterpret_cast<uint64_t>(node);
    return *id == 66 ? CUPTI_ERROR_INVALID_PARAMETER : CUPTI_SUCCESS;
  };
  ASSERT_EQ(Start(api), CuptiSession::StartResult::kCapturing);
  const auto call = [this](CUpti_CallbackId cbid, CUpti_GraphData* graph) {
    EXPECT_TRUE(fake_.callbacks.contains({CUPTI_CB_DOMAIN_RESOURCE, cbid}));
    CUpti_ResourceData data = {};
    data.resourceDescriptor = graph;
    fake_.callback(fake_.user_data, CUPTI_CB_DOMAIN_RESOURCE, cbid, &data);
  };
  // CUPTI 13.0.1 gives a node's type only as its creation starts.
  const auto starts = [&call](CUgraphNodeType type) {
    CUpti_GraphData starting = {};
    starting.nodeType = type;
    call(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATE_STARTING, &starting);
  };
  CUpti_GraphData graph = {};
  graph.node = Node(5);
  starts(CU_GRAPH_NODE_TYPE_KERNEL);
  call(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, &graph);
  graph.node = Node(7);
  graph.originalNode = Node(5);
  call(CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED, &graph);
  graph.originalNode = Node(66);  // CUPTI does not know it
  call(CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED, &graph);
  starts(CU_GRAPH_NODE_TYPE_MEMSET);
  call(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, &graph);
  call(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, nullptr);
  starts(CU_GRAPH_NODE_TYPE_KERNEL);
  nodes_wanted = false;
  call(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, &graph);
  nodes_wanted = true;
  EXPECT_EQ(seen_nodes, (std::vector<std::pair<uint64_t, uint64_t>>{{5, 0}, {7, 5}}));
  graph.graph = reinterpret_cast<CUgraph>(uintptr_t{0x90});
  starts(CU_GRAPH_NODE_TYPE_MEM_ALLOC);
  call(CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED, &graph);
  EXPECT_EQ(CurrentThread().graph_memory_graph, 0u) << "a copy allocates nothing new";
  call(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, &graph);
  EXPECT_EQ(CurrentThread().graph_memory_graph, 0x90u);
  CurrentThread().graph_memory_graph = 0;
  call(CUPTI_CBID_RESOURCE_STREAM_CREATED, nullptr);
  call(CUPTI_CBID_RESOURCE_MODULE_LOADED, nullptr);
  EXPECT_EQ(libraries, 2);
}

TEST_F(SessionTest, ACuptiThatHasNoNumbersForNodesIsNotAskedForThem) {
  seen_nodes.clear();
  graph_node_hooks = {[](const ThreadState&, bool, bool) noexcept { return true; },
                      [](ThreadState&, uint64_t id, uint64_t original, uint64_t, bool) noexcept {
                        seen_nodes.emplace_back(id, original);
                      }};
  CuptiApi api = FakeApi();
  api.GetGraphNodeId = nullptr;
  ASSERT_EQ(Start(api), CuptiSession::StartResult::kCapturing);
  CurrentThread().graph_node_type = CU_GRAPH_NODE_TYPE_KERNEL;
  CUpti_GraphData graph = {};
  CUpti_ResourceData data = {};
  data.resourceDescriptor = &graph;
  fake_.callback(fake_.user_data, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, &data);
  EXPECT_TRUE(seen_nodes.empty());
}

TEST_F(SessionTest, WithoutHooksNobodyIsToldOfGraphs) {
  ASSERT_EQ(Start(), CuptiSession::StartResult::kCapturing);
  EXPECT_FALSE(fake_.callbacks.contains({CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED}));
}

// The last one: the process counts as one that makes graphs from then on.
TEST_F(SessionTest, CapturesOnceTheOtherSubscriberHasLeft) {
  fake_.subscribe_result = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  ASSERT_EQ(Start(), CuptiSession::StartResult::kOtherProfiler);
  const uint64_t errors = SelfCount(SelfCounter::kCuptiErrors);
  session_->Tick();
  std::this_thread::sleep_for(std::chrono::milliseconds(1050));
  session_->Tick();
  EXPECT_FALSE(session_->capturing()) << "it is still there";
  EXPECT_EQ(SelfCount(SelfCounter::kCuptiErrors), errors) << "counted once";
  fake_.subscribe_result = CUPTI_SUCCESS;
  session_->Tick();
  EXPECT_FALSE(session_->capturing()) << "asked again within a second";
  std::this_thread::sleep_for(std::chrono::milliseconds(1050));
  session_->Tick();
  EXPECT_TRUE(session_->capturing());
  EXPECT_TRUE(fake_.kinds.contains(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
  EXPECT_GT(session_->yielded_ns(), 2'000'000'000u);
  EXPECT_FALSE(session_->driver_is_up()) << "before the first callback nothing says so";
}

TEST_F(SessionTest, OnDemandKindsAreEnabledForACaptureOnly) {
  step_gate.Init({.on_demand = true});
  StartVersion(28);
  const std::set<CUpti_ActivityKind> at_rest{CUPTI_ACTIVITY_KIND_DEVICE};
  EXPECT_EQ(fake_.kinds, at_rest);
  EXPECT_FALSE(session_->records_kernels());
  EXPECT_FALSE(fake_.callbacks.empty()) << "communicators and allocations are followed";
  EXPECT_TRUE(session_->StartKinds());
  EXPECT_TRUE(fake_.kinds.contains(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
  EXPECT_TRUE(fake_.kinds.contains(CUPTI_ACTIVITY_KIND_MEMCPY));
  EXPECT_TRUE(session_->records_kernels());
  session_->StopKinds();
  EXPECT_EQ(fake_.kinds, at_rest);
  fake_.enable_result = CUPTI_ERROR_NOT_INITIALIZED;
  EXPECT_FALSE(session_->StartKinds());
  EXPECT_FALSE(session_->records_kernels());
  EXPECT_EQ(fake_.kinds, at_rest);
  step_gate.Init({});
}

}  // namespace
}  // namespace gpuprobe::injector
