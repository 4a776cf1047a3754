#include "tests/sim/cupti/buffers.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

namespace gpusim::cupti {
namespace {

// Records wait this long for company, so that there is something to shuffle.
constexpr std::chrono::milliseconds kWorkerDelay(2);
// What is kept for want of a buffer when no application thread makes a traced call; beyond it records are
// dropped and counted.
constexpr size_t kMaxWaiting = 1U << 20;

thread_local bool inside_completion = false;

void ZeroIfKernel(uint8_t* record) {
  const auto kind = reinterpret_cast<const CUpti_Activity*>(record)->kind;
  if (kind != CUPTI_ACTIVITY_KIND_KERNEL && kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) return;
  auto* const kernel =
      reinterpret_cast<CUpti_ActivityKernel4*>(record);  // later layouts have them there, too
  kernel->start = kernel->end = 0;
}

}  // namespace

Buffers::Buffers(BufferOptions options) : options_(options) {}

Buffers::~Buffers() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (worker_.joinable()) {
    worker_.join();
  }
}

// [assumed] The last pair of callbacks that was registered is the only one, for the whole process: buffers
// that an earlier pair gave come back to the new one. Probe: it takes no buffer for its own that is not of
// its pool, and counts it (foreign_buffer). Fallback: none is needed while other tools are its guests.
// Settled by: gpu-check step "second tool, new style".
void Buffers::Register(BufferCallbacks callbacks) {
  const std::scoped_lock lock(mutex_);
  callbacks_ = std::move(callbacks);
}

bool Buffers::Registered() {
  const std::scoped_lock lock(mutex_);
  return callbacks_.request != nullptr;
}

void Buffers::SetPerThread(bool per_thread) {
  const std::scoped_lock lock(mutex_);
  per_thread_ = per_thread;
}

void Buffers::SetZeroedByTool(bool zeroed) {
  const std::scoped_lock lock(mutex_);
  zeroed_by_tool_ = zeroed;
}

// [documented] cupti_activity.h, CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER: each thread has buffers of
// its own, or all threads share them.
uint64_t Buffers::OwnerOfThisThread() const {
  static std::atomic<uint64_t> next{1};
  thread_local const uint64_t kMine = next.fetch_add(1);
  return per_thread_ ? kMine : 0;
}

// [documented] cupti_activity.h, CUpti_BuffersCallbackRequestFunc: a buffer takes at most as many records as
// the tool says, or with 0 as many as fit.
bool Buffers::Fits(const Buffer& buffer, size_t size) const {
  return !buffer.sealed && buffer.written + buffer.reserved + size <= buffer.size &&
         (buffer.max_records == 0 || buffer.records + buffer.incomplete < buffer.max_records);
}

// The owner's open buffer; one that has no room for `size` is sealed on the way.
Buffers::BufferPtr Buffers::FindOpen(uint64_t owner, size_t size) {
  for (const BufferPtr& buffer : buffers_) {
    if (buffer->sealed || buffer->owner != owner) {
      continue;
    }
    if (Fits(*buffer, size)) {
      return buffer;
    }
    buffer->sealed = true;
    WakeWorker();
  }
  return nullptr;
}

Buffers::BufferPtr Buffers::FindAnyOpen(size_t size) {
  for (const BufferPtr& buffer : buffers_) {
    if (Fits(*buffer, size)) {
      return buffer;
    }
    if (!buffer->sealed) {
      buffer->sealed = true;
      WakeWorker();
    }
  }
  return nullptr;
}

// Calls the tool without the lock.
// [documented] cupti_activity.h (11.8 to 13.5), CUpti_BuffersCallbackRequestFunc: a tool may decline, and
// records are then dropped (see Defects::crashes_on_null).
Buffers::BufferPtr Buffers::RequestBuffer(std::unique_lock<std::mutex>& lock) {
  const BufferCallbacks callbacks = callbacks_;
  if (!callbacks.request) {
    return nullptr;
  }
  const uint64_t owner = OwnerOfThisThread();
  auto buffer = std::make_shared<Buffer>();
  lock.unlock();
  callbacks.request(&buffer->data, &buffer->size, &buffer->max_records);
  lock.lock();
  if (buffer->data == nullptr || buffer->size == 0) {
    if (options_.crash_on_null) {
      std::fprintf(stderr, "gpusim: libcupti: the tool returned a NULL buffer\n");
      std::abort();
    }
    return nullptr;
  }
  // [documented] cupti_activity.h, CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER: CUPTI zeroes a buffer
  // before it fills it, in the thread that asked for it, unless the tool says that its buffers are zeroed.
  buffer->zeroed_by_tool = zeroed_by_tool_;
  if (!zeroed_by_tool_) std::memset(buffer->data, 0, buffer->size);
  buffer->owner = owner;
  buffers_.push_back(buffer);
  starved_ = false;
  StartWorker();
  return buffer;
}

// [assumed] Buffers are requested on the application's thread only, inside a traced call. Probe: the request
// callback may run inside a guard of the program's thread, so it neither locks nor allocates. Fallback: none
// is needed, as it does not ask on which thread it runs. Settled by: gpu-check step "CUPTI trace".
void Buffers::EnsureBuffer() {
  std::unique_lock lock(mutex_);
  const size_t size = finished_.empty() ? 1 : finished_.front().record.size();
  if (FindOpen(OwnerOfThisThread(), size) == nullptr) {
    RequestBuffer(lock);
  }
  if (!finished_.empty()) {
    WakeWorker();
  }
}

// [observed] H100, CUPTI 13.0.1: a buffer that holds a kernel which still runs does not come with an unforced
// flush.
bool Buffers::Reserve(uint32_t correlation, Record incomplete) {
  std::unique_lock lock(mutex_);
  if (slots_.find(correlation) != slots_.end()) {
    return true;  // one runtime call that launches several times: the first has the slot
  }
  BufferPtr buffer = FindOpen(OwnerOfThisThread(), incomplete.size());
  if (buffer == nullptr) {
    buffer = RequestBuffer(lock);
  }
  if (buffer == nullptr || !Fits(*buffer, incomplete.size())) {
    ++dropped_;
    slots_.emplace(correlation, Slot{});
    return false;
  }
  buffer->reserved += incomplete.size();
  ++buffer->incomplete;
  slots_.emplace(correlation, Slot{std::move(buffer), std::move(incomplete)});
  return true;
}

bool Buffers::Holds(uint32_t correlation) {
  const std::scoped_lock lock(mutex_);
  return slots_.contains(correlation);
}

void Buffers::Unreserve(uint32_t correlation) {
  const std::scoped_lock lock(mutex_);
  const auto slot = slots_.find(correlation);
  if (slot == slots_.end()) {
    return;
  }
  if (slot->second.buffer != nullptr) {
    slot->second.buffer->reserved -= slot->second.incomplete.size();
    --slot->second.buffer->incomplete;
  } else if (dropped_ > 0) {
    --dropped_;  // there was nothing to drop
  }
  slots_.erase(slot);
  WakeWorker();
}

// [assumed] Kernels that have not finished when their context is destroyed get no record, and no buffer waits
// for them. Probe: they are counted as no_device_record. Fallback: they are recorded, which is better.
void Buffers::UnreserveAll() {
  const std::scoped_lock lock(mutex_);
  for (auto& [correlation, slot] : slots_) {
    if (slot.buffer != nullptr) {
      slot.buffer->reserved -= slot.incomplete.size();
      --slot.buffer->incomplete;
    }
  }
  slots_.clear();
  WakeWorker();
}

void Buffers::Add(uint32_t correlation, Record record) {
  if (record.empty()) {
    return;
  }
  const std::scoped_lock lock(mutex_);
  if (!callbacks_.request || finished_.size() >= kMaxWaiting) {
    ++dropped_;
    return;
  }
  finished_.push_back(Finished{correlation, std::move(record)});
  starved_ = starved_ && slots_.find(correlation) == slots_.end();
  StartWorker();
  WakeWorker();
}

void Buffers::ZeroKernelTimes() {
  const std::scoped_lock lock(mutex_);
  for (Finished& finished : finished_) ZeroIfKernel(finished.record.data());
  for (const BufferPtr& buffer : buffers_) {
    CUpti_Activity* record = nullptr;
    while (NextRecord(buffer->data, buffer->written, &record, options_.api_version) == CUPTI_SUCCESS)
      ZeroIfKernel(reinterpret_cast<uint8_t*>(record));
  }
}

bool Buffers::AddIfOpen(const Record& record) {
  const std::scoped_lock lock(mutex_);
  const BufferPtr buffer = FindAnyOpen(record.size());
  if (buffer == nullptr) return false;
  WriteInto(*buffer, record);
  return true;
}

void Buffers::WriteNow() {
  std::unique_lock lock(mutex_);
  WriteFinished(lock, /*may_request=*/false);
}

void Buffers::CountDropped(size_t records) {
  const std::scoped_lock lock(mutex_);
  dropped_ += records;
}

// [documented] cupti_activity.h, cuptiActivityGetNumDroppedRecords: reading the count resets it.
size_t Buffers::TakeDropped() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(dropped_, 0);
}

void Buffers::WriteInto(Buffer& buffer, const Record& record) {
  // [documented] cupti_activity.h, CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER: a buffer of a tool that
  // promises zeroed ones, and breaks its promise, may come back with uninitialised values.
  // [assumed] In a buffer that should have been zeroed and is not, what CUPTI leaves is padding, reserved
  // fields, and fields that have no value on this node. Probe: a guest's records, which it copies whole into
  // the guest's buffers. Fallback: none is needed, as the probe's own buffers are zeroed and the bytes come
  // from there.
  if (buffer.zeroed_by_tool) {
    CopyWritten(record, buffer.data + buffer.written, options_.api_version);
  } else {
    std::memcpy(buffer.data + buffer.written, record.data(), record.size());
  }
  buffer.written += record.size();
  ++buffer.records;
  if (buffer.max_records != 0 && buffer.records + buffer.incomplete >= buffer.max_records) {
    buffer.sealed = true;
  }
}

// False: there is no room, and the record has to wait.
bool Buffers::WriteOne(Finished& finished, std::unique_lock<std::mutex>& lock, bool may_request) {
  if (finished.correlation != 0) {
    const auto found = slots_.find(finished.correlation);
    if (found != slots_.end()) {
      const Slot slot = std::move(found->second);
      slots_.erase(found);
      if (slot.buffer != nullptr) {
        slot.buffer->reserved -= slot.incomplete.size();
        --slot.buffer->incomplete;
        WriteInto(*slot.buffer, finished.record);
      }
      return true;
    }
  }
  BufferPtr buffer = FindAnyOpen(finished.record.size());
  if (buffer == nullptr && may_request) {
    buffer = RequestBuffer(lock);
    if (buffer == nullptr || !Fits(*buffer, finished.record.size())) {
      ++dropped_;
      return true;
    }
  }
  if (buffer == nullptr) {
    return false;
  }
  WriteInto(*buffer, finished.record);
  return true;
}

// [assumed] Records come unordered, but not far from their order: here within windows of eight, by a fixed
// sequence. Probe: it depends on no order; the collector joins late records within its window. Fallback:
// records that come later than that are counted as late. Settled by: gpu-check step "CUPTI trace".
void Buffers::WriteFinished(std::unique_lock<std::mutex>& lock, bool may_request) {
  while (!finished_.empty()) {
    const auto window = static_cast<ptrdiff_t>(std::min<size_t>(finished_.size(), options_.shuffle_window));
    std::vector<Finished> batch(std::make_move_iterator(finished_.begin()),
                                std::make_move_iterator(finished_.begin() + window));
    finished_.erase(finished_.begin(), finished_.begin() + window);
    for (size_t i = batch.size(); i > 1; --i) {
      shuffle_state_ = shuffle_state_ * 6364136223846793005ULL + 1442695040888963407ULL;
      std::swap(batch[i - 1], batch[(shuffle_state_ >> 33) % i]);
    }
    std::vector<Finished> waiting;
    for (Finished& finished : batch) {
      if (!WriteOne(finished, lock, may_request)) {
        waiting.push_back(std::move(finished));
      }
    }
    if (!waiting.empty()) {
      starved_ = true;
      finished_.insert(finished_.begin(), std::make_move_iterator(waiting.begin()),
                       std::make_move_iterator(waiting.end()));
      return;
    }
  }
}

// The fault damaged_buffer: makes the record in the middle one that cannot be read.
void Buffers::Damage(const Buffer& buffer) {
  CUpti_Activity* record = nullptr;
  size_t at = 0;
  for (size_t i = 0; i < buffer.records / 2; ++i) {
    if (NextRecord(buffer.data, buffer.written, &record, options_.api_version) != CUPTI_SUCCESS) return;
    at = static_cast<size_t>(reinterpret_cast<uint8_t*>(record) - buffer.data) +
         RecordSize(static_cast<uint32_t>(record->kind), options_.api_version);
  }
  reinterpret_cast<CUpti_Activity*>(buffer.data + at)->kind = CUPTI_ACTIVITY_KIND_INVALID;
}

std::vector<Buffers::BufferPtr> Buffers::Take(const std::function<bool(const Buffer&)>& ready) {
  std::vector<BufferPtr> done;
  for (auto it = buffers_.begin(); it != buffers_.end();) {
    if (ready(**it)) {
      done.push_back(*it);
      it = buffers_.erase(it);
    } else {
      ++it;
    }
  }
  for (const BufferPtr& buffer : done) {
    if (buffer->records > 0 && options_.damage_every != 0 && ++returned_ % options_.damage_every == 0)
      Damage(*buffer);
  }
  return done;
}

// Calls the tool without the lock.
void Buffers::Complete(std::unique_lock<std::mutex>& lock, const std::vector<BufferPtr>& done) {
  if (done.empty()) return;
  const BufferCallbacks callbacks = callbacks_;
  ++completing_;
  lock.unlock();
  inside_completion = true;
  for (const BufferPtr& buffer : done) {
    callbacks.complete(buffer->data, buffer->size, buffer->written);
  }
  inside_completion = false;
  lock.lock();
  --completing_;
  completed_.notify_all();
}

bool Buffers::HasWorker() const { return worker_started_ && worker_of_ == getpid(); }

void Buffers::Flush(bool forced) {
  std::unique_lock lock(mutex_);
  WriteFinished(lock, /*may_request=*/true);
  // [observed] H100, CUPTI 13.0.1: a forced flush gives the running kernel's record with start and end 0, and
  // no other record of it comes later.
  if (forced) {
    for (auto& [correlation, slot] : slots_) {
      if (slot.buffer != nullptr) {
        slot.buffer->reserved -= slot.incomplete.size();
        --slot.buffer->incomplete;
        WriteInto(*slot.buffer, slot.incomplete);
        slot = Slot{};
      }
    }
  }
  const std::vector<BufferPtr> done = Take(
      [forced](const Buffer& buffer) { return forced || (buffer.incomplete == 0 && buffer.records > 0); });
  // [observed] H100, CUPTI 13.0.1: buffers are completed on CUPTI's own thread, before cuptiActivityFlushAll
  // returns.
  if (inside_completion || !HasWorker()) {
    Complete(lock, done);
    return;
  }
  flushed_.insert(flushed_.end(), done.begin(), done.end());
  wake_.notify_all();
  completed_.wait(lock, [this] { return completing_ == 0 && flushed_.empty(); });
}

bool Buffers::HasWork() const {
  if (!flushed_.empty() || (!finished_.empty() && !starved_)) {
    return true;
  }
  return std::any_of(buffers_.begin(), buffers_.end(),
                     [](const BufferPtr& buffer) { return IsFull(*buffer); });
}

bool Buffers::IsFull(const Buffer& buffer) { return buffer.sealed && buffer.incomplete == 0; }

// Once it is up, it gathers records for a while, and no further one wakes it.
void Buffers::WakeWorker() {
  if (!worker_is_idle_ || !HasWork()) return;
  worker_is_idle_ = false;
  wake_.notify_all();
}

void Buffers::StartWorker() {
  if (worker_started_) return;
  try {
    worker_ = std::thread([this] { Work(); });
    worker_started_ = true;
    worker_of_ = getpid();
  } catch (const std::system_error&) {
    // No thread may be made (ulimit -u): tried again with the next record. Flushes do its work meanwhile.
  }
}

void Buffers::Work() {
  pthread_setname_np(pthread_self(), "gpusim-cupti");
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    wake_.wait(lock, [this] {
      worker_is_idle_ = !stopping_ && !HasWork();
      return !worker_is_idle_;
    });
    wake_.wait_for(lock, kWorkerDelay, [this] { return stopping_ || !flushed_.empty(); });
    if (stopping_) {
      return;
    }
    if (!flushed_.empty()) {
      Complete(lock, std::exchange(flushed_, {}));
      continue;
    }
    WriteFinished(lock, /*may_request=*/false);
    Complete(lock, Take(IsFull));
  }
}

}  // namespace gpusim::cupti
