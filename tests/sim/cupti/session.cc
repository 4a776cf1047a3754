#include "tests/sim/cupti/session.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <limits>
#include <thread>
#include <utility>

#include "tests/sim/core/cupti_seam.h"
#include "tests/sim/core/per_thread.h"
#include "tests/sim/cupti/names.h"

namespace gpusim::cupti {
namespace {

// Also on a thread of the node's own, which has every signal blocked.
void Crash(const char* why) {
  std::fprintf(stderr, "gpusim: CUPTI crashes here: %s\n", why);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGSEGV);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  std::raise(SIGSEGV);
}

constexpr char kIncumbent[] = "CUPTI for another tool";

struct Attribute {
  int number;
  size_t size;
  uint64_t initial;
};

// [documented] cupti_activity.h (13.0), CUpti_ActivityAttribute: sizes and defaults.
constexpr Attribute kAttributes[] = {
    {CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE, sizeof(size_t), 3200000},
    {CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE_CDP, sizeof(size_t), 8U << 20},
    {CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT, sizeof(size_t), 250},
    {CUPTI_ACTIVITY_ATTR_PROFILING_SEMAPHORE_POOL_SIZE, sizeof(size_t), 25000},
    {CUPTI_ACTIVITY_ATTR_PROFILING_SEMAPHORE_POOL_LIMIT, sizeof(size_t), 250},
    {CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, sizeof(uint8_t), 0},
    {CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_PRE_ALLOCATE_VALUE, sizeof(size_t), 3},
    {CUPTI_ACTIVITY_ATTR_PROFILING_SEMAPHORE_PRE_ALLOCATE_VALUE, sizeof(size_t), 3},
    {CUPTI_ACTIVITY_ATTR_MEM_ALLOCATION_TYPE_HOST_PINNED, sizeof(uint8_t), 0},
    {CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER, sizeof(uint8_t), 1},
    {CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE_DEVICE_GRAPHS, sizeof(size_t), 16U << 20},
};

const Attribute* FindAttribute(int number) {
  for (const Attribute& attribute : kAttributes) {
    if (attribute.number == number) {
      return &attribute;
    }
  }
  return nullptr;
}

// [documented] cupti_activity.h, CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER, and the release notes of
// 13.0: from 13.0 on each thread has buffers of its own.
constexpr uint32_t kPerThreadBuffersSince = 130000;
constexpr uint32_t kManySubscribersSince = 130300;

// [documented] cupti_activity_deprecated.h: CUpti_ActivityOverhead, before CUDA 12.3, has no correlation id.
constexpr uint32_t kOverheadsHaveCallsSince = 21;

// For Defects::clock_zeroes_times and Defects::calls_slow_down.
constexpr uint64_t kClockZeroesEvery = 8;
constexpr std::chrono::microseconds kSlowdown(20);
constexpr std::chrono::microseconds kMostSlowdown(5000);

}  // namespace

Session::Session()
    : knobs_(TheKnobs()),
      buffers_(BufferOptions{.crash_on_null = knobs_.defects.crashes_on_null,
                             .damage_every = knobs_.damaged_buffers,
                             .api_version = knobs_.api_version}) {
  for (int domain = 1; domain < CUPTI_CB_DOMAIN_SIZE; ++domain) {
    callbacks_[domain] = std::vector<std::atomic<bool>>(CallbackCount(domain));
  }
  buffers_.SetPerThread(knobs_.api_version >= kPerThreadBuffersSince);
}

Session& TheSession() {
  static auto* const kSession = new Session;
  return *kSession;
}

// [documented] CUPTI's guide, "Multiple subscribers", and cupti_callbacks.h, cuptiSubscribe_v2: from 13.3 on,
// with driver 610 or newer, if the first one allowed others with allowMultipleSubscribers and each later one
// asks the same. Otherwise one subscriber: a second one gets error 39 and, through the newer function, the
// first one's name.
// [observed] H100, CUPTI 13.0.1: error 39 for a second subscriber.
// [assumed] A refused cuptiSubscribe_v2 leaves cuptiSubscribe as it was. Probe: it asks for company first,
// then alone. Fallback: none; there would be no GPU times from CUPTI 13.4 on with a driver before 610.
CUptiResult Session::Subscribe(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc callback, void* userdata,
                               SubscriberParams* params) {
  if (handle == nullptr || (params != nullptr && params->bytes < offsetof(SubscriberParams, allow_others))) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  const bool asks_for_many =
      params != nullptr && params->bytes >= sizeof(*params) && params->allow_others != 0;
  const std::scoped_lock lock(mutex_);
  Subscriber* incumbent = current_.load();
  const bool somebody = incumbent != nullptr || company_.size() != 0;
  const bool refused = asks_for_many && (knobs_.api_version < kManySubscribersSince || knobs_.one_subscriber);
  if (knobs_.subscriber_taken || refused || (somebody && !(asks_for_many && many_allowed_))) {
    if (params != nullptr && params->old_name != nullptr && params->old_name_bytes > 0) {
      const std::string name = incumbent != nullptr ? incumbent->name : kIncumbent;
      const size_t length = std::min(name.size(), params->old_name_bytes - 1);
      std::memcpy(params->old_name, name.data(), length);
      params->old_name[length] = '\0';
    }
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  }
  if (incumbent != nullptr) {
    *handle = reinterpret_cast<CUpti_SubscriberHandle>(company_.Join(callback, userdata, knobs_.api_version));
    return CUPTI_SUCCESS;
  }
  // [assumed] The driver has one subscriber, whichever copy of libcupti in the process it comes from. Probe:
  // a tool with a copy of its own is served by the probe's copy. Fallback: if each copy could have a
  // subscriber, the tool would get the same.
  if (!somebody && !ClaimDriver()) {
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  }
  Subscriber& subscriber = subscribers_[next_subscriber_++ % subscribers_.size()];
  subscriber.name = "CUPTI";
  if (params != nullptr && params->name != nullptr) {
    subscriber.name += std::string(" for ") + params->name;
  }
  subscriber.userdata = userdata;
  subscriber.callback = callback;
  many_allowed_ = asks_for_many;
  current_ = &subscriber;
  *handle = reinterpret_cast<CUpti_SubscriberHandle>(&subscriber);
  return CUPTI_SUCCESS;
}

CUptiResult Session::Unsubscribe(CUpti_SubscriberHandle handle) {
  if (OtherSubscriber* other = company_.Find(handle); other != nullptr) {
    company_.Leave(other);
    return CUPTI_SUCCESS;
  }
  if (!IsCurrent(handle)) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  UnsubscribeCurrent();
  return CUPTI_SUCCESS;
}

void Session::UnsubscribeCurrent() {
  const std::scoped_lock lock(mutex_);
  session_ended_ = true;
  if (current_.exchange(nullptr) != nullptr && company_.size() == 0) {
    cupti_claimed = false;
    many_allowed_ = false;
  }
  for (auto& domain : callbacks_) {
    for (auto& enabled : domain) {
      enabled = false;
    }
  }
}

bool Session::IsCurrent(CUpti_SubscriberHandle handle) const {
  return handle != nullptr && reinterpret_cast<Subscriber*>(handle) == current_.load();
}

bool Session::SetCallback(bool enable, int domain, int64_t cbid) {
  if (domain <= 0 || domain >= CUPTI_CB_DOMAIN_SIZE) {
    return false;
  }
  auto& ids = callbacks_[domain];
  if (cbid >= static_cast<int64_t>(ids.size()) || cbid == 0) {
    return false;
  }
  for (size_t id = 1; id < ids.size(); ++id) {
    if (cbid < 0 || static_cast<int64_t>(id) == cbid) {
      ids[id] = enable;
    }
  }
  return true;
}

void Session::Call(CUpti_CallbackDomain domain, uint32_t cbid, const void* data) {
  company_.Call(domain, cbid, data);
  Subscriber* subscriber = current_.load(std::memory_order_acquire);
  if (subscriber == nullptr || !CallbackEnabled(domain, cbid)) {
    return;
  }
  const CUpti_CallbackFunc callback = subscriber->callback;
  if (callback == nullptr) {
    return;
  }
  ThreadBeginToolCallback();
  callback(subscriber->userdata, domain, cbid, data);
  ThreadEndToolCallback();
}

void Session::SetKind(uint32_t kind, bool enable) {
  if (!enable && kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL && knobs_.defects.disabling_kernels_hangs &&
      kernels_recorded_.load(std::memory_order_relaxed)) {
    std::fprintf(stderr, "gpusim: CUPTI hangs here: CONCURRENT_KERNEL is disabled in 13.0\n");
    while (true) pause();
  }
  if (kinds_[kind].exchange(enable) != enable) {
    // [observed] H100, CUPTI 13.0.1: switching kinds before the capture of a graph does no harm.
    // [assumed] A profiling session ends with the subscription, or when the last activity kind is disabled.
    // Probe: it keeps the device kind enabled while it captures, so that its session is the first one for the
    // whole life of the process. Fallback: if any disabled kind ends a session, graph launches at the detail
    // level "windows" are not to be trusted before 13.1 Update 1.
    if ((kinds_enabled_ += enable ? 1 : -1) == 0) session_ended_ = true;
  }
  if (enable && kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)
    kernels_ever_.store(true, std::memory_order_relaxed);
}

uint32_t Session::KernelKind() const {
  if (KindEnabled(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)) {
    return CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  }
  return KindEnabled(CUPTI_ACTIVITY_KIND_KERNEL) ? CUPTI_ACTIVITY_KIND_KERNEL : 0;
}

void Session::SetApiFilter(int domain, uint32_t cbid, bool enable) {
  const std::scoped_lock lock(mutex_);
  api_filter_[domain][cbid] = enable;
  has_api_filter_ = true;
}

bool Session::ApiRecordWanted(int domain, uint32_t cbid) const {
  const bool kind_wanted = KindEnabled(domain == CUPTI_CB_DOMAIN_RUNTIME_API ? CUPTI_ACTIVITY_KIND_RUNTIME
                                                                             : CUPTI_ACTIVITY_KIND_DRIVER);
  if (!has_api_filter_) {
    return kind_wanted;
  }
  const std::scoped_lock lock(mutex_);
  const auto& filter = api_filter_[domain];
  const auto entry = filter.find(cbid);
  return entry == filter.end() ? kind_wanted : entry->second;
}

// [documented] cupti_activity.h, cuptiActivityEnableAndDump: records of what exists already, for devices,
// contexts and streams.
void Session::Dump(uint32_t kind) {
  if (kind == CUPTI_ACTIVITY_KIND_DEVICE && DriverIsUp()) {
    for (uint32_t device = 0; device < DeviceCount(); ++device) {
      buffers_.Add(0, DeviceRecord(FactsOfDevice(device), knobs_.api_version));
    }
    return;
  }
  const std::scoped_lock lock(mutex_);
  if (kind == CUPTI_ACTIVITY_KIND_CONTEXT) {
    for (const auto& [context, uid] : contexts_) {
      uint32_t device = 0;
      uint32_t null_stream = 0;
      DeviceOfContext(context, &device);
      StreamIdOf(context, nullptr, false, &null_stream);
      buffers_.Add(0, ContextRecord(uid, device, null_stream, knobs_.api_version));
    }
  } else if (kind == CUPTI_ACTIVITY_KIND_STREAM) {
    for (const auto& [stream, live] : streams_) {
      buffers_.Add(
          0, StreamRecord(live.context_uid, live.stream_id, 0, CUPTI_ACTIVITY_STREAM_CREATE_FLAG_DEFAULT, 0));
    }
  }
}

void Session::ContextCreated(void* context) {
  const uint32_t uid = ContextUid(context);
  {
    const std::scoped_lock lock(mutex_);
    contexts_[context] = uid;
  }
  if (KindEnabled(CUPTI_ACTIVITY_KIND_CONTEXT)) {
    uint32_t device = 0;
    uint32_t null_stream = 0;
    DeviceOfContext(context, &device);
    StreamIdOf(context, nullptr, false, &null_stream);
    buffers_.Add(0, ContextRecord(uid, device, null_stream, knobs_.api_version));
  }
}

void Session::ContextDestroyed(void* context) {
  {
    const std::scoped_lock lock(mutex_);
    contexts_.erase(context);
    std::erase_if(streams_, [context](const auto& entry) { return entry.second.context == context; });
  }
  buffers_.UnreserveAll();
}

void Session::StreamCreated(void* context, void* stream, uint32_t correlation) {
  LiveStream live{context, ContextUid(context), 0};
  StreamIdOf(context, stream, false, &live.stream_id);
  {
    const std::scoped_lock lock(mutex_);
    streams_[stream] = live;
  }
  if (KindEnabled(CUPTI_ACTIVITY_KIND_STREAM)) {
    buffers_.Add(0, StreamRecord(live.context_uid, live.stream_id, 0,
                                 CUPTI_ACTIVITY_STREAM_CREATE_FLAG_DEFAULT, correlation));
  }
}

void Session::StreamDestroyed(void* stream) {
  const std::scoped_lock lock(mutex_);
  streams_.erase(stream);
}

bool Session::IsNth(uint64_t every, std::atomic<uint64_t>* counter) const {
  return every != 0 && (counter->fetch_add(1) + 1) % every == 0;
}

// Both clocks at one moment: the best of some tries, as the thread may be held up between them.
Session::ClockReading Session::ReadBoth(CUpti_TimestampCallbackFunc function) {
  ClockReading best{};
  uint64_t least_ns = UINT64_MAX;
  for (int i = 0; i < 20 && least_ns > 500; ++i) {
    const uint64_t before_ns = NowNs();
    const uint64_t ticks = function();
    const uint64_t took_ns = NowNs() - before_ns;
    if (took_ns >= least_ns) continue;
    least_ns = took_ns;
    best = {before_ns + took_ns / 2, ticks};
  }
  return best;
}

// [documented] cupti_activity.h, cuptiActivityRegisterTimestampCallback: NULL is an invalid parameter, so a
// callback is never taken back.
CUptiResult Session::RegisterClock(CUpti_TimestampCallbackFunc function) {
  if (function == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  const ClockReading first = ReadBoth(function);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const std::scoped_lock lock(clock_mutex_);
  clock_first_ = first;
  clock_ = function;
  return CUPTI_SUCCESS;
}

bool Session::HasClock() {
  const std::scoped_lock lock(clock_mutex_);
  return clock_ != nullptr;
}

// [observed] H100, CUPTI 13.0.1: records are CLOCK_REALTIME. After a timestamp callback was registered,
// records of work that was done before and were not yet handed out have the new clock's times, too. (The
// header says that they may have the old clock's.)
uint64_t Session::Stamp(uint64_t real_ns) {
  const std::scoped_lock lock(clock_mutex_);
  if (clock_ == nullptr || real_ns == 0) return real_ns;
  const ClockReading now = ReadBoth(clock_);
  const double slope = static_cast<double>(now.ticks - clock_first_.ticks) /
                       static_cast<double>(now.real_ns - clock_first_.real_ns);
  const double ago = (static_cast<double>(now.real_ns) - static_cast<double>(real_ns)) * slope;
  return now.ticks - static_cast<uint64_t>(static_cast<int64_t>(ago));
}

void Session::Finished(const Activity& activity) {
  Activity record = activity;
  record.start_ns = Stamp(activity.start_ns);
  record.end_ns = std::max(Stamp(activity.end_ns), record.start_ns);
  uint32_t kind = 0;
  switch (activity.kind) {
    case ActivityKind::kKernel:
      kind = KernelKind();
      break;
    case ActivityKind::kMemcpy:
      kind = CUPTI_ACTIVITY_KIND_MEMCPY;
      break;
    case ActivityKind::kPeerCopy:
      kind =
          KindEnabled(CUPTI_ACTIVITY_KIND_MEMCPY2) ? CUPTI_ACTIVITY_KIND_MEMCPY2 : CUPTI_ACTIVITY_KIND_MEMCPY;
      break;
    case ActivityKind::kMemset:
      kind = CUPTI_ACTIVITY_KIND_MEMSET;
      break;
    case ActivityKind::kSync:
      kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
      if (knobs_.defects.no_device_synchronisation_records &&
          activity.sync_type == CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE)
        return;
      break;
    case ActivityKind::kMemory:
      kind = CUPTI_ACTIVITY_KIND_MEMORY2;
      break;
    case ActivityKind::kMemoryPool:
      kind = CUPTI_ACTIVITY_KIND_MEMORY_POOL;
      break;
  }
  const bool on_device = activity.kind != ActivityKind::kSync && activity.kind != ActivityKind::kMemory &&
                         activity.kind != ActivityKind::kMemoryPool;
  if (on_device && activity.graph_node != 0 && KindEnabled(CUPTI_ACTIVITY_KIND_GRAPH_TRACE)) {
    AddGraphPart(activity);
    return;
  }
  const bool is_kernel = activity.kind == ActivityKind::kKernel;
  // [assumed] Whether a kernel is recorded is settled when it is launched, not when it ends. Probe: which
  // launches around a pause of recording count as lost. Fallback: the count of lost records is off by the
  // kernels in flight at a switch. Settled by: gpu-check step "many launches".
  // [observed] H100, CUPTI 13.0.1: kernels of graphs go on being recorded after the kind is disabled.
  const bool in_graph =
      is_kernel && activity.graph_node != 0 && kernels_ever_.load(std::memory_order_relaxed);
  if (in_graph ||
      (is_kernel && activity.graph_node == 0 && kind == 0 && buffers_.Holds(activity.correlation))) {
    kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  } else if (!KindEnabled(kind)) {
    buffers_.Unreserve(activity.correlation);
    return;
  }
  if (is_kernel && knobs_.no_kernel_records) {
    buffers_.Unreserve(activity.correlation);
    return;
  }
  if (on_device && IsNth(knobs_.withheld_records, &withheld_)) {
    buffers_.Unreserve(activity.correlation);
    return;
  }
  if (on_device && IsNth(knobs_.drops, &dropped_)) {
    buffers_.Unreserve(activity.correlation);
    buffers_.CountDropped(1);
    return;
  }
  if (is_kernel) SpoilTimes(&record);
  // [assumed] The wrong correlation id of a graph's work in a later session is that of the call after the
  // launch. Probe: which launch of a graph a replayed kernel is joined to. Fallback: its own session is the
  // first one; after another profiler's it matches no work of graphs with launches.
  if (on_device && activity.graph_node != 0 && knobs_.defects.later_sessions_misnumber_graphs &&
      session_ended_.load(std::memory_order_relaxed))
    ++record.correlation;
  if (is_kernel && IsNth(knobs_.unasked_kind, &unasked_)) {
    buffers_.Add(0, EmptyRecord(CUPTI_ACTIVITY_KIND_ENVIRONMENT, knobs_.api_version));
  }
  if (is_kernel) kernels_recorded_.store(true, std::memory_order_relaxed);
  const uint32_t slot = is_kernel && activity.graph_node == 0 ? activity.correlation : 0;
  buffers_.Add(slot, ActivityRecord(record, kind, static_cast<uint32_t>(getpid()), knobs_.api_version));
}

void Session::SpoilTimes(Activity* record) {
  const bool used_up = record->graph_node != 0 && GraphBuffersUsedUp(record->graph);
  const bool by_clock =
      knobs_.defects.clock_zeroes_times && HasClock() && IsNth(kClockZeroesEvery, &clocked_);
  if (IsNth(knobs_.zero_timestamps, &zeroed_) || by_clock || (used_up && record->correlation % 2 == 0)) {
    record->start_ns = 0;
    record->end_ns = 0;
  }
  if (IsNth(knobs_.backward_timestamps, &backward_) || (used_up && record->correlation % 2 != 0)) {
    std::swap(record->start_ns, record->end_ns);
  }
}

// [observed] A10, CUPTI 13.0.85, parcagpu issue 23: where only kernels are recorded, device buffers come not
// back from the nodes of CUDA graphs. After 25.1 million nodes (0.9 million with a limit of 8 buffers),
// kernels have no times, or end before they start.
// [observed] H100, CUPTI 13.0.1: 28 million nodes of one executable graph had right times. Hence a fault, not
// the default.
bool Session::GraphBuffersUsedUp(uint32_t graph) {
  if (knobs_.graph_buffers == 0) return false;
  const std::scoped_lock lock(mutex_);
  return ++graph_kernels_[graph] > knobs_.graph_buffers;
}

void Session::ExecutableMade(uint32_t graph) {
  const std::scoped_lock lock(mutex_);
  if (KindEnabled(CUPTI_ACTIVITY_KIND_GRAPH_TRACE)) {
    made_without_graph_trace_.erase(graph);
  } else {
    made_without_graph_trace_.insert(graph);
  }
}

// [documented] cupti_activity.h, CUpti_ActivityGraphTrace2: one record for a launch of a graph, from its
// start to its end.
// [assumed] Where graphs are traced whole, their nodes have no records, and a launch lasts from the start of
// its first node to the end of its last. Probe: the time of a replay where graphs are recorded whole.
// Fallback: it is longer by what CUPTI counts in. Settled by: gpu-check step "large graph".
void Session::AddGraphPart(const Activity& activity) {
  GraphRun ended;
  {
    const std::scoped_lock lock(mutex_);
    // [observed] H100, CUPTI 13.0.1: the process dies inside cuGraphLaunch when the executable graph was made
    // while GRAPH_TRACE was disabled, and is launched while it is enabled.
    if (made_without_graph_trace_.contains(activity.graph))
      Crash(
          "the executable graph was made while GRAPH_TRACE was disabled, and is launched while it is "
          "enabled");
    if (knobs_.defects.graph_trace_crashes &&
        (activity.kind == ActivityKind::kMemcpy || activity.kind == ActivityKind::kMemset))
      Crash("a graph with copies or fills is traced whole before 12.6");
    GraphRun& run = graph_runs_[activity.correlation];
    run.start_ns = run.correlation == 0 ? activity.start_ns : std::min(run.start_ns, activity.start_ns);
    run.end_ns = std::max(run.end_ns, activity.end_ns);
    run.device = activity.device;
    run.context_uid = activity.context_uid;
    run.stream_id = activity.stream_id;
    run.graph = activity.graph;
    run.correlation = activity.correlation;
    if (++run.parts < activity.graph_parts) return;
    ended = run;
    graph_runs_.erase(activity.correlation);
  }
  buffers_.Add(0, GraphTraceRecord(ended, knobs_.api_version));
}

CUptiResult Session::Flush(bool forced) {
  while (knobs_.hang_flush) {
    pause();
  }
  if (!buffers_.Registered() && company_.size() == 0) {
    return CUPTI_ERROR_INVALID_OPERATION;
  }
  if (forced && knobs_.defects.forced_flush_crashes) Crash("a flush is forced in 13.0");
  const uint64_t start_ns = NowNs();
  std::this_thread::sleep_for(std::chrono::milliseconds(knobs_.slow_flush_ms));
  if (knobs_.defects.calls_slow_down)
    std::this_thread::sleep_for(
        std::min(kMostSlowdown, kSlowdown * static_cast<int64_t>(flushes_.fetch_add(1))));
  SettleFinishedWork();
  AddOverhead("buffer_flush",
              {.what = CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH, .start_ns = start_ns, .end_ns = NowNs()});
  // [documented] cupti_activity.h (13.5), cuptiActivityFlushAll: the buffers of all subscribers.
  buffers_.Flush(forced);
  company_.Flush(forced);
  return CUPTI_SUCCESS;
}

// [assumed] The first launch of a kernel has an overhead record with the launch's correlation id, from the
// launch's entry on, and no other launch has one. Probe: it adds up what CUPTI reports, by kind, and relies
// on no order. Fallback: none is needed.
void Session::Launched(const ApiCall& call) {
  {
    const std::scoped_lock lock(mutex_);
    if (call.symbol_name == nullptr || !loaded_.insert(call.symbol_name).second) return;
  }
  AddOverhead("function_loading", {.what = CUPTI_ACTIVITY_OVERHEAD_LAZY_FUNCTION_LOADING,
                                   .start_ns = call.start_ns,
                                   .end_ns = NowNs(),
                                   .correlation = call.correlation});
}

// [documented] cupti_activity.h, CUPTI_ACTIVITY_KIND_OVERHEAD: overhead added by CUPTI, the compiler, the
// driver. [assumed] An overhead record is written at once, into a buffer that is open, and otherwise not at
// all. Probe: a flush of an idle program must not make a batch. Fallback: such batches are left for the next
// report of the probe about itself.
void Session::AddOverhead(const char* name, const OverheadSpan& span) {
  if (!KindEnabled(CUPTI_ACTIVITY_KIND_OVERHEAD)) return;
  OverheadSpan stamped = span;
  stamped.start_ns = Stamp(span.start_ns);
  stamped.end_ns = std::max(Stamp(span.end_ns), stamped.start_ns);
  if (buffers_.AddIfOpen(
          OverheadRecord(stamped, static_cast<uint32_t>(getpid()), ThreadId(), knobs_.api_version)))
    LogOverhead(name, span.start_ns, span.end_ns,
                knobs_.api_version >= kOverheadsHaveCallsSince ? span.correlation : 0);
}

uint32_t Session::ThreadId() const {
  return thread_id_type_ == CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM ? static_cast<uint32_t>(gettid())
                                                                 : static_cast<uint32_t>(pthread_self());
}

CUptiResult Session::SetAttribute(int attribute, size_t* size, const void* value) {
  const Attribute* known = FindAttribute(attribute);
  if (known == nullptr || size == nullptr || value == nullptr) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  if (*size < known->size) {
    return CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT;
  }
  const auto* bytes = static_cast<const uint8_t*>(value);
  {
    const std::scoped_lock lock(mutex_);
    attributes_[attribute].assign(bytes, bytes + known->size);
  }
  if (attribute == CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER) {
    buffers_.SetPerThread(*bytes != 0);
  }
  if (attribute == CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER) {
    buffers_.SetZeroedByTool(*bytes != 0);
  }
  return CUPTI_SUCCESS;
}

CUptiResult Session::GetAttribute(int attribute, size_t* size, void* value) {
  const Attribute* known = FindAttribute(attribute);
  if (known == nullptr || size == nullptr || value == nullptr) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  if (*size < known->size) {
    return CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT;
  }
  const std::scoped_lock lock(mutex_);
  const auto set = attributes_.find(attribute);
  std::memcpy(value,
              set == attributes_.end() ? static_cast<const void*>(&known->initial) : set->second.data(),
              known->size);
  *size = known->size;
  return CUPTI_SUCCESS;
}

std::map<uint32_t, std::vector<uint64_t>>& Session::ExternalIds() {
  return PerThread<std::map<uint32_t, std::vector<uint64_t>>>();
}

}  // namespace gpusim::cupti
