#include "injector/core/event_ring.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "injector/base/losses.h"
#include "injector/base/mapping.h"

namespace gpuprobe::injector {

namespace {

constinit EventRing rings[kRingSlots];
constinit std::atomic<char*> mapping{nullptr};
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

bool MapRings(size_t part) noexcept {
  if (mapping.load(std::memory_order_acquire) != nullptr) return true;
  mapped_bytes = kAllRingBytes / part;
  void* memory = MapMemory(mapped_bytes);
  if (memory == nullptr) return false;
  // A child that fork() makes has no use for it, and so does not pay for copying its page tables.
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

EventRing* ClaimRing(uint32_t tid) noexcept {
  if (mapping.load(std::memory_order_acquire) == nullptr) return nullptr;
  for (EventRing& ring : rings) {
    auto state = ring.slot_.load(std::memory_order_relaxed);
    const bool released = state == static_cast<uint32_t>(EventRing::Slot::kReleased);
    if (!released && state != static_cast<uint32_t>(EventRing::Slot::kFree)) continue;
    if (released && ring.head_.load(std::memory_order_relaxed) - ring.tail_.load(std::memory_order_relaxed) >
                        ring.bytes_ / 2) {
      continue;
    }
    if (!ring.slot_.compare_exchange_strong(state, static_cast<uint32_t>(EventRing::Slot::kClaiming),
                                            std::memory_order_acquire)) {
      continue;
    }
    ring.thread_id_ = next_thread_id.fetch_add(1, std::memory_order_relaxed);
    ring.known_tail_ = ring.tail_.load(std::memory_order_acquire);
    ring.woke_ = false;
    ThreadBeginsEvent begins{.thread_id = ring.thread_id_, .tid = tid, .name = {}};
    ReadThreadName(begins.name);
    ring.slot_.store(static_cast<uint32_t>(EventRing::Slot::kOwned), std::memory_order_release);
    ring.Push(ThreadBeginsEvent::kType, &begins, sizeof(begins), {});
    return &ring;
  }
  return nullptr;
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
  if (drained) madvise(ring.data_, ring.bytes_, MADV_DONTNEED);
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
    if (used + needed > bytes_) return false;
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
  thread.ring = ClaimRing(thread.tid);
  thread.ring_refused = thread.ring == nullptr;
  thread.rings_given_back = given_back;
  return thread.ring;
}

bool EmitBytes(ThreadState& thread, EventType type, const void* event, size_t event_bytes,
               std::string_view text) noexcept {
  EventRing* ring = RingOf(thread);
  if (ring == nullptr) {
    CountLoss(wire::LossReason::kLossThreadSlotsFull);
    return false;
  }
  if (ring->Push(type, event, event_bytes, text)) return true;
  CountLoss(wire::LossReason::kLossEventRingFull);
  return false;
}

}  // namespace gpuprobe::injector
