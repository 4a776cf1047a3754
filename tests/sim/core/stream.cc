// Streams: who waits for whom, and the way of work into the schedule.
#include <cupti.h>

#include <algorithm>

#include "tests/sim/core/graph.h"
#include "tests/sim/core/objects.h"
#include "tests/sim/core/pool.h"
#include "tests/sim/core/trace.h"
#include "tests/sim/core/truth.h"

namespace gpusim {
namespace {

// A stream takes about this many operations before a launch blocks, as on hardware.
constexpr size_t kQueueDepth = 1024;

std::set<CUstream_st*>& LiveStreams() {
  static auto* streams = new std::set<CUstream_st*>;
  return *streams;
}

bool Blocks(const CUstream_st& stream) { return (stream.flags & CU_STREAM_NON_BLOCKING) == 0; }

CUstream_st* PerThreadStreamLocked(CUctx_st* context) {
  std::unique_ptr<CUstream_st>& stream = context->per_thread[ThreadNumber()];
  if (stream == nullptr) {
    stream = std::make_unique<CUstream_st>();
    stream->context = context;
    stream->id = context->next_stream_id++;
    stream->per_thread = true;
  }
  return stream.get();
}

CUresult FindLocked(CUctx_st* context, CUstream handle, CUstream_st** stream) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    const bool per_thread = handle == CU_STREAM_PER_THREAD || (handle == nullptr && NullStreamIsPerThread());
    *stream = per_thread ? PerThreadStreamLocked(context) : context->legacy.get();
    return CUDA_SUCCESS;
  }
  if (LiveStreams().count(handle) == 0) return CUDA_ERROR_INVALID_HANDLE;
  *stream = handle;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult FindStreamLocked(CUstream handle, CUstream_st** stream) {
  return FindLocked(CurrentContextOrNull(), handle, stream);
}

CUstream_st* LegacyStreamLocked(CUctx_st* context) { return context->legacy.get(); }

bool StreamIdOf(void* context, void* stream, bool per_thread, uint32_t* stream_id) {
  const Locked locked;
  auto* handle = static_cast<CUstream>(stream);
  if (handle == nullptr && per_thread) handle = CU_STREAM_PER_THREAD;
  auto* owner = context != nullptr ? static_cast<CUctx_st*>(context) : CurrentContextOrNull();
  CUstream_st* found = nullptr;
  if (FindLocked(owner, handle, &found) != CUDA_SUCCESS) return false;
  *stream_id = found->id;
  return true;
}

CUresult NewStream(CUctx_st* context, unsigned flags, int priority, CUstream* stream) {
  auto* created = new CUstream_st;
  {
    const Locked locked;
    created->context = context;
    created->id = context->next_stream_id++;
    created->flags = flags;
    created->priority = std::clamp(priority, -5, 0);
    context->streams.insert(created);
    LiveStreams().insert(created);
  }
  *stream = created;
  NotifyResource(ResourceEvent::kStreamCreated, context, created);
  return CUDA_SUCCESS;
}

CUresult DropStream(CUstream stream) {
  CUctx_st* context = nullptr;
  {
    const Locked locked;
    if (LiveStreams().count(stream) == 0) return CUDA_ERROR_INVALID_HANDLE;
    context = stream->context;
  }
  NotifyResource(ResourceEvent::kStreamDestroyStarting, context, stream);
  const Locked locked;
  LiveStreams().erase(stream);
  // Its queued work goes on: the default stream and a synchronisation of the context still wait for it.
  std::erase_if(context->orphans, [](const auto& orphan) { return orphan.first->done; });
  if (stream->last != nullptr && !stream->last->done)
    context->orphans.emplace_back(stream->last, Blocks(*stream));
  context->streams.erase(stream);
  ForgetCapturingLocked(stream);
  delete stream;
  return CUDA_SUCCESS;
}

OpPtr EnqueueLocked(CUstream_st* stream, Work work, std::vector<OpPtr> dependencies) {
  CUctx_st* context = stream->context;
  dependencies.push_back(stream->last);
  if (stream->legacy) {
    for (const CUstream_st* other : context->streams) {
      if (Blocks(*other)) dependencies.push_back(other->last);
    }
    for (const auto& [thread, other] : context->per_thread) dependencies.push_back(other->last);
    for (const auto& [op, blocks] : context->orphans) {
      if (blocks) dependencies.push_back(op);
    }
  } else if (Blocks(*stream)) {
    dependencies.push_back(context->legacy->last);
  }
  auto op = std::make_shared<Op>();
  op->work = std::move(work);
  op->work.activity.device = static_cast<uint32_t>(context->device);
  op->work.activity.context_uid = context->uid;
  op->work.activity.stream_id = stream->id;
  if (op->work.activity.correlation == 0 && op->work.reported)
    op->work.activity.correlation = CurrentCorrelation();
  op->work.activity.tid = static_cast<uint32_t>(gettid());
  op->work.activity.issue_ns = NowNs();
  op->in_flight = stream->in_flight;
  if (op->work.rendezvous != nullptr) {
    op->meeting = op->work.rendezvous->factory(op->work.rendezvous->state.get());
  }
  op->ready_ns = NowNs();
  Schedule::Get().Submit(op, dependencies);
  stream->last = op;
  return op;
}

CUresult IssueLocked(std::unique_lock<std::mutex>& lock, CUstream_st* stream, Work work,
                     CUgraphNodeType node_type, OpPtr* op) {
  if (op != nullptr) op->reset();
  if (stream->capture != nullptr) {
    if (stream->capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
      return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    CUgraphNode node = AddCapturedLocked(stream, std::move(work), node_type);
    lock.unlock();
    NotifyNode(node);
    lock.lock();
    return CUDA_SUCCESS;
  }
  if (stream->legacy && BlockingStreamCapturesLocked(stream->context)) {
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  const OpPtr issued = EnqueueLocked(stream, std::move(work), {});
  if (op != nullptr) *op = issued;
  const std::shared_ptr<size_t> in_flight = stream->in_flight;
  if (*in_flight > kQueueDepth) Schedule::Get().WaitUntilBelow(lock, in_flight, kQueueDepth);
  return CUDA_SUCCESS;
}

CUresult Issue(CUstream handle, Work work, CUgraphNodeType node_type, OpPtr* op) {
  Locked locked;
  CUstream_st* stream = nullptr;
  const CUresult found = FindStreamLocked(handle, &stream);
  if (found != CUDA_SUCCESS) return found;
  return IssueLocked(locked.Lock(), stream, std::move(work), node_type, op);
}

std::vector<OpPtr> PendingOfStreamLocked(CUstream_st* stream) {
  std::vector<OpPtr> pending{stream->last};
  if (!stream->legacy) return pending;
  for (const CUstream_st* other : stream->context->streams) {
    if (Blocks(*other)) pending.push_back(other->last);
  }
  for (const auto& [thread, other] : stream->context->per_thread) pending.push_back(other->last);
  return pending;
}

std::vector<OpPtr> PendingOfContextLocked(CUctx_st* context) {
  std::vector<OpPtr> pending{context->legacy->last};
  for (const CUstream_st* stream : context->streams) pending.push_back(stream->last);
  for (const auto& [thread, stream] : context->per_thread) pending.push_back(stream->last);
  for (const auto& [op, blocks] : context->orphans) pending.push_back(op);
  return pending;
}

CUresult RefuseInCaptureLocked(CUstream_st* stream) {
  if (stream->capture != nullptr) {
    stream->capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (stream->legacy && BlockingStreamCapturesLocked(stream->context)) {
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  return CUDA_SUCCESS;
}

void WaitReported(std::unique_lock<std::mutex>& lock, const std::vector<OpPtr>& ops, CUctx_st* context,
                  int type, uint32_t stream_id, uint32_t event_id) {
  Activity activity;
  activity.kind = ActivityKind::kSync;
  activity.start_ns = NowNs();
  for (const OpPtr& op : ops) Schedule::Get().Wait(lock, op);
  activity.end_ns = NowNs();
  activity.device = static_cast<uint32_t>(context->device);
  activity.context_uid = context->uid;
  activity.stream_id = stream_id;
  activity.correlation = CurrentCorrelation();
  activity.tid = static_cast<uint32_t>(gettid());
  activity.issue_ns = activity.start_ns;
  activity.sync_type = type;
  activity.event_id = event_id;
  lock.unlock();
  if (TruthWanted()) {
    std::string line;
    AppendTruth(activity, &line);
    WriteTruth(line);
  }
  Schedule::Get().Post(activity);
  TrimPoolsAfterWait();
  lock.lock();
}

void WaitForContext(CUctx_st* context) {
  Locked locked;
  for (const OpPtr& op : PendingOfContextLocked(context)) Schedule::Get().Wait(locked.Lock(), op);
}

}  // namespace gpusim
