// What becomes a record, and when it is handed out: finished work, graphs as a whole and CUPTI's own
// overhead, with the faults and defects that are asked for.
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>
#include <utility>

#include "tests/sim/core/cupti_seam.h"
#include "tests/sim/cupti/layout.h"
#include "tests/sim/cupti/session.h"

namespace gpusim::cupti {
namespace {

// [documented] cupti_activity_deprecated.h: CUpti_ActivityOverhead, before CUDA 12.3, has no correlation id.
constexpr uint32_t kOverheadsHaveCallsSince = 21;

// For Defects::calls_slow_down.
constexpr std::chrono::microseconds kSlowdown(20);
constexpr std::chrono::microseconds kMostSlowdown(5000);

// Also on a thread of the node's own, which has every signal blocked.
void Crash(const char* why) {
  std::fprintf(stderr, "gpusim: CUPTI crashes here: %s\n", why);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGSEGV);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  std::raise(SIGSEGV);
}

}  // namespace

bool Session::IsNth(uint64_t every, std::atomic<uint64_t>* counter) const {
  return every != 0 && (counter->fetch_add(1) + 1) % every == 0;
}

void Session::Finished(const Activity& activity) {
  Activity record = activity;
  record.start_ns = clock_.Stamp(activity.start_ns);
  record.end_ns = std::max(clock_.Stamp(activity.end_ns), record.start_ns);
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

CUptiResult Session::RegisterClock(CUpti_TimestampCallbackFunc function) {
  if (function != nullptr && knobs_.defects.clock_zeroes_times) buffers_.ZeroKernelTimes();
  return clock_.Register(function);
}

void Session::SpoilTimes(Activity* record) {
  const bool used_up = record->graph_node != 0 && GraphBuffersUsedUp(record->graph);
  if (IsNth(knobs_.zero_timestamps, &zeroed_) || (used_up && record->correlation % 2 == 0)) {
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
  stamped.start_ns = clock_.Stamp(span.start_ns);
  stamped.end_ns = std::max(clock_.Stamp(span.end_ns), stamped.start_ns);
  if (buffers_.AddIfOpen(
          OverheadRecord(stamped, static_cast<uint32_t>(getpid()), ThreadId(), knobs_.api_version)))
    LogOverhead(name, span.start_ns, span.end_ns,
                knobs_.api_version >= kOverheadsHaveCallsSince ? span.correlation : 0);
}

uint32_t Session::ThreadId() const {
  return thread_id_type_ == CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM ? static_cast<uint32_t>(gettid())
                                                                 : static_cast<uint32_t>(pthread_self());
}

}  // namespace gpusim::cupti
