// The injector's memory does not grow with the length of a job, and no event on the application's threads
// allocates: ten million kernels and a million graph replays through decoder, rings, builder and queue into a
// sink that reads everything, with every allocation of the process counted.
#include <cupti.h>
#include <nvtx3/nvToolsExtPayload.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "injector/base/losses.h"
#include "injector/capture/cupti/callbacks.h"
#include "injector/capture/cupti/decoder.h"
#include "injector/capture/cupti/executable_graphs.h"
#include "injector/capture/cupti/graph_calls.h"
#include "injector/capture/cupti/launches.h"
#include "injector/capture/cupti/main_thread_waits.h"
#include "injector/capture/memory/part.h"
#include "injector/capture/memory/pytorch.h"
#include "injector/capture/nvtx/domains.h"
#include "injector/capture/nvtx/names.h"
#include "injector/capture/nvtx/payloads.h"
#include "injector/capture/nvtx/ranges.h"
#include "injector/core/guard.h"
#include "injector/core/host_clock.h"
#include "injector/core/host_state.h"
#include "tests/injector/live_probe.h"
#include "tests/injector/support/counted_allocations.h"
#include "tests/injector/support/records.h"

namespace gpuprobe::injector {
namespace {

using testing::Allocations;

uint64_t ResidentBytes() {
  unsigned long pages = 0;
  FILE* statm = std::fopen("/proc/self/statm", "r");
  if (statm == nullptr || std::fscanf(statm, "%*u %lu", &pages) != 1) std::abort();
  std::fclose(statm);
  return uint64_t{pages} * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

class FlatMemory : public LiveProbe {
 protected:
  void SetUp() override {
    LiveProbe::SetUp();
    AddLaunchHooks();
    kMemoryPart.start();
    host_clock.Start();
    stream_ = std::make_unique<Stream>();
    ASSERT_TRUE(stream_->Init(size_t{16} << 20));
    decoder_ = std::make_unique<Decoder>(&api_, stream_.get());
    decoder_->Init();
  }

  // The collector reads everything.
  void Sink() {
    stream_->drain.Drain(UINT64_MAX);
    stream_->builder.Seal();
    SendQueue::Frame frame;
    while (stream_->queue.Front(&frame)) {
      sent_bytes_ += frame.size;
      stream_->queue.Pop();
    }
  }

  // One call of an API function, entry and exit.
  template <typename Params>
  static void Call(CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const Params& params,
                   uint32_t correlation, const char* symbol = nullptr) {
    const int result = 0;
    CUpti_CallbackData data = {};
    data.functionParams = &params;
    data.functionReturnValue = const_cast<int*>(&result);
    data.correlationId = correlation;
    data.symbolName = symbol;
    for (const CUpti_ApiCallbackSite site : {CUPTI_API_ENTER, CUPTI_API_EXIT}) {
      data.callbackSite = site;
      const Guard guard;
      DispatchApi(guard.thread(), domain, cbid, data);
    }
  }

  CuptiApi api_ = testing::DecodingApi();
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Decoder> decoder_;
  uint64_t sent_bytes_ = 0;
};

constexpr uint32_t kKernelsInBuffer = 10'000;

// A buffer as CUPTI fills it again and again: the kernels of some functions, or of a graph's nodes.
testing::RecordBuffer Kernels(const std::vector<std::string>& names, bool of_graph) {
  testing::RecordBuffer buffer;
  uint64_t now_ns = NowNs();
  for (uint32_t i = 0; i < kKernelsInBuffer; ++i) {
    auto kernel = testing::Kernel(names[i % names.size()].c_str(), now_ns, now_ns + 2000, 1 + i);
    kernel.streamId = 7 + i % 3;
    kernel.graphNodeId = of_graph ? 1 + i % 50 : 0;
    buffer.Add(kernel);
    now_ns += 2500;
  }
  return buffer;
}

TEST_F(FlatMemory, TenMillionKernels) {
  std::vector<std::string> names;
  for (int i = 0; i < 300; ++i) names.push_back("kernel_number_" + std::to_string(i));
  testing::RecordBuffer buffer = Kernels(names, false);
  const cuLaunchKernel_params launch = {};
  uint32_t correlation = 0;
  const auto round = [&] {
    for (int i = 0; i < 5000; ++i) {
      Call(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, launch, ++correlation,
           "kernel");
    }
    decoder_->DecodeBuffer(buffer.data(), buffer.size());
    Sink();
  };
  for (int i = 0; i < 20; ++i) round();  // every page that will be used has been
  const uint64_t resident_before = ResidentBytes();
  const uint64_t allocations_before = Allocations();
  for (int i = 0; i < 1000; ++i) round();
  EXPECT_EQ(Allocations(), allocations_before);
  EXPECT_LE(ResidentBytes(), resident_before + (size_t{1} << 20));
  EXPECT_GT(sent_bytes_, 10'000'000u);
  EXPECT_EQ(LossCount(wire::LossReason::kLossSendQueueFull), 0u);
  EXPECT_EQ(LossCount(wire::LossReason::kLossEventRingFull), 0u);
}

TEST_F(FlatMemory, AMillionGraphReplays) {
  const std::vector<std::string> names = {"graph_kernel_a", "graph_kernel_b"};
  testing::RecordBuffer buffer = Kernels(names, true);
  const cuGraphLaunch_params launch = {};
  uint32_t correlation = 0;
  const auto round = [&] {
    for (int i = 0; i < 2000; ++i) {
      const int level = nvtx::Push(nullptr, nvtx::PassedText("decode"));
      Call(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch, launch, ++correlation);
      ASSERT_EQ(nvtx::Pop(nullptr), level);
    }
    decoder_->DecodeBuffer(buffer.data(), buffer.size());
    Sink();
  };
  for (int i = 0; i < 20; ++i) round();
  const uint64_t resident_before = ResidentBytes();
  const uint64_t allocations_before = Allocations();
  for (int i = 0; i < 500; ++i) round();
  EXPECT_EQ(Allocations(), allocations_before);
  EXPECT_LE(ResidentBytes(), resident_before + (size_t{1} << 20));
  EXPECT_EQ(LossCount(wire::LossReason::kLossEventRingFull), 0u);
}

TEST_F(FlatMemory, NoEventAllocates) {
  if (!testing::kAllocationsAreCounted) GTEST_SKIP() << "the sanitizer's allocator is not counted";
  CUdeviceptr address = 0x1000;
  void* pointer = reinterpret_cast<void*>(0x2000);
  CUmemGenericAllocationHandle handle = 0x99;
  void* domain = nvtx::CreateDomain("domain");
  nvtxEventAttributes_t attributes{};
  attributes.size = sizeof(attributes);
  attributes.category = 3;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = "a range";
  uint32_t correlation = 0;
  const auto events = [&] {
    nvtx::Push(domain, nvtx::PassedAttributes(&attributes));
    nvtx::Mark(nullptr, nvtx::PassedText("mark"));
    nvtx::Pop(domain);
    nvtx::Pop(nullptr);  // nothing is open
    nvtx::End(nvtx::Start(nullptr, nvtx::PassedText("started")));
    constexpr auto kDriver = CUPTI_CB_DOMAIN_DRIVER_API;
    Call(kDriver, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, cuLaunchKernel_params{}, ++correlation, "kernel");
    Call(kDriver, CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch, cuGraphLaunch_params{}, ++correlation);
    Call(kDriver, CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, cuMemAlloc_v2_params{&address, 64}, ++correlation);
    Call(CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaMalloc_v3020,
         cudaMalloc_v3020_params{&pointer, 64}, correlation);
    Call(kDriver, CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2, cuMemFree_v2_params{address}, ++correlation);
    Call(kDriver, CUPTI_DRIVER_TRACE_CBID_cuMemCreate, cuMemCreate_params{&handle, 4096, nullptr, 0},
         ++correlation);
    Call(kDriver, CUPTI_DRIVER_TRACE_CBID_cuMemMap, cuMemMap_params{0x10000, 4096, 0, handle, 0},
         ++correlation);
    Call(kDriver, CUPTI_DRIVER_TRACE_CBID_cuMemRelease, cuMemRelease_params{handle}, ++correlation);
    Call(kDriver, CUPTI_DRIVER_TRACE_CBID_cuMemUnmap, cuMemUnmap_params{0x10000, 4096}, ++correlation);
  };
  events();
  const uint64_t before = Allocations();
  for (int i = 0; i < 1000; ++i) events();
  EXPECT_EQ(Allocations(), before);
  // The counter counts.
  const std::unique_ptr<std::string> counted = std::make_unique<std::string>(100, 'x');
  EXPECT_GT(Allocations(), before) << counted->size();
}

TEST_F(FlatMemory, NoEventOfPoolsArraysGraphsWaitsNamesPayloadsAndTensorsAllocates) {
  if (!testing::kAllocationsAreCounted) GTEST_SKIP() << "the sanitizer's allocator is not counted";
  AddWaitHooks();
  AddGraphHooks();
  AddExecutableGraphHooks();
  using Usage = void(void*, int64_t, uint64_t, uint64_t, uint64_t);
  Usage* const nobody = [](void*, int64_t, uint64_t, uint64_t, uint64_t) {};
  auto* tensor = reinterpret_cast<Usage*>(
      pytorch::Replacement(pytorch::Function::kUsage, reinterpret_cast<void*>(nobody)));
  ASSERT_NE(tensor, nullptr);
  nvtxPayloadSchemaEntry_t entry{};
  entry.type = NVTX_PAYLOAD_ENTRY_TYPE_UINT64;
  entry.name = "bytes";
  nvtxPayloadSchemaAttr_t schema{};
  schema.fieldMask = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES |
                     NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES;
  schema.type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC;
  schema.entries = &entry;
  schema.numEntries = 1;
  void* domain = nvtx::CreateDomain("payloads");
  const uint64_t number = 7;
  const nvtx::abi::PayloadData payload{nvtx::RegisterSchema(domain, &schema), sizeof(number), &number};
  ASSERT_NE(payload.schema_id, 0u);
  CUdeviceptr address = 0x3000;
  CUmemoryPool pool = reinterpret_cast<CUmemoryPool>(0x4000);
  CUarray array = reinterpret_cast<CUarray>(0x5000);
  CUmipmappedArray mipmaps = reinterpret_cast<CUmipmappedArray>(0x6000);
  CUmemPoolProps properties = {};
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  const CUDA_ARRAY_DESCRIPTOR flat = {64, 32, CU_AD_FORMAT_FLOAT, 4};
  const CUDA_ARRAY3D_DESCRIPTOR deep = {64, 32, 8, CU_AD_FORMAT_FLOAT, 4, 0};
  CUDA_MEM_ALLOC_NODE_PARAMS node = {};
  node.bytesize = 4096;
  node.dptr = 0x7000;
  const auto graph = reinterpret_cast<CUgraph>(0x66);
  auto exec = reinterpret_cast<CUgraphExec>(0x77);
  uint32_t correlation = 0;
  constexpr auto kDriver = CUPTI_CB_DOMAIN_DRIVER_API;
  const auto events = [&] {
    Call(kDriver, CUPTI_DRIVER_TRACE_CBID_cuMemPoolCreate, cuMemPoolCreate_params{&pool, &properties},
         ++correlation);
    Call(kDriver, CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync, cuMemAllocAsync_params{&address, 64, nullptr},
         ++correlation);
    Call(kDriver, CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync, cuMemFreeAsync_params{address, nullptr},
         ++correlation);
    Call(kDriver, CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync,
         cuMemAllocFromPoolAsync_params{&address, 64, pool, nullptr}, ++correlation);
    Call(kDriver, CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2, cuMemFree_v2_params{address}, ++correlation);
    Call(kDriver, CUPTI_DRIVER_TRACE_CBID_cuMemPoolImportPointer,
         cuMemPoolImportPointer_params{&address, pool, nullptr}, ++correlation);
    Call(kDriver, CUPTI_DRIVER_TRACE_CBID_cuArrayCreate_v2, cuArrayCreate_v2_params{&array, &flat},
         ++correlation);
    Call(kDriver, CUPTI_DRIVER_TRACE_CBID_cuArrayDestroy, cuArrayDestroy_params{array}, ++correlation);
    Call(kDriver, CUPTI_DRIVER_TRACE_CBID_cuMipmappedArrayCreate,
         cuMipmappedArrayCreate_params{&mipmaps, &deep, 3}, ++correlation);
    Call(kDriver, CUPTI_DRIVER_TRACE_CBID_cuMipmappedArrayDestroy, cuMipmappedArrayDestroy_params{mipmaps},
         ++correlation);
    Call(kDriver, CUPTI_DRIVER_TRACE_CBID_cuGraphAddMemAllocNode,
         cuGraphAddMemAllocNode_params{nullptr, graph, nullptr, 0, &node}, ++correlation);
    Call(kDriver, CUPTI_DRIVER_TRACE_CBID_cuGraphAddMemFreeNode,
         cuGraphAddMemFreeNode_params{nullptr, graph, nullptr, 0, node.dptr}, ++correlation);
    Call(kDriver, CUPTI_DRIVER_TRACE_CBID_cuGraphInstantiateWithFlags,
         cuGraphInstantiateWithFlags_params{&exec, graph, 0}, ++correlation);
    Call(kDriver, CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch, cuGraphLaunch_params{exec, nullptr}, ++correlation);
    Call(kDriver, CUPTI_DRIVER_TRACE_CBID_cuGraphExecDestroy, cuGraphExecDestroy_params{exec}, ++correlation);
    Call(kDriver, CUPTI_DRIVER_TRACE_CBID_cuGraphDestroy, cuGraphDestroy_params{graph}, ++correlation);
    Call(kDriver, CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize, cuStreamSynchronize_params{nullptr},
         ++correlation);
    nvtx::NameThread(0, "main");
    nvtx::NameCategory(domain, 3, "category");
    nvtx::NameDevice(0, "device");
    nvtx::Push(domain, nvtx::PassedPayloads(domain, &payload, 1));
    nvtx::Pop(domain);
    tensor(&node, 4096, 4096, 8192, 1);
    tensor(&node, -4096, 0, 8192, 1);
  };
  events();
  Events();
  const uint64_t before = Allocations();
  for (int i = 0; i < 500; ++i) events();
  EXPECT_EQ(Allocations(), before);
  EXPECT_EQ(LossCount(wire::LossReason::kLossEventRingFull), 0u);
  const auto seen = Events();
  EXPECT_EQ(Only<TensorEvent>(seen).size(), 1000u);
  EXPECT_EQ(Only<AllocationEvent>(seen).size(), 500u * 9);
  EXPECT_EQ(Only<GraphMemoryNodeEvent>(seen).size(), 1000u);
  EXPECT_EQ(Only<RangePayloadEvent>(seen).size(), 500u);
  EXPECT_EQ(Only<CategoryNameEvent>(seen).size(), 500u);
}

}  // namespace
}  // namespace gpuprobe::injector
