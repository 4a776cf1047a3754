// Prints what the probe and the simulated node assume of CUPTI's releases, one fact a line;
// test_real_cupti.py holds it against each release's headers and library.
//
//   size RELEASE NUMBER KIND BYTES     a record of the simulated node, where it knows the kind
//   field KIND FIELD OFFSET BYTES      what the decoder and the broker read
//   constant NAME VALUE                what the probe passes or compares
//   since RELEASE EXPRESSION VALUE     the same of newer releases, which these headers need not know
//   callback DOMAIN ID NAME            functions that the probe asks for
//   bound NAME                         functions that the probe takes if they are there
#include <cupti.h>

#include <cstddef>
#include <cstdio>
#include <string>

#include "injector/capture/cupti/callbacks.h"
#include "injector/capture/cupti/function_table.h"
#include "injector/capture/cupti/graph_calls.h"
#include "injector/capture/cupti/launches.h"
#include "injector/capture/cupti/main_thread_waits.h"
#include "injector/capture/cupti/many_subscribers.h"
#include "injector/capture/cupti/node_sources.h"
#include "injector/core/recording.h"
#include "injector/probe/parts.h"
#include "tests/sim/cupti/layout.h"
#include "tests/sim/cupti/names.h"
#include "tests/sim/cupti/v2.h"
#include "tests/sim/cupti/versions.h"

namespace {

namespace inj = gpuprobe::injector;
namespace sim = gpusim::cupti;

constexpr uint32_t kKindLimit = 80;

void PrintSizes() {
  const std::string names = sim::VersionNames() + ", ";
  for (size_t at = 0; at < names.size();) {
    const size_t comma = names.find(", ", at);
    const std::string name = names.substr(at, comma - at);
    at = comma + 2;
    const uint32_t version = sim::VersionNumber(name);
    for (uint32_t kind = 1; kind < kKindLimit; ++kind) {
      if (const size_t bytes = sim::RecordSize(kind, version); bytes != 0)
        std::printf("size %s %u %u %zu\n", name.c_str(), sim::ReportedVersion(version), kind, bytes);
    }
  }
}

#define FIELD(kind, record, name)                                                           \
  std::printf("field %d " #name " %zu %zu\n", kind, offsetof(CUpti_Activity##record, name), \
              sizeof(CUpti_Activity##record::name))

void PrintKernelFields() {
  for (const int kind : {CUPTI_ACTIVITY_KIND_KERNEL, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL}) {
    FIELD(kind, Kernel4, start);
    FIELD(kind, Kernel4, end);
    FIELD(kind, Kernel4, deviceId);
    FIELD(kind, Kernel4, contextId);
    FIELD(kind, Kernel4, streamId);
    FIELD(kind, Kernel4, gridX);
    FIELD(kind, Kernel4, gridY);
    FIELD(kind, Kernel4, gridZ);
    FIELD(kind, Kernel4, blockX);
    FIELD(kind, Kernel4, blockY);
    FIELD(kind, Kernel4, blockZ);
    FIELD(kind, Kernel4, staticSharedMemory);
    FIELD(kind, Kernel4, dynamicSharedMemory);
    FIELD(kind, Kernel4, registersPerThread);
    FIELD(kind, Kernel4, correlationId);
    FIELD(kind, Kernel4, name);
    FIELD(kind, Kernel5, graphNodeId);
  }
}

void PrintCopyFields() {
  FIELD(CUPTI_ACTIVITY_KIND_MEMCPY, Memcpy, copyKind);
  FIELD(CUPTI_ACTIVITY_KIND_MEMCPY, Memcpy, srcKind);
  FIELD(CUPTI_ACTIVITY_KIND_MEMCPY, Memcpy, dstKind);
  FIELD(CUPTI_ACTIVITY_KIND_MEMCPY, Memcpy, flags);
  FIELD(CUPTI_ACTIVITY_KIND_MEMCPY, Memcpy, bytes);
  FIELD(CUPTI_ACTIVITY_KIND_MEMCPY, Memcpy, start);
  FIELD(CUPTI_ACTIVITY_KIND_MEMCPY, Memcpy, end);
  FIELD(CUPTI_ACTIVITY_KIND_MEMCPY, Memcpy, deviceId);
  FIELD(CUPTI_ACTIVITY_KIND_MEMCPY, Memcpy, contextId);
  FIELD(CUPTI_ACTIVITY_KIND_MEMCPY, Memcpy, streamId);
  FIELD(CUPTI_ACTIVITY_KIND_MEMCPY, Memcpy, correlationId);
  FIELD(CUPTI_ACTIVITY_KIND_MEMCPY, Memcpy3, graphNodeId);
  FIELD(CUPTI_ACTIVITY_KIND_MEMCPY2, MemcpyPtoP, srcKind);
  FIELD(CUPTI_ACTIVITY_KIND_MEMCPY2, MemcpyPtoP, dstKind);
  FIELD(CUPTI_ACTIVITY_KIND_MEMCPY2, MemcpyPtoP, flags);
  FIELD(CUPTI_ACTIVITY_KIND_MEMCPY2, MemcpyPtoP, bytes);
  FIELD(CUPTI_ACTIVITY_KIND_MEMCPY2, MemcpyPtoP, start);
  FIELD(CUPTI_ACTIVITY_KIND_MEMCPY2, MemcpyPtoP, end);
  FIELD(CUPTI_ACTIVITY_KIND_MEMCPY2, MemcpyPtoP, deviceId);
  FIELD(CUPTI_ACTIVITY_KIND_MEMCPY2, MemcpyPtoP, contextId);
  FIELD(CUPTI_ACTIVITY_KIND_MEMCPY2, MemcpyPtoP, streamId);
  FIELD(CUPTI_ACTIVITY_KIND_MEMCPY2, MemcpyPtoP, srcDeviceId);
  FIELD(CUPTI_ACTIVITY_KIND_MEMCPY2, MemcpyPtoP, dstDeviceId);
  FIELD(CUPTI_ACTIVITY_KIND_MEMCPY2, MemcpyPtoP, correlationId);
  FIELD(CUPTI_ACTIVITY_KIND_MEMCPY2, MemcpyPtoP2, graphNodeId);
  FIELD(CUPTI_ACTIVITY_KIND_MEMSET, Memset, value);
  FIELD(CUPTI_ACTIVITY_KIND_MEMSET, Memset, bytes);
  FIELD(CUPTI_ACTIVITY_KIND_MEMSET, Memset, start);
  FIELD(CUPTI_ACTIVITY_KIND_MEMSET, Memset, end);
  FIELD(CUPTI_ACTIVITY_KIND_MEMSET, Memset, deviceId);
  FIELD(CUPTI_ACTIVITY_KIND_MEMSET, Memset, contextId);
  FIELD(CUPTI_ACTIVITY_KIND_MEMSET, Memset, streamId);
  FIELD(CUPTI_ACTIVITY_KIND_MEMSET, Memset, correlationId);
  FIELD(CUPTI_ACTIVITY_KIND_MEMSET, Memset, memoryKind);
  FIELD(CUPTI_ACTIVITY_KIND_MEMSET, Memset2, graphNodeId);
}

void PrintOtherFields() {
  FIELD(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, Synchronization, type);
  FIELD(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, Synchronization, start);
  FIELD(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, Synchronization, end);
  FIELD(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, Synchronization, correlationId);
  FIELD(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, Synchronization, contextId);
  FIELD(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, Synchronization, streamId);
  FIELD(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, Synchronization, cudaEventId);
  FIELD(CUPTI_ACTIVITY_KIND_GRAPH_TRACE, GraphTrace, correlationId);
  FIELD(CUPTI_ACTIVITY_KIND_GRAPH_TRACE, GraphTrace, start);
  FIELD(CUPTI_ACTIVITY_KIND_GRAPH_TRACE, GraphTrace, end);
  FIELD(CUPTI_ACTIVITY_KIND_GRAPH_TRACE, GraphTrace, deviceId);
  FIELD(CUPTI_ACTIVITY_KIND_GRAPH_TRACE, GraphTrace, graphId);
  FIELD(CUPTI_ACTIVITY_KIND_GRAPH_TRACE, GraphTrace, contextId);
  FIELD(CUPTI_ACTIVITY_KIND_GRAPH_TRACE, GraphTrace, streamId);
  FIELD(CUPTI_ACTIVITY_KIND_MEMORY2, Memory3, timestamp);
  FIELD(CUPTI_ACTIVITY_KIND_MEMORY2, Memory3, correlationId);
  FIELD(CUPTI_ACTIVITY_KIND_MEMORY2, Memory3, deviceId);
  FIELD(CUPTI_ACTIVITY_KIND_MEMORY2, Memory3, memoryPoolConfig.memoryPoolType);
  FIELD(CUPTI_ACTIVITY_KIND_MEMORY2, Memory3, memoryPoolConfig.address);
  FIELD(CUPTI_ACTIVITY_KIND_MEMORY2, Memory3, memoryPoolConfig.releaseThreshold);
  FIELD(CUPTI_ACTIVITY_KIND_MEMORY2, Memory3, memoryPoolConfig.utilizedSize);
  FIELD(CUPTI_ACTIVITY_KIND_MEMORY_POOL, MemoryPool2, memoryPoolOperationType);
  FIELD(CUPTI_ACTIVITY_KIND_MEMORY_POOL, MemoryPool2, memoryPoolType);
  FIELD(CUPTI_ACTIVITY_KIND_MEMORY_POOL, MemoryPool2, correlationId);
  FIELD(CUPTI_ACTIVITY_KIND_MEMORY_POOL, MemoryPool2, deviceId);
  FIELD(CUPTI_ACTIVITY_KIND_MEMORY_POOL, MemoryPool2, address);
  FIELD(CUPTI_ACTIVITY_KIND_MEMORY_POOL, MemoryPool2, size);
  FIELD(CUPTI_ACTIVITY_KIND_MEMORY_POOL, MemoryPool2, releaseThreshold);
  FIELD(CUPTI_ACTIVITY_KIND_MEMORY_POOL, MemoryPool2, timestamp);
  FIELD(CUPTI_ACTIVITY_KIND_MEMORY_POOL, MemoryPool2, utilizedSize);
  FIELD(CUPTI_ACTIVITY_KIND_DEVICE, Device2, globalMemoryBandwidth);
  FIELD(CUPTI_ACTIVITY_KIND_DEVICE, Device2, globalMemorySize);
  FIELD(CUPTI_ACTIVITY_KIND_DEVICE, Device2, numMultiprocessors);
  FIELD(CUPTI_ACTIVITY_KIND_DEVICE, Device2, computeCapabilityMajor);
  FIELD(CUPTI_ACTIVITY_KIND_DEVICE, Device2, computeCapabilityMinor);
  FIELD(CUPTI_ACTIVITY_KIND_DEVICE, Device2, id);
  FIELD(CUPTI_ACTIVITY_KIND_DEVICE, Device2, uuid);
  FIELD(CUPTI_ACTIVITY_KIND_DEVICE, Device2, name);
}
#undef FIELD

#define CONSTANT(name) std::printf("constant " #name " %lld\n", static_cast<long long>(name))

void PrintConstants() {
  CONSTANT(CUPTI_ERROR_INVALID_PARAMETER);
  CONSTANT(CUPTI_ERROR_MAX_LIMIT_REACHED);
  CONSTANT(CUPTI_ERROR_INVALID_KIND);
  CONSTANT(CUPTI_ERROR_NOT_COMPATIBLE);
  CONSTANT(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
  CONSTANT(CUPTI_CB_DOMAIN_DRIVER_API);
  CONSTANT(CUPTI_CB_DOMAIN_RUNTIME_API);
  CONSTANT(CUPTI_CB_DOMAIN_RESOURCE);
  CONSTANT(CUPTI_API_ENTER);
  CONSTANT(CUPTI_API_EXIT);
  CONSTANT(CUPTI_CBID_RESOURCE_CU_INIT_FINISHED);
  CONSTANT(CUPTI_CBID_RESOURCE_CONTEXT_CREATED);
  CONSTANT(CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING);
  CONSTANT(CUPTI_CBID_RESOURCE_STREAM_CREATED);
  CONSTANT(CUPTI_CBID_RESOURCE_MODULE_LOADED);
  CONSTANT(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATE_STARTING);
  CONSTANT(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED);
  CONSTANT(CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED);
  CONSTANT(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER);
  CONSTANT(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  CONSTANT(CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC);
  CONSTANT(CUPTI_ACTIVITY_KIND_MEMCPY);
  CONSTANT(CUPTI_ACTIVITY_KIND_MEMCPY2);
  CONSTANT(CUPTI_ACTIVITY_KIND_MEMSET);
  CONSTANT(CUPTI_ACTIVITY_KIND_KERNEL);
  CONSTANT(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  CONSTANT(CUPTI_ACTIVITY_KIND_DEVICE);
  CONSTANT(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
  CONSTANT(CUPTI_ACTIVITY_KIND_MEMORY2);
  CONSTANT(CUPTI_ACTIVITY_KIND_MEMORY_POOL);
  CONSTANT(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
  CONSTANT(CUPTI_ACTIVITY_MEMCPY_KIND_HTOD);
  CONSTANT(CUPTI_ACTIVITY_MEMCPY_KIND_DTOH);
  CONSTANT(CUPTI_ACTIVITY_MEMCPY_KIND_DTOD);
  CONSTANT(CUPTI_ACTIVITY_MEMCPY_KIND_HTOH);
  CONSTANT(CUPTI_ACTIVITY_MEMCPY_KIND_PTOP);
  CONSTANT(CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE);
  CONSTANT(CUPTI_ACTIVITY_MEMORY_KIND_PINNED);
  CONSTANT(CUPTI_ACTIVITY_MEMORY_KIND_DEVICE);
  CONSTANT(CUPTI_ACTIVITY_MEMORY_KIND_MANAGED);
  CONSTANT(CUPTI_ACTIVITY_MEMORY_KIND_ARRAY);
  CONSTANT(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE);
  CONSTANT(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT);
  CONSTANT(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE);
  CONSTANT(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE);
  CONSTANT(CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL);
  CONSTANT(CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_CREATED);
  CONSTANT(CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_DESTROYED);
  CONSTANT(CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_TRIMMED);
}
#undef CONSTANT

void PrintNewer() {
  const auto since = [](const char* release, const char* expression, auto value) {
    std::printf("since %s %s %lld\n", release, expression, static_cast<long long>(value));
  };
  since("13.0", "offsetof(CUpti_SubscriberParams,subscriberName)", offsetof(inj::v2::SubscriberParams, name));
  since("13.0", "offsetof(CUpti_SubscriberParams,oldSubscriberName)",
        offsetof(inj::v2::SubscriberParams, old_name));
  since("13.0", "offsetof(CUpti_SubscriberParams,oldSubscriberSize)",
        offsetof(inj::v2::SubscriberParams, old_name_bytes));
  since("13.2", "offsetof(CUpti_SubscriberParams,allowMultipleSubscribers)",
        offsetof(inj::v2::SubscriberParams, allow_others));
  since("13.2", "sizeof(CUpti_SubscriberParams)", sizeof(inj::v2::SubscriberParams));
  since("13.3", "CUPTI_ACTIVITY_ATTR_MULTIPLE_SUBSCRIBER_STATE", sim::kManySubscribersState);
  since("13.4", "CUPTI_ACTIVITY_ATTR_THREAD_ID_TYPE", inj::v2::kAttributeThreadIdType);
  since("13.4", "CUPTI_ACTIVITY_ATTR_TIMESTAMP_CALLBACK", inj::v2::kAttributeClock);
  since("13.4", "offsetof(CUpti_ActivityKernel13,sourceGraphNodeId)", inj::NodeSources::kInKernel);
  since("13.4", "offsetof(CUpti_ActivityMemcpy7,sourceGraphNodeId)", inj::NodeSources::kInCopy);
}

void PrintCallbacks() {
  inj::recording.kinds = UINT32_MAX;
  inj::StartParts();
  inj::AddLaunchHooks();
  inj::AddGraphHooks();
  inj::AddWaitHooks();
  for (const CUpti_CallbackDomain domain : {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_CB_DOMAIN_RUNTIME_API}) {
    for (uint32_t cbid = 1; cbid < inj::kMaxCallbackId; ++cbid) {
      if (inj::WantsApi(domain, cbid))
        std::printf("callback %d %u %s\n", domain, cbid, sim::CallbackName(domain, cbid));
    }
  }
}

}  // namespace

int main() {
  PrintSizes();
  PrintKernelFields();
  PrintCopyFields();
  PrintOtherFields();
  PrintConstants();
  PrintNewer();
  PrintCallbacks();
#define GPUPROBE_PRINT(name) std::printf("bound cupti" #name "\n");
  GPUPROBE_CUPTI_FUNCTIONS(GPUPROBE_PRINT)
#undef GPUPROBE_PRINT
#define GPUPROBE_PRINT(name, parameters) std::printf("bound cupti" #name "\n");
  GPUPROBE_CUPTI_V2_FUNCTIONS(GPUPROBE_PRINT)
#undef GPUPROBE_PRINT
  return 0;
}
