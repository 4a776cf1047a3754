#include "injector/capture/nvtx/names.h"

#include <algorithm>
#include <atomic>

#include "injector/base/lifecycle.h"
#include "injector/base/losses.h"
#include "injector/base/text.h"
#include "injector/capture/cupti/stream_ids.h"
#include "injector/core/event_ring.h"
#include "injector/core/guard.h"
#include "injector/core/host_clock.h"

namespace gpuprobe::injector::nvtx {

namespace {

enum class EarlyNameState : uint32_t { kFree, kBusy, kWaiting };
enum class Named : uint32_t { kThread, kCategory, kDevice };

struct EarlyName {
  std::atomic<EarlyNameState> place;
  Named what;
  uint32_t number;  // tid or category
  uint32_t bytes;
  uint64_t domain;
  char text[kEarlyNameBytes];
};

constinit EarlyName early[kEarlyNames] = {};
constinit std::atomic<uint32_t> waiting{0};

// Early names are reported on the probe's thread, after events that the program's threads have emitted since
// the probe went live. This time, in ns, is before all of those, so that a rename is drained later.
constexpr uint64_t kBeforeAllEvents = 1;

void EmitName(ThreadState& thread, uint64_t time_ns, Named what, uint32_t number, uint64_t domain,
              std::string_view name) noexcept {
  name = Slice(name, 0, kMaxNameBytes);
  switch (what) {
    case Named::kThread:
      Emit(thread, ThreadNameEvent{time_ns, number, 0}, name);
      return;
    case Named::kCategory:
      Emit(thread, CategoryNameEvent{time_ns, domain, number, 0}, name);
      return;
    case Named::kDevice:
      constexpr auto kDevice = static_cast<uint32_t>(wire::NamedObject::kNamedObjectDevice);
      Emit(thread, ObjectNameEvent{time_ns, 0, number, kDevice, 0}, name);
      return;
  }
}

// Not for a probe that is closed or was yielded: its names are never asked for.
bool MayGoLive() noexcept {
  const LifecycleState state = CurrentLifecycle();
  return state == LifecycleState::kOff || state == LifecycleState::kStarting;
}

void Keep(Named what, uint32_t number, uint64_t domain, std::string_view name) noexcept {
  for (EarlyName& place : early) {
    EarlyNameState free = EarlyNameState::kFree;
    if (place.place.load(std::memory_order_relaxed) != free ||
        !place.place.compare_exchange_strong(free, EarlyNameState::kBusy, std::memory_order_acquire)) {
      continue;
    }
    place.what = what;
    place.number = number;
    place.domain = domain;
    place.bytes = static_cast<uint32_t>(std::min(name.size(), kEarlyNameBytes));
    std::copy_n(name.data(), place.bytes, place.text);
    place.place.store(EarlyNameState::kWaiting, std::memory_order_release);
    waiting.fetch_add(1, std::memory_order_release);
    return;
  }
  CountLoss(wire::LossReason::kLossDefinitionsFull);
}

void Name(Named what, uint32_t number, uint64_t domain, std::string_view name) noexcept {
  if (const Guard guard; guard) return EmitName(guard.thread(), Stamp(), what, number, domain, name);
  CountRefused();
  if (MayGoLive()) Keep(what, number, domain, name);
}

}  // namespace

void NameThread(uint32_t tid, std::string_view name) noexcept {
  if (tid == 0) tid = CurrentThread().tid;
  if (tid != 0) Name(Named::kThread, tid, 0, name);
}

void NameCategory(const void* domain, uint32_t category, std::string_view name) noexcept {
  Name(Named::kCategory, category, reinterpret_cast<uint64_t>(domain), name);
}

void NameStream(const void* stream, std::string_view name) noexcept {
  const Guard guard;
  StreamIds ids;
  if (!guard || !FindStream(stream, &ids)) return;
  constexpr auto kStream = static_cast<uint32_t>(wire::NamedObject::kNamedObjectStream);
  Emit(guard.thread(), ObjectNameEvent{Stamp(), ids.context, ids.stream, kStream, 0},
       Slice(name, 0, kMaxNameBytes));
}

void NameDevice(uint32_t ordinal, std::string_view name) noexcept { Name(Named::kDevice, ordinal, 0, name); }

void TellNames() noexcept {
  if (waiting.load(std::memory_order_acquire) == 0 || CurrentLifecycle() != LifecycleState::kLive) return;
  for (EarlyName& place : early) {
    if (place.place.load(std::memory_order_acquire) != EarlyNameState::kWaiting) continue;
    EmitName(CurrentThread(), kBeforeAllEvents, place.what, place.number, place.domain,
             {place.text, place.bytes});
    waiting.fetch_sub(1, std::memory_order_relaxed);
    place.place.store(EarlyNameState::kFree, std::memory_order_release);
  }
}

}  // namespace gpuprobe::injector::nvtx
