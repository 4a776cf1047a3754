// A profiler plugin of somebody else's: writes down everything that NCCL tells it, in the order of the
// process, without what differs from run to run (addresses become numbers, hashes and buffers are left out).
//
// FOREIGN_PLUGIN_VERSIONS (compile time): bit per version that it exports, 1 << 2 for version 2. Environment:
// FOREIGN_PLUGIN_LOG names the file, to which "." and the rank are added; FOREIGN_PLUGIN_MASK the events that
// it asks for; FOREIGN_PLUGIN_NO_HANDLES=1: it gives no handles for groups; FOREIGN_PLUGIN_ONE_HANDLE=1: it
// gives the same one for all events.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <type_traits>

#include "injector/capture/nccl/plugin_abi.h"

namespace {

namespace abi = gpuprobe::nccl_plugin;

std::mutex mutex;
std::map<const void*, int> numbers;
int last_number = 0;

FILE* Log() {
  static FILE* const file = [] {
    const char* rank = std::getenv("RANK");
    const std::string path =
        std::string(std::getenv("FOREIGN_PLUGIN_LOG")) + "." + (rank == nullptr ? "0" : rank);
    return std::fopen(path.c_str(), "w");
  }();
  return file;
}

int MaskWanted() { return std::atoi(std::getenv("FOREIGN_PLUGIN_MASK")); }

// What NCCL should only ever have from us: anything else is "unknown".
std::string Number(const void* handle) {
  if (handle == nullptr) return "null";
  const auto known = numbers.find(handle);
  return known == numbers.end() ? "unknown" : std::to_string(known->second);
}

void* NewHandle() {
  auto* handle = new int(++last_number);
  numbers[handle] = last_number;
  return handle;
}

template <typename... Arguments>
void Line(const char* format, Arguments... arguments) {
  std::fprintf(Log(), format, arguments...);
  std::fflush(Log());
}

int Opened(int version, void** context, int* mask, int ranks, int rank) {
  const std::lock_guard<std::mutex> lock(mutex);
  Line("v%d init mask=%d context=%s ranks=%d rank=%d", version, *mask, *context == nullptr ? "null" : "set",
       ranks, rank);
  *context = NewHandle();
  *mask = MaskWanted();
  Line(" -> %s\n", Number(*context).c_str());
  return 0;
}
template <int kVersion>
int Init1(void** context, int* mask) {
  return Opened(kVersion, context, mask, 0, -1);
}
[[maybe_unused]] int Init4(void** context, int* mask, const char*, uint64_t, int, int ranks, int rank,
                           abi::LogFunction) {
  return Opened(4, context, mask, ranks, rank);
}
template <int kVersion>
int Init5(void** context, uint64_t, int* mask, const char*, int, int ranks, int rank, abi::LogFunction) {
  return Opened(kVersion, context, mask, ranks, rank);
}

[[maybe_unused]] std::string Text(const char* text) { return text; }
[[maybe_unused]] std::string Text(uint8_t number) { return std::to_string(number); }

template <typename Part>
std::string Group(const Part& part) {
  if constexpr (requires { part.parent_group; }) return " group=" + Number(part.parent_group);
  return "";
}

template <typename Descriptor>
std::string Describe(const Descriptor& descriptor) {
  if (descriptor.type == abi::kEventCollective) {
    const auto& part = descriptor.collective;
    return "Coll " + Text(part.function) + " seq=" + std::to_string(part.sequence) +
           " count=" + std::to_string(part.count) + " root=" + std::to_string(part.root) + " " +
           Text(part.datatype) + " " + Text(part.algorithm) + " " + Text(part.protocol) + " " +
           Text(part.channels) + Group(part);
  }
  if (descriptor.type == abi::kEventPointToPoint) {
    const auto& part = descriptor.point_to_point;
    return "P2p " + Text(part.function) + " count=" + std::to_string(part.count) +
           " peer=" + std::to_string(part.peer) + " " + Text(part.datatype) + Group(part);
  }
  if constexpr (std::is_same_v<Descriptor, abi::Descriptor5>) {
    if (descriptor.type == abi::kEventCollectiveApi)
      return std::string("CollApi ") + descriptor.collective_api.function +
             " count=" + std::to_string(descriptor.collective_api.count) +
             (descriptor.collective_api.captured ? " captured" : "");
    if (descriptor.type == abi::kEventPointToPointApi)
      return std::string("P2pApi ") + descriptor.point_to_point_api.function +
             " count=" + std::to_string(descriptor.point_to_point_api.count);
  }
  return "event " + std::to_string(descriptor.type);
}

template <typename Descriptor>
int Start(void* context, void** handle, Descriptor* descriptor) {
  const std::lock_guard<std::mutex> lock(mutex);
  const bool group = descriptor->type == abi::kEventGroup || descriptor->type == abi::kEventGroupApi;
  const char* none = std::getenv("FOREIGN_PLUGIN_NO_HANDLES");
  static void* const one = std::getenv("FOREIGN_PLUGIN_ONE_HANDLE") == nullptr ? nullptr : NewHandle();
  *handle = group && none != nullptr ? nullptr : one != nullptr ? one : NewHandle();
  Line("start context=%s parent=%s rank=%d %s -> %s\n", Number(context).c_str(),
       Number(descriptor->parent).c_str(), descriptor->rank, Describe(*descriptor).c_str(),
       Number(*handle).c_str());
  return 0;
}

[[maybe_unused]] int Stop(void* handle) {
  const std::lock_guard<std::mutex> lock(mutex);
  Line("stop %s\n", Number(handle).c_str());
  return 0;
}

[[maybe_unused]] int Record(void* handle, int state, void*) {
  const std::lock_guard<std::mutex> lock(mutex);
  Line("record %s %d\n", Number(handle).c_str(), state);
  return 0;
}

[[maybe_unused]] int Finalize(void* context) {
  const std::lock_guard<std::mutex> lock(mutex);
  Line("finalize %s\n", Number(context).c_str());
  return 0;
}

}  // namespace

// The names are NCCL's. NOLINTBEGIN(readability-identifier-naming)
extern "C" {
#define FOREIGN_TABLE(version, type, descriptor, init)                                   \
  extern __attribute__((visibility("default"))) const abi::type ncclProfiler_v##version; \
  const abi::type ncclProfiler_v##version = {"foreign", init, Start<abi::descriptor>, Stop, Record, Finalize};
#if FOREIGN_PLUGIN_VERSIONS & (1 << 1)
FOREIGN_TABLE(1, Profiler1, Descriptor1, Init1<1>)
#endif
#if FOREIGN_PLUGIN_VERSIONS & (1 << 2)
FOREIGN_TABLE(2, Profiler2, Descriptor2, Init1<2>)
#endif
#if FOREIGN_PLUGIN_VERSIONS & (1 << 3)
FOREIGN_TABLE(3, Profiler3, Descriptor3, Init1<3>)
#endif
#if FOREIGN_PLUGIN_VERSIONS & (1 << 4)
FOREIGN_TABLE(4, Profiler4, Descriptor4, Init4)
#endif
#if FOREIGN_PLUGIN_VERSIONS & (1 << 5)
FOREIGN_TABLE(5, Profiler5, Descriptor5, Init5<5>)
#endif
#if FOREIGN_PLUGIN_VERSIONS & (1 << 6)
FOREIGN_TABLE(6, Profiler5, Descriptor5, Init5<6>)
#endif
#undef FOREIGN_TABLE
}
// NOLINTEND(readability-identifier-naming)
