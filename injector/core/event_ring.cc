#include "injector/core/event_ring.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "injector/base/losses.h"
#include "injector/base/mapping.h"
#include "injector/base/memory_account.h"

namespace gpuprobe::injector {

namespace {

constinit EventRing rings[kRingSlots];
constinit std::atomic<char*> mapping{nullptr};
// A ring is charged from its first claim until its pages are given back. Those that threads share are charged
// to the reserve, so that there always are some.
constinit MemoryShare ring_share;
constinit size_t most_bytes_of_large = SIZE_MAX;
constinit std::atomic<uint32_t> next_thread_id{1};

static_assert((kRingBytes & (kRingBytes - 1)) == 0 && (kSmallRingBytes & (kSmallRingBytes - 1)) == 0);
size_t mapped_bytes = 0;

void ReadThreadName(char (&name)[16]) noexcept {
  char buffer[16] = {};
  if (prctl(PR_GET_NAME, buffer, 0, 0, 0) == 0) std::memcpy(name, buffer, sizeof(buffer));
}

}  // namespace

constinit std::atomic<uint32_t> wake_word{0};
constinit std::atomic<uint32_t> rings_given_back{0};

namespace {

void Wake(uint32_t step) noexcept {
  wake_word.fetch_add(step, std::memory_order_release);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&wake_word), FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

}  // namespace

void WakeProbeThread() noexcept { Wake(1); }
void WakeProbeThreadForALook() noexcept { Wake(kLookStep); }

void LimitRings(size_t bytes) noexcept {
  ring_share.SetLimit(bytes);
  most_bytes_of_large = bytes / 8 * 7;
}

bool MapRings(size_t part) noexcept {
  if (mapping.load(std::memory_order_acquire) != nullptr) return true;
  mapped_bytes = kAllRingBytes / part;
  void* memory = ReserveAddresses(mapped_bytes);
  if (memory == nullptr) return false;
  // Keeps the rings out of core dumps.
  madvise(memory, mapped_bytes, MADV_DONTDUMP);
  char* data = static_cast<char*>(memory);
  for (int i = 0; i < kRingSlots; ++i) {
    rings[i].data_ = data;
    rings[i].bytes_ = (i < kLargeRings ? kRingBytes : kSmallRingBytes) / part;
    rings[i].wake_bytes_ = std::min<uint64_t>(kWakeBytes, rings[i].bytes_ / 2);
    data += rings[i].bytes_;
  }
  mapping.store(static_cast<char*>(memory), std::memory_order_release);
  return true;
}

void UnmapRings() noexcept {
  char* memory = mapping.exchange(nullptr);
  if (memory != nullptr) munmap(memory, mapped_bytes);
}

uint32_t NewThreadId() noexcept { return next_thread_id.fetch_add(1, std::memory_order_relaxed); }

uint32_t ThreadIdOf(ThreadState& thread) noexcept {
  if (thread.thread_id == 0) thread.thread_id = NewThreadId();
  return thread.thread_id;
}

// Takes an unowned ring that holds at most `most_bytes`, if the account allows it.
bool EventRing::TryClaim(uint64_t most_bytes, bool shared) noexcept {
  auto state = slot_.load(std::memory_order_relaxed);
  const bool released = state == static_cast<uint32_t>(Slot::kReleased);
  if (!released && state != static_cast<uint32_t>(Slot::kFree)) return false;
  const uint64_t used = head_.load(std::memory_order_relaxed) - tail_.load(std::memory_order_relaxed);
  if (released && used > most_bytes) return false;
  if (!slot_.compare_exchange_strong(state, static_cast<uint32_t>(Slot::kClaiming),
                                     std::memory_order_acquire)) {
    return false;
  }
  if (charged_ || (shared ? ChargeMemory(bytes_, MemoryUse::kNeeded) : ring_share.Charge(bytes_))) {
    charged_ = true;
    return true;
  }
  slot_.store(state, std::memory_order_release);
  return false;
}

void EventRing::BeginThread(uint32_t tid, uint32_t thread_id) noexcept {
  ThreadBeginsEvent begins{.thread_id = thread_id, .tid = tid, .name = {}};
  ReadThreadName(begins.name);
  if (Push(ThreadBeginsEvent::kType, &begins, sizeof(begins), {})) thread_id_ = thread_id;
}

EventRing* ClaimRing(uint32_t tid, uint32_t thread_id) noexcept {
  if (mapping.load(std::memory_order_acquire) == nullptr) return nullptr;
  for (int slot = 0; slot < kOwnRings; ++slot) {
    EventRing& ring = rings[slot];
    const bool large = slot < kLargeRings;
    if (large && !ring.charged_ && ring_share.held() + ring.bytes_ > most_bytes_of_large) continue;
    if (!ring.TryClaim(ring.bytes_ / 2, false)) continue;
    ring.known_tail_ = ring.tail_.load(std::memory_order_acquire);
    ring.woke_ = false;
    ring.slot_.store(static_cast<uint32_t>(EventRing::Slot::kOwned), std::memory_order_release);
    ring.BeginThread(tid, thread_id);
    return &ring;
  }
  return nullptr;
}

// Threads never wait for a shared ring: while its owner is stopped, the others use the remaining ones.
bool EmitShared(ThreadState& thread, EventType type, const void* event, size_t event_bytes,
                std::string_view text, bool* pushed) noexcept {
  *pushed = false;
  if (mapping.load(std::memory_order_acquire) == nullptr) return false;
  const uint32_t id = ThreadIdOf(thread);
  for (uint32_t i = 0; i < kSharedRings; ++i) {
    EventRing& ring = rings[kOwnRings + static_cast<int>((id + i) % kSharedRings)];
    if (!ring.TryClaim(UINT64_MAX, true)) continue;
    if (ring.thread_id_ != id) ring.BeginThread(thread.tid, id);
    *pushed = ring.thread_id_ == id && ring.Push(type, event, event_bytes, text);
    ring.slot_.store(static_cast<uint32_t>(EventRing::Slot::kReleased), std::memory_order_release);
    return true;
  }
  return false;
}

void ReleaseRing(EventRing& ring) noexcept {
  ring.slot_.store(static_cast<uint32_t>(EventRing::Slot::kReleased), std::memory_order_release);
  rings_given_back.fetch_add(1, std::memory_order_release);
}

bool FreeRing(EventRing& ring) noexcept {
  auto state = static_cast<uint32_t>(EventRing::Slot::kReleased);
  if (!ring.slot_.compare_exchange_strong(state, static_cast<uint32_t>(EventRing::Slot::kClaiming),
                                          std::memory_order_acquire)) {
    return false;
  }
  const bool drained =
      ring.head_.load(std::memory_order_relaxed) == ring.tail_.load(std::memory_order_relaxed);
  if (drained) {
    madvise(ring.data_, ring.bytes_, MADV_DONTNEED);
    IsShared(static_cast<int>(&ring - rings)) ? ReleaseMemory(ring.bytes_) : ring_share.Release(ring.bytes_);
    ring.charged_ = false;
  }
  ring.slot_.store(static_cast<uint32_t>(drained ? EventRing::Slot::kFree : EventRing::Slot::kReleased),
                   std::memory_order_release);
  rings_given_back.fetch_add(1, std::memory_order_release);
  return drained;
}

EventRing& RingAt(int slot) noexcept { return rings[slot]; }

bool EventRing::Push(EventType type, const void* event, size_t event_bytes, std::string_view text) noexcept {
  if (text.size() > kMaxNameBytes) text = std::string_view(text.data(), kMaxNameBytes);
  const size_t total = (sizeof(EventHeader) + event_bytes + text.size() + 7) & ~size_t{7};
  const uint64_t head = head_.load(std::memory_order_relaxed);
  const uint64_t to_end = bytes_ - (head & (bytes_ - 1));
  const uint64_t needed = total <= to_end ? total : to_end + total;
  uint64_t used = head - known_tail_;
  if (used + needed > wake_bytes_) {
    known_tail_ = tail_.load(std::memory_order_acquire);
    used = head - known_tail_;
    if (used + needed <= wake_bytes_) {
      woke_ = false;
    } else if (!woke_) {
      woke_ = true;
      WakeProbeThread();
    }
    if (used + needed + (type == EventType::kRangeClose ? 0 : kKeptForEnds) > bytes_) return false;
  }
  uint64_t position = head;
  if (total > to_end) {
    const EventHeader wrap{0, 0, 0};
    std::memcpy(data_ + (position & (bytes_ - 1)), &wrap, sizeof(wrap));
    position += to_end;
  }
  const EventHeader header{static_cast<uint32_t>(total), static_cast<uint16_t>(type),
                           static_cast<uint16_t>(text.size())};
  char* out = data_ + (position & (bytes_ - 1));
  std::memcpy(out, &header, sizeof(header));
  std::memcpy(out + sizeof(header), event, event_bytes);
  if (!text.empty()) std::memcpy(out + sizeof(header) + event_bytes, text.data(), text.size());
  head_.store(position + total, std::memory_order_release);
  return true;
}

EventHeader* EventRing::Peek(uint64_t* position, uint64_t end) const noexcept {
  if (*position >= end) return nullptr;
  auto* header = reinterpret_cast<EventHeader*>(data_ + (*position & (bytes_ - 1)));
  if (header->total_bytes == 0) {
    *position += bytes_ - (*position & (bytes_ - 1));
    if (*position >= end) return nullptr;
    header = reinterpret_cast<EventHeader*>(data_ + (*position & (bytes_ - 1)));
  }
  return header;
}

EventRing* RingOf(ThreadState& thread) noexcept {
  if (thread.ring != nullptr) return thread.ring;
  const uint32_t given_back = rings_given_back.load(std::memory_order_acquire);
  if (thread.ring_refused && thread.rings_given_back == given_back) return nullptr;
  thread.ring = ClaimRing(thread.tid, ThreadIdOf(thread));
  thread.ring_refused = thread.ring == nullptr;
  thread.rings_given_back = given_back;
  return thread.ring;
}

namespace {

// How many records are missing without an event. A launch's time is one sample of many, and driver calls are
// not counted among the records: the machine decides how many are slow.
uint64_t RecordsOf(EventType type) noexcept {
  return type == EventType::kLaunchTime || type == EventType::kDriverCall ? 0 : 1;
}

}  // namespace

bool EmitBytes(ThreadState& thread, EventType type, const void* event, size_t event_bytes,
               std::string_view text) noexcept {
  EventRing* ring = RingOf(thread);
  bool pushed = false;
  if (ring != nullptr) {
    pushed = ring->Push(type, event, event_bytes, text);
  } else if (!EmitShared(thread, type, event, event_bytes, text, &pushed)) {
    CountLoss(wire::LossReason::kLossThreadSlotsFull, RecordsOf(type));
    return false;
  }
  if (!pushed) CountLoss(wire::LossReason::kLossEventRingFull, RecordsOf(type));
  return pushed;
}

}  // namespace gpuprobe::injector
