#include "injector/capture/cupti/guest_records.h"

#include <atomic>
#include <cstring>

#include "injector/base/lifecycle.h"
#include "injector/capture/cupti/guest.h"
#include "injector/capture/cupti/guest_buffers.h"
#include "injector/capture/cupti/guest_calls.h"
#include "injector/capture/cupti/guest_clock.h"
#include "injector/capture/cupti/record_times.h"
#include "injector/core/thread_state.h"
#include "proto/cupti_versions.h"

namespace gpuprobe::injector {
namespace guest {
namespace {

constexpr uint32_t kKinds = 256;  // CUDA 13.0 has 60

// Which of a kind's records the guest gets: those launched after it enabled the kind and before it disabled
// it.
struct KindWindow {
  std::atomic<bool> enabled{false};
  std::atomic<bool> ever{false};
  std::atomic<uint64_t> from{0};  // CUPTI's clock
  std::atomic<uint64_t> until{UINT64_MAX};
  std::atomic<uint32_t> after_launch{0};  // correlation ids
  std::atomic<uint32_t> last_launch{UINT32_MAX};
};

constinit KindWindow windows[kKinds] = {};
constinit std::atomic<int> kinds_enabled{0};
constinit std::atomic<bool> kinds_ever{false};

// Records of one kind are all of one size in one CUPTI.
constinit std::atomic<uint32_t> strides[kKinds] = {};

uint32_t LastLaunch() noexcept {
  uint32_t last = 0;
  ForEachThread([&last](const ThreadState& thread) noexcept {
    const uint32_t launch = thread.newest_launch.load(std::memory_order_relaxed);
    if (launch > last) last = launch;
  });
  return last;
}

struct Stamps {
  uint64_t start;
  uint64_t end;
  uint32_t correlation;
};

// For kinds that both sides may have enabled.
bool ReadStamps(CUpti_Activity* record, Stamps* stamps) noexcept {
  return VisitTimed(record, [stamps](const auto& row) noexcept {
    if constexpr (!requires { row.correlationId; }) {
      *stamps = {row.start, row.end, 0};
    } else if constexpr (requires { row.start; }) {
      *stamps = {row.start, row.end, row.correlationId};
    } else {
      *stamps = {row.timestamp, row.timestamp, row.correlationId};
    }
  });
}

bool IsForGuest(CUpti_Activity* record) noexcept {
  const auto kind = static_cast<uint32_t>(record->kind);
  if (kind >= kKinds) return false;
  const KindWindow& window = windows[kind];
  if (!window.ever.load(std::memory_order_acquire)) return false;
  Stamps stamps{};
  if (!ReadStamps(record, &stamps)) return true;
  const bool numbered = stamps.correlation != 0;
  if ((numbered && stamps.correlation <= window.after_launch.load(std::memory_order_relaxed)) ||
      stamps.start < window.from.load(std::memory_order_relaxed))
    return false;
  return stamps.correlation <= window.last_launch.load(std::memory_order_relaxed) ||
         stamps.start < window.until.load(std::memory_order_relaxed);
}

// Visits the guest's records with their sizes. After its visit a record may be moved to an earlier place: the
// next record has been found by then.
template <typename Visit>
void ForEachOfGuest(uint8_t* buffer, size_t valid_bytes, Visit visit) noexcept {
  CUpti_Activity* record = nullptr;
  CUptiResult result = api->ActivityGetNextRecord(buffer, valid_bytes, &record);
  while (result == CUPTI_SUCCESS) {
    CUpti_Activity* const found = record;
    result = api->ActivityGetNextRecord(buffer, valid_bytes, &record);
    const auto kind = static_cast<uint32_t>(found->kind);
    const auto* const begin = reinterpret_cast<const uint8_t*>(found);
    size_t bytes = static_cast<size_t>(buffer + valid_bytes - begin);
    if (result == CUPTI_SUCCESS) {
      bytes = static_cast<size_t>(reinterpret_cast<const uint8_t*>(record) - begin);
      if (kind < kKinds) strides[kind].store(static_cast<uint32_t>(bytes), std::memory_order_relaxed);
    } else if (result != CUPTI_ERROR_MAX_LIMIT_REACHED && kind < kKinds) {
      bytes = strides[kind].load(std::memory_order_relaxed);  // the rest of the buffer is damaged
    }
    if (bytes != 0 && IsForGuest(found)) visit(found, bytes);
  }
}

void NoteEnabled(KindWindow& window) noexcept {
  Came();
  StartClock();
  window.after_launch.store(LastLaunch(), std::memory_order_relaxed);
  window.last_launch.store(UINT32_MAX, std::memory_order_relaxed);
  window.from.store(RecordTime(), std::memory_order_relaxed);
  window.until.store(UINT64_MAX, std::memory_order_relaxed);
  window.ever.store(true, std::memory_order_release);
  if (!window.enabled.exchange(true)) kinds_enabled.fetch_add(1, std::memory_order_relaxed);
  kinds_ever.store(true, std::memory_order_release);
  AskForBuffer();
}

bool NoteDisabled(KindWindow& window) noexcept {
  if (!window.enabled.exchange(false)) return false;
  window.last_launch.store(LastLaunch(), std::memory_order_relaxed);
  window.until.store(RecordTime(), std::memory_order_relaxed);
  kinds_enabled.fetch_sub(1, std::memory_order_relaxed);
  MaybeGone();
  return true;
}

}  // namespace

bool RecordsAnything() noexcept { return kinds_enabled.load(std::memory_order_relaxed) > 0; }

bool HasRecorded() noexcept { return kinds_ever.load(std::memory_order_acquire); }

CUptiResult CUPTIAPI Enable(CUpti_ActivityKind kind) {
  const auto index = static_cast<uint32_t>(kind);
  if (index >= kKinds) return Functions().ActivityEnable(kind);
  CUptiResult passed = CUPTI_SUCCESS;
  if (PassOn(&passed, [kind] { return bound.ActivityEnable(kind); })) {
    if (passed == CUPTI_SUCCESS && !InForkedChild()) NoteEnabled(windows[index]);
    return passed;
  }
  if (kind == CUPTI_ACTIVITY_KIND_GRAPH_TRACE && !host.needs_kind(host.self, kind) && host.graphs_made())
    return CUPTI_ERROR_NOT_COMPATIBLE;
  KindWindow& window = windows[index];
  if (window.enabled.load(std::memory_order_acquire)) return CUPTI_SUCCESS;
  const CUptiResult result = api->ActivityEnable(kind);
  if (result == CUPTI_SUCCESS) NoteEnabled(window);
  return result;
}

CUptiResult CUPTIAPI Disable(CUpti_ActivityKind kind) {
  const auto index = static_cast<uint32_t>(kind);
  if (index >= kKinds) return Functions().ActivityDisable(kind);
  CUptiResult passed = CUPTI_SUCCESS;
  if (PassOn(&passed, [kind] { return bound.ActivityDisable(kind); })) {
    if (!InForkedChild()) static_cast<void>(NoteDisabled(windows[index]));
    // We subscribed meanwhile, and want it ourselves.
    if (Receiving() && host.needs_kind(host.self, kind)) static_cast<void>(api->ActivityEnable(kind));
    return passed;
  }
  if (!NoteDisabled(windows[index])) return CUPTI_SUCCESS;
  const bool stays =
      host.needs_kind(host.self, kind) ||
      (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL && (host.precautions & cupti::kKernelsStayEnabled) != 0);
  return stays ? CUPTI_SUCCESS : api->ActivityDisable(kind);
}

void DisableAll() noexcept {
  for (uint32_t kind = 0; kind < kKinds; ++kind) {
    if (windows[kind].enabled.load(std::memory_order_acquire)) Disable(static_cast<CUpti_ActivityKind>(kind));
  }
}

void NoteAllDisabled() noexcept {
  for (KindWindow& window : windows) static_cast<void>(NoteDisabled(window));
}

void RestartWindows(uint64_t now) noexcept {
  for (KindWindow& window : windows) {
    if (window.enabled.load(std::memory_order_acquire)) window.from.store(now, std::memory_order_relaxed);
  }
}

}  // namespace guest

void FeedGuest(CUcontext context, uint32_t stream_id, uint8_t* buffer, size_t valid_bytes) noexcept {
  if (!guest::HasRecorded()) return;
  const guest::Call call;  // its buffers go with it
  if (!GuestHasBuffers()) return;
  guest::Buffer from;
  from.context = context;
  from.stream_id = stream_id;
  guest::Buffer to = guest::TakeOpenBuffer();
  guest::ForEachOfGuest(buffer, valid_bytes,
                        [&from, &to](const CUpti_Activity* record, size_t bytes) noexcept {
                          guest::Append(record, bytes, from, &to);
                        });
  if (to.data != nullptr) guest::PutOpenBuffer(to);
}

void CompleteForGuest(CUcontext context, uint32_t stream_id, uint8_t* buffer, size_t bytes,
                      size_t valid_bytes) noexcept {
  const guest::Call call;
  if (!GuestHasBuffers()) return;
  guest::Buffer kept{.data = buffer, .bytes = bytes, .context = context, .stream_id = stream_id};
  guest::ForEachOfGuest(buffer, valid_bytes,
                        [&kept](const CUpti_Activity* record, size_t record_bytes) noexcept {
                          std::memmove(kept.data + kept.used, record, record_bytes);
                          kept.used += record_bytes;
                        });
  guest::Complete(kept);
}

bool GuestNeedsKind(CUpti_ActivityKind kind) noexcept {
  const auto index = static_cast<uint32_t>(kind);
  return index < guest::kKinds && guest::windows[index].enabled.load(std::memory_order_acquire);
}

bool IsGuestsKind(CUpti_ActivityKind kind) noexcept {
  const auto index = static_cast<uint32_t>(kind);
  return index < guest::kKinds && guest::windows[index].ever.load(std::memory_order_acquire);
}

}  // namespace gpuprobe::injector
