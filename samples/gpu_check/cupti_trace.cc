// Prints every CUPTI callback and every record of a program, a line each, to the file that CUPTI_TRACE names:
// what CUPTI says, and in which order, without the probe. Loaded by CUDA_INJECTION64_PATH.
//
//   1763893200123456789 4711 RT ENTER cudaMalloc cbid=20 correlation=3
//   wall clock in ns, thread, what

#include <cupti.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "samples/gpu_check/cupti_records.h"

namespace {

using namespace gpuprobe::samples;

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                         CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMCPY2,
                                         CUPTI_ACTIVITY_KIND_MEMSET,
                                         CUPTI_ACTIVITY_KIND_DEVICE,
                                         CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,
                                         CUPTI_ACTIVITY_KIND_MEMORY2,
                                         CUPTI_ACTIVITY_KIND_MEMORY_POOL};
constexpr CUpti_CallbackDomain kDomains[] = {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_CB_DOMAIN_RUNTIME_API,
                                             CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CB_DOMAIN_SYNCHRONIZE};

int output = STDERR_FILENO;

uint64_t Now() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

// One write a line, so that lines of several threads do not mix.
__attribute__((format(printf, 1, 2))) void Line(const char* format, ...) {
  char line[512];
  constexpr int kLongest = sizeof(line) - 1;  // and the line's end
  int length = std::snprintf(line, sizeof(line), "%" PRIu64 " %ld ", Now(), syscall(SYS_gettid));
  va_list arguments;
  va_start(arguments, format);
  length += std::vsnprintf(line + length, sizeof(line) - static_cast<size_t>(length), format, arguments);
  va_end(arguments);
  if (length > kLongest) length = kLongest;
  line[length] = '\n';
  if (write(output, line, static_cast<size_t>(length) + 1) < 0) output = STDERR_FILENO;
}

const char* ResourceEvent(CUpti_CallbackId id) {
  static const char* const kNames[] = {"INVALID",
                                       "CONTEXT_CREATED",
                                       "CONTEXT_DESTROY_STARTING",
                                       "STREAM_CREATED",
                                       "STREAM_DESTROY_STARTING",
                                       "CU_INIT_FINISHED",
                                       "MODULE_LOADED",
                                       "MODULE_UNLOAD_STARTING",
                                       "MODULE_PROFILED",
                                       "GRAPH_CREATED",
                                       "GRAPH_DESTROY_STARTING",
                                       "GRAPH_CLONED",
                                       "GRAPHNODE_CREATE_STARTING",
                                       "GRAPHNODE_CREATED",
                                       "GRAPHNODE_DESTROY_STARTING",
                                       "GRAPHNODE_DEPENDENCY_CREATED",
                                       "GRAPHNODE_DEPENDENCY_DESTROY_STARTING",
                                       "GRAPHEXEC_CREATE_STARTING",
                                       "GRAPHEXEC_CREATED",
                                       "GRAPHEXEC_DESTROY_STARTING",
                                       "GRAPHNODE_CLONED"};
  return id < sizeof(kNames) / sizeof(kNames[0]) ? kNames[id] : "unknown";
}

bool IsGraphEvent(CUpti_CallbackId id) {
  return id >= CUPTI_CBID_RESOURCE_GRAPH_CREATED && id <= CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED;
}

void PrintGraphEvent(CUpti_CallbackId id, const CUpti_GraphData& data) {
  uint32_t graph = 0;
  uint64_t node = 0;
  uint64_t original = 0;
  const bool cloned = id == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED;
  if (data.graph != nullptr) cuptiGetGraphId(data.graph, &graph);
  if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED || cloned) cuptiGetGraphNodeId(data.node, &node);
  if (cloned) cuptiGetGraphNodeId(data.originalNode, &original);
  Line("RESOURCE %s graph=%u node=%" PRIu64 " original=%" PRIu64 " type=%d", ResourceEvent(id), graph, node,
       original, static_cast<int>(data.nodeType));
}

void PrintResource(CUpti_CallbackId id, const CUpti_ResourceData* data) {
  if (data != nullptr && IsGraphEvent(id) && data->resourceDescriptor != nullptr)
    return PrintGraphEvent(id, *static_cast<const CUpti_GraphData*>(data->resourceDescriptor));
  if (data != nullptr && id == CUPTI_CBID_RESOURCE_STREAM_CREATED) {
    uint32_t context = 0;
    uint32_t stream = 0;
    const CUptiResult asked_context = cuptiGetContextId(data->context, &context);
    const CUptiResult asked_stream =
        cuptiGetStreamIdEx(data->context, data->resourceHandle.stream, 0, &stream);
    return Line("RESOURCE %s context=%u stream=%u results=%d,%d", ResourceEvent(id), context, stream,
                static_cast<int>(asked_context), static_cast<int>(asked_stream));
  }
  Line("RESOURCE %s", ResourceEvent(id));
}

void CUPTIAPI OnCallback(void* /*data*/, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                         const void* about) {
  if (domain == CUPTI_CB_DOMAIN_RESOURCE)
    return PrintResource(id, static_cast<const CUpti_ResourceData*>(about));
  if (domain == CUPTI_CB_DOMAIN_SYNCHRONIZE) return Line("SYNCHRONIZE %u", id);
  const auto& call = *static_cast<const CUpti_CallbackData*>(about);
  Line("%s %s %s cbid=%u correlation=%u", domain == CUPTI_CB_DOMAIN_DRIVER_API ? "DRV" : "RT",
       call.callbackSite == CUPTI_API_ENTER ? "ENTER" : "EXIT", call.functionName, id, call.correlationId);
}

void CUPTIAPI OnRequested(uint8_t** buffer, size_t* bytes, size_t* records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(4096, kBufferBytes));
  std::memset(*buffer, 0, kBufferBytes);
  *bytes = kBufferBytes;
  *records = 0;
  Line("BUFFER requested");
}

void PrintKernel(const KernelRecord& kernel) {
  Line("RECORD kernel correlation=%u start=%" PRIu64 " end=%" PRIu64 " stream=%u node=%" PRIu64 " %.80s",
       kernel.correlationId, kernel.start, kernel.end, kernel.streamId, kernel.graphNodeId,
       kernel.name != nullptr ? kernel.name : "");
}

void PrintRecord(const CUpti_Activity* record) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return PrintKernel(As<KernelRecord>(record));
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto& copy = As<CopyRecord>(record);
      return Line("RECORD memcpy correlation=%u start=%" PRIu64 " end=%" PRIu64 " bytes=%" PRIu64
                  " node=%" PRIu64,
                  copy.correlationId, copy.start, copy.end, copy.bytes, copy.graphNodeId);
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto& fill = As<MemsetRecord>(record);
      return Line("RECORD memset correlation=%u start=%" PRIu64 " end=%" PRIu64 " bytes=%" PRIu64
                  " node=%" PRIu64,
                  fill.correlationId, fill.start, fill.end, fill.bytes, fill.graphNodeId);
    }
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: {
      const auto& wait = As<SynchronizationRecord>(record);
      return Line("RECORD synchronization correlation=%u start=%" PRIu64 " end=%" PRIu64 " type=%d",
                  wait.correlationId, wait.start, wait.end, static_cast<int>(wait.type));
    }
    case CUPTI_ACTIVITY_KIND_MEMORY2: {
      const auto& memory = As<MemoryRecord>(record);
      return Line("RECORD memory correlation=%u operation=%d memory=%d bytes=%" PRIu64, memory.correlationId,
                  static_cast<int>(memory.memoryOperationType), static_cast<int>(memory.memoryKind),
                  memory.bytes);
    }
    default:
      return Line("RECORD kind=%d", static_cast<int>(record->kind));
  }
}

void CUPTIAPI OnCompleted(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  Line("BUFFER completed valid=%zu", valid);
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) PrintRecord(record);
  std::free(buffer);
}

void FlushAtExit() {
  Line("EXIT");
  cuptiActivityFlushAll(1);
  Line("END");
}

}  // namespace

extern "C" int InitializeInjection() {
  if (const char* path = std::getenv("CUPTI_TRACE"); path != nullptr)
    output = open(path, O_CREAT | O_WRONLY | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
  CUpti_SubscriberHandle subscriber = nullptr;
  uint32_t version = 0;
  uint8_t yes = 1;
  size_t bytes = sizeof(yes);
  cuptiGetVersion(&version);
  Line("VERSION %u", version);
  const CUptiResult subscribed = cuptiSubscribe(&subscriber, OnCallback, nullptr);
  Line("SUBSCRIBED %d", static_cast<int>(subscribed));
  cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &bytes, &yes);
  cuptiActivityRegisterCallbacks(OnRequested, OnCompleted);
  for (const CUpti_ActivityKind kind : kKinds)
    Line("ENABLED kind=%d result=%d", static_cast<int>(kind), static_cast<int>(cuptiActivityEnable(kind)));
  for (const CUpti_CallbackDomain domain : kDomains) cuptiEnableDomain(1, subscriber, domain);
  std::atexit(FlushAtExit);
  return 1;
}
