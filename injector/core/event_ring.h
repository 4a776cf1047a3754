// One thread's queue of events towards the probe's own thread: a single-producer single-consumer ring of
// bytes.
//
// events.h says what events mean, event_drain.h what becomes of them. Thread: Push and the claim on the
// owning application thread, everything that reads on the one consumer. Allocation: none; all rings share one
// mapping that is made at start, and the kernel provides its pages when they are first written. When a thread
// ends, the next new thread gets its ring at once, even before it is drained: an event in the ring marks
// where the one thread's events end and the other's begin, so that a program may start threads as fast as it
// likes. When all rings have owners, threads borrow one of the last few for each event, in the same way.
// Failure: a full ring drops the event and counts LOSS_EVENT_RING_FULL, once for each record that is missing;
// what ends a push/pop range always finds room. LOSS_THREAD_SLOTS_FULL counts events for which every ring
// was in other hands.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "injector/core/events.h"
#include "injector/core/thread_state.h"

namespace gpuprobe::injector {

inline constexpr int kRingSlots = 512;
inline constexpr int kSharedRings = 32;  // the last ones
inline constexpr int kOwnRings = kRingSlots - kSharedRings;
inline constexpr bool IsShared(int slot) noexcept { return slot >= kOwnRings; }
// 43,000 launches. A thread may emit 35,000 events a second (PyTorch, when it annotates each operator), and
// on a busy machine a ring of half this size overflowed.
inline constexpr size_t kRingBytes = size_t{2} << 20;
// The consumer is woken when a ring holds this much, or is half full.
inline constexpr size_t kWakeBytes = size_t{1} << 19;
// Beyond these, rings are smaller: a program with that many threads emits few events on each.
inline constexpr int kLargeRings = 64;
inline constexpr size_t kSmallRingBytes = size_t{1} << 17;
inline constexpr size_t kAllRingBytes =
    kLargeRings * kRingBytes + (kRingSlots - kLargeRings) * kSmallRingBytes;

// A ring is too long for the processor's nearest caches, so memory is prefetched this far ahead.
inline constexpr size_t kPrefetchBytes = 1024;

// Precedes each event in the ring. Events start at multiples of 8.
struct EventHeader {
  uint32_t total_bytes;  // this header, the event, its text and padding; 0: the rest of the ring is unused,
                         // go on at its start
  uint16_t type;
  uint16_t text_bytes;
};
static_assert(sizeof(EventHeader) == 8);

// Only ends of ranges may fill a ring's last bytes: of all that a thread has open, as many as have records.
inline constexpr size_t kKeptForEnds = (kMaxRangeDepth + 1) * (sizeof(EventHeader) + sizeof(RangeCloseEvent));

class EventRing {
 public:
  enum class Slot : uint32_t { kFree, kClaiming, kOwned, kReleased };

  // Producer. `event` is copied, then `text`, which is cut at kMaxNameBytes. False when there was no room.
  bool Push(EventType type, const void* event, size_t event_bytes, std::string_view text) noexcept;
  // The same, as a fast path: false, with nothing done, at the ring's end or when the consumer would have to
  // be woken.
  template <typename Event>
  [[gnu::always_inline]] bool PushFast(const Event& event, std::string_view text) noexcept {
    if (text.size() > kMaxNameBytes) return false;
    const size_t total = (sizeof(EventHeader) + sizeof(Event) + text.size() + 7) & ~size_t{7};
    const uint64_t head = head_.load(std::memory_order_relaxed);
    const uint64_t at = head & (bytes_ - 1);
    if (at + total > bytes_ || head + total - known_tail_ > wake_bytes_) return false;
    const EventHeader header{static_cast<uint32_t>(total), static_cast<uint16_t>(Event::kType),
                             static_cast<uint16_t>(text.size())};
    char* out = data_ + at;
    __builtin_prefetch(out + kPrefetchBytes, 1);
    std::memcpy(out, &header, sizeof(header));
    std::memcpy(out + sizeof(header), &event, sizeof(event));
    if (!text.empty()) std::memcpy(out + sizeof(header) + sizeof(event), text.data(), text.size());
    head_.store(head + total, std::memory_order_release);
    return true;
  }

  // Consumer. The position behind what the producer has published so far, for Peek's `end`.
  uint64_t PublishedEnd() const noexcept { return head_.load(std::memory_order_acquire); }
  uint64_t ReadPosition() const noexcept { return tail_.load(std::memory_order_relaxed); }
  // The event at `position` (updated past a wrap), null at `end`. The pointer is good until Consume passes
  // it; the consumer may change the event until then.
  EventHeader* Peek(uint64_t* position, uint64_t end) const noexcept;
  // Returns the space before `position` to the producer.
  void Consume(uint64_t position) noexcept { tail_.store(position, std::memory_order_release); }

  Slot slot() const noexcept { return static_cast<Slot>(slot_.load(std::memory_order_acquire)); }
  // Producer. ThreadDef.id: one for each life of the slot.
  uint32_t thread_id() const noexcept { return thread_id_; }
  size_t bytes() const noexcept { return bytes_; }

 private:
  friend EventRing* ClaimRing(uint32_t tid, uint32_t thread_id) noexcept;
  friend bool EmitShared(ThreadState& thread, EventType type, const void* event, size_t event_bytes,
                         std::string_view text, bool* pushed) noexcept;
  bool TryClaim(uint64_t most_bytes, bool shared) noexcept;
  void BeginThread(uint32_t tid, uint32_t thread_id) noexcept;
  friend void ReleaseRing(EventRing& ring) noexcept;
  friend bool FreeRing(EventRing& ring) noexcept;
  friend bool MapRings(size_t part) noexcept;

  alignas(64) std::atomic<uint64_t> head_{0};  // producer's
  uint64_t known_tail_ = 0;                    // producer's copy of tail_, refreshed when the ring looks full
  char* data_ = nullptr;
  uint64_t bytes_ = 0;       // a power of two
  uint64_t wake_bytes_ = 0;  // kWakeBytes, or half
  uint32_t thread_id_ = 0;
  bool woke_ = false;  // producer asked for a drain since the ring last held less than wake_bytes_
  alignas(64) std::atomic<uint64_t> tail_{0};  // consumer's
  std::atomic<uint32_t> slot_{0};
  std::atomic<bool> charged_{false};  // to the account; changed by whoever has the slot in kClaiming
};

// Maps the memory of all rings once; false when the kernel refuses. Until then no ring can be claimed.
// `part` is a power of two up to kSmallestRingPart: where memory is limited, rings are that much shorter.
inline constexpr size_t kSmallestRingPart = 32;  // 64 and 4 KiB, 5.8 MiB in all
bool MapRings(size_t part = 1) noexcept;
// Rings that threads have to themselves take at most `bytes` of memory together, long ones seven
// eighths of it. Called once, before any thread claims one.
void LimitRings(size_t bytes) noexcept;
// Undoes MapRings as long as no thread has a ring.
void UnmapRings() noexcept;

// A free ring for the calling thread, or one whose thread has ended and which is not half full, or null.
EventRing* ClaimRing(uint32_t tid, uint32_t thread_id) noexcept;

// ThreadDef.id: one for each thread that emits something, or is to be named otherwise.
uint32_t NewThreadId() noexcept;
uint32_t ThreadIdOf(ThreadState& thread) noexcept;

// The producer's last call: the ring is still drained, then the consumer frees the slot.
void ReleaseRing(EventRing& ring) noexcept;

// Consumer: returns the pages of a released, drained ring to the kernel. False: another thread has claimed
// it.
bool FreeRing(EventRing& ring) noexcept;

// Counts returned rings: a thread that was refused one tries again when this has changed.
extern std::atomic<uint32_t> rings_given_back;

// All slots, for the consumer.
EventRing& RingAt(int slot) noexcept;

// The probe's thread sleeps on this word (futex). Producers whose ring has passed wake_bytes_ bump it, and so
// does any other code that needs the thread to act. The low half counts calls for a flush, the high half
// calls for a look at new objects (Part::look), which costs much less.
extern std::atomic<uint32_t> wake_word;
inline constexpr uint32_t kLookStep = 1u << 16;
inline bool AsksForFlush(uint32_t now, uint32_t seen) noexcept { return (now ^ seen) % kLookStep != 0; }
void WakeProbeThread() noexcept;
void WakeProbeThreadForALook() noexcept;

// Claims a ring for the thread if it has none. Null when none is free.
EventRing* RingOf(ThreadState& thread) noexcept;

// Puts the event into one of the shared rings, and `pushed` says whether there was room. False: all of them
// are claimed.
bool EmitShared(ThreadState& thread, EventType type, const void* event, size_t event_bytes,
                std::string_view text, bool* pushed) noexcept;

bool EmitBytes(ThreadState& thread, EventType type, const void* event, size_t event_bytes,
               std::string_view text) noexcept;

// What producers call, inside a guard: puts the event into the thread's ring. False, with the loss counted,
// when it was dropped.
template <typename Event>
[[gnu::always_inline]] inline bool Emit(ThreadState& thread, const Event& event,
                                        std::string_view text = {}) noexcept {
  static_assert(std::is_trivially_copyable_v<Event> && sizeof(Event) % 8 == 0);
  if (thread.ring != nullptr && thread.ring->PushFast(event, text)) return true;
  return EmitBytes(thread, Event::kType, &event, sizeof(Event), text);
}

}  // namespace gpuprobe::injector
