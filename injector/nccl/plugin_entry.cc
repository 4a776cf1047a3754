// The exported ncclProfiler_v1 to _v6: each version's way of telling a call, in the words of plugin.h.
#include <cstring>
#include <type_traits>

#include "injector/lifecycle.h"
#include "injector/nccl/plugin.h"
#include "injector/nccl/plugin_abi.h"

namespace {

namespace abi = gpuprobe::nccl_plugin;
using gpuprobe::injector::CurrentLifecycle;
using gpuprobe::injector::LifecycleState;
using gpuprobe::injector::nccl::BeginApiGroup;
using gpuprobe::injector::nccl::ClosePluginCommunicator;
using gpuprobe::injector::nccl::EndApiGroup;
using gpuprobe::injector::nccl::EndPluginGroup;
using gpuprobe::injector::nccl::EntryPoint;
using gpuprobe::injector::nccl::FindOperation;
using gpuprobe::injector::nccl::NoteApiCall;
using gpuprobe::injector::nccl::NotePluginCall;
using gpuprobe::injector::nccl::OpenPluginCommunicator;
using gpuprobe::injector::nccl::PluginCommunicator;

constexpr int kSuccess = 0;

// The least that makes NCCL tell the calls, and from version 5 on also what the application called: no proxy
// events, and no kernel channels, which cost a proxy operation for each plan.
constexpr int kMask = static_cast<int>(abi::kEventGroup | abi::kEventCollective | abi::kEventPointToPoint);

// Handles say only what kind of event stops. NCCL leaves an event's children out if it has none.
char group_handle;
char api_group_handle;
char call_handle;

template <size_t kCount>
constexpr const char* Entry(const char* const (&names)[kCount], uint8_t index) noexcept {
  return index < kCount ? names[index] : "";
}

const char* FunctionName(uint8_t function) noexcept { return Entry(abi::kFunctionNames, function); }
const char* FunctionName(const char* function) noexcept { return function == nullptr ? "" : function; }

uint8_t DataType(uint8_t datatype) noexcept { return datatype; }
uint8_t DataType(const char* datatype) noexcept {
  uint8_t index = 0;
  for (const char* name : abi::kDataTypeNames) {
    if (datatype != nullptr && strcmp(name, datatype) == 0) return index;
    ++index;
  }
  return UINT8_MAX;
}

template <typename Part>
uint64_t HashOf(const Part& part) noexcept {
  if constexpr (requires { part.comm_hash; }) return part.comm_hash;
  return 0;
}

bool HasRoot(EntryPoint op) noexcept { return op == EntryPoint::kBroadcast || op == EntryPoint::kReduce; }

// Versions 5 and 6: what the application called, on its own thread and before anything is launched.
void NoteApiEvent(PluginCommunicator* comm, const abi::Descriptor5& descriptor) noexcept {
  if (descriptor.type == abi::kEventGroupApi) {
    BeginApiGroup();
  } else if (descriptor.type == abi::kEventCollectiveApi) {
    const abi::CollectiveApi& part = descriptor.collective_api;
    const EntryPoint op = FindOperation(FunctionName(part.function));
    NoteApiCall(comm, {.op = op,
                       .datatype = DataType(part.datatype),
                       .root = HasRoot(op) ? part.root : -1,
                       .count = part.count,
                       .stream = part.stream});
  } else if (descriptor.type == abi::kEventPointToPointApi) {
    const abi::PointToPointApi& part = descriptor.point_to_point_api;
    NoteApiCall(comm, {.op = FindOperation(FunctionName(part.function)),
                       .datatype = DataType(part.datatype),
                       .root = -1,
                       .count = part.count,
                       .stream = part.stream});
  }
}

template <typename Descriptor>
int StartEvent(void* context, void** handle, Descriptor* descriptor) noexcept {
  auto* comm = static_cast<PluginCommunicator*>(context);
  *handle = &call_handle;
  if (descriptor->type == abi::kEventGroup) {
    *handle = &group_handle;
  } else if (descriptor->type == abi::kEventCollective) {
    const auto& part = descriptor->collective;
    const EntryPoint op = FindOperation(FunctionName(part.function));
    NotePluginCall(comm, {.op = op,
                          .datatype = DataType(part.datatype),
                          .root = HasRoot(op) ? part.root : -1,
                          .peer = -1,
                          .count = part.count,
                          .comm_hash = HashOf(part),
                          .rank = descriptor->rank});
  } else if (descriptor->type == abi::kEventPointToPoint) {
    const auto& part = descriptor->point_to_point;
    NotePluginCall(comm, {.op = FindOperation(FunctionName(part.function)),
                          .datatype = DataType(part.datatype),
                          .root = -1,
                          .peer = part.peer,
                          .count = part.count,
                          .comm_hash = HashOf(part),
                          .rank = descriptor->rank});
  } else if constexpr (std::is_same_v<Descriptor, abi::Descriptor5>) {
    if (descriptor->type == abi::kEventGroupApi) *handle = &api_group_handle;
    NoteApiEvent(comm, *descriptor);
  }
  return kSuccess;
}

int StopEvent(void* handle) noexcept {
  if (handle == &group_handle) EndPluginGroup();
  if (handle == &api_group_handle) EndApiGroup();
  return kSuccess;
}

int RecordEventState(void* /*handle*/, int /*state*/, void* /*arguments*/) noexcept { return kSuccess; }

int Finalize(void* context) noexcept {
  ClosePluginCommunicator(static_cast<PluginCommunicator*>(context));
  return kSuccess;
}

int Open(void** context, int* mask, uint64_t hash, int rank, int ranks) noexcept {
  *context = OpenPluginCommunicator(hash, rank, ranks);
  // One mask serves all communicators: a place that was not to be had must not silence the others.
  const bool live = CurrentLifecycle() == LifecycleState::kLive;
  *mask = live ? kMask : 0;
  return kSuccess;
}

int OpenVersion1(void** context, int* mask) noexcept { return Open(context, mask, 0, -1, 0); }

int OpenVersion4(void** context, int* mask, const char* /*name*/, uint64_t hash, int /*nodes*/, int ranks,
                 int rank, abi::LogFunction /*log*/) noexcept {
  return Open(context, mask, hash, rank, ranks);
}

int OpenVersion5(void** context, uint64_t hash, int* mask, const char* /*name*/, int /*nodes*/, int ranks,
                 int rank, abi::LogFunction /*log*/) noexcept {
  return Open(context, mask, hash, rank, ranks);
}

template <typename ProfilerType, typename Descriptor, typename Init>
constexpr ProfilerType Table(Init init) noexcept {
  return {"gpuprobe", init, StartEvent<Descriptor>, StopEvent, RecordEventState, Finalize};
}

}  // namespace

// The names are NCCL's. NOLINTBEGIN(readability-identifier-naming)
extern "C" {
#define GPUPROBE_PLUGIN extern __attribute__((visibility("default")))
GPUPROBE_PLUGIN const abi::Profiler1 ncclProfiler_v1;
GPUPROBE_PLUGIN const abi::Profiler2 ncclProfiler_v2;
GPUPROBE_PLUGIN const abi::Profiler3 ncclProfiler_v3;
GPUPROBE_PLUGIN const abi::Profiler4 ncclProfiler_v4;
GPUPROBE_PLUGIN const abi::Profiler5 ncclProfiler_v5;
GPUPROBE_PLUGIN const abi::Profiler5 ncclProfiler_v6;
#undef GPUPROBE_PLUGIN
constinit const abi::Profiler1 ncclProfiler_v1 = Table<abi::Profiler1, abi::Descriptor1>(OpenVersion1);
constinit const abi::Profiler2 ncclProfiler_v2 = Table<abi::Profiler2, abi::Descriptor2>(OpenVersion1);
constinit const abi::Profiler3 ncclProfiler_v3 = Table<abi::Profiler3, abi::Descriptor3>(OpenVersion1);
constinit const abi::Profiler4 ncclProfiler_v4 = Table<abi::Profiler4, abi::Descriptor4>(OpenVersion4);
constinit const abi::Profiler5 ncclProfiler_v5 = Table<abi::Profiler5, abi::Descriptor5>(OpenVersion5);
constinit const abi::Profiler5 ncclProfiler_v6 = Table<abi::Profiler5, abi::Descriptor5>(OpenVersion5);
}
// NOLINTEND(readability-identifier-naming)
