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

// The addresses of the two marks are the handles that NCCL gets.
struct TimedCall {
  std::atomic<PluginCommunicator*> comm;
  std::atomic<uint64_t> number;
  std::atomic<uint64_t> start_ns;  // by the GPU's clock; 0: no channel has begun
  std::atomic<uint16_t> op;
  char call_mark;
  char channel_mark;
};

constinit TimedCall timed[kTimedCalls] = {};
constinit std::atomic<uint32_t> next_timed{0};

TimedCall* TimedCallOf(void* handle) noexcept {
  const auto address = reinterpret_cast<uintptr_t>(handle);
  const auto first = reinterpret_cast<uintptr_t>(&timed[0]);
  if (address < first || address >= first + sizeof(timed)) return nullptr;
  return &timed[(address - first) / sizeof(TimedCall)];
}

}  // namespace

bool CallsAreTimed() noexcept { return recording.times_calls && step_gate.traces_calls(); }

void* BeginTimedCall(PluginCommunicator* comm, EntryPoint op) noexcept {
  if (comm == nullptr || !CallsAreTimed()) return nullptr;
  TimedCall& call = timed[next_timed.fetch_add(1, std::memory_order_relaxed) % kTimedCalls];
  call.start_ns.store(0, std::memory_order_relaxed);
  call.comm.store(comm, std::memory_order_relaxed);
  call.op.store(static_cast<uint16_t>(op), std::memory_order_relaxed);
  call.number.store(NextReported(comm), std::memory_order_release);
  return &call.call_mark;
}

void* BeginTimedChannel(void* call, uint64_t gpu_ns) noexcept {
  TimedCall* const known = TimedCallOf(call);
  if (known == nullptr || call != &known->call_mark || gpu_ns == 0) return nullptr;
  uint64_t none = 0;
  const bool is_first = known->start_ns.compare_exchange_strong(none, gpu_ns, std::memory_order_relaxed);
  return is_first ? &known->channel_mark : nullptr;
}

void EndTimedChannel(void* channel, uint64_t gpu_ns) noexcept {
  TimedCall* const known = TimedCallOf(channel);
  if (known == nullptr || channel != &known->channel_mark) return;
  const uint64_t start_ns = known->start_ns.load(std::memory_order_relaxed);
  if (start_ns == 0 || gpu_ns <= start_ns || gpu_ns - start_ns > kLongestNs) return;
  const Guard guard;
  if (!guard) return;
  const uint32_t comm = IdOf(known->comm.load(std::memory_order_relaxed));
  if (comm == 0) return;
  Emit(guard.thread(), CallTimeEvent{.time_ns = Stamp(),
                                     .number = known->number.load(std::memory_order_acquire),
                                     .gpu_ns = gpu_ns - start_ns,
                                     .comm = comm,
                                     .op = known->op.load(std::memory_order_relaxed),
                                     .reserved = 0});
}

}  // namespace gpuprobe::injector::nccl
