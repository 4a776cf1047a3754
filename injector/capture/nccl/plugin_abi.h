// NCCL's profiler plugin interface in all six versions: events of groups, calls and launches.
//
// These layouts are NCCL's and never change: version 1 came with NCCL 2.23.4, 2 with 2.24.3, 3 with 2.26.2,
// 4 with 2.27.3, 5 with 2.28.3, 6 with 2.29.2. NCCL takes the highest version that it and the plugin have, by
// the symbol ncclProfiler_v<N>. The proxy's events, which the probe does not ask for, have no layout here:
// only their type, parent and rank are ever read.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuprobe::nccl_plugin {

// Bits of an event's `type` and of the activation mask.
inline constexpr uint64_t kEventGroup = 1u << 0;
inline constexpr uint64_t kEventCollective = 1u << 1;
inline constexpr uint64_t kEventPointToPoint = 1u << 2;
inline constexpr uint64_t kEventProxyOp = 1u << 3;
inline constexpr uint64_t kEventProxyStep = 1u << 4;
inline constexpr uint64_t kEventKernelChannel = 1u << 6;
inline constexpr uint64_t kEventNetPlugin = 1u << 7;
// From version 5: what the application called, on its thread.
inline constexpr uint64_t kEventGroupApi = 1u << 8;
inline constexpr uint64_t kEventCollectiveApi = 1u << 9;
inline constexpr uint64_t kEventPointToPointApi = 1u << 10;
inline constexpr uint64_t kEventKernelLaunch = 1u << 11;

// The events that NCCL reports to a plugin that asked for `mask`: each kind, and those that enclose it.
// `nccl` is the newest version of the interface that this NCCL has. A kind that is not named here is reported
// if it was asked for.
inline constexpr uint64_t kInsideCollectives =
    kEventProxyOp | kEventProxyStep | kEventKernelChannel | kEventNetPlugin;
constexpr uint64_t ToldFor(uint64_t mask, int nccl) noexcept {
  const auto asks = [mask](uint64_t kinds) noexcept { return (mask & kinds) != 0; };
  constexpr uint64_t kNamed = kEventGroup | kEventCollective | kEventPointToPoint | kEventGroupApi |
                              kEventCollectiveApi | kEventPointToPointApi;
  uint64_t told = mask & ~kNamed;
  constexpr uint64_t kCalls = kEventCollective | kEventPointToPoint | kInsideCollectives;
  if (asks(nccl < 3 ? kCalls : kCalls | kEventGroup)) told |= kEventGroup;
  if (asks(kEventCollective | kInsideCollectives)) told |= kEventCollective;
  if (asks(kEventPointToPoint | kInsideCollectives)) told |= kEventPointToPoint;
  if (nccl < 5) return told;
  constexpr uint64_t kCopyEngine = 7u << 12;  // version 6: a collective's copies, synchronisation and batches
  const uint64_t copies = nccl < 6 ? 0 : kCopyEngine;
  if (asks(kNamed | kEventKernelLaunch | kInsideCollectives | copies)) told |= kEventGroupApi;
  if (asks(kEventCollectiveApi | kEventCollective | kInsideCollectives | copies)) told |= kEventCollectiveApi;
  if (asks(kEventPointToPointApi | kEventPointToPoint | kInsideCollectives)) told |= kEventPointToPointApi;
  return told;
}

// Version 1 names operations, types, algorithms and protocols by NCCL's internal numbers.
struct Collective1 {
  const char* comm_name;
  uint64_t comm_hash;
  uint64_t sequence;  // of this operation on this communicator
  uint8_t function;
  const void* send;
  void* receive;
  size_t count;
  int root;
  uint8_t datatype;
  uint32_t reduction;
  size_t traffic_bytes;
  uint8_t channels;
  uint8_t warps;
  uint8_t algorithm;
  uint8_t protocol;
  int is_collnet;
  int is_nvls;
};
struct PointToPoint1 {
  const char* comm_name;
  uint64_t comm_hash;
  uint8_t function;
  void* buffer;
  uint8_t datatype;
  size_t count;
  int peer;
};

// Versions 2 and 3: by name, "AllReduce", "ncclFloat32", "RING", "LL".
struct Collective2 {
  const char* comm_name;
  uint64_t comm_hash;
  uint64_t sequence;
  const char* function;
  const void* send;
  void* receive;
  size_t count;
  int root;
  const char* datatype;
  size_t traffic_bytes;
  uint8_t channels;
  uint8_t warps;
  const char* algorithm;
  const char* protocol;
};
struct Collective3 {
  const char* comm_name;
  uint64_t comm_hash;
  uint64_t sequence;
  const char* function;
  const void* send;
  void* receive;
  size_t count;
  int root;
  const char* datatype;
  uint8_t channels;
  uint8_t warps;
  const char* algorithm;
  const char* protocol;
};
struct PointToPoint2 {
  const char* comm_name;
  uint64_t comm_hash;
  const char* function;
  void* buffer;
  const char* datatype;
  size_t count;
  int peer;
};

// From version 4 on the communicator is reported once, when it is made.
struct Collective4 {
  uint64_t sequence;
  const char* function;
  const void* send;
  void* receive;
  size_t count;
  int root;
  const char* datatype;
  uint8_t channels;
  uint8_t warps;
  const char* algorithm;
  const char* protocol;
};
struct PointToPoint4 {
  const char* function;
  void* buffer;
  const char* datatype;
  size_t count;
  int peer;
  uint8_t channels;
};

// From version 5 on a call's parent is the application's call; its group is a separate member.
struct Collective5 {
  uint64_t sequence;
  const char* function;
  const void* send;
  void* receive;
  size_t count;
  int root;
  const char* datatype;
  uint8_t channels;
  uint8_t warps;
  const char* algorithm;
  const char* protocol;
  void* parent_group;
};
struct PointToPoint5 {
  const char* function;
  void* buffer;
  const char* datatype;
  size_t count;
  int peer;
  uint8_t channels;
  void* parent_group;
};
struct GroupApi {
  bool captured;
  int depth;
};
struct CollectiveApi {
  const char* function;
  size_t count;
  const char* datatype;
  int root;
  void* stream;
  bool captured;
};
struct PointToPointApi {
  const char* function;
  size_t count;
  const char* datatype;
  void* stream;
  bool captured;
};
struct KernelLaunch {
  void* stream;
};
// A channel of a call's kernel has begun. From version 4 on with the GPU's clock; its end comes as a state.
struct KernelChannel {
  uint8_t channel;
  uint64_t start_ns;
};
inline constexpr int kChannelStops = 22;  // ncclProfilerEventState_t, from version 4 on

template <typename CollectivePart, typename PointToPointPart>
struct Descriptor {
  uint8_t type;
  void* parent;
  int rank;
  union {
    CollectivePart collective;
    PointToPointPart point_to_point;
    KernelChannel channel;
  };
};
using Descriptor1 = Descriptor<Collective1, PointToPoint1>;
using Descriptor2 = Descriptor<Collective2, PointToPoint2>;
using Descriptor3 = Descriptor<Collective3, PointToPoint2>;
using Descriptor4 = Descriptor<Collective4, PointToPoint4>;
struct Descriptor5 {  // and 6
  uint64_t type;
  void* parent;
  int rank;
  union {
    GroupApi group_api;
    CollectiveApi collective_api;
    PointToPointApi point_to_point_api;
    KernelLaunch kernel_launch;
    KernelChannel channel;
    Collective5 collective;
    PointToPoint5 point_to_point;
  };
};
static_assert(offsetof(Descriptor1, collective) == 24 && offsetof(Collective1, datatype) == 60);
static_assert(offsetof(Collective1, channels) == 80 && offsetof(Collective1, protocol) == 83);
static_assert(offsetof(PointToPoint1, count) == 40 && offsetof(PointToPoint1, peer) == 48);
static_assert(offsetof(Collective2, datatype) == 64 && offsetof(PointToPoint2, peer) == 48);
static_assert(offsetof(Collective2, channels) == 80 && offsetof(Collective3, channels) == 72);
static_assert(offsetof(Descriptor5, collective) == 24 && offsetof(Collective4, datatype) == 48);
static_assert(offsetof(Collective4, channels) == 56 && offsetof(Collective4, algorithm) == 64);
static_assert(offsetof(PointToPoint4, peer) == 32 && offsetof(PointToPoint4, channels) == 36);
static_assert(offsetof(Collective5, algorithm) == 64 && offsetof(Collective5, parent_group) == 80);
static_assert(offsetof(PointToPoint5, channels) == 36 && offsetof(PointToPoint5, parent_group) == 40);

using LogFunction = void (*)(int level, unsigned long flags, const char* file, int line, const char* format,
                             ...);

static_assert(offsetof(Descriptor4, channel) == 24 && offsetof(Descriptor5, channel) == 24);
static_assert(offsetof(KernelChannel, start_ns) == 8);

// Answers are ncclResult_t. Of states, only that of a channel's end is read: its arguments begin with the
// GPU's time.
template <typename InitFunction, typename DescriptorType>
struct Profiler {
  const char* name;
  InitFunction init;
  int (*start_event)(void* context, void** handle, DescriptorType* descriptor);
  int (*stop_event)(void* handle);
  int (*record_event_state)(void* handle, int state, void* arguments);
  int (*finalize)(void* context);
};
using Init1 = int (*)(void** context, int* mask);
using Init4 = int (*)(void** context, int* mask, const char* name, uint64_t hash, int nodes, int ranks,
                      int rank, LogFunction log);
using Init5 = int (*)(void** context, uint64_t hash, int* mask, const char* name, int nodes, int ranks,
                      int rank, LogFunction log);
using Profiler1 = Profiler<Init1, Descriptor1>;
using Profiler2 = Profiler<Init1, Descriptor2>;
using Profiler3 = Profiler<Init1, Descriptor3>;
using Profiler4 = Profiler<Init4, Descriptor4>;
using Profiler5 = Profiler<Init5, Descriptor5>;  // and 6

// ncclFunc_t as version 1 has it.
inline constexpr const char* kFunctionNames[] = {"Broadcast", "Reduce",   "AllGather", "ReduceScatter",
                                                 "AllReduce", "SendRecv", "Send",      "Recv"};
// By ncclDataType_t.
inline constexpr const char* kDataTypeNames[] = {
    "ncclInt8",    "ncclUint8",   "ncclInt32",   "ncclUint32",   "ncclInt64",      "ncclUint64",
    "ncclFloat16", "ncclFloat32", "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2"};
// By NCCL's numbers for them.
inline constexpr const char* kAlgorithmNames[] = {
    "TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"};
inline constexpr const char* kProtocolNames[] = {"LL", "LL128", "SIMPLE"};

}  // namespace gpuprobe::nccl_plugin
