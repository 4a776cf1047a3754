#include "tests/sim/nccl/profiler.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>

#include "injector/capture/nccl/plugin_abi.h"
#include "tests/sim/nccl/group.h"
#include "tests/sim/nccl/log.h"
#include "tests/sim/nccl/operations.h"
#include "tests/sim/nccl/watched_kernel.h"

namespace gpusim::nccl {
namespace {

namespace abi = gpuprobe::nccl_plugin;

constexpr int kNewestVersion = 6;

// One for every communicator and thread, as in the real library: the last one that is made decides, and a
// plugin may read and change it.
int mask = 0;

int Mask() { return __atomic_load_n(&mask, __ATOMIC_RELAXED); }

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
  // A null event is the group. `parent` is the application's call, from version 5 on.
  virtual void* Start(const Communicator& communicator, const Event* event, void* group, void* parent) = 0;
  // What only versions 5 and 6 have; null for others.
  virtual void* StartGroupApi(const Communicator& communicator, bool captured) = 0;
  virtual void* StartCallApi(const Communicator& communicator, const Event& event, bool captured,
                             void* group) = 0;
  virtual void* StartLaunch(const Communicator& communicator, void* stream, void* group) = 0;
  virtual void Stop(void* handle) = 0;
  // A channel of a kernel, inside a call's event: from version 3 on.
  virtual bool HasChannels() const = 0;
  virtual void* StartChannel(void* context, int rank, void* call, uint8_t channel, uint64_t start_ns) = 0;
  virtual void StopChannel(void* handle, uint64_t end_ns) = 0;
};

// A channel as descriptors have it in their union, its time from version 4 on; the state at its end.
struct ChannelPart {
  uint8_t channel;
  uint64_t time_ns;
};
constexpr int kChannelStops = 22;

uint8_t FunctionNumber(const std::string& operation) {
  uint8_t number = 0;
  while (operation != abi::kFunctionNames[number]) ++number;
  return number;
}

template <size_t kCount>
uint8_t NumberOf(const char* const (&names)[kCount], const char* name) {
  for (uint8_t number = 0; number < kCount; ++number) {
    if (std::strcmp(names[number], name) == 0) return number;
  }
  return UINT8_MAX;
}

// How one version fills the fields that others have not, or have otherwise.
template <typename Part>
void FillNamed(Part& part, const Event& event) {
  part.function = event.operation;
  part.datatype = abi::kDataTypeNames[event.call->type];
}
template <typename Part>
void FillHow(Part& part, const Event& event) {
  const HowItRuns how = HowToRun(event.call->operation, event.call->count * TypeSize(event.call->type));
  part.channels = how.channels;
  part.warps = 16;
  if constexpr (std::is_same_v<Part, abi::Collective1>) {
    part.algorithm = NumberOf(abi::kAlgorithmNames, how.algorithm);
    part.protocol = NumberOf(abi::kProtocolNames, how.protocol);
  } else {
    part.algorithm = how.algorithm;
    part.protocol = how.protocol;
  }
}
template <typename Part>
void FillCommunicator(Part& part, const Communicator& communicator) {
  part.comm_name = communicator.Name().c_str();
  part.comm_hash = communicator.Hash();
}
void Fill(abi::Collective1& part, const Event& event, const Communicator& communicator) {
  FillCommunicator(part, communicator);
  FillHow(part, event);
  part.function = FunctionNumber(event.operation);
  part.datatype = static_cast<uint8_t>(event.call->type);
}
template <typename Part>
void FillCollective(Part& part, const Event& event) {
  FillNamed(part, event);
  FillHow(part, event);
}
void Fill(abi::Collective2& part, const Event& event, const Communicator& communicator) {
  FillCommunicator(part, communicator);
  FillCollective(part, event);
}
void Fill(abi::Collective3& part, const Event& event, const Communicator& communicator) {
  FillCommunicator(part, communicator);
  FillCollective(part, event);
}
void Fill(abi::Collective4& part, const Event& event, const Communicator&) { FillCollective(part, event); }
void Fill(abi::PointToPoint1& part, const Event& event, const Communicator& communicator) {
  FillCommunicator(part, communicator);
  part.function = FunctionNumber(event.operation);
  part.datatype = static_cast<uint8_t>(event.call->type);
}
void Fill(abi::PointToPoint2& part, const Event& event, const Communicator& communicator) {
  FillCommunicator(part, communicator);
  FillNamed(part, event);
}
void Fill(abi::Collective5& part, const Event& event, const Communicator&) { FillCollective(part, event); }
void Fill(abi::PointToPoint5& part, const Event& event, const Communicator&) {
  FillNamed(part, event);
  part.channels = 1;
}
void Fill(abi::PointToPoint4& part, const Event& event, const Communicator&) {
  FillNamed(part, event);
  part.channels = 1;
}

abi::LogFunction LogForPlugins() { return &Log; }

int Init(abi::Init1 init, void** context, int* wanted, const Communicator&) { return init(context, wanted); }
int Init(abi::Init4 init, void** context, int* wanted, const Communicator& communicator) {
  return init(context, wanted, communicator.Name().c_str(), communicator.Hash(), 1, communicator.Ranks(),
              communicator.Rank(), LogForPlugins());
}
int Init(abi::Init5 init, void** context, int* wanted, const Communicator& communicator) {
  return init(context, communicator.Hash(), wanted, communicator.Name().c_str(), 1, communicator.Ranks(),
              communicator.Rank(), LogForPlugins());
}

// The real descriptors go on after the fields that the probe reads: what a plugin should not touch.
template <typename Descriptor>
struct Padded {
  Descriptor descriptor;
  unsigned char rest[128];
};

template <int kVersion, typename Profiler, typename Descriptor>
class PluginOf : public Plugin {
 public:
  explicit PluginOf(const Profiler* table) : table_(table) {}

  void* Open(const Communicator& communicator) override {
    void* context = nullptr;
    Init(table_->init, &context, &mask, communicator);
    return context;
  }

  void Close(void* context) override { table_->finalize(context); }

  void* Start(const Communicator& communicator, const Event* event, void* group, void* parent) override {
    return StartFilled(communicator, [&](Descriptor& descriptor) {
      descriptor.type = abi::kEventGroup;
      descriptor.parent = kVersion5 ? parent : group;
      if (event == nullptr) return;
      descriptor.type = event->collective ? abi::kEventCollective : abi::kEventPointToPoint;
      if (event->collective) {
        auto& part = descriptor.collective;
        part.sequence = event->sequence;
        part.send = event->call->send;
        part.receive = event->call->receive;
        part.count = event->call->count;
        part.root =
            event->call->root < 0 ? 0 : event->call->root;  // as the real library: 0 where there is none
        if constexpr (kVersion5) part.parent_group = group;
        Fill(part, *event, communicator);
      } else {
        auto& part = descriptor.point_to_point;
        part.buffer = event->call->receive;
        part.count = event->call->count;
        part.peer = event->peer;
        if constexpr (kVersion5) part.parent_group = group;
        Fill(part, *event, communicator);
      }
    });
  }

  void* StartGroupApi(const Communicator& communicator, bool captured) override {
    if constexpr (!kVersion5) {
      return nullptr;
    } else {
      return StartFilled(communicator, [&](Descriptor& descriptor) {
        descriptor.type = abi::kEventGroupApi;
        descriptor.parent = nullptr;
        descriptor.group_api = {captured, 1};
      });
    }
  }

  void* StartCallApi(const Communicator& communicator, const Event& event, bool captured,
                     void* group) override {
    if constexpr (!kVersion5) {
      return nullptr;
    } else {
      return StartFilled(communicator, [&](Descriptor& descriptor) {
        const Call& call = *event.call;
        descriptor.parent = group;
        if (event.collective) {
          descriptor.type = abi::kEventCollectiveApi;
          descriptor.collective_api = {
              event.operation, call.count, abi::kDataTypeNames[call.type], call.root < 0 ? 0 : call.root,
              call.stream,     captured};
        } else {
          descriptor.type = abi::kEventPointToPointApi;
          descriptor.point_to_point_api = {event.operation, call.count, abi::kDataTypeNames[call.type],
                                           call.stream, captured};
        }
      });
    }
  }

  void* StartLaunch(const Communicator& communicator, void* stream, void* group) override {
    if constexpr (!kVersion5) {
      return nullptr;
    } else {
      return StartFilled(communicator, [&](Descriptor& descriptor) {
        descriptor.type = abi::kEventKernelLaunch;
        descriptor.parent = group;
        descriptor.kernel_launch.stream = stream;
      });
    }
  }

  void Stop(void* handle) override { table_->stop_event(handle); }

  bool HasChannels() const override { return kVersion >= 3; }

  void* StartChannel(void* context, int rank, void* call, uint8_t channel, uint64_t start_ns) override {
    return StartFilled(context, rank, [&](Descriptor& descriptor) {
      descriptor.type = abi::kEventKernelChannel;
      descriptor.parent = call;
      const ChannelPart part{channel, start_ns};
      std::memcpy(static_cast<void*>(&descriptor.collective), &part, sizeof part);
    });
  }

  void StopChannel(void* handle, uint64_t end_ns) override {
    uint64_t arguments[4] = {end_ns};
    if constexpr (kVersion >= 4) table_->record_event_state(handle, kChannelStops, arguments);
    table_->stop_event(handle);
  }

 private:
  static constexpr bool kVersion5 = kVersion >= 5;

  template <typename Filler>
  void* StartFilled(const Communicator& communicator, Filler filler) {
    return StartFilled(communicator.Profiler(), communicator.Rank(), filler);
  }
  template <typename Filler>
  void* StartFilled(void* context, int rank, Filler filler) {
    Padded<Descriptor> padded;
    std::memset(static_cast<void*>(&padded), 0xee, sizeof(padded));
    padded.descriptor.rank = rank;
    filler(padded.descriptor);
    void* handle = nullptr;
    table_->start_event(context, &handle, &padded.descriptor);
    return handle;
  }

  const Profiler* table_;
};

template <int kVersion, typename Profiler, typename Descriptor>
std::unique_ptr<Plugin> Make(const void* table) {
  return std::make_unique<PluginOf<kVersion, Profiler, Descriptor>>(static_cast<const Profiler*>(table));
}

using Maker = std::unique_ptr<Plugin> (*)(const void* table);
constexpr Maker kMakers[kNewestVersion] = {
    Make<1, abi::Profiler1, abi::Descriptor1>, Make<2, abi::Profiler2, abi::Descriptor2>,
    Make<3, abi::Profiler3, abi::Descriptor3>, Make<4, abi::Profiler4, abi::Descriptor4>,
    Make<5, abi::Profiler5, abi::Descriptor5>, Make<6, abi::Profiler5, abi::Descriptor5>};

int NewestVersionWanted() {
  const char* text = std::getenv("GPUSIM_NCCL_PLUGIN_VERSION");
  if (text == nullptr) return kNewestVersion;
  const int version = std::atoi(text);
  if (version >= 1 && version <= kNewestVersion) return version;
  std::fprintf(stderr, "gpusim: GPUSIM_NCCL_PLUGIN_VERSION=%s is not 1 to %d\n", text, kNewestVersion);
  std::_Exit(2);
}

// As the real library: the one that the variable names, else the network's plugin.
void* OpenLibrary() {
  for (const char* variable : {"NCCL_PROFILER_PLUGIN", "NCCL_NET_PLUGIN"}) {
    const char* path = std::getenv(variable);
    void* library = path == nullptr || *path == '\0' ? nullptr : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) return library;
  }
  return nullptr;
}

std::unique_ptr<Plugin> Load() {
  void* library = OpenLibrary();
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
      events.push_back({.collective = true, .operation = OperationName(call.operation), .call = &call});
  }
  return events;
}

}  // namespace

void* OpenProfiler(const Communicator& communicator) {
  return ThePlugin() == nullptr ? nullptr : ThePlugin()->Open(communicator);
}

// The events of its kernels end first.
void CloseProfiler(void* context) {
  if (context == nullptr) return;
  SettleWatchers();
  ThePlugin()->Close(context);
}

namespace {

struct ApiState {
  void* group = nullptr;  // the event of the outermost group
  bool open = false;
};
thread_local ApiState api;

int Told(const Communicator& communicator) {
  static const int kNcclVersion = NewestVersionWanted();
  if (communicator.Profiler() == nullptr) return 0;
  return static_cast<int>(abi::ToldFor(static_cast<uint64_t>(Mask()), kNcclVersion));
}

bool HasApiEvents() { return NewestVersionWanted() >= 5; }

}  // namespace

void ProfileApiCall(Call& call, bool captured) {
  const Communicator& communicator = *call.communicator;
  const int told = Told(communicator);
  if (!HasApiEvents() || told == 0) return;
  if (!api.open && (told & abi::kEventGroupApi) != 0) {
    api = {ThePlugin()->StartGroupApi(communicator, captured), true};
  }
  for (const Event& event : EventsOf(communicator, call)) {
    const uint64_t kind = event.collective ? abi::kEventCollectiveApi : abi::kEventPointToPointApi;
    void* handle = (static_cast<uint64_t>(told) & kind) == 0
                       ? nullptr
                       : ThePlugin()->StartCallApi(communicator, event, captured, api.group);
    if (handle != nullptr) ThePlugin()->Stop(handle);
    call.api_events.push_back(handle);
  }
}

void ProfileGroupEnd() {
  if (api.group != nullptr) ThePlugin()->Stop(api.group);
  api = {};
}

ProfiledLaunch::ProfiledLaunch(const Communicator& communicator, void* stream, void* group) {
  if (HasApiEvents() && (Told(communicator) & abi::kEventKernelLaunch) != 0) {
    handle_ = ThePlugin()->StartLaunch(communicator, stream, group);
  }
}

ProfiledLaunch::~ProfiledLaunch() {
  if (handle_ != nullptr) ThePlugin()->Stop(handle_);
}

void* GroupApiEvent() { return api.group; }

// The calls' events are known when the kernel has been launched: what happens before waits for them.
class ChannelEvents : public KernelWatcher {
 public:
  explicit ChannelEvents(const Communicator& communicator)
      : context_(communicator.Profiler()), rank_(communicator.Rank()) {}

  // As many channels as the call runs on.
  void Add(void* call, uint8_t channels) {
    for (uint8_t channel = 0; channel < channels; ++channel)
      channels_.push_back({.call = call, .number = channel, .handle = nullptr});
  }
  void Begin() {
    const std::lock_guard<std::mutex> lock(mutex_);
    known_ = true;
    if (start_ns_ != 0) Start();
    if (end_ns_ != 0) End();
  }
  void OnStart(uint64_t start_ns) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    start_ns_ = start_ns;
    if (known_) Start();
  }
  void OnEnd(uint64_t end_ns) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    end_ns_ = end_ns;
    if (known_) End();
  }

 private:
  struct Channel {
    void* call;
    uint8_t number;
    void* handle;
  };

  void Start() {
    for (Channel& channel : channels_)
      channel.handle = ThePlugin()->StartChannel(context_, rank_, channel.call, channel.number, start_ns_);
  }
  void End() {
    for (const Channel& channel : channels_) {
      if (channel.handle != nullptr) ThePlugin()->StopChannel(channel.handle, end_ns_);
    }
  }

  void* const context_;
  const int rank_;
  std::mutex mutex_;
  bool known_ = false;
  uint64_t start_ns_ = 0;
  uint64_t end_ns_ = 0;
  std::vector<Channel> channels_;
};

std::shared_ptr<ChannelEvents> WatchChannels(const Communicator& communicator, RendezvousLaunch& launch) {
  if ((static_cast<uint64_t>(Told(communicator)) & abi::kEventKernelChannel) == 0 ||
      !ThePlugin()->HasChannels())
    return nullptr;
  auto channels = std::make_shared<ChannelEvents>(communicator);
  WatchKernel(launch, channels);
  return channels;
}

void ProfilePlan(const Communicator& communicator, const std::vector<Call>& calls,
                 const std::shared_ptr<ChannelEvents>& channels) {
  const auto told = static_cast<uint64_t>(Told(communicator));
  if ((told & abi::kEventGroup) == 0) return;
  void* group = ThePlugin()->Start(communicator, nullptr, nullptr, nullptr);
  std::vector<void*> handles;
  for (const Call& call : calls) {
    size_t number = 0;
    for (Event event : EventsOf(communicator, call)) {
      void* parent = number < call.api_events.size() ? call.api_events[number] : nullptr;
      ++number;
      const uint64_t kind = event.collective ? abi::kEventCollective : abi::kEventPointToPoint;
      if (event.collective) event.sequence = NextSequence(communicator, call.operation);
      if ((told & kind) == 0) continue;
      // Before version 5 a group without a handle has no calls; their channels come all the same.
      const bool started = group != nullptr || HasApiEvents();
      handles.push_back(started ? ThePlugin()->Start(communicator, &event, group, parent) : nullptr);
      if (channels == nullptr) continue;
      const uint64_t bytes = call.count * TypeSize(call.type);
      channels->Add(handles.back(), event.collective ? HowToRun(call.operation, bytes).channels : 1);
    }
  }
  for (void* handle : handles) {
    if (handle != nullptr) ThePlugin()->Stop(handle);
  }
  if (group != nullptr) ThePlugin()->Stop(group);
  if (channels != nullptr) channels->Begin();
}

}  // namespace gpusim::nccl
