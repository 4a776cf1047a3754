#include "injector/capture/cupti/broker.h"

#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <ctime>
#include <utility>

#include "injector/base/lifecycle.h"
#include "injector/base/lock.h"
#include "injector/base/text.h"
#include "injector/base/tick_clock.h"
#include "injector/capture/cupti/callbacks.h"
#include "injector/core/thread_state.h"
#include "proto/cupti_versions.h"

namespace gpuprobe::injector {

namespace {

constexpr uint32_t kKinds = 256;  // CUDA 13.0 has 60
constexpr uint32_t kDomains = 8;  // likewise 6

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

struct GuestBuffer {
  uint8_t* data = nullptr;
  size_t bytes = 0;
  size_t used = 0;
  size_t records = 0;
  size_t max_records = 0;  // 0: as many as fit
  CUcontext context = nullptr;
  uint32_t stream_id = 0;
};

constinit BrokerHost host;
constinit std::atomic<bool> open{false};

constinit std::atomic<bool> subscribed{false};
constinit std::atomic<CUpti_CallbackFunc> callback{nullptr};
constinit std::atomic<void*> callback_data{nullptr};
constinit std::atomic<uint64_t> callbacks[kDomains][kMaxCallbackId / 64] = {};
constinit std::atomic<uint32_t> callbacks_enabled{0};

constinit std::atomic<CUpti_BuffersCallbackRequestFunc> request{nullptr};
constinit std::atomic<CUpti_BuffersCallbackCompleteFunc> complete{nullptr};
constinit KindWindow windows[kKinds] = {};
constinit std::atomic<int> kinds_enabled{0};
constinit std::atomic<bool> kinds_ever{false};
constinit std::atomic<size_t> guest_dropped{0};  // records, since it asked last
constinit std::atomic<bool> here{false};

// The buffer that is being filled. Whoever fills it takes it out, so that nothing is locked while the guest's
// functions run.
constinit pthread_mutex_t open_mutex = PTHREAD_MUTEX_INITIALIZER;
constinit GuestBuffer open_buffer;
// A guest that records, and has no buffer yet: the next callback on the program's threads asks it for one, as
// CUPTI does. Some tools take it as a sign that there is something to flush.
constinit std::atomic<bool> buffer_due{false};

constinit std::atomic<CUpti_TimestampCallbackFunc> clock_of_guest{nullptr};
constinit pthread_mutex_t clock_mutex = PTHREAD_MUTEX_INITIALIZER;
constinit TickClock clock_readings;

// Records of one kind are all of one size in one CUPTI.
constinit std::atomic<uint32_t> strides[kKinds] = {};

// The guest's handle: never dereferenced, and no other subscriber's.
CUpti_SubscriberHandle Handle() noexcept { return reinterpret_cast<CUpti_SubscriberHandle>(&subscribed); }

uint64_t ReadClock(clockid_t id) noexcept {
  timespec now{};
  clock_gettime(id, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

// What CUPTI stamps records with at this moment.
uint64_t RecordClock() noexcept {
  const auto function = clock_of_guest.load(std::memory_order_acquire);
  return function != nullptr ? function() : ReadClock(CLOCK_REALTIME);
}

void GuestCame() noexcept { here.store(true, std::memory_order_relaxed); }
void MaybeGone() noexcept {
  if (kinds_enabled.load(std::memory_order_relaxed) == 0 && !subscribed.load(std::memory_order_relaxed))
    here.store(false, std::memory_order_relaxed);
}

uint32_t LastLaunch() noexcept {
  uint32_t last = 0;
  ForEachThread([&last](const ThreadState& thread) noexcept {
    const uint32_t launch = thread.newest_launch.load(std::memory_order_relaxed);
    if (launch > last) last = launch;
  });
  return last;
}

// -- subscription

bool Bit(CUpti_CallbackDomain domain, CUpti_CallbackId cbid) noexcept {
  const auto row = static_cast<uint32_t>(domain);
  return row < kDomains && cbid < kMaxCallbackId &&
         (callbacks[row][cbid / 64].load(std::memory_order_relaxed) >> (cbid % 64) & 1) != 0;
}

CUptiResult SetCallback(bool enable, CUpti_CallbackDomain domain, CUpti_CallbackId cbid) noexcept {
  const auto row = static_cast<uint32_t>(domain);
  if (row == 0 || row >= kDomains || cbid >= kMaxCallbackId) return CUPTI_ERROR_INVALID_PARAMETER;
  const uint64_t mask = uint64_t{1} << (cbid % 64);
  if (!enable) {
    const bool was = (callbacks[row][cbid / 64].fetch_and(~mask) & mask) != 0;
    if (was) callbacks_enabled.fetch_sub(1, std::memory_order_relaxed);
    if (!was || host.needs_callback(domain, cbid)) return CUPTI_SUCCESS;
    return host.api->EnableCallback(0, host.subscriber, domain, cbid);
  }
  const CUptiResult result = host.api->EnableCallback(1, host.subscriber, domain, cbid);
  if (result == CUPTI_SUCCESS && (callbacks[row][cbid / 64].fetch_or(mask) & mask) == 0)
    callbacks_enabled.fetch_add(1, std::memory_order_relaxed);
  return result;
}

// CUPTI refuses unknown ids one by one; that is not an error here.
CUptiResult SetDomain(bool enable, CUpti_CallbackDomain domain) noexcept {
  bool any = false;
  for (CUpti_CallbackId cbid = 1; cbid < kMaxCallbackId; ++cbid)
    any = SetCallback(enable, domain, cbid) == CUPTI_SUCCESS || any;
  return any ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}

void EndSubscription() noexcept {
  for (uint32_t domain = 1; domain < kDomains; ++domain) {
    for (CUpti_CallbackId cbid = 1; cbid < kMaxCallbackId; ++cbid) {
      if (Bit(static_cast<CUpti_CallbackDomain>(domain), cbid))
        SetCallback(false, static_cast<CUpti_CallbackDomain>(domain), cbid);
    }
  }
  callback.store(nullptr, std::memory_order_release);
  subscribed.store(false, std::memory_order_release);
  MaybeGone();
}

// A forked child has neither CUPTI's threads nor, perhaps, our locks.
bool Receiving() noexcept { return open.load(std::memory_order_acquire) && !InForkedChild(); }

// The handle means nothing to CUPTI, even when we no longer accept guests.
bool IsGuest(CUpti_SubscriberHandle subscriber) noexcept { return subscriber == Handle(); }
bool IsSubscribed() noexcept { return Receiving() && subscribed.load(std::memory_order_acquire); }

CUptiResult CUPTIAPI Subscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc function,
                               void* user_data) {
  if (!Receiving()) return host.api->Subscribe(subscriber, function, user_data);
  if (subscriber == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (subscribed.exchange(true)) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  GuestCame();
  callback_data.store(user_data, std::memory_order_relaxed);
  callback.store(function, std::memory_order_release);
  *subscriber = Handle();
  return CUPTI_SUCCESS;
}

bool WantsCompany(const v2::SubscriberParams* parameters) noexcept {
  return parameters != nullptr && parameters->bytes > v2::kParamsWithoutOthers &&
         parameters->allow_others != 0;
}

CUptiResult RefuseCompany(v2::SubscriberParams* parameters) noexcept {
  static constexpr char kUs[] = "CUPTI for gpuprobe";
  if (parameters->old_name != nullptr && parameters->old_name_bytes != 0) {
    const size_t length = std::min(sizeof(kUs) - 1, parameters->old_name_bytes - 1);
    std::memcpy(parameters->old_name, kUs, length);
    parameters->old_name[length] = '\0';
  }
  return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
}

CUptiResult CUPTIAPI SubscribeV2(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc function,
                                 void* user_data, v2::SubscriberParams* parameters) {
  if (!Receiving()) return host.api->Subscribe_v2(subscriber, function, user_data, parameters);
  if (host.others_allowed) return AdmitSubscriber(host.bound, subscriber, function, user_data, parameters);
  if (WantsCompany(parameters)) return RefuseCompany(parameters);
  return Subscribe(subscriber, function, user_data);
}

// A guest's handle means nothing to CUPTI's functions for subscriptions, which it answers as CUPTI does where
// both kinds of functions are used.
template <auto Function>
struct ForSubscriptions;
template <typename... Arguments,
          CUptiResult (CUPTIAPI* CuptiApi::*Function)(CUpti_SubscriberHandle, Arguments...)>
struct ForSubscriptions<Function> {
  static CUptiResult CUPTIAPI Call(CUpti_SubscriberHandle subscriber, Arguments... arguments) {
    if (IsGuest(subscriber)) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    return (host.bound.*Function)(subscriber, arguments...);
  }
};

CUptiResult CUPTIAPI Unsubscribe(CUpti_SubscriberHandle subscriber) {
  if (!IsGuest(subscriber)) return host.api->Unsubscribe(subscriber);
  if (!IsSubscribed()) return CUPTI_ERROR_INVALID_PARAMETER;
  EndSubscription();
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI EnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                    CUpti_CallbackDomain domain, CUpti_CallbackId cbid) {
  if (!IsGuest(subscriber)) return host.api->EnableCallback(enable, subscriber, domain, cbid);
  if (!IsSubscribed()) return CUPTI_ERROR_INVALID_PARAMETER;
  return SetCallback(enable != 0, domain, cbid);
}

CUptiResult CUPTIAPI EnableDomain(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                  CUpti_CallbackDomain domain) {
  if (!IsGuest(subscriber)) return host.api->EnableDomain(enable, subscriber, domain);
  if (!IsSubscribed()) return CUPTI_ERROR_INVALID_PARAMETER;
  return SetDomain(enable != 0, domain);
}

CUptiResult CUPTIAPI EnableAllDomains(uint32_t enable, CUpti_SubscriberHandle subscriber) {
  if (!IsGuest(subscriber)) return host.api->EnableAllDomains(enable, subscriber);
  if (!IsSubscribed()) return CUPTI_ERROR_INVALID_PARAMETER;
  for (uint32_t domain = 1; domain < CUPTI_CB_DOMAIN_SIZE; ++domain)
    SetDomain(enable != 0, static_cast<CUpti_CallbackDomain>(domain));
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI GetCallbackState(uint32_t* enabled, CUpti_SubscriberHandle subscriber,
                                      CUpti_CallbackDomain domain, CUpti_CallbackId cbid) {
  if (!IsGuest(subscriber)) return host.api->GetCallbackState(enabled, subscriber, domain, cbid);
  if (enabled == nullptr || !IsSubscribed()) return CUPTI_ERROR_INVALID_PARAMETER;
  *enabled = Bit(domain, cbid) ? 1 : 0;
  return CUPTI_SUCCESS;
}

// -- records

void Complete(const GuestBuffer& buffer) noexcept {
  const auto function = complete.load(std::memory_order_acquire);
  if (buffer.data != nullptr && function != nullptr)
    function(buffer.context, buffer.stream_id, buffer.data, buffer.bytes, buffer.used);
}

GuestBuffer TakeOpenBuffer() noexcept {
  const Lock lock(open_mutex);
  return std::exchange(open_buffer, GuestBuffer{});
}

// Two threads may complete buffers at once: the second one's goes to the guest as it is.
void PutOpenBuffer(const GuestBuffer& buffer) noexcept {
  {
    const Lock lock(open_mutex);
    if (open_buffer.data == nullptr) {
      open_buffer = buffer;
      return;
    }
  }
  Complete(buffer);
}

// To the guest, if anything is in it.
void HandOver() noexcept {
  const GuestBuffer buffer = TakeOpenBuffer();
  if (buffer.used != 0) {
    Complete(buffer);
    if (kinds_enabled.load(std::memory_order_relaxed) > 0) buffer_due.store(true, std::memory_order_release);
  } else if (buffer.data != nullptr) {
    PutOpenBuffer(buffer);
  }
}

// Makes room for a record of `bytes`; false when the guest provides no buffer.
bool MakeRoom(GuestBuffer* buffer, size_t bytes) noexcept {
  const bool full =
      buffer->data != nullptr && (buffer->used + bytes > buffer->bytes ||
                                  (buffer->max_records != 0 && buffer->records == buffer->max_records));
  if (full) Complete(std::exchange(*buffer, GuestBuffer{}));
  if (buffer->data != nullptr) return true;
  const auto function = request.load(std::memory_order_acquire);
  if (function == nullptr) return false;
  function(&buffer->data, &buffer->bytes, &buffer->max_records);
  return buffer->data != nullptr && bytes <= buffer->bytes;
}

struct Stamps {
  uint64_t start;
  uint64_t end;
  uint32_t correlation;
};

// Visits the record as its oldest layout, which has the times; false for kinds that we never enable.
template <typename Visit>
bool VisitTimed(CUpti_Activity* record, Visit visit) noexcept {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      visit(*reinterpret_cast<CUpti_ActivityKernel4*>(record));
      return true;
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      visit(*reinterpret_cast<CUpti_ActivityMemcpy*>(record));
      return true;
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
      visit(*reinterpret_cast<CUpti_ActivityMemcpyPtoP*>(record));
      return true;
    case CUPTI_ACTIVITY_KIND_MEMSET:
      visit(*reinterpret_cast<CUpti_ActivityMemset*>(record));
      return true;
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
      visit(*reinterpret_cast<CUpti_ActivitySynchronization*>(record));
      return true;
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
      visit(*reinterpret_cast<CUpti_ActivityGraphTrace*>(record));
      return true;
    case CUPTI_ACTIVITY_KIND_MEMORY2:
      visit(*reinterpret_cast<CUpti_ActivityMemory3*>(record));
      return true;
    case CUPTI_ACTIVITY_KIND_MEMORY_POOL:
      visit(*reinterpret_cast<CUpti_ActivityMemoryPool2*>(record));
      return true;
    case CUPTI_ACTIVITY_KIND_OVERHEAD:
      visit(*reinterpret_cast<CUpti_ActivityOverhead*>(record));
      return true;
    default:
      return false;
  }
}

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

// Visits the guest's records with their sizes. A record may be moved to where an earlier one was once it is
// visited: the one behind it has been found by then.
template <typename Visit>
void ForEachOfGuest(uint8_t* buffer, size_t valid_bytes, Visit visit) noexcept {
  CUpti_Activity* record = nullptr;
  CUptiResult result = host.api->ActivityGetNextRecord(buffer, valid_bytes, &record);
  while (result == CUPTI_SUCCESS) {
    CUpti_Activity* const found = record;
    result = host.api->ActivityGetNextRecord(buffer, valid_bytes, &record);
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

void Append(const CUpti_Activity* record, size_t bytes, const GuestBuffer& from, GuestBuffer* to) noexcept {
  if (!MakeRoom(to, bytes)) return NoteGuestDropped(1);
  std::memcpy(to->data + to->used, record, bytes);
  to->used += bytes;
  ++to->records;
  to->context = from.context;
  to->stream_id = from.stream_id;
}

CUptiResult CUPTIAPI RegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                       CUpti_BuffersCallbackCompleteFunc completed) {
  if (!Receiving()) {
    const CUptiResult result = host.api->ActivityRegisterCallbacks(requested, completed);
    if (result == CUPTI_SUCCESS) {
      request.store(requested, std::memory_order_release);
      complete.store(completed, std::memory_order_release);
    }
    return result;
  }
  if (requested == nullptr || completed == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  HandOver();
  // What is left is an empty buffer, and of no use to anybody else than the tool that gave it.
  if (requested != request.load(std::memory_order_acquire)) static_cast<void>(TakeOpenBuffer());
  request.store(requested, std::memory_order_release);
  complete.store(completed, std::memory_order_release);
  if (kinds_enabled.load(std::memory_order_relaxed) > 0) buffer_due.store(true, std::memory_order_release);
  return CUPTI_SUCCESS;
}

void NoteEnabled(KindWindow& window) noexcept {
  GuestCame();
  window.after_launch.store(LastLaunch(), std::memory_order_relaxed);
  window.last_launch.store(UINT32_MAX, std::memory_order_relaxed);
  window.from.store(RecordClock(), std::memory_order_relaxed);
  window.until.store(UINT64_MAX, std::memory_order_relaxed);
  window.ever.store(true, std::memory_order_release);
  if (!window.enabled.exchange(true)) kinds_enabled.fetch_add(1, std::memory_order_relaxed);
  kinds_ever.store(true, std::memory_order_release);
  buffer_due.store(true, std::memory_order_release);
}

bool NoteDisabled(KindWindow& window) noexcept {
  if (!window.enabled.exchange(false)) return false;
  window.last_launch.store(LastLaunch(), std::memory_order_relaxed);
  window.until.store(RecordClock(), std::memory_order_relaxed);
  kinds_enabled.fetch_sub(1, std::memory_order_relaxed);
  MaybeGone();
  return true;
}

CUptiResult CUPTIAPI Enable(CUpti_ActivityKind kind) {
  const auto index = static_cast<uint32_t>(kind);
  if (!Receiving() || index >= kKinds) {
    const CUptiResult result = host.api->ActivityEnable(kind);
    if (result == CUPTI_SUCCESS && index < kKinds && !InForkedChild()) NoteEnabled(windows[index]);
    return result;
  }
  if (kind == CUPTI_ACTIVITY_KIND_GRAPH_TRACE && !host.needs_kind(host.self, kind) && host.graphs_made())
    return CUPTI_ERROR_NOT_COMPATIBLE;
  KindWindow& window = windows[index];
  if (window.enabled.load(std::memory_order_acquire)) return CUPTI_SUCCESS;
  const CUptiResult result = host.api->ActivityEnable(kind);
  if (result == CUPTI_SUCCESS) NoteEnabled(window);
  return result;
}

CUptiResult CUPTIAPI Disable(CUpti_ActivityKind kind) {
  const auto index = static_cast<uint32_t>(kind);
  if (!Receiving() || index >= kKinds) {
    if (index < kKinds && !InForkedChild()) static_cast<void>(NoteDisabled(windows[index]));
    return host.api->ActivityDisable(kind);
  }
  if (!NoteDisabled(windows[index])) return CUPTI_SUCCESS;
  const bool stays =
      host.needs_kind(host.self, kind) ||
      (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL && (host.precautions & cupti::kKernelsStayEnabled) != 0);
  return stays ? CUPTI_SUCCESS : host.api->ActivityDisable(kind);
}

CUptiResult CUPTIAPI FlushAll(uint32_t flags) {
  if ((host.precautions & cupti::kNoForcedFlush) != 0)
    flags &= ~static_cast<uint32_t>(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  const CUptiResult result = host.api->ActivityFlushAll(flags);
  if (Receiving()) HandOver();
  return result;
}

// CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER, which headers before 13.0 do not have.
constexpr auto kPerThreadBuffers = static_cast<CUpti_ActivityAttribute>(9);

// CUPTI's buffers are ours: that they are zeroed, and whether each thread has its own, is not the guest's to
// say.
CUptiResult CUPTIAPI SetAttribute(CUpti_ActivityAttribute attribute, size_t* bytes, void* value) {
  const bool of_buffers =
      attribute == CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER || attribute == kPerThreadBuffers;
  if (of_buffers && Receiving()) return CUPTI_SUCCESS;
  return host.api->ActivitySetAttribute(attribute, bytes, value);
}

// CUPTI's own count is reset by reading, and ours.
CUptiResult CUPTIAPI NumDropped(CUcontext context, uint32_t stream_id, size_t* dropped) {
  if (!Receiving()) return host.api->ActivityGetNumDroppedRecords(context, stream_id, dropped);
  if (dropped == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *dropped = guest_dropped.exchange(0, std::memory_order_relaxed);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI Finalize() {
  if (!Receiving()) return host.api->Finalize();
  for (uint32_t kind = 0; kind < kKinds; ++kind) {
    if (windows[kind].enabled.load(std::memory_order_acquire)) Disable(static_cast<CUpti_ActivityKind>(kind));
  }
  HandOver();
  EndSubscription();
  return CUPTI_SUCCESS;
}

// -- the guest's clock

CUptiResult CUPTIAPI RegisterClock(CUpti_TimestampCallbackFunc function) {
  const CUptiResult result = host.api->ActivityRegisterTimestampCallback(function);
  if (result != CUPTI_SUCCESS || function == nullptr || InForkedChild()) return result;
  {
    const Lock lock(clock_mutex);
    if (function != clock_of_guest.load(std::memory_order_relaxed)) clock_readings = {};
  }
  clock_of_guest.store(function, std::memory_order_release);
  ReadGuestClock();
  const uint64_t now = function();
  for (KindWindow& window : windows) {
    if (window.enabled.load(std::memory_order_acquire)) window.from.store(now, std::memory_order_relaxed);
  }
  return result;
}

// A reading this good ends the search for a better one.
constexpr uint64_t kGoodClockNs = 200;
constexpr int kClockTries = 16;

// Far enough from any clock that counts from a machine's start.
constexpr uint64_t kPlausibleNs = 600'000'000'000;

uint64_t RestoredTime(uint64_t time, uint64_t now_ns) noexcept {
  if (time == 0 || (time + kPlausibleNs > now_ns && time < now_ns + kPlausibleNs)) return time;
  const Lock lock(clock_mutex);
  return clock_readings.RealtimeNs(time);
}

void RestoreRecord(CUpti_Activity* record, uint64_t now_ns) noexcept {
  VisitTimed(record, [now_ns](auto& row) noexcept {
    if constexpr (requires { row.start; }) {
      row.start = RestoredTime(row.start, now_ns);
      row.end = RestoredTime(row.end, now_ns);
    } else {
      row.timestamp = RestoredTime(row.timestamp, now_ns);
    }
  });
}

template <typename Function>
void* Instead(const void* value, Function real, Function ours) noexcept {
  const bool same = value == nullptr || value == reinterpret_cast<const void*>(real);
  return real != nullptr && ours != real && same ? reinterpret_cast<void*>(ours) : nullptr;
}

// Another copy of libcupti, of our version or an older one.
bool IsServedCopy(void* handle, const void* function) noexcept {
  Dl_info file{};
  if (dladdr(function, &file) == 0 || file.dli_fname == nullptr) return false;
  const char* slash = std::strrchr(file.dli_fname, '/');
  if (!StartsWith(slash == nullptr ? file.dli_fname : slash + 1, "libcupti")) return false;
  auto* get_version = reinterpret_cast<decltype(&cuptiGetVersion)>(dlsym(handle, "cuptiGetVersion"));
  uint32_t version = 0;
  return get_version != nullptr && get_version(&version) == CUPTI_SUCCESS && version <= host.api->version;
}

}  // namespace

void WatchForGuests(const CuptiApi* api) noexcept {
  host.api = api;
  host.bound = *api;
}

void ReceiveGuests(const BrokerHost& session) noexcept {
  host = session;
  open.store(true, std::memory_order_release);
}

void SendGuestsAway() noexcept { open.store(false, std::memory_order_release); }

void* BrokerReplacement(const char* symbol, const void* value) noexcept {
  if (host.api == nullptr || std::strncmp(symbol, "cupti", 5) != 0) return nullptr;
  const char* name = symbol + 5;
#define GPUPROBE_INSTEAD(api_name, ours) \
  if (std::strcmp(name, #api_name) == 0) return Instead(value, host.bound.api_name, ours);
  GPUPROBE_INSTEAD(Subscribe, Subscribe)
  GPUPROBE_INSTEAD(Subscribe_v2, SubscribeV2)
  GPUPROBE_INSTEAD(Unsubscribe, Unsubscribe)
  GPUPROBE_INSTEAD(EnableCallback, EnableCallback)
  GPUPROBE_INSTEAD(EnableDomain, EnableDomain)
  GPUPROBE_INSTEAD(EnableAllDomains, EnableAllDomains)
  GPUPROBE_INSTEAD(GetCallbackState, GetCallbackState)
  GPUPROBE_INSTEAD(ActivityRegisterCallbacks, RegisterCallbacks)
  GPUPROBE_INSTEAD(ActivityEnable, Enable)
  GPUPROBE_INSTEAD(ActivityDisable, Disable)
  GPUPROBE_INSTEAD(ActivityFlushAll, FlushAll)
  GPUPROBE_INSTEAD(ActivityGetNumDroppedRecords, NumDropped)
  GPUPROBE_INSTEAD(ActivitySetAttribute, SetAttribute)
  GPUPROBE_INSTEAD(ActivityRegisterTimestampCallback, RegisterClock)
  GPUPROBE_INSTEAD(Finalize, Finalize)
  // On our subscription, if CUPTI has several.
  GPUPROBE_INSTEAD(ActivityGetNextRecord, host.api->ActivityGetNextRecord)
  GPUPROBE_INSTEAD(ActivityEnableAndDump, host.api->ActivityEnableAndDump)
  GPUPROBE_INSTEAD(ActivityGetAttribute, host.api->ActivityGetAttribute)
  GPUPROBE_INSTEAD(ActivityPushExternalCorrelationId, host.api->ActivityPushExternalCorrelationId)
  GPUPROBE_INSTEAD(ActivityPopExternalCorrelationId, host.api->ActivityPopExternalCorrelationId)
  GPUPROBE_INSTEAD(GetTimestamp, host.api->GetTimestamp)
  GPUPROBE_INSTEAD(SetThreadIdType, host.api->SetThreadIdType)
  GPUPROBE_INSTEAD(GetThreadIdType, host.api->GetThreadIdType)
#undef GPUPROBE_INSTEAD
#define GPUPROBE_INSTEAD(api_name)       \
  if (std::strcmp(name, #api_name) == 0) \
    return Instead(value, host.bound.api_name, &ForSubscriptions<&CuptiApi::api_name>::Call);
  GPUPROBE_INSTEAD(ActivityEnable_v2)
  GPUPROBE_INSTEAD(ActivityDisable_v2)
  GPUPROBE_INSTEAD(ActivityEnableAndDump_v2)
  GPUPROBE_INSTEAD(ActivityRegisterCallbacks_v2)
  GPUPROBE_INSTEAD(ActivitySetAttribute_v2)
  GPUPROBE_INSTEAD(ActivityGetAttribute_v2)
  GPUPROBE_INSTEAD(ActivityGetNextRecord_v2)
  GPUPROBE_INSTEAD(ActivityGetNumDroppedRecords_v2)
  GPUPROBE_INSTEAD(ActivityPushExternalCorrelationId_v2)
  GPUPROBE_INSTEAD(ActivityPopExternalCorrelationId_v2)
  GPUPROBE_INSTEAD(GetTimestamp_v2)
#undef GPUPROBE_INSTEAD
  return nullptr;
}

void* BrokerAnswer(void* handle, const char* symbol, const void* value) noexcept {
  void* const ours = BrokerReplacement(symbol, value);
  if (ours != nullptr || !Receiving() || host.api->library == nullptr) return ours;
  void* const real = dlsym(host.api->library, symbol);
  if (real == nullptr || real == value || !IsServedCopy(handle, value)) return nullptr;
  void* const replacement = BrokerReplacement(symbol, real);
  return replacement != nullptr ? replacement : real;
}

void GiveGuestABuffer() noexcept {
  if (!buffer_due.load(std::memory_order_relaxed) || request.load(std::memory_order_acquire) == nullptr ||
      InForkedChild() || !buffer_due.exchange(false))
    return;
  GuestBuffer buffer = TakeOpenBuffer();
  if (MakeRoom(&buffer, 0)) PutOpenBuffer(buffer);
}

void ForwardToGuest(CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const void* data) noexcept {
  if (callbacks_enabled.load(std::memory_order_relaxed) == 0 || !Bit(domain, cbid)) return;
  const auto function = callback.load(std::memory_order_acquire);
  if (function != nullptr) function(callback_data.load(std::memory_order_relaxed), domain, cbid, data);
}

void FeedGuest(CUcontext context, uint32_t stream_id, uint8_t* buffer, size_t valid_bytes) noexcept {
  if (!kinds_ever.load(std::memory_order_acquire) || complete.load(std::memory_order_acquire) == nullptr)
    return;
  GuestBuffer from;
  from.context = context;
  from.stream_id = stream_id;
  GuestBuffer to = TakeOpenBuffer();
  ForEachOfGuest(buffer, valid_bytes, [&from, &to](const CUpti_Activity* record, size_t bytes) noexcept {
    Append(record, bytes, from, &to);
  });
  if (to.data != nullptr) PutOpenBuffer(to);
}

void ReadGuestClock() noexcept {
  const auto function = clock_of_guest.load(std::memory_order_acquire);
  if (function == nullptr) return;
  TickClock::Reading best{0, 0, 0, UINT64_MAX};
  // All three clocks between two looks at one of them: a thread that is held up anywhere in there shows.
  for (int i = 0; i < kClockTries && best.error_ns > kGoodClockNs; ++i) {
    const uint64_t before_ns = ReadClock(CLOCK_MONOTONIC);
    const uint64_t ticks = function();
    const uint64_t realtime_ns = ReadClock(CLOCK_REALTIME);
    const uint64_t took_ns = ReadClock(CLOCK_MONOTONIC) - before_ns;
    if (took_ns < best.error_ns) best = {ticks, realtime_ns, before_ns + took_ns / 2, took_ns};
  }
  const Lock lock(clock_mutex);
  if (clock_readings.empty() || best.ticks > clock_readings.newest().ticks)
    static_cast<void>(clock_readings.Add(best));
}

bool GuestHasBuffers() noexcept { return complete.load(std::memory_order_acquire) != nullptr; }

void CompleteForGuest(CUcontext context, uint32_t stream_id, uint8_t* buffer, size_t bytes,
                      size_t valid_bytes) noexcept {
  GuestBuffer kept{.data = buffer, .bytes = bytes, .context = context, .stream_id = stream_id};
  ForEachOfGuest(buffer, valid_bytes, [&kept](const CUpti_Activity* record, size_t record_bytes) noexcept {
    std::memmove(kept.data + kept.used, record, record_bytes);
    kept.used += record_bytes;
  });
  Complete(kept);
}

void RestoreTimes(uint8_t* buffer, size_t valid_bytes) noexcept {
  if (clock_of_guest.load(std::memory_order_acquire) == nullptr) return;
  ReadGuestClock();
  const uint64_t now_ns = ReadClock(CLOCK_REALTIME);
  CUpti_Activity* record = nullptr;
  while (host.api->ActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS)
    RestoreRecord(record, now_ns);
}

bool GuestNeedsKind(CUpti_ActivityKind kind) noexcept {
  const auto index = static_cast<uint32_t>(kind);
  return index < kKinds && windows[index].enabled.load(std::memory_order_acquire);
}

bool IsGuestsKind(CUpti_ActivityKind kind) noexcept {
  const auto index = static_cast<uint32_t>(kind);
  return index < kKinds && windows[index].ever.load(std::memory_order_acquire);
}

bool GuestIsActive() noexcept { return here.load(std::memory_order_relaxed); }

void NoteGuestDropped(size_t records) noexcept {
  if (kinds_enabled.load(std::memory_order_relaxed) > 0)
    guest_dropped.fetch_add(records, std::memory_order_relaxed);
}

void ForgetGuestsForTest() noexcept {
  open.store(false);
  host = {};
  subscribed.store(false);
  callback.store(nullptr);
  for (auto& domain : callbacks) {
    for (auto& word : domain) word.store(0);
  }
  callbacks_enabled.store(0);
  request.store(nullptr);
  complete.store(nullptr);
  for (KindWindow& window : windows) {
    window.enabled.store(false);
    window.ever.store(false);
  }
  kinds_enabled.store(0);
  kinds_ever.store(false);
  guest_dropped.store(0);
  here.store(false);
  open_buffer = {};
  buffer_due.store(false);
  clock_of_guest.store(nullptr);
  clock_readings = {};
}

}  // namespace gpuprobe::injector
