#include "injector/capture/cupti/guest_buffers.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstring>
#include <utility>

#include "injector/base/lifecycle.h"
#include "injector/base/lock.h"
#include "injector/capture/cupti/guest.h"
#include "injector/capture/cupti/guest_calls.h"
#include "injector/capture/cupti/guest_records.h"
#include "proto/cupti_versions.h"

namespace gpuprobe::injector {
namespace guest {
namespace {

constinit std::atomic<CUpti_BuffersCallbackRequestFunc> request{nullptr};
constinit std::atomic<CUpti_BuffersCallbackCompleteFunc> complete{nullptr};
constinit std::atomic<size_t> dropped_records{0};  // since the guest asked last

constinit pthread_mutex_t open_mutex = PTHREAD_MUTEX_INITIALIZER;
constinit Buffer open_buffer;
// The guest records, and has no buffer yet.
constinit std::atomic<bool> buffer_due{false};

// Makes room for a record of `bytes`; false when the guest provides no buffer.
bool MakeRoom(Buffer* buffer, size_t bytes) noexcept {
  const bool full =
      buffer->data != nullptr && (buffer->used + bytes > buffer->bytes ||
                                  (buffer->max_records != 0 && buffer->records == buffer->max_records));
  if (full) Complete(std::exchange(*buffer, Buffer{}));
  if (buffer->data != nullptr) return true;
  const Call call;
  const auto function = request.load();
  if (function == nullptr) return false;
  function(&buffer->data, &buffer->bytes, &buffer->max_records);
  return buffer->data != nullptr && bytes <= buffer->bytes;
}

bool AreOfOneLibrary(CUpti_BuffersCallbackCompleteFunc one,
                     CUpti_BuffersCallbackCompleteFunc other) noexcept {
  Dl_info first{};
  Dl_info second{};
  return dladdr(reinterpret_cast<const void*>(one), &first) != 0 &&
         dladdr(reinterpret_cast<const void*>(other), &second) != 0 && first.dli_fbase == second.dli_fbase;
}

// CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER, which headers before 13.0 do not have.
constexpr auto kPerThreadBuffers = static_cast<CUpti_ActivityAttribute>(9);

}  // namespace

void Complete(const Buffer& buffer) noexcept {
  const Call call;
  const auto function = complete.load();
  if (buffer.data != nullptr && function != nullptr)
    function(buffer.context, buffer.stream_id, buffer.data, buffer.bytes, buffer.used);
}

Buffer TakeOpenBuffer() noexcept {
  const Lock lock(open_mutex);
  return std::exchange(open_buffer, Buffer{});
}

// Two threads may complete buffers at once: the second one's goes to the guest as it is.
void PutOpenBuffer(const Buffer& buffer) noexcept {
  {
    const Lock lock(open_mutex);
    if (complete.load() == nullptr) return;  // the guest has gone, and gets nothing back
    if (open_buffer.data == nullptr) {
      open_buffer = buffer;
      return;
    }
  }
  Complete(buffer);
}

void HandOver() noexcept {
  const Buffer buffer = TakeOpenBuffer();
  if (buffer.used != 0) {
    Complete(buffer);
    if (RecordsAnything()) AskForBuffer();
  } else if (buffer.data != nullptr) {
    PutOpenBuffer(buffer);
  }
}

void Append(const CUpti_Activity* record, size_t bytes, const Buffer& from, Buffer* to) noexcept {
  if (!MakeRoom(to, bytes)) return NoteGuestDropped(1);
  std::memcpy(to->data + to->used, record, bytes);
  to->used += bytes;
  ++to->records;
  to->context = from.context;
  to->stream_id = from.stream_id;
}

void AskForBuffer() noexcept { buffer_due.store(true, std::memory_order_release); }

CUptiResult CUPTIAPI RegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                       CUpti_BuffersCallbackCompleteFunc completed) {
  CUptiResult result = CUPTI_SUCCESS;
  if (PassOn(&result, [&] { return bound.ActivityRegisterCallbacks(requested, completed); })) {
    if (result != CUPTI_SUCCESS) return result;
    request.store(requested, std::memory_order_release);
    complete.store(completed, std::memory_order_release);
    if (Receiving()) host.take_buffers_back(host.self);
    return result;
  }
  if (requested == nullptr || completed == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  // The tool may hold a lock that its functions take, so they are not called from here. The new functions get
  // the records in its buffer, as with CUPTI. Another tool gets none of them.
  const auto before = complete.load();
  const bool same_request = requested == request.load();
  if (before != nullptr && (!same_request || completed != before)) {
    const Buffer left = TakeOpenBuffer();
    const bool same_tool = AreOfOneLibrary(before, completed);
    if (same_tool && (same_request || left.used != 0)) {
      PutOpenBuffer(left);
    } else {
      NoteGuestDropped(left.records);
    }
  }
  request.store(requested);
  complete.store(completed);
  if (RecordsAnything()) AskForBuffer();
  return CUPTI_SUCCESS;
}

void ForgetBuffers() noexcept {
  complete.store(nullptr);
  request.store(nullptr);
  buffer_due.store(false, std::memory_order_relaxed);
  static_cast<void>(TakeOpenBuffer());
}

void AskForNoBuffer() noexcept { buffer_due.store(false, std::memory_order_relaxed); }

CUptiResult CUPTIAPI FlushAll(uint32_t flags) {
  if ((host.precautions & cupti::kNoForcedFlush) != 0)
    flags &= ~static_cast<uint32_t>(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  const CUptiResult result = bound.ActivityFlushAll(flags);
  if (Receiving()) HandOver();
  return result;
}

// CUPTI's buffers are ours: a guest may not decide that they are zeroed, or whether each thread has its own.
CUptiResult CUPTIAPI SetAttribute(CUpti_ActivityAttribute attribute, size_t* bytes, void* value) {
  const bool of_buffers =
      attribute == CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER || attribute == kPerThreadBuffers;
  if (of_buffers && Receiving()) return CUPTI_SUCCESS;
  return Functions().ActivitySetAttribute(attribute, bytes, value);
}

// CUPTI's own count is reset by reading, and ours.
CUptiResult CUPTIAPI NumDropped(CUcontext context, uint32_t stream_id, size_t* dropped) {
  if (!Receiving()) return bound.ActivityGetNumDroppedRecords(context, stream_id, dropped);
  if (dropped == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *dropped = dropped_records.exchange(0, std::memory_order_relaxed);
  return CUPTI_SUCCESS;
}

}  // namespace guest

void GiveGuestABuffer() noexcept {
  if (!guest::buffer_due.load(std::memory_order_relaxed) ||
      guest::request.load(std::memory_order_acquire) == nullptr || InForkedChild() ||
      !guest::buffer_due.exchange(false))
    return;
  const guest::Call call;
  guest::Buffer buffer = guest::TakeOpenBuffer();
  if (guest::MakeRoom(&buffer, 0)) guest::PutOpenBuffer(buffer);
}

bool GuestHasBuffers() noexcept { return guest::complete.load(std::memory_order_acquire) != nullptr; }

void NoteGuestDropped(size_t records) noexcept {
  if (guest::RecordsAnything()) guest::dropped_records.fetch_add(records, std::memory_order_relaxed);
}

}  // namespace gpuprobe::injector
