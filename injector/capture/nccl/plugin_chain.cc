#include "injector/capture/nccl/plugin_chain.h"

#include <atomic>
#include <utility>

#include "injector/base/lifecycle.h"
#include "injector/capture/nccl/plugin_events.h"

namespace abi = gpuprobe::nccl_plugin;

// The names are NCCL's. NOLINTBEGIN(readability-identifier-naming)
extern "C" {
// Our own, in the shared library (plugin_entry.cc).
#define GPUPROBE_PLUGIN extern __attribute__((weak, visibility("default")))
GPUPROBE_PLUGIN const abi::Profiler1 ncclProfiler_v1;
GPUPROBE_PLUGIN const abi::Profiler2 ncclProfiler_v2;
GPUPROBE_PLUGIN const abi::Profiler3 ncclProfiler_v3;
GPUPROBE_PLUGIN const abi::Profiler4 ncclProfiler_v4;
GPUPROBE_PLUGIN const abi::Profiler5 ncclProfiler_v5;
GPUPROBE_PLUGIN const abi::Profiler5 ncclProfiler_v6;
#undef GPUPROBE_PLUGIN
}
// NOLINTEND(readability-identifier-naming)

namespace gpuprobe::injector::nccl {

char plugin_markers[3];

namespace {

constexpr int kSuccess = 0;
constexpr int kVersions = 6;

// NCCL has one mask for all communicators, in each copy of it. The other plugin may keep its address and
// write to it at any time.
struct Mask {
  std::atomic<int*> place;
  std::atomic<int> others;   // what the other plugin had written when it was last asked
  std::atomic<int> written;  // what we made of that
};

constinit Mask masks[4] = {};

Mask* MaskAt(int* place) noexcept {
  for (Mask& mask : masks) {
    int* known = mask.place.load(std::memory_order_acquire);
    if (known == place || (known == nullptr && mask.place.compare_exchange_strong(known, place)))
      return &mask;
    if (known == place) return &mask;
  }
  return nullptr;
}

// What the other plugin asks for now.
int OthersMask(const Mask& mask) noexcept {
  const int now = __atomic_load_n(mask.place.load(std::memory_order_relaxed), __ATOMIC_RELAXED);
  return now == mask.written.load(std::memory_order_relaxed) ? mask.others.load(std::memory_order_relaxed)
                                                             : now;
}

// The context handle that NCCL gets.
struct Context {
  std::atomic<bool> in_use;
  void* others;
  PluginCommunicator* ours;
  Mask* mask;
};

constinit Context contexts[kPluginCommunicators] = {};

Context* ClaimContext() noexcept {
  for (Context& context : contexts) {
    bool expected = false;
    if (!context.in_use.load(std::memory_order_relaxed) &&
        context.in_use.compare_exchange_strong(expected, true, std::memory_order_acquire)) {
      return &context;
    }
  }
  return nullptr;
}

// Null for one that is the other plugin's own.
Context* ContextOf(void* context) noexcept {
  auto* known = static_cast<Context*>(context);
  return known >= &contexts[0] && known <= &contexts[kPluginCommunicators - 1] ? known : nullptr;
}

// The handle that NCCL gets for a group event which the other plugin receives, too. The plugin's own handle
// would not do: it may be the same for all events.
struct GroupHandle {
  std::atomic<bool> in_use;
  PluginEvent event;
  void* others;
};

constexpr uint32_t kGroupHandles = 4096;
constinit GroupHandle group_handles[kGroupHandles] = {};
constinit std::atomic<uint32_t> next_group_handle{0};

// In turn: NCCL may still name a group as a parent when it has stopped.
GroupHandle* ClaimGroupHandle(PluginEvent event, void* theirs) noexcept {
  constexpr uint32_t kTries = 64;
  for (uint32_t i = 0; i < kTries; ++i) {
    GroupHandle& handle =
        group_handles[next_group_handle.fetch_add(1, std::memory_order_relaxed) % kGroupHandles];
    if (handle.in_use.exchange(true, std::memory_order_acquire)) continue;
    handle.event = event;
    handle.others = theirs;
    return &handle;
  }
  return nullptr;
}

// Null for a handle of the other plugin's own.
GroupHandle* GroupHandleOf(void* handle) noexcept {
  auto* known = static_cast<GroupHandle*>(handle);
  return known >= &group_handles[0] && known <= &group_handles[kGroupHandles - 1] ? known : nullptr;
}

constinit std::atomic<const void*> others[kVersions + 1] = {};
constinit std::atomic<int> newest_asked{0};  // the newest version that this NCCL has

// The events that NCCL might report because of us.
constexpr uint64_t kOurs = abi::ToldFor(static_cast<uint64_t>(kPluginMask), kVersions);

bool WouldBeTold(const Mask& mask, uint64_t type, const void* parent) noexcept {
  if ((type & kOurs) == 0) return true;  // reported because the other plugin asked
  const int nccl = newest_asked.load(std::memory_order_relaxed);
  // Older ones leave out the children of a group that has no handle.
  const bool child = type == abi::kEventCollective || type == abi::kEventPointToPoint;
  if (nccl < 5 && child && (parent == nullptr || IsMarker(parent))) return false;
  return (abi::ToldFor(static_cast<uint64_t>(OthersMask(mask)), nccl) & type) != 0;
}

// The other plugin's handle for an event; null for a parent that it does not know.
void* Known(void* handle) noexcept {
  if (IsMarker(handle)) return nullptr;
  const GroupHandle* group = GroupHandleOf(handle);
  return group == nullptr ? handle : group->others;
}

// The descriptor as the other plugin would get it, while this lives.
template <typename Descriptor>
class OthersView {
 public:
  explicit OthersView(Descriptor* descriptor) noexcept
      : descriptor_(descriptor), parent_(descriptor->parent) {
    descriptor->parent = Known(parent_);
    if (void** group = Group(); group != nullptr) {
      group_ = *group;
      *group = Known(group_);
    }
  }
  ~OthersView() {
    descriptor_->parent = parent_;
    if (void** group = Group(); group != nullptr) *group = group_;
  }
  OthersView(const OthersView&) = delete;
  OthersView& operator=(const OthersView&) = delete;

 private:
  void** Group() const noexcept {
    if constexpr (std::is_same_v<Descriptor, abi::Descriptor5>) {
      if (descriptor_->type == abi::kEventCollective) return &descriptor_->collective.parent_group;
      if (descriptor_->type == abi::kEventPointToPoint) return &descriptor_->point_to_point.parent_group;
    }
    return nullptr;
  }

  Descriptor* descriptor_;
  void* parent_;
  void* group_ = nullptr;
};

template <int kVersion, typename ProfilerType, typename Descriptor>
struct Chain {
  static const ProfilerType& Other() noexcept {
    return *static_cast<const ProfilerType*>(others[kVersion].load(std::memory_order_acquire));
  }

  static int StartEvent(void* context, void** handle, Descriptor* descriptor) {
    Context* known = ContextOf(context);
    if (known == nullptr) return Other().start_event(context, handle, descriptor);
    const PluginEvent event = TellEvent(known->ours, *descriptor);
    if (!WouldBeTold(*known->mask, descriptor->type, descriptor->parent)) {
      *handle = MarkerOf(event);
      return kSuccess;
    }
    int result = kSuccess;
    {
      const OthersView<Descriptor> view(descriptor);
      result = Other().start_event(known->others, handle, descriptor);
    }
    if (event == PluginEvent::kOther) return result;
    // Without a handle NCCL does not report the end, nor, before version 5, what is in the group.
    void* ours = *handle == nullptr ? MarkerOf(event) : ClaimGroupHandle(event, *handle);
    if (ours != nullptr) *handle = ours;
    return result;
  }

  static int StopEvent(void* handle) {
    if (IsMarker(handle)) {
      TellStop(EventOf(handle));
      return kSuccess;
    }
    GroupHandle* group = GroupHandleOf(handle);
    if (group == nullptr) return Other().stop_event(handle);
    TellStop(group->event);
    void* theirs = group->others;
    group->in_use.store(false, std::memory_order_release);
    return Other().stop_event(theirs);
  }

  static int RecordEventState(void* handle, int state, void* arguments) {
    return IsMarker(handle) ? kSuccess : Other().record_event_state(Known(handle), state, arguments);
  }

  static int Finalize(void* context) {
    Context* known = ContextOf(context);
    if (known == nullptr) return Other().finalize(context);
    void* theirs = known->others;
    ClosePluginCommunicator(known->ours);
    known->in_use.store(false, std::memory_order_release);
    return Other().finalize(theirs);
  }

  // `init` calls the other plugin's with the context that it is given.
  template <typename Init>
  static int Open(void** context, int* mask_place, uint64_t hash, int rank, int ranks, const char* name,
                  Init init) {
    Mask* mask = MaskAt(mask_place);
    // The other plugin finds what it left there.
    if (mask != nullptr && mask->written.load(std::memory_order_relaxed) != 0)
      __atomic_store_n(mask_place, OthersMask(*mask), __ATOMIC_RELAXED);
    const int result = init(context);
    const int asked = __atomic_load_n(mask_place, __ATOMIC_RELAXED);
    if (result != kSuccess || mask == nullptr) return result;
    Context* known =
        *context == nullptr || CurrentLifecycle() != LifecycleState::kLive ? nullptr : ClaimContext();
    if (known != nullptr) {
      known->others = *context;
      known->mask = mask;
      known->ours = OpenPluginCommunicator(hash, rank, ranks, name);
      *context = known;
    }
    // NCCL keeps reporting our communicators, too.
    if (known == nullptr && mask->written.load(std::memory_order_relaxed) == 0) return result;
    mask->others.store(asked, std::memory_order_relaxed);
    mask->written.store(asked | kPluginMask, std::memory_order_relaxed);
    __atomic_store_n(mask_place, asked | kPluginMask, __ATOMIC_RELAXED);
    return result;
  }

  static int Init1(void** context, int* mask) {
    return Open(context, mask, 0, -1, 0, nullptr, [&](void** theirs) { return Other().init(theirs, mask); });
  }
  static int Init4(void** context, int* mask, const char* name, uint64_t hash, int nodes, int ranks, int rank,
                   abi::LogFunction log) {
    return Open(context, mask, hash, rank, ranks, name, [&](void** theirs) {
      return Other().init(theirs, mask, name, hash, nodes, ranks, rank, log);
    });
  }
  static int Init5(void** context, uint64_t hash, int* mask, const char* name, int nodes, int ranks, int rank,
                   abi::LogFunction log) {
    return Open(context, mask, hash, rank, ranks, name, [&](void** theirs) {
      return Other().init(theirs, hash, mask, name, nodes, ranks, rank, log);
    });
  }

  static constexpr auto Init() noexcept {
    if constexpr (kVersion < 4) {
      return Init1;
    } else if constexpr (kVersion == 4) {
      return Init4;
    } else {
      return Init5;
    }
  }

  static inline constinit ProfilerType table = {nullptr,   Init(),           StartEvent,
                                                StopEvent, RecordEventState, Finalize};

  // Null: another one is chained already.
  static const void* Around(const void* other) noexcept {
    const void* none = nullptr;
    if (!others[kVersion].compare_exchange_strong(none, other) && none != other) return nullptr;
    table.name = Other().name;
    return &table;
  }
};

const void* Around(int version, const void* other) noexcept {
  switch (version) {
    case 1:
      return Chain<1, abi::Profiler1, abi::Descriptor1>::Around(other);
    case 2:
      return Chain<2, abi::Profiler2, abi::Descriptor2>::Around(other);
    case 3:
      return Chain<3, abi::Profiler3, abi::Descriptor3>::Around(other);
    case 4:
      return Chain<4, abi::Profiler4, abi::Descriptor4>::Around(other);
    case 5:
      return Chain<5, abi::Profiler5, abi::Descriptor5>::Around(other);
    case 6:
      return Chain<6, abi::Profiler5, abi::Descriptor5>::Around(other);
    default:
      return nullptr;
  }
}

const void* OwnTable(int version) noexcept {
  const void* own[] = {nullptr,          &ncclProfiler_v1, &ncclProfiler_v2, &ncclProfiler_v3,
                       &ncclProfiler_v4, &ncclProfiler_v5, &ncclProfiler_v6};
  return version <= kVersions ? own[version] : nullptr;
}

}  // namespace

const void* ChainPlugin(int version, const void* table, bool has_any) noexcept {
  if (CurrentLifecycle() != LifecycleState::kLive || version < 1) return nullptr;
  int newest = newest_asked.load(std::memory_order_relaxed);
  while (newest < version && !newest_asked.compare_exchange_weak(newest, version)) {
  }
  if (table == nullptr) return has_any ? nullptr : OwnTable(version);
  return table == OwnTable(version) ? nullptr : Around(version, table);
}

}  // namespace gpuprobe::injector::nccl
