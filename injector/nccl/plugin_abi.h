// What NCCL and its profiler plugins exchange: the parts that the probe reads, of all six versions.
//
// Separate because these layouts are NCCL's and never change: version 1 came with NCCL 2.23.4, 2 with 2.24.3,
// 3 with 2.26.2, 4 with 2.27.3, 5 with 2.28.3, 6 with 2.29.2. NCCL takes the highest version that it and the
// plugin have, by the symbol ncclProfiler_v<N>. Events that are not asked for are left out, and so is what
// follows the fields that are read.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuprobe::nccl_plugin {

// Bits of an event's `type` and of the activation mask.
inline constexpr uint64_t kEventGroup = 1u << 0;
inline constexpr uint64_t kEventCollective = 1u << 1;
inline constexpr uint64_t kEventPointToPoint = 1u << 2;

// Version 1 names operations and types by NCCL's internal numbers.
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

// Versions 2 and 3: by name, "AllReduce" and "ncclFloat32".
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

// From version 4 the communicator is told once, when it is made.
struct Collective4 {
  uint64_t sequence;
  const char* function;
  const void* send;
  void* receive;
  size_t count;
  int root;
  const char* datatype;
};
struct PointToPoint4 {
  const char* function;
  void* buffer;
  const char* datatype;
  size_t count;
  int peer;
};

// `Type` is uint8_t until version 4, uint64_t from 5.
template <typename Type, typename CollectivePart, typename PointToPointPart>
struct Descriptor {
  Type type;
  void* parent;
  int rank;
  union {
    CollectivePart collective;
    PointToPointPart point_to_point;
  };
};
using Descriptor1 = Descriptor<uint8_t, Collective1, PointToPoint1>;
using Descriptor2 = Descriptor<uint8_t, Collective2, PointToPoint2>;  // and 3
using Descriptor4 = Descriptor<uint8_t, Collective4, PointToPoint4>;
using Descriptor5 = Descriptor<uint64_t, Collective4, PointToPoint4>;  // and 6
static_assert(offsetof(Descriptor1, collective) == 24 && offsetof(Collective1, datatype) == 60);
static_assert(offsetof(PointToPoint1, count) == 40 && offsetof(PointToPoint1, peer) == 48);
static_assert(offsetof(Collective2, datatype) == 64 && offsetof(PointToPoint2, peer) == 48);
static_assert(offsetof(Descriptor5, collective) == 24 && offsetof(Collective4, datatype) == 48);
static_assert(offsetof(PointToPoint4, peer) == 32);

using LogFunction = void (*)(int level, unsigned long flags, const char* file, int line, const char* format,
                             ...);

// Answers are ncclResult_t; the state and its arguments are not read.
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
using Profiler2 = Profiler<Init1, Descriptor2>;  // and 3
using Profiler4 = Profiler<Init4, Descriptor4>;
using Profiler5 = Profiler<Init5, Descriptor5>;  // and 6

// ncclFunc_t as version 1 has it.
inline constexpr const char* kFunctionNames[] = {"Broadcast", "Reduce",   "AllGather", "ReduceScatter",
                                                 "AllReduce", "SendRecv", "Send",      "Recv"};
// By ncclDataType_t.
inline constexpr const char* kDataTypeNames[] = {
    "ncclInt8",    "ncclUint8",   "ncclInt32",   "ncclUint32",   "ncclInt64",      "ncclUint64",
    "ncclFloat16", "ncclFloat32", "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2"};

}  // namespace gpuprobe::nccl_plugin
