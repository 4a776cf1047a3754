#include "injector/cupti/rivals.h"

#include <atomic>
#include <cstring>
#include <ctime>

namespace gpuprobe::injector {

namespace {

constexpr uint32_t kKinds = 256;  // CUDA 13.0 has 60

constinit CuptiApi const* real_api = nullptr;
constinit RivalHooks rival_hooks;
constinit std::atomic<bool> registered{false};
constinit std::atomic<uint64_t> enabled[kKinds / 64] = {};
constinit std::atomic<uint64_t> last_call_ns{0};

void NoteCall() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  last_call_ns.store(static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec),
                     std::memory_order_relaxed);
}

CUptiResult CUPTIAPI Register(CUpti_BuffersCallbackRequestFunc requested,
                              CUpti_BuffersCallbackCompleteFunc completed) {
  NoteCall();
  registered.store(true, std::memory_order_release);
  if (rival_hooks.registers != nullptr) rival_hooks.registers(rival_hooks.self);
  return real_api->ActivityRegisterCallbacks(requested, completed);
}

CUptiResult CUPTIAPI Enable(CUpti_ActivityKind kind) {
  NoteCall();
  const auto bit = static_cast<uint32_t>(kind);
  if (bit < kKinds) enabled[bit / 64].fetch_or(uint64_t{1} << (bit % 64), std::memory_order_relaxed);
  return real_api->ActivityEnable(kind);
}

CUptiResult CUPTIAPI Disable(CUpti_ActivityKind kind) {
  NoteCall();
  const auto bit = static_cast<uint32_t>(kind);
  if (bit < kKinds) enabled[bit / 64].fetch_and(~(uint64_t{1} << (bit % 64)), std::memory_order_relaxed);
  return real_api->ActivityDisable(kind);
}

template <typename Function>
void* Instead(const void* value, Function real, Function ours) noexcept {
  const bool same = value == nullptr || value == reinterpret_cast<const void*>(real);
  return real != nullptr && same ? reinterpret_cast<void*>(ours) : nullptr;
}

}  // namespace

void WatchRivals(const CuptiApi& api, RivalHooks hooks) noexcept {
  rival_hooks = hooks;
  real_api = &api;
}

void* RivalReplacement(const char* symbol, const void* value) noexcept {
  if (real_api == nullptr || std::strncmp(symbol, "cuptiActivity", 13) != 0) return nullptr;
  const char* name = symbol + 13;
  if (std::strcmp(name, "RegisterCallbacks") == 0)
    return Instead(value, real_api->ActivityRegisterCallbacks, Register);
  if (std::strcmp(name, "Enable") == 0) return Instead(value, real_api->ActivityEnable, Enable);
  if (std::strcmp(name, "Disable") == 0) return Instead(value, real_api->ActivityDisable, Disable);
  return nullptr;
}

bool RivalIsActive() noexcept {
  if (!registered.load(std::memory_order_acquire)) return false;
  for (const auto& kinds : enabled) {
    if (kinds.load(std::memory_order_relaxed) != 0) return true;
  }
  return false;
}

uint64_t RivalLastCallNs() noexcept { return last_call_ns.load(std::memory_order_relaxed); }

void ForgetRivalsForTest() noexcept {
  real_api = nullptr;
  rival_hooks = {};
  registered.store(false);
  last_call_ns.store(0);
  for (auto& kinds : enabled) kinds.store(0);
}

}  // namespace gpuprobe::injector
