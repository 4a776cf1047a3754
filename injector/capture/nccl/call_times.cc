#include "injector/capture/nccl/call_times.h"

#include <atomic>

#include "injector/core/event_ring.h"
#include "injector/core/events.h"
#include "injector/core/guard.h"
#include "injector/core/host_clock.h"
#include "injector/core/recording.h"
#include "injector/core/step_gate.h"

namespace gpuprobe::injector::nccl {
namespace {

constexpr uint64_t kLongestNs = 3'600'000'000'000;  // a longer time is none

// A word of a place: the number of its use, modulo 2^16, and when a channel of the call began, by the GPU's
// clock modulo 2^48 ns (78 hours); 0: none has. One exchange thus checks the one and sets the other.
constexpr int kUseShift = 48;
constexpr uint64_t kClock = (uint64_t{1} << kUseShift) - 1;

struct TimedCall {
  std::atomic<uint64_t> word;
  std::atomic<PluginCommunicator*> comm;
  std::atomic<uint64_t> number;
  std::atomic<uint16_t> op;
};

constinit TimedCall timed[kTimedCalls] = {};
constinit std::atomic<uint64_t> next_timed{0};

// What NCCL keeps as the handle of an event: a use of a place, which must not be taken for a later one. No
// pointer looks like it, as the upper 16 bits are those of no address.
constexpr uint64_t kTag = uint64_t{0x6770} << 48;
constexpr uint64_t kOfChannel = 1;

void* ToHandle(uint64_t bits) noexcept {
  return reinterpret_cast<void*>(bits);  // NOLINT(performance-no-int-to-ptr): NCCL hands it back, no more
}

struct Use {
  TimedCall* call = nullptr;  // null: it is another event's
  uint64_t number = 0;
};
Use UseOf(void* handle, uint64_t kind) noexcept {
  const auto bits = reinterpret_cast<uint64_t>(handle);
  const uint64_t place = (bits & 0xffffffff) >> 1;
  if (bits >> 48 != kTag >> 48 || (bits & kOfChannel) != kind || place >= kTimedCalls) return {};
  return {&timed[place], bits >> 32 & 0xffff};
}

}  // namespace

bool CallsAreTimed() noexcept { return recording.times_calls && step_gate.traces_calls(); }

void* BeginTimedCall(PluginCommunicator* comm, EntryPoint op) noexcept {
  if (comm == nullptr || !CallsAreTimed()) return nullptr;
  const uint64_t count = next_timed.fetch_add(1, std::memory_order_relaxed);
  const uint64_t place = count % kTimedCalls;
  const uint64_t use = count / kTimedCalls & 0xffff;
  TimedCall& call = timed[place];
  // Before the rest, so that who reads the rest for an earlier use sees that it is over.
  call.word.store(use << kUseShift, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  call.comm.store(comm, std::memory_order_relaxed);
  call.op.store(static_cast<uint16_t>(op), std::memory_order_relaxed);
  call.number.store(NextReported(comm), std::memory_order_relaxed);
  return ToHandle(kTag | use << 32 | place << 1);
}

void* BeginTimedChannel(void* call, uint64_t gpu_ns) noexcept {
  const Use known = UseOf(call, 0);
  if (known.call == nullptr || (gpu_ns & kClock) == 0) return nullptr;
  uint64_t none = known.number << kUseShift;
  const bool is_first = known.call->word.compare_exchange_strong(none, none | (gpu_ns & kClock));
  return is_first ? ToHandle(reinterpret_cast<uint64_t>(call) | kOfChannel) : nullptr;
}

void EndTimedChannel(void* channel, uint64_t gpu_ns) noexcept {
  const Use known = UseOf(channel, kOfChannel);
  if (known.call == nullptr) return;
  const uint64_t word = known.call->word.load(std::memory_order_acquire);
  const uint64_t took_ns = (gpu_ns - word) & kClock;
  if (word >> kUseShift != known.number || took_ns == 0 || took_ns > kLongestNs) return;
  const Guard guard;
  if (!guard) return;
  const uint32_t comm = IdOf(known.call->comm.load(std::memory_order_relaxed));
  const CallTimeEvent event{.time_ns = Stamp(),
                            .number = known.call->number.load(std::memory_order_relaxed),
                            .gpu_ns = took_ns,
                            .comm = comm,
                            .op = known.call->op.load(std::memory_order_relaxed),
                            .reserved = 0};
  std::atomic_thread_fence(std::memory_order_acquire);
  if (comm == 0 || known.call->word.load(std::memory_order_relaxed) != word) return;
  Emit(guard.thread(), event);
}

}  // namespace gpuprobe::injector::nccl
