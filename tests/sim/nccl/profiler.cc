#include "tests/sim/nccl/profiler.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "injector/nccl/plugin_abi.h"
#include "tests/sim/nccl/group.h"
#include "tests/sim/nccl/operations.h"

namespace gpusim::nccl {
namespace {

namespace abi = gpuprobe::nccl_plugin;

constexpr int kNewestVersion = 6;

// One for every communicator and thread, as in the real library: the last one that is made decides.
std::atomic<int> mask{0};

struct Event {
  bool collective = false;
  const char* operation = "";
  const Call* call = nullptr;
  int peer = -1;
  uint64_t sequence = 0;
};

class Plugin {
 public:
  virtual ~Plugin() = default;
  virtual void* Open(const Communicator& communicator) = 0;
  virtual void Close(void* context) = 0;
  virtual void* Start(void* context, const Communicator& communicator, const Event* event, void* parent) = 0;
  virtual void Stop(void* handle) = 0;
};

uint8_t FunctionNumber(const std::string& operation) {
  uint8_t number = 0;
  while (operation != abi::kFunctionNames[number]) ++number;
  return number;
}

// How one version fills the fields that others have not, or have otherwise.
void Fill(abi::Collective1& part, const Event& event, const Communicator& communicator) {
  part.comm_name = "";
  part.comm_hash = communicator.Hash();
  part.function = FunctionNumber(event.operation);
  part.datatype = static_cast<uint8_t>(event.call->type);
}
void Fill(abi::Collective2& part, const Event& event, const Communicator& communicator) {
  part.comm_name = "";
  part.comm_hash = communicator.Hash();
  part.function = event.operation;
  part.datatype = abi::kDataTypeNames[event.call->type];
}
void Fill(abi::Collective4& part, const Event& event, const Communicator&) {
  part.function = event.operation;
  part.datatype = abi::kDataTypeNames[event.call->type];
}
void Fill(abi::PointToPoint1& part, const Event& event, const Communicator& communicator) {
  part.comm_name = "";
  part.comm_hash = communicator.Hash();
  part.function = FunctionNumber(event.operation);
  part.datatype = static_cast<uint8_t>(event.call->type);
}
void Fill(abi::PointToPoint2& part, const Event& event, const Communicator& communicator) {
  part.comm_name = "";
  part.comm_hash = communicator.Hash();
  part.function = event.operation;
  part.datatype = abi::kDataTypeNames[event.call->type];
}
void Fill(abi::PointToPoint4& part, const Event& event, const Communicator&) {
  part.function = event.operation;
  part.datatype = abi::kDataTypeNames[event.call->type];
}

int Init(abi::Init1 init, void** context, int* wanted, const Communicator&) { return init(context, wanted); }
int Init(abi::Init4 init, void** context, int* wanted, const Communicator& communicator) {
  return init(context, wanted, "", communicator.Hash(), 1, communicator.Ranks(), communicator.Rank(),
              nullptr);
}
int Init(abi::Init5 init, void** context, int* wanted, const Communicator& communicator) {
  return init(context, communicator.Hash(), wanted, "", 1, communicator.Ranks(), communicator.Rank(),
              nullptr);
}

// The real descriptors go on after the fields that the probe reads: what a plugin should not touch.
template <typename Descriptor>
struct Padded {
  Descriptor descriptor;
  unsigned char rest[128];
};

template <typename Profiler, typename Descriptor>
class PluginOf : public Plugin {
 public:
  explicit PluginOf(const Profiler* table) : table_(table) {}

  void* Open(const Communicator& communicator) override {
    void* context = nullptr;
    int wanted = 0;
    if (Init(table_->init, &context, &wanted, communicator) == 0) mask = wanted;
    return context;
  }

  void Close(void* context) override { table_->finalize(context); }

  // A null event is the group.
  void* Start(void* context, const Communicator& communicator, const Event* event, void* parent) override {
    Padded<Descriptor> padded;
    std::memset(static_cast<void*>(&padded), 0xee, sizeof(padded));
    Descriptor& descriptor = padded.descriptor;
    descriptor.type = abi::kEventGroup;
    descriptor.parent = parent;
    descriptor.rank = communicator.Rank();
    if (event != nullptr && event->collective) {
      auto& part = descriptor.collective;
      descriptor.type = abi::kEventCollective;
      part.sequence = event->sequence;
      part.send = event->call->send;
      part.receive = event->call->receive;
      part.count = event->call->count;
      part.root =
          event->call->root < 0 ? 0 : event->call->root;  // as the real library: 0 where there is none
      Fill(part, *event, communicator);
    } else if (event != nullptr) {
      auto& part = descriptor.point_to_point;
      descriptor.type = abi::kEventPointToPoint;
      part.buffer = event->call->receive;
      part.count = event->call->count;
      part.peer = event->peer;
      Fill(part, *event, communicator);
    }
    void* handle = nullptr;
    table_->start_event(context, &handle, &descriptor);
    return handle;
  }

  void Stop(void* handle) override { table_->stop_event(handle); }

 private:
  const Profiler* table_;
};

template <typename Profiler, typename Descriptor>
std::unique_ptr<Plugin> Make(const void* table) {
  return std::make_unique<PluginOf<Profiler, Descriptor>>(static_cast<const Profiler*>(table));
}

using Maker = std::unique_ptr<Plugin> (*)(const void* table);
constexpr Maker kMakers[kNewestVersion] = {
    Make<abi::Profiler1, abi::Descriptor1>, Make<abi::Profiler2, abi::Descriptor2>,
    Make<abi::Profiler2, abi::Descriptor2>, Make<abi::Profiler4, abi::Descriptor4>,
    Make<abi::Profiler5, abi::Descriptor5>, Make<abi::Profiler5, abi::Descriptor5>};

int NewestVersionWanted() {
  const char* text = std::getenv("GPUSIM_NCCL_PLUGIN_VERSION");
  if (text == nullptr) return kNewestVersion;
  const int version = std::atoi(text);
  if (version >= 1 && version <= kNewestVersion) return version;
  std::fprintf(stderr, "gpusim: GPUSIM_NCCL_PLUGIN_VERSION=%s is not 1 to %d\n", text, kNewestVersion);
  std::_Exit(2);
}

std::unique_ptr<Plugin> Load() {
  const char* path = std::getenv("NCCL_PROFILER_PLUGIN");
  void* library = path == nullptr || *path == '\0' ? nullptr : dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  for (int version = NewestVersionWanted(); version >= 1; --version) {
    const void* table = dlsym(library, ("ncclProfiler_v" + std::to_string(version)).c_str());
    if (table != nullptr) return kMakers[version - 1](table);
  }
  dlclose(library);
  return nullptr;
}

// Loaded with the first communicator, like the real library's.
Plugin* ThePlugin() {
  static auto* plugin = new std::unique_ptr<Plugin>(Load());
  return plugin->get();
}

// The real library counts each operation of a communicator by itself.
uint64_t NextSequence(const Communicator& communicator, Operation operation) {
  static auto* mutex = new std::mutex;
  static auto* counts = new std::map<std::pair<const Communicator*, Operation>, uint64_t>;
  const std::lock_guard<std::mutex> lock(*mutex);
  return (*counts)[{&communicator, operation}]++;
}

std::vector<Event> EventsOf(const Communicator& communicator, const Call& call) {
  const int me = communicator.Rank();
  std::vector<Event> events;
  const auto add = [&](bool sends, int peer) {
    events.push_back({.operation = sends ? "Send" : "Recv", .call = &call, .peer = peer});
  };
  switch (call.operation) {
    case Operation::kSend:
    case Operation::kRecv:
      add(call.operation == Operation::kSend, call.peer);
      break;
    case Operation::kAlltoAll:
    case Operation::kGather:
    case Operation::kScatter:
      for (int peer = 0; peer < communicator.Ranks(); ++peer) {
        const bool all = call.operation == Operation::kAlltoAll;
        const bool gathers = call.operation == Operation::kGather;
        if (all || (gathers ? peer : me) == call.root) add(true, peer);
        if (all || (gathers ? me : peer) == call.root) add(false, peer);
      }
      break;
    default:
      events.push_back({.collective = true,
                        .operation = OperationName(call.operation),
                        .call = &call,
                        .sequence = NextSequence(communicator, call.operation)});
  }
  return events;
}

}  // namespace

void* OpenProfiler(const Communicator& communicator) {
  return ThePlugin() == nullptr ? nullptr : ThePlugin()->Open(communicator);
}

void CloseProfiler(void* context) {
  if (context != nullptr) ThePlugin()->Close(context);
}

void ProfilePlan(void* context, const Communicator& communicator, const std::vector<Call>& calls) {
  if (context == nullptr || mask == 0) return;
  void* group = ThePlugin()->Start(context, communicator, nullptr, nullptr);
  std::vector<void*> handles;
  for (const Call& call : calls) {
    for (const Event& event : EventsOf(communicator, call)) {
      const uint64_t kind = event.collective ? abi::kEventCollective : abi::kEventPointToPoint;
      if (group == nullptr || (static_cast<uint64_t>(mask.load()) & kind) == 0) continue;
      handles.push_back(ThePlugin()->Start(context, communicator, &event, group));
    }
  }
  for (void* handle : handles) ThePlugin()->Stop(handle);
  ThePlugin()->Stop(group);
}

}  // namespace gpusim::nccl
