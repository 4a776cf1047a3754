// Events: a place in a stream whose time is known, that other streams and the host can wait for.
#include <algorithm>
#include <set>

#include "tests/sim/core/graph.h"
#include "tests/sim/core/objects.h"

namespace gpusim {
namespace {

std::set<CUevent>& LiveEvents() {
  static auto* events = new std::set<CUevent>;
  return *events;
}

void AddEventNode(std::unique_lock<std::mutex>& lock, CUstream_st* stream, CUgraphNodeType type,
                  CUevent event) {
  CUgraphNode node = AddCapturedLocked(stream, Work{}, type);
  node->event = event;
  lock.unlock();
  NotifyNode(node);
  lock.lock();
}

}  // namespace

CUresult NewEvent(CUctx_st* context, unsigned flags, CUevent* event) {
  static uint32_t next_id = 1;
  const Locked locked;
  auto* created = new CUevent_st;
  created->context = context;
  created->id = next_id++;
  created->flags = flags;
  LiveEvents().insert(created);
  *event = created;
  return CUDA_SUCCESS;
}

CUresult DropEvent(CUevent event) {
  const Locked locked;
  if (LiveEvents().erase(event) == 0) return CUDA_ERROR_INVALID_HANDLE;
  delete event;
  return CUDA_SUCCESS;
}

bool IsLiveLocked(CUevent event) { return LiveEvents().count(event) != 0; }

CUresult RecordEvent(CUevent event, CUstream handle, unsigned flags) {
  Locked locked;
  CUstream_st* stream = nullptr;
  const CUresult found = FindStreamLocked(handle, &stream);
  if (found != CUDA_SUCCESS) return found;
  if (!IsLiveLocked(event) || stream->context != event->context) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture == nullptr) {
    OpPtr op;
    const CUresult issued = IssueLocked(locked.Lock(), stream, Work{}, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &op);
    if (issued != CUDA_SUCCESS) return issued;
    event->capture.reset();
    event->record = op;
    return CUDA_SUCCESS;
  }
  if (stream->capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if ((flags & CU_EVENT_RECORD_EXTERNAL) != 0) {
    AddEventNode(locked.Lock(), stream, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
    return CUDA_SUCCESS;
  }
  // In a capture a record is no node: it names the nodes that a wait will depend on.
  event->capture = stream->capture;
  event->capture_dependencies = stream->capture_dependencies;
  return CUDA_SUCCESS;
}

CUresult StreamWaitEvent(CUstream handle, CUevent event, unsigned flags) {
  Locked locked;
  CUstream_st* stream = nullptr;
  const CUresult found = FindStreamLocked(handle, &stream);
  if (found != CUDA_SUCCESS) return found;
  if (!IsLiveLocked(event)) return CUDA_ERROR_INVALID_HANDLE;
  if ((flags & CU_EVENT_WAIT_EXTERNAL) != 0 && stream->capture != nullptr) {
    AddEventNode(locked.Lock(), stream, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
    return CUDA_SUCCESS;
  }
  if (event->capture != nullptr && event->capture->graph != nullptr) {
    if (stream->capture != nullptr && stream->capture != event->capture)
      return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    if (stream->legacy) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    // The fork: the stream joins the capture.
    if (stream->capture == nullptr) JoinCaptureLocked(stream, event->capture);
    for (CUgraphNode node : event->capture_dependencies) {
      std::vector<CUgraphNode>& dependencies = stream->capture_dependencies;
      if (std::find(dependencies.begin(), dependencies.end(), node) == dependencies.end())
        dependencies.push_back(node);
    }
    return CUDA_SUCCESS;
  }
  if (event->record == nullptr) return CUDA_SUCCESS;  // never recorded: nothing to wait for
  if (stream->capture != nullptr) return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  EnqueueLocked(stream, Work{}, {event->record});
  return CUDA_SUCCESS;
}

}  // namespace gpusim
