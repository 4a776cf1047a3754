#include "injector/capture/nccl/awaited.h"

#include "injector/base/losses.h"
#include "injector/capture/nccl/scopes.h"
#include "injector/capture/nccl/thread_calls.h"
#include "injector/core/event_ring.h"

namespace gpuprobe::injector::nccl {

struct Awaited {
  std::atomic<bool> claimed;
  std::atomic<bool> open;          // the caller has not left it yet
  std::atomic<CallBatch*> batch;   // null: being put here, or taken
  std::atomic<uint32_t> writers;   // threads that note something
  std::atomic<uint32_t> looks;     // of the probe's thread so far
  std::atomic<uint32_t> launches;  // noted
  std::atomic<uint32_t> seen;      // launches at the last look
  std::atomic<uint64_t> number;    // in the order of the calls
  uint32_t thread;                 // ThreadDef.id of the caller
  std::atomic<bool> told;          // the calls were reported, their kernels were not there yet
};

namespace {

constexpr int kSpins = 4096;

constinit Awaited places[kAwaited] = {};
constinit std::atomic<uint64_t> last_number{0};

// Keeps the batch where it is while something is noted.
class Writer {
 public:
  explicit Writer(Awaited& place) noexcept : place_(place) {
    place.writers.fetch_add(1, std::memory_order_seq_cst);
    batch_ = place.batch.load(std::memory_order_seq_cst);
  }
  ~Writer() { place_.writers.fetch_sub(1, std::memory_order_release); }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  CallBatch* batch() const noexcept { return batch_; }

 private:
  Awaited& place_;
  CallBatch* batch_;
};

// Null when there is none, or when NCCL's thread holds it for too long. With `left`, the number of a call
// that its caller has left: also null if the place belongs to another call by now.
CallBatch* Take(Awaited& place, const uint64_t* left) noexcept {
  CallBatch* batch = place.batch.exchange(nullptr, std::memory_order_seq_cst);
  if (batch == nullptr) return nullptr;
  for (int i = 0; i < kSpins; ++i) {
    if (place.writers.load(std::memory_order_seq_cst) == 0) {
      const bool same = left == nullptr || (place.number.load(std::memory_order_relaxed) == *left &&
                                            !place.open.load(std::memory_order_acquire));
      if (!same) break;
      batch->launch_count = place.launches.load(std::memory_order_acquire);
      return batch;
    }
    __builtin_ia32_pause();
  }
  place.batch.store(batch, std::memory_order_seq_cst);
  return nullptr;
}

void Free(Awaited& place) noexcept { place.claimed.store(false, std::memory_order_release); }

bool Names(const CallBatch& batch, const void* handle) noexcept {
  const uint32_t count = CallCount(batch);
  for (uint32_t i = 0; i < count; ++i) {
    if (batch.calls[i].handle == handle) return true;
  }
  return false;
}

// How sure it is that a kernel carries calls of the batch.
enum Fit : int { kNone, kParts, kWhole };
struct Match {
  Fit fit = kNone;
  const PendingCall* call = nullptr;  // one that it carries
};

// A kernel that carries all calls of a group has the name of one of them, and may be on the stream of
// another.
Match Matching(const CallBatch& batch, const SeenLaunch& launch) noexcept {
  bool names_stream = false;
  const PendingCall* by_op = nullptr;
  const uint32_t count = CallCount(batch);
  for (uint32_t i = 0; i < count; ++i) {
    const PendingCall& call = batch.calls[i];
    // The default streams of several devices have one name.
    if (PlaceOf(call.context, call.device, launch) == Place::kOther) continue;
    if (IsOfAnother(call.on_device, launch)) continue;
    const bool fits = call.event.op < 16 && (launch.ops >> call.event.op & 1u) != 0;
    if (call.stream == launch.stream && fits) return {kWhole, &call};
    names_stream |= call.stream == launch.stream;
    if (fits && by_op == nullptr) by_op = &call;
  }
  return names_stream && by_op != nullptr ? Match{kParts, by_op} : Match{};
}

void Report(ThreadState& thread, Awaited& place, CallBatch& batch) noexcept {
  if (place.told.load(std::memory_order_relaxed)) return;
  for (uint32_t i = 0; i < batch.call_count; ++i) batch.calls[i].event.thread = place.thread;
  EmitBatch(thread, batch);
}

void ReportAndFree(ThreadState& thread, Awaited& place, uint64_t number) noexcept {
  CallBatch* batch = Take(place, &number);
  if (batch == nullptr) return;
  Report(thread, place, *batch);
  ReleaseGroupBatch(batch);
  Free(place);
}

}  // namespace

Awaited* Await(ThreadState& thread, CallBatch* batch) noexcept {
  for (Awaited& place : places) {
    bool expected = false;
    if (place.claimed.load(std::memory_order_relaxed) ||
        !place.claimed.compare_exchange_strong(expected, true, std::memory_order_acquire)) {
      continue;
    }
    const EventRing* ring = RingOf(thread);
    place.thread = ring == nullptr ? 0 : ring->thread_id();
    place.told.store(false, std::memory_order_relaxed);
    place.looks.store(0, std::memory_order_relaxed);
    place.launches.store(0, std::memory_order_relaxed);
    place.seen.store(0, std::memory_order_relaxed);
    place.number.store(last_number.fetch_add(1, std::memory_order_relaxed), std::memory_order_relaxed);
    place.open.store(true, std::memory_order_relaxed);
    place.batch.store(batch, std::memory_order_seq_cst);
    return &place;
  }
  return nullptr;
}

void LeaveAwaited(Awaited* place) noexcept {
  if (place != nullptr) place->open.store(false, std::memory_order_release);
}

CallBatch* StopAwaiting(Awaited* place) noexcept {
  if (place == nullptr) return nullptr;
  // A thread that took the batch for this place's previous call puts it back at once.
  CallBatch* batch = place->batch.load(std::memory_order_acquire);
  for (int i = 0; i < kSpins && batch == nullptr; ++i) {
    __builtin_ia32_pause();
    batch = place->batch.load(std::memory_order_acquire);
  }
  const uint32_t own = batch == nullptr ? 0 : batch->launch_count;
  batch = Take(*place, nullptr);
  if (batch == nullptr) {
    LeaveAwaited(place);
    return nullptr;
  }
  if (own != 0) batch->launch_count = own;  // noted on the caller's thread, in the same list
  Free(*place);
  return batch;
}

void ResolveAwaited(ThreadState& thread, const void* handle) noexcept {
  for (Awaited& place : places) {
    if (!place.claimed.load(std::memory_order_relaxed) || place.open.load(std::memory_order_acquire))
      continue;
    const uint64_t number = place.number.load(std::memory_order_relaxed);
    bool mine = false;
    {
      const Writer writer(place);
      mine = writer.batch() != nullptr && Names(*writer.batch(), handle);
    }
    if (mine) ReportAndFree(thread, place, number);
  }
}

namespace {

// One NCCL thread launches all kernels of a group: it continues with its current batch, else starts on the
// oldest untouched one that fits.
Awaited* BatchOf(const ThreadCalls& calls, const SeenLaunch& launch) noexcept {
  Awaited* best = nullptr;
  int best_rank = 0;
  uint64_t best_number = 0;
  for (Awaited& place : places) {
    if (!place.claimed.load(std::memory_order_relaxed)) continue;
    const Writer writer(place);
    const Fit fit = writer.batch() == nullptr ? kNone : Matching(*writer.batch(), launch).fit;
    if (fit == kNone) continue;
    const uint64_t number = place.number.load(std::memory_order_relaxed);
    const bool fresh = place.launches.load(std::memory_order_acquire) == 0;
    if (!fresh && calls.served == &place && calls.served_number == number) return &place;
    const int rank = (fresh ? 2 : 0) + fit;
    if (rank < best_rank || (rank == best_rank && best_number <= number)) continue;
    best = &place;
    best_rank = rank;
    best_number = number;
  }
  return best;
}

}  // namespace

bool NoteAwaitedLaunch(ThreadState& thread, const SeenLaunch& launch) noexcept {
  ThreadCalls& calls = CallsOf(thread);
  Awaited* best = BatchOf(calls, launch);
  if (best == nullptr) return false;
  const Writer writer(*best);
  CallBatch* batch = writer.batch();
  if (batch == nullptr) return false;
  calls.served = best;
  calls.served_number = best->number.load(std::memory_order_relaxed);
  if (best->told.load(std::memory_order_relaxed)) {
    best->launches.fetch_add(1, std::memory_order_release);
    const PendingCall* call = Matching(*batch, launch).call;
    if (call != nullptr && call->event.plan != 0)
      Emit(thread, PlanLaunchEvent{call->event.plan, launch.correlation, 0, 0, 0, 0});
    return true;
  }
  const uint32_t at = best->launches.load(std::memory_order_relaxed);
  if (at == batch->launch_capacity) {
    CountLoss(wire::LossReason::kLossEventRingFull);
    return true;
  }
  batch->launches[at] = launch;
  best->launches.store(at + 1, std::memory_order_release);
  return true;
}

void TellAwaited(const ThreadState& thread, void (*tell)(CallBatch& batch, const void* argument),
                 const void* argument) noexcept {
  const ThreadCalls& calls = CallsOf(thread);
  Awaited* place = calls.served;
  if (place == nullptr) return;
  const Writer writer(*place);
  if (writer.batch() == nullptr || place->told.load(std::memory_order_relaxed) ||
      place->number.load(std::memory_order_relaxed) != calls.served_number) {
    return;
  }
  tell(*writer.batch(), argument);
}

void LookAtAwaited(ThreadState& thread, bool final) noexcept {
  for (Awaited& place : places) {
    const uint64_t number = place.number.load(std::memory_order_acquire);
    if (!place.claimed.load(std::memory_order_acquire) || place.open.load(std::memory_order_acquire) ||
        place.batch.load(std::memory_order_acquire) == nullptr) {
      continue;
    }
    const uint32_t looks = place.looks.fetch_add(1, std::memory_order_relaxed) + 1;
    const uint32_t launches = place.launches.load(std::memory_order_acquire);
    const bool quiet = place.seen.exchange(launches, std::memory_order_relaxed) == launches && launches != 0;
    if (final || (looks > 1 && quiet)) {
      ReportAndFree(thread, place, number);
    } else if (looks > kLooksWithoutKernel && !place.told.load(std::memory_order_relaxed)) {
      CallBatch* batch = Take(place, &number);
      if (batch == nullptr) continue;
      Report(thread, place, *batch);
      place.told.store(true, std::memory_order_relaxed);
      place.batch.store(batch, std::memory_order_seq_cst);
    }
  }
}

}  // namespace gpuprobe::injector::nccl
