#include "injector/capture/cupti/session.h"

#include <cstring>
#include <ctime>

#include "injector/base/lifecycle.h"
#include "injector/base/losses.h"
#include "injector/capture/cupti/broker.h"
#include "injector/capture/cupti/callbacks.h"
#include "injector/capture/cupti/context_devices.h"
#include "injector/capture/cupti/guest.h"
#include "injector/capture/cupti/guest_buffers.h"
#include "injector/capture/cupti/guest_callbacks.h"
#include "injector/capture/cupti/guest_clock.h"
#include "injector/capture/cupti/guest_records.h"
#include "injector/capture/cupti/kinds.h"
#include "injector/capture/cupti/launches.h"
#include "injector/capture/cupti/stream_ids.h"
#include "injector/core/event_ring.h"
#include "injector/core/guard.h"
#include "injector/core/host_clock.h"
#include "injector/core/recording.h"
#include "injector/core/self_report.h"
#include "injector/core/step_gate.h"

namespace gpuprobe::injector {

namespace {

// CUPTI's buffer callbacks carry no user data, and are process-global like this.
constinit std::atomic<CuptiSession*> active_session{nullptr};

constinit std::atomic<bool> graphs_made{false};
constinit std::atomic<bool> stale_names{false};

// From this version, 12.9, a buffer request may be declined (buffer_pool.h).
constexpr uint32_t kTakesNoForAnAnswer = 27;
constexpr size_t kFirstBufferBytes = size_t{64} << 10;  // before the rate of records is known
constexpr uint64_t kAskAgainNs = 1'000'000'000;         // between checks whether another profiler has left
constexpr uint64_t kBufferNs = 500'000'000;             // time of records that a buffer should hold

uint64_t ReadClock(clockid_t clock) noexcept {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}
uint64_t MonotonicNs() noexcept { return ReadClock(CLOCK_MONOTONIC); }
uint64_t ThreadCpuNs() noexcept { return ReadClock(CLOCK_THREAD_CPUTIME_ID); }

// Memory allocated in a context is released with it, without a call for each allocation.
void ReportContextEnd(CUcontext context) noexcept {
  const Guard guard;
  if (guard) Emit(guard.thread(), ContextEndEvent{Stamp(), reinterpret_cast<uint64_t>(context)});
}

}  // namespace

bool CuptiSession::Check(CUptiResult result) noexcept {
  if (result == CUPTI_SUCCESS) return true;
  CountCuptiError(static_cast<int32_t>(result));
  return false;
}

void CuptiSession::Bind(const CuptiApi& api) noexcept {
  api_ = api;
  WatchForGuests(&api_);
}

CuptiSession::StartResult CuptiSession::Start(uint32_t buffers, size_t buffer_bytes,
                                              size_t most_bytes) noexcept {
  if (!pool_.Init(buffers, buffer_bytes, most_bytes)) return StartResult::kNoMemory;
  pool_.Aim(kFirstBufferBytes);
  if (api_.version >= kTakesNoForAnAnswer) pool_.MayDecline();
  decoder_.Init();
  TakePrecautions();
  // Graphs as a whole would have to be the choice of all subscribers, made before the first of them comes.
  const StartResult result = Attach(/*beside_others=*/!recording.Wants(kRecordGraphsWhole));
  if (result != StartResult::kOtherProfiler) return result;
  Check(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
  other_since_ns_ = other_asked_ns_ = MonotonicNs();
  return result;
}

CuptiSession::StartResult CuptiSession::Attach(bool beside_others) noexcept {
  beside_others = beside_others && SubscribeBesideOthers(&api_, &subscriber_, OnCallback, this);
  if (!beside_others) {
    const CUptiResult subscribed = SubscribeAlone(api_, &subscriber_, OnCallback, this);
    if (subscribed == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) return StartResult::kOtherProfiler;
    if (!Check(subscribed)) return StartResult::kRefused;
  }
  beside_others_ = beside_others;
  active_session.store(this, std::memory_order_release);
  // Before anything is enabled, so that no records are lost to a tool's call that is already on its way to
  // CUPTI.
  kinds_enabled_.store(true, std::memory_order_relaxed);
  capturing_.store(true, std::memory_order_release);
  ReceiveGuests({.subscriber = subscriber_,
                 .others_allowed = beside_others,
                 .needs_kind = NeedsKind,
                 .needs_callback = NeedsCallback,
                 .graphs_made = graphs_seen,
                 .take_buffers_back = TakeBuffersBack,
                 .flush = [](void* self) noexcept { static_cast<CuptiSession*>(self)->Flush(false); },
                 .self = this,
                 .precautions = precautions_});
  const bool enabled = EnableEverything();
  kinds_enabled_.store(enabled && !step_gate.on_demand(), std::memory_order_relaxed);
  capturing_.store(enabled, std::memory_order_release);
  return enabled ? StartResult::kCapturing : StartResult::kRefused;
}

// False: no kernels.
bool CuptiSession::EnableEverything() noexcept {
  SetAttributes();
  bool enabled = Check(api_.ActivityRegisterCallbacks(OnBufferRequested, OnBufferCompleted));
  if (enabled) {
    for (const RecordedKind& recorded : kRecordedKinds) {
      if (!Records(recorded.kind)) continue;
      if (step_gate.on_demand() && recorded.kind != CUPTI_ACTIVITY_KIND_DEVICE) continue;
      const bool done = Check(api_.ActivityEnable(recorded.kind));
      if (recorded.kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) enabled = done;
    }
  }
  if ((recording.kinds & kRecordGraphsWhole) != 0)
    Check(api_.ActivityEnable(CUPTI_ACTIVITY_KIND_GRAPH_TRACE));
  EnableCallbacks();
  return enabled;
}

void CuptiSession::TakeBuffersBack(void* self) noexcept {
  const auto* session = static_cast<const CuptiSession*>(self);
  static_cast<void>(session->api_.ActivityRegisterCallbacks(OnBufferRequested, OnBufferCompleted));
}

// The driver may not be called from here, so we learn that cuInit is over only from the first callback.
// Attach is allowed before that: Start calls it inside cuInit. Existing graphs were not seen.
void CuptiSession::AttachOnceAlone(uint64_t now_ns) noexcept {
  if (now_ns - other_asked_ns_ < kAskAgainNs) return;
  other_asked_ns_ = now_ns;
  OnGraph();
  // A tool that had CUPTI alone uses the old functions, and may come back with them.
  const StartResult result = Attach(/*beside_others=*/false);
  if (result == StartResult::kOtherProfiler) return;
  if (Avoids(cupti::kGraphWorkUnjoined)) {
    felt_precautions_ |= cupti::kGraphWorkUnjoined;
    decoder_.DistrustGraphs();
  }
  yielded_ns_ = result == StartResult::kCapturing ? MonotonicNs() - other_since_ns_ : 0;
  other_since_ns_ = 0;
}

void CuptiSession::TakePrecautions() noexcept {
  precautions_ = cupti::PrecautionsFor(api_.version);
  felt_precautions_ = precautions_;
  const auto not_felt = [this](cupti::Precaution precaution) { felt_precautions_ &= ~uint32_t{precaution}; };
  if (!recording.Wants(kRecordKernels)) not_felt(cupti::kKernelsStayEnabled);
  if (!recording.Wants(kRecordSyncs)) not_felt(cupti::kNoDeviceWaits);
  if (!recording.Wants(kRecordGraphsWhole)) not_felt(cupti::kGraphsNodeByNode);
  not_felt(cupti::kGraphWorkUnjoined);  // unless another profiler was first
  not_felt(cupti::kNamesUncertain);     // unless modules come after others went
  if (Avoids(cupti::kGraphsNodeByNode)) recording.kinds &= ~uint32_t{kRecordGraphsWhole};
}

// CUPTI answers 999 while the driver is not up; Tick tries again, and only what fails then is an error.
void CuptiSession::SetAttributes() noexcept {
  const bool last_try = driver_is_up();
  bool done = true;
  if (api_.ActivitySetAttribute != nullptr) {
    uint8_t zeroed = 1;
    size_t size = sizeof(zeroed);
    const CUptiResult result =
        api_.ActivitySetAttribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &size, &zeroed);
    done = last_try ? Check(result) : result == CUPTI_SUCCESS;
  }
  attributes_set_ = done || last_try;
}

bool CuptiSession::NeedsCallback(CUpti_CallbackDomain domain, CUpti_CallbackId cbid) noexcept {
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API || domain == CUPTI_CB_DOMAIN_RUNTIME_API)
    return WantsApi(domain, cbid);
  if (domain != CUPTI_CB_DOMAIN_RESOURCE) return false;
  switch (cbid) {
    case CUPTI_CBID_RESOURCE_CU_INIT_FINISHED:
    case CUPTI_CBID_RESOURCE_CONTEXT_CREATED:
    case CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING:
    case CUPTI_CBID_RESOURCE_STREAM_CREATED:
    case CUPTI_CBID_RESOURCE_MODULE_LOADED:
    case CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING:
      return true;
    case CUPTI_CBID_RESOURCE_GRAPHNODE_CREATE_STARTING:
    case CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED:
    case CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED:
      return graph_node_hooks.on_node != nullptr;
    default:
      return false;
  }
}

void CuptiSession::EnableCallbacks() noexcept {
  for (const CUpti_CallbackDomain domain :
       {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_CB_DOMAIN_RESOURCE}) {
    for (CUpti_CallbackId cbid = 1; cbid < kMaxCallbackId; ++cbid) {
      // An older CUPTI does not know the newest functions: not an error, they cannot be called either.
      if (NeedsCallback(domain, cbid)) api_.EnableCallback(1, subscriber_, domain, cbid);
    }
  }
}

bool CuptiSession::NeedsKind(void* self, CUpti_ActivityKind kind) noexcept {
  const auto* session = static_cast<const CuptiSession*>(self);
  return session->capturing() && session->Records(kind) &&
         (session->kinds_enabled_.load(std::memory_order_relaxed) || kind == CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
}

// Devices are recorded once each. With their kind, CUPTI's session lasts: in later ones it gets the
// correlation ids of graph launches wrong before 13.1 Update 1.
bool CuptiSession::StaysEnabled(CUpti_ActivityKind kind) const noexcept {
  return kind == CUPTI_ACTIVITY_KIND_DEVICE ||
         (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL && Avoids(cupti::kKernelsStayEnabled));
}

// The reader of an overhead record frees its details (Decoder::DecodeOverhead). CUPTI's headers do not say
// which reader that is with several subscribers, so overheads are not recorded then.
bool CuptiSession::Records(CUpti_ActivityKind kind) const noexcept {
  return IsRecorded(kind) && (kind != CUPTI_ACTIVITY_KIND_OVERHEAD || !beside_others_);
}

// GRAPH_TRACE is never switched: an executable graph that was made while it was off kills the program when it
// is launched while it is on, inside CUPTI (seen on an H100 with CUPTI 13.0.1). So whether graphs are
// recorded whole is settled at Start, before there is any.
void CuptiSession::StopKinds() noexcept {
  if (capturing() && driver_is_up()) DisableKinds();
}

// Said first: a tool that is our guest may at the same time disable what it thinks only it needs.
bool CuptiSession::StartKinds() noexcept {
  if (!capturing() || !driver_is_up()) return false;
  if (kinds_enabled_.exchange(true, std::memory_order_acq_rel)) return true;
  bool enabled = true;
  for (const RecordedKind& recorded : kRecordedKinds) {
    const CUpti_ActivityKind kind = recorded.kind;
    if (!Records(kind) || kind == CUPTI_ACTIVITY_KIND_DEVICE) continue;
    const bool done = Check(api_.ActivityEnable(kind));
    if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) enabled = done;
  }
  if (!enabled) DisableKinds();
  return enabled;
}

void CuptiSession::DisableKinds() noexcept {
  if (api_.ActivityDisable == nullptr) return;
  if (!kinds_enabled_.exchange(false, std::memory_order_acq_rel)) return;
  for (const RecordedKind& recorded : kRecordedKinds) {
    const CUpti_ActivityKind kind = recorded.kind;
    if (Records(kind) && !StaysEnabled(kind) && !GuestNeedsKind(kind)) Check(api_.ActivityDisable(kind));
  }
}

bool CuptiSession::records_kernels() const noexcept {
  return capturing() && kinds_enabled_.load(std::memory_order_relaxed) && recording.Wants(kRecordKernels);
}

// No call into CUPTI from here, as from any hook: the probe's thread looks often enough.
void CuptiSession::OnGraph() noexcept {
  if (!graphs_seen()) graphs_made.store(true, std::memory_order_relaxed);
}

bool CuptiSession::graphs_seen() noexcept { return graphs_made.load(std::memory_order_relaxed); }

bool CuptiSession::names_may_be_stale() noexcept { return stale_names.load(std::memory_order_relaxed); }

// Averaged over some ticks: buffers come back in lumps.
void CuptiSession::AimBuffers() noexcept {
  constexpr uint64_t kTicks = 4;
  const uint64_t now_ns = MonotonicNs();
  const uint64_t passed_ns = now_ns - aimed_ns_;
  if (aimed_ns_ != 0 && passed_ns < kBufferNs / kTicks) return;
  const uint64_t bytes = completed_bytes_.exchange(0, std::memory_order_relaxed);
  if (aimed_ns_ != 0 && pool_.ever_taken()) {
    const uint64_t now_bytes = bytes * (kBufferNs / 1000) / (passed_ns / 1000);
    half_second_bytes_ = (half_second_bytes_ * (kTicks - 1) + now_bytes) / kTicks;
    pool_.Aim(static_cast<size_t>(half_second_bytes_));
  }
  aimed_ns_ = now_ns;
}

void CuptiSession::Tick() noexcept {
  AimBuffers();
  ReadGuestClock();
  if (other_since_ns_ != 0) AttachOnceAlone(MonotonicNs());
  if (!capturing() || !driver_is_up()) return;
  if (!attributes_set_) SetAttributes();
  // Their records were written inside cuInit, and come with the first flush, unless we attached later.
  const bool may_have_come = flushed_.load(std::memory_order_relaxed) || !pool_.ever_taken();
  if (!devices_asked_ && may_have_come && !decoder_.devices_seen() && api_.ActivityEnableAndDump != nullptr) {
    Check(api_.ActivityEnableAndDump(CUPTI_ACTIVITY_KIND_DEVICE));
    devices_asked_ = true;
  }
}

void CuptiSession::Flush(bool forced) noexcept {
  flush_called_.store(false, std::memory_order_relaxed);
  if (!capturing() || !driver_is_up() || !pool_.ever_taken()) return;
  const bool may_force = forced && !Avoids(cupti::kNoForcedFlush);
  Check(api_.ActivityFlushAll(may_force ? CUPTI_ACTIVITY_FLAG_FLUSH_FORCED : 0));
  flushed_.store(true, std::memory_order_relaxed);
}

void CuptiSession::FlushUnfinished() noexcept {
  expect_unfinished.store(true, std::memory_order_relaxed);
  Flush(true);
  expect_unfinished.store(false, std::memory_order_relaxed);
}

void CuptiSession::Stop() noexcept {
  if (!capturing_.exchange(false, std::memory_order_acq_rel)) return;
  DisableKinds();
  if (GuestIsActive()) return;  // its records come through us
  if (api_.ActivityDisable != nullptr) Check(api_.ActivityDisable(CUPTI_ACTIVITY_KIND_DEVICE));
  SendGuestsAway();
  if (api_.Unsubscribe != nullptr) Check(api_.Unsubscribe(subscriber_));
}

// Asked once a context, while it is being made: later callbacks name the context only.
void CuptiSession::NoteContext(CUcontext context) const noexcept {
  uint32_t device = 0;
  if (api_.GetDeviceId == nullptr || context == nullptr || InForkedChild()) return;
  if (api_.GetDeviceId(context, &device) == CUPTI_SUCCESS)
    NoteContextDevice(context, static_cast<int32_t>(device));
}

// Once per stream, while it is being made: it may be named later.
void CuptiSession::NoteStreamIds(CUcontext context, CUstream stream) const noexcept {
  if (api_.GetContextId == nullptr || api_.GetStreamIdEx == nullptr || context == nullptr) return;
  StreamIds ids;
  if (api_.GetContextId(context, &ids.context) == CUPTI_SUCCESS &&
      api_.GetStreamIdEx(context, stream, 0, &ids.stream) == CUPTI_SUCCESS) {
    NoteStream(stream, ids);
  }
}

// CUPTI 13.0.1 gives a node's type only as its creation starts. The events that follow come on the same
// thread.
void CuptiSession::NoteGraphNodeType(const CUpti_GraphData& graph) noexcept {
  if (const Guard guard; guard) guard.thread().graph_node_type = static_cast<uint32_t>(graph.nodeType);
}

// CUPTI's own example asks for ids inside these callbacks.
// For child graphs CUPTI 13.0.1 reports copies that never run, and never reports the ids of the executable
// graph's own copies (docs/real-hardware.md). Calls in child graphs are then known by their records' sources
// (node_sources.h), before 13.4 by their kernels' names.
void CuptiSession::NoteGraphNode(const CUpti_GraphData& graph, bool cloned) const noexcept {
  const Guard guard;
  if (!guard) return;
  const uint32_t type = guard.thread().graph_node_type;
  const bool memory = type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE;
  if (memory && !cloned) guard.thread().graph_memory_graph = reinterpret_cast<uint64_t>(graph.graph);
  const bool kernel = type == CU_GRAPH_NODE_TYPE_KERNEL;
  const bool copies = type == CU_GRAPH_NODE_TYPE_MEMCPY;
  if (!kernel && !copies && type != CU_GRAPH_NODE_TYPE_MEMSET) return;
  if (api_.GetGraphNodeId == nullptr) return;
  const bool launching = !cloned && guard.thread().last_launch_correlation != 0;
  const bool wanted = (kernel || copies) && graph_node_hooks.wants(guard.thread(), cloned, copies);
  if (!launching && !wanted) return;
  uint64_t id = 0;
  uint64_t original_id = 0;
  if (api_.GetGraphNodeId(graph.node, &id) != CUPTI_SUCCESS) return;
  if (cloned && api_.GetGraphNodeId(graph.originalNode, &original_id) != CUPTI_SUCCESS) return;
  if (launching) NoteCaptured(guard.thread(), id);
  if (!wanted) return;
  const uint32_t copy = guard.thread().graph_copy;
  const uint64_t owner = cloned && copy != 0 ? kCopiedBy | copy : reinterpret_cast<uint64_t>(graph.graph);
  graph_node_hooks.on_node(guard.thread(), id, original_id, owner, copies);
}

void CuptiSession::DriverIsUp() noexcept {
  if (!driver_up_.exchange(true, std::memory_order_acq_rel) && !InForkedChild()) WakeProbeThread();
}

void CUPTIAPI CuptiSession::OnCallback(void* self, CUpti_CallbackDomain domain, CUpti_CallbackId cbid,
                                       const void* data) {
  TakeCallback(self, domain, cbid, data);
  GiveGuestABuffer();
  ForwardToGuest(domain, cbid, data);
}

// A kernel of a module that was loaded after another was unloaded may have that one's place, and its name.
void CuptiSession::NoteModules(CUpti_CallbackId cbid) noexcept {
  if (cbid == CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING) {
    module_unloaded_.store(true, std::memory_order_relaxed);
    if (Avoids(cupti::kNamesUncertain)) stale_names.store(true, std::memory_order_relaxed);
  } else if (cbid == CUPTI_CBID_RESOURCE_MODULE_LOADED && module_unloaded_.load(std::memory_order_relaxed)) {
    names_uncertain_.store(true, std::memory_order_relaxed);
  }
}

void CuptiSession::TakeCallback(void* self, CUpti_CallbackDomain domain, CUpti_CallbackId cbid,
                                const void* data) noexcept {
  if (domain == CUPTI_CB_DOMAIN_RESOURCE) {
    auto* session = static_cast<CuptiSession*>(self);
    session->NoteModules(cbid);
    const bool cloned = cbid == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED;
    const bool starting = cbid == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATE_STARTING;
    if (starting || cloned || cbid == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED) {
      const auto* graph = static_cast<const CUpti_ResourceData*>(data)->resourceDescriptor;
      if (graph == nullptr) return;
      if (starting) return NoteGraphNodeType(*static_cast<const CUpti_GraphData*>(graph));
      session->NoteGraphNode(*static_cast<const CUpti_GraphData*>(graph), cloned);
      return;
    }
    if (cbid == CUPTI_CBID_RESOURCE_MODULE_LOADED || cbid == CUPTI_CBID_RESOURCE_STREAM_CREATED) {
      const Guard guard;
      if (!guard) return;
      if (new_library_hook != nullptr) new_library_hook();
      const auto* resource = static_cast<const CUpti_ResourceData*>(data);
      if (cbid == CUPTI_CBID_RESOURCE_STREAM_CREATED && resource != nullptr)
        session->NoteStreamIds(resource->context, resource->resourceHandle.stream);
      return;
    }
    if (cbid == CUPTI_CBID_RESOURCE_CONTEXT_CREATED) {
      session->NoteContext(static_cast<const CUpti_ResourceData*>(data)->context);
    } else if (cbid == CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING) {
      return ReportContextEnd(static_cast<const CUpti_ResourceData*>(data)->context);
    }
    if (cbid != CUPTI_CBID_RESOURCE_CONTEXT_CREATED && cbid != CUPTI_CBID_RESOURCE_CU_INIT_FINISHED) return;
    session->DriverIsUp();
    return;
  }
  if (domain != CUPTI_CB_DOMAIN_DRIVER_API && domain != CUPTI_CB_DOMAIN_RUNTIME_API) return;
  const Guard guard;
  if (!guard) return CountRefusedApi(domain, cbid, *static_cast<const CUpti_CallbackData*>(data));
  auto* session = static_cast<CuptiSession*>(self);
  if (!session->driver_up_.load(std::memory_order_relaxed)) [[unlikely]]
    session->DriverIsUp();
  DispatchApi(guard.thread(), domain, cbid, *static_cast<const CUpti_CallbackData*>(data));
}

void CUPTIAPI CuptiSession::OnBufferRequested(uint8_t** buffer, size_t* bytes, size_t* max_records) {
  *max_records = 0;  // as many as fit
  CuptiSession* session = active_session.load(std::memory_order_acquire);
  *buffer = session->pool_.Take(bytes);
  if (*buffer == nullptr) session->declined_.store(true, std::memory_order_relaxed);
  // Many threads launch, or end: the buffers of those that have ended come back with a flush.
  if (session->pool_.runs_short() && !InForkedChild() &&
      !session->flush_called_.exchange(true, std::memory_order_relaxed)) {
    WakeProbeThread();
  }
}

void CuptiSession::Decode(uint8_t* buffer, size_t valid_bytes) noexcept {
  const uint64_t began_ns = ThreadCpuNs();
  // Closed: the collector is gone, so the records would go nowhere.
  if (CurrentLifecycle() != LifecycleState::kClosed) decoder_.DecodeBuffer(buffer, valid_bytes);
  pool_.GiveBack(buffer, valid_bytes);
  completion_ns_.fetch_add(ThreadCpuNs() - began_ns, std::memory_order_relaxed);
}

// A buffer that the profiler before us gave CUPTI, and that was still being filled when it left.
void CuptiSession::CompleteGuestsBuffer(CUcontext context, uint32_t stream_id, uint8_t* buffer, size_t bytes,
                                        size_t valid_bytes) noexcept {
  size_t room = 0;
  uint8_t* const copy = pool_.Take(&room);
  if (pool_.Classify(copy) == BufferPool::Owner::kPool && valid_bytes <= room) {
    std::memcpy(copy, buffer, valid_bytes);
    RestoreTimes(copy, valid_bytes);
    Decode(copy, valid_bytes);
  } else {
    CountLoss(wire::LossReason::kLossForeignBuffer);
    if (pool_.Classify(copy) == BufferPool::Owner::kPool) pool_.GiveBack(copy, 0);
  }
  CompleteForGuest(context, stream_id, buffer, bytes, valid_bytes);
}

void CUPTIAPI CuptiSession::OnBufferCompleted(CUcontext context, uint32_t stream_id, uint8_t* buffer,
                                              size_t bytes, size_t valid_bytes) {
  CuptiSession* session = active_session.load(std::memory_order_acquire);
  if (session == nullptr || InForkedChild()) return;
  switch (session->pool_.Classify(buffer)) {
    case BufferPool::Owner::kForeign:
      if (GuestHasBuffers())
        return session->CompleteGuestsBuffer(context, stream_id, buffer, bytes, valid_bytes);
      CountLoss(wire::LossReason::kLossForeignBuffer);
      return;
    case BufferPool::Owner::kDiscard:
      CountLoss(wire::LossReason::kLossBufferPoolEmpty,
                (valid_bytes + kTypicalRecordBytes - 1) / kTypicalRecordBytes);
      return;
    case BufferPool::Owner::kPool:
      break;
  }
  session->completed_bytes_.fetch_add(valid_bytes, std::memory_order_relaxed);
  FeedGuest(context, stream_id, buffer, valid_bytes);
  RestoreTimes(buffer, valid_bytes);
  session->Decode(buffer, valid_bytes);
  session->CountDropped(context, stream_id);
}

void CuptiSession::CountDropped(CUcontext context, uint32_t stream_id) noexcept {
  size_t dropped = 0;
  if (api_.ActivityGetNumDroppedRecords == nullptr ||
      api_.ActivityGetNumDroppedRecords(context, stream_id, &dropped) != CUPTI_SUCCESS || dropped == 0)
    return;
  CountLoss(declined_.exchange(false, std::memory_order_relaxed) ? wire::LossReason::kLossBufferPoolEmpty
                                                                 : wire::LossReason::kLossCuptiDropped,
            dropped);
  NoteGuestDropped(dropped);
}

}  // namespace gpuprobe::injector
