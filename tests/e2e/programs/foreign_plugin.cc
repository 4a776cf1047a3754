// A profiler plugin of somebody else's: writes down everything that NCCL tells it, in the order of the
// process, without what differs from run to run (addresses become numbers, hashes and buffers are left out).
//
// FOREIGN_PLUGIN_VERSIONS (compile time): bit per version that it exports, 1 << 2 for version 2. Environment:
// FOREIGN_PLUGIN_LOG names the file, to which "." and the rank are added; FOREIGN_PLUGIN_MASK the events that
// it asks for; FOREIGN_PLUGIN_NO_HANDLES=1: it gives no handles for groups; FOREIGN_PLUGIN_ONE_HANDLE=1: it
// gives the same one for all events.
//
// The channels of kernels come on a thread of NCCL's whenever they please: they have a file of their own,
// with
// ".channels" added, in which a line says what a channel that has ended belonged to. The log function that it
// gets is used once, when it is opened.
#include <cstdio>
#include <cstdlib>
#include <cstring>
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

FILE* OpenLog(const char* suffix) {
  const char* rank = std::getenv("RANK");
  const std::string path =
      std::string(std::getenv("FOREIGN_PLUGIN_LOG")) + "." + (rank == nullptr ? "0" : rank) + suffix;
  return std::fopen(path.c_str(), "w");
}

FILE* Log() {
  static FILE* const file = OpenLog("");
  return file;
}

FILE* ChannelLog() {
  static FILE* const file = OpenLog(".channels");
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
// As the real library's WARN and INFO.
constexpr int kWarn = 2;
constexpr int kInfo = 3;
constexpr unsigned long kProfilePart = 0x4000;

int Opened(int version, void** context, int* mask, int ranks, int rank, abi::LogFunction log) {
  if (log != nullptr) {
    log(kWarn, ~0UL, "Opened", __LINE__, "foreign plugin warns of rank %d", rank);
    log(kInfo, kProfilePart, "Opened", __LINE__, "foreign plugin opened by rank %d of %d", rank, ranks);
  }
  return Opened(version, context, mask, ranks, rank);
}
template <int kVersion>
int Init1(void** context, int* mask) {
  return Opened(kVersion, context, mask, 0, -1);
}
[[maybe_unused]] int Init4(void** context, int* mask, const char*, uint64_t, int, int ranks, int rank,
                           abi::LogFunction log) {
  return Opened(4, context, mask, ranks, rank, log);
}
template <int kVersion>
int Init5(void** context, uint64_t, int* mask, const char*, int, int ranks, int rank, abi::LogFunction log) {
  return Opened(kVersion, context, mask, ranks, rank, log);
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

// What a call's handle stands for, and the channels that have begun.
std::map<const void*, std::string> calls;
struct Channel {
  std::string call;
  uint64_t start_ns;
  uint64_t end_ns;
};
std::map<const void*, Channel> channels;

// In descriptors: the channel's number and, from version 4 on, its start.
struct ChannelPart {
  uint8_t number;
  uint64_t start_ns;
};

template <typename Descriptor>
void* NewChannel(const Descriptor& descriptor) {
  ChannelPart part{};
  std::memcpy(&part, &descriptor.collective, sizeof part);
  auto* handle = new int(0);
  const auto call = calls.find(descriptor.parent);
  channels[handle] = {
      "channel " + std::to_string(part.number) + " of " + (call == calls.end() ? "unknown" : call->second),
      part.start_ns, 0};
  return handle;
}

template <typename Descriptor>
int Start(void* context, void** handle, Descriptor* descriptor) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (descriptor->type == abi::kEventKernelChannel) {
    *handle = NewChannel(*descriptor);
    return 0;
  }
  const bool group = descriptor->type == abi::kEventGroup || descriptor->type == abi::kEventGroupApi;
  const char* none = std::getenv("FOREIGN_PLUGIN_NO_HANDLES");
  static void* const one = std::getenv("FOREIGN_PLUGIN_ONE_HANDLE") == nullptr ? nullptr : NewHandle();
  *handle = group && none != nullptr ? nullptr : one != nullptr ? one : NewHandle();
  Line("start context=%s parent=%s rank=%d %s -> %s\n", Number(context).c_str(),
       Number(descriptor->parent).c_str(), descriptor->rank, Describe(*descriptor).c_str(),
       Number(*handle).c_str());
  if (*handle != nullptr)
    calls[*handle] = Describe(*descriptor).substr(0, Describe(*descriptor).find(" group="));
  return 0;
}

[[maybe_unused]] int Stop(void* handle) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (const auto channel = channels.find(handle); channel != channels.end()) {
    std::fprintf(ChannelLog(), "%s%s\n", channel->second.call.c_str(),
                 channel->second.start_ns < channel->second.end_ns ? "" : " without times");
    std::fflush(ChannelLog());
    channels.erase(channel);
    return 0;
  }
  Line("stop %s\n", Number(handle).c_str());
  return 0;
}

[[maybe_unused]] int Record(void* handle, int state, void* arguments) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (const auto channel = channels.find(handle); channel != channels.end()) {
    std::memcpy(&channel->second.end_ns, arguments, sizeof channel->second.end_ns);
    return 0;
  }
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
