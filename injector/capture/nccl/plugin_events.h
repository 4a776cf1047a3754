// Translates plugin events of any version into calls of plugin.h, and says which kind of event it was.
//
// Shared by two function tables: our own (plugin_entry.cc) and the ones around another plugin
// (plugin_chain.cc). Thread, allocation and failure: as in plugin.h.
#pragma once

#include <cstring>
#include <type_traits>

#include "injector/capture/nccl/plugin.h"
#include "injector/capture/nccl/plugin_abi.h"
#include "proto/nccl_operations.h"

namespace gpuprobe::injector::nccl {

// The smallest mask that makes NCCL report its calls, and from version 5 on also the application's: no proxy
// events, and no kernel channels, which cost a proxy operation for each plan.
inline constexpr int kPluginMask = static_cast<int>(nccl_plugin::kEventGroup | nccl_plugin::kEventCollective |
                                                    nccl_plugin::kEventPointToPoint);

enum class PluginEvent { kOther, kGroup, kApiGroup };

namespace plugin_events {

namespace abi = nccl_plugin;

template <size_t kCount>
constexpr const char* Entry(const char* const (&names)[kCount], uint8_t index) noexcept {
  return index < kCount ? names[index] : "";
}

constexpr bool AllAreKnown() noexcept {
  for (const char* name : abi::kFunctionNames) {
    if (gpuprobe::nccl::OperationOf(name) == gpuprobe::nccl::Operation::kUnknown) return false;
  }
  return true;
}
static_assert(AllAreKnown(), "the plugin's names are those of proto/nccl_operations.h");

inline const char* FunctionName(uint8_t function) noexcept { return Entry(abi::kFunctionNames, function); }
inline const char* FunctionName(const char* function) noexcept { return function == nullptr ? "" : function; }

inline uint8_t DataType(uint8_t datatype) noexcept { return datatype; }
inline uint8_t DataType(const char* datatype) noexcept {
  uint8_t index = 0;
  for (const char* name : abi::kDataTypeNames) {
    if (datatype != nullptr && strcmp(name, datatype) == 0) return index;
    ++index;
  }
  return UINT8_MAX;
}

inline const char* Algorithm(uint8_t algorithm) noexcept { return Entry(abi::kAlgorithmNames, algorithm); }
inline const char* Algorithm(const char* algorithm) noexcept { return algorithm; }
inline const char* Protocol(uint8_t protocol) noexcept { return Entry(abi::kProtocolNames, protocol); }
inline const char* Protocol(const char* protocol) noexcept { return protocol; }

template <typename Part>
uint64_t HashOf(const Part& part) noexcept {
  if constexpr (requires { part.comm_hash; }) return part.comm_hash;
  return 0;
}

template <typename Part>
int32_t RootOf(const Part& part, EntryPoint op) noexcept {
  if constexpr (requires { part.root; }) {
    if (op == EntryPoint::kBroadcast || op == EntryPoint::kReduce) return part.root;
  }
  return -1;
}

template <typename Part>
void TellApiCall(PluginCommunicator* comm, const Part& part) noexcept {
  const EntryPoint op = FindOperation(FunctionName(part.function));
  NoteApiCall(comm,
              {.op = op,
               .datatype = DataType(part.datatype),
               .root = RootOf(part, op),
               .peer = -1,
               .count = part.count},
              part.stream);
}

// Versions 5 and 6: what the application called, on its own thread and before anything is launched.
inline PluginEvent TellApi(PluginCommunicator* comm, const abi::Descriptor5& descriptor) noexcept {
  if (descriptor.type == abi::kEventGroupApi) {
    BeginApiGroup();
    return PluginEvent::kApiGroup;
  }
  if (descriptor.type == abi::kEventCollectiveApi) {
    TellApiCall(comm, descriptor.collective_api);
  } else if (descriptor.type == abi::kEventPointToPointApi) {
    TellApiCall(comm, descriptor.point_to_point_api);
  }
  return PluginEvent::kOther;
}

}  // namespace plugin_events

// An event has started.
template <typename Descriptor>
PluginEvent TellEvent(PluginCommunicator* comm, const Descriptor& descriptor) noexcept {
  using namespace plugin_events;
  if (descriptor.type == abi::kEventGroup) return PluginEvent::kGroup;
  if (descriptor.type == abi::kEventCollective) {
    const auto& part = descriptor.collective;
    const EntryPoint op = FindOperation(FunctionName(part.function));
    NotePluginCall(comm, {.op = op,
                          .datatype = DataType(part.datatype),
                          .root = RootOf(part, op),
                          .peer = -1,
                          .count = part.count,
                          .comm_hash = HashOf(part),
                          .rank = descriptor.rank,
                          .algorithm = Algorithm(part.algorithm),
                          .protocol = Protocol(part.protocol),
                          .channels = part.channels});
  } else if (descriptor.type == abi::kEventPointToPoint) {
    const auto& part = descriptor.point_to_point;
    NotePluginCall(comm, {.op = FindOperation(FunctionName(part.function)),
                          .datatype = DataType(part.datatype),
                          .root = -1,
                          .peer = part.peer,
                          .count = part.count,
                          .comm_hash = HashOf(part),
                          .rank = descriptor.rank});
  } else if constexpr (std::is_same_v<Descriptor, abi::Descriptor5>) {
    return TellApi(comm, descriptor);
  }
  return PluginEvent::kOther;
}

// An event of this kind has stopped, on the thread that it started on.
inline void TellStop(PluginEvent event) noexcept {
  if (event == PluginEvent::kGroup) EndPluginGroup();
  if (event == PluginEvent::kApiGroup) EndApiGroup();
}

// Handles of our own say only what kind of event stops. NCCL leaves an event's children out if it has none.
extern char plugin_markers[3];
inline void* MarkerOf(PluginEvent event) noexcept { return &plugin_markers[static_cast<int>(event)]; }
inline bool IsMarker(const void* handle) noexcept {
  return handle >= &plugin_markers[0] && handle <= &plugin_markers[2];
}
inline PluginEvent EventOf(const void* marker) noexcept {
  return static_cast<PluginEvent>(static_cast<const char*>(marker) - plugin_markers);
}

}  // namespace gpuprobe::injector::nccl
