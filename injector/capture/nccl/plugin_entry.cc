// The exported ncclProfiler_v1 to _v6: what NCCL finds when there is no other plugin.
#include <type_traits>

#include "injector/base/lifecycle.h"
#include "injector/capture/nccl/call_times.h"
#include "injector/capture/nccl/plugin_events.h"

namespace {

namespace abi = gpuprobe::nccl_plugin;
using gpuprobe::injector::CurrentLifecycle;
using gpuprobe::injector::LifecycleState;
using gpuprobe::injector::nccl::BeginTimedCall;
using gpuprobe::injector::nccl::BeginTimedChannel;
using gpuprobe::injector::nccl::CallsAreTimed;
using gpuprobe::injector::nccl::ClosePluginCommunicator;
using gpuprobe::injector::nccl::EndTimedChannel;
using gpuprobe::injector::nccl::EventOf;
using gpuprobe::injector::nccl::FindOperation;
using gpuprobe::injector::nccl::IsMarker;
using gpuprobe::injector::nccl::kPluginMask;
using gpuprobe::injector::nccl::MarkerOf;
using gpuprobe::injector::nccl::OpenPluginCommunicator;
using gpuprobe::injector::nccl::PluginCommunicator;
using gpuprobe::injector::nccl::TellEvent;
using gpuprobe::injector::nccl::TellStop;

constexpr int kSuccess = 0;

// From version 4 on channels come with the GPU's clock.
template <typename Descriptor>
constexpr bool kHasTimes =
    std::is_same_v<Descriptor, abi::Descriptor4> || std::is_same_v<Descriptor, abi::Descriptor5>;

// True: it was an event of a call that is timed, or of a channel.
template <typename Descriptor>
bool StartTimed(PluginCommunicator* comm, void** handle, const Descriptor& descriptor) noexcept {
  if (descriptor.type == abi::kEventKernelChannel) {
    *handle = BeginTimedChannel(descriptor.parent, descriptor.channel.start_ns);
    return true;
  }
  if (descriptor.type != abi::kEventCollective || !CallsAreTimed()) return false;
  TellEvent(comm, descriptor);
  const char* function =
      gpuprobe::injector::nccl::plugin_events::FunctionName(descriptor.collective.function);
  *handle = BeginTimedCall(comm, FindOperation(function));
  return true;
}

template <typename Descriptor>
int StartEvent(void* context, void** handle, Descriptor* descriptor) noexcept {
  auto* const comm = static_cast<PluginCommunicator*>(context);
  if constexpr (kHasTimes<Descriptor>) {
    if (StartTimed(comm, handle, *descriptor)) return kSuccess;
  }
  *handle = MarkerOf(TellEvent(comm, *descriptor));
  return kSuccess;
}

int StopEvent(void* handle) noexcept {
  if (IsMarker(handle)) TellStop(EventOf(handle));
  return kSuccess;
}

int RecordEventState(void* handle, int state, void* arguments) noexcept {
  if (state == abi::kChannelStops && arguments != nullptr)
    EndTimedChannel(handle, *static_cast<const uint64_t*>(arguments));
  return kSuccess;
}

int Finalize(void* context) noexcept {
  ClosePluginCommunicator(static_cast<PluginCommunicator*>(context));
  return kSuccess;
}

int Open(void** context, int* mask, uint64_t hash, int rank, int ranks, const char* name,
         bool has_times = false) noexcept {
  *context = OpenPluginCommunicator(hash, rank, ranks, name);
  // One mask serves all communicators: a communicator without a place must not turn off reports about the
  // others.
  const bool live = CurrentLifecycle() == LifecycleState::kLive;
  // NCCL's threads read it while others make communicators.
  const int channels = has_times && CallsAreTimed() ? static_cast<int>(abi::kEventKernelChannel) : 0;
  __atomic_store_n(mask, live ? kPluginMask | channels : 0, __ATOMIC_RELAXED);
  return kSuccess;
}

int OpenVersion1(void** context, int* mask) noexcept { return Open(context, mask, 0, -1, 0, nullptr); }

int OpenVersion4(void** context, int* mask, const char* name, uint64_t hash, int /*nodes*/, int ranks,
                 int rank, abi::LogFunction /*log*/) noexcept {
  return Open(context, mask, hash, rank, ranks, name, /*has_times=*/true);
}

int OpenVersion5(void** context, uint64_t hash, int* mask, const char* name, int /*nodes*/, int ranks,
                 int rank, abi::LogFunction /*log*/) noexcept {
  return Open(context, mask, hash, rank, ranks, name, /*has_times=*/true);
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
