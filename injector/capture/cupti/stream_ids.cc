#include "injector/capture/cupti/stream_ids.h"

#include <atomic>

namespace gpuprobe::injector {

namespace {

constexpr size_t kProbes = 16;

struct StreamPlace {
  std::atomic<uintptr_t> handle;
  std::atomic<uint64_t> ids;  // context above, stream below
};

constinit StreamPlace places[kMaxStreams] = {};

size_t PlaceOf(uintptr_t handle, size_t probe) noexcept {
  return (handle / alignof(max_align_t) + probe) % kMaxStreams;
}

}  // namespace

void NoteStream(const void* handle, StreamIds ids) noexcept {
  const auto wanted = reinterpret_cast<uintptr_t>(handle);
  if (wanted == 0) return;
  StreamPlace* place = nullptr;
  for (size_t i = 0; i < kProbes && place == nullptr; ++i) {
    StreamPlace& candidate = places[PlaceOf(wanted, i)];
    uintptr_t there = 0;
    if (candidate.handle.compare_exchange_strong(there, wanted, std::memory_order_relaxed) || there == wanted)
      place = &candidate;
  }
  if (place == nullptr) {
    place = &places[PlaceOf(wanted, 0)];
    place->ids.store(0, std::memory_order_relaxed);
    place->handle.store(wanted, std::memory_order_relaxed);
  }
  place->ids.store(uint64_t{ids.context} << 32 | ids.stream, std::memory_order_release);
}

bool FindStream(const void* handle, StreamIds* ids) noexcept {
  const auto wanted = reinterpret_cast<uintptr_t>(handle);
  if (wanted == 0) return false;
  for (size_t i = 0; i < kProbes; ++i) {
    const StreamPlace& place = places[PlaceOf(wanted, i)];
    if (place.handle.load(std::memory_order_relaxed) != wanted) continue;
    const uint64_t found = place.ids.load(std::memory_order_acquire);
    *ids = {static_cast<uint32_t>(found >> 32), static_cast<uint32_t>(found)};
    return found != 0;
  }
  return false;
}

}  // namespace gpuprobe::injector
