// Stream capture: streams that take part, the fork and join through events, and its end.
#include <algorithm>
#include <set>

#include "tests/sim/core/graph.h"
#include "tests/sim/core/objects.h"

namespace gpusim {
namespace {

thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

std::set<CUstream_st*>& CapturingStreams() {
  static auto* streams = new std::set<CUstream_st*>;
  return *streams;
}

void CollectAncestors(const std::vector<CUgraphNode>& nodes, std::set<CUgraphNode>* ancestors) {
  std::vector<CUgraphNode> open = nodes;
  while (!open.empty()) {
    CUgraphNode node = open.back();
    open.pop_back();
    if (!ancestors->insert(node).second) continue;
    open.insert(open.end(), node->dependencies.begin(), node->dependencies.end());
  }
}

// True if everything that the capture's other streams did is joined into its origin. What was added by hand
// is not theirs.
bool AllJoinedLocked(const CUstream_st& origin) {
  std::set<CUgraphNode> joined;
  CollectAncestors(origin.capture_dependencies, &joined);
  for (const CUstream_st* stream : CapturingStreams()) {
    if (stream->capture != origin.capture || stream == &origin) continue;
    for (CUgraphNode node : stream->capture_dependencies) {
      if (node->captured && joined.count(node) == 0) return false;
    }
  }
  return true;
}

void LeaveCaptureLocked(const std::shared_ptr<Capture>& capture) {
  std::erase_if(CapturingStreams(), [&capture](CUstream_st* stream) {
    if (stream->capture != capture) return false;
    stream->capture.reset();
    stream->capture_dependencies.clear();
    return true;
  });
}

}  // namespace

void JoinCaptureLocked(CUstream_st* stream, const std::shared_ptr<Capture>& capture) {
  stream->capture = capture;
  stream->capture_dependencies.clear();
  CapturingStreams().insert(stream);
}

void ForgetCapturingLocked(CUstream_st* stream) { CapturingStreams().erase(stream); }

bool BlockingStreamCapturesLocked(CUctx_st* context) {
  for (const CUstream_st* stream : CapturingStreams()) {
    if (stream->context == context && (stream->flags & CU_STREAM_NON_BLOCKING) == 0) return true;
  }
  return false;
}

bool AnyStreamCapturesLocked(CUctx_st* context) {
  for (const CUstream_st* stream : CapturingStreams()) {
    if (stream->context == context) return true;
  }
  return false;
}

CUgraphNode AddCapturedLocked(CUstream_st* stream, Work work, CUgraphNodeType type) {
  CUgraphNode node =
      AddNodeLocked(stream->capture->graph, type, std::move(work), stream->capture_dependencies);
  node->captured = true;
  stream->capture_dependencies = {node};
  return node;
}

CUresult BeginCapture(CUstream handle, CUgraph into, const CUgraphNode* dependencies, size_t count,
                      CUstreamCaptureMode mode) {
  static uint64_t next_id = 1;
  const Locked locked;
  CUstream_st* stream = nullptr;
  const CUresult found = FindStreamLocked(handle, &stream);
  if (found != CUDA_SUCCESS) return found;
  if (stream->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (into != nullptr && !IsLive(into)) return CUDA_ERROR_INVALID_VALUE;
  auto capture = std::make_shared<Capture>();
  capture->id = next_id++;
  capture->mode = mode;
  capture->origin = stream;
  capture->owns_graph = into == nullptr;
  capture->graph = into != nullptr ? into : NewGraph();
  JoinCaptureLocked(stream, capture);
  stream->capture_dependencies.assign(dependencies, dependencies + count);
  return CUDA_SUCCESS;
}

CUresult EndCapture(CUstream handle, CUgraph* graph) {
  const Locked locked;
  if (graph != nullptr) *graph = nullptr;
  CUstream_st* stream = nullptr;
  const CUresult found = FindStreamLocked(handle, &stream);
  if (found != CUDA_SUCCESS) return found;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr || graph == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  CUresult result = CUDA_SUCCESS;
  if (capture->status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) {
    result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  } else if (!AllJoinedLocked(*stream)) {
    result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  }
  LeaveCaptureLocked(capture);
  if (result == CUDA_SUCCESS) {
    *graph = capture->graph;
  } else if (capture->owns_graph) {
    DropGraph(capture->graph);
  }
  capture->graph = nullptr;  // events that were recorded in it mean nothing any more
  return result;
}

CUresult UpdateCapture(CUstream handle, const CUgraphNode* nodes, size_t count, bool replace) {
  const Locked locked;
  CUstream_st* stream = nullptr;
  const CUresult found = FindStreamLocked(handle, &stream);
  if (found != CUDA_SUCCESS) return found;
  if (stream->capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (stream->capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (count != 0 && nodes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> dependencies = replace ? std::vector<CUgraphNode>{} : stream->capture_dependencies;
  for (size_t i = 0; i < count; ++i) {
    if (!IsLiveNodeLocked(nodes[i]) || nodes[i]->graph != stream->capture->graph)
      return CUDA_ERROR_INVALID_VALUE;
    if (std::find(dependencies.begin(), dependencies.end(), nodes[i]) == dependencies.end())
      dependencies.push_back(nodes[i]);
  }
  stream->capture_dependencies = std::move(dependencies);
  return CUDA_SUCCESS;
}

CUstreamCaptureMode ExchangeCaptureMode(CUstreamCaptureMode mode) {
  const CUstreamCaptureMode before = capture_mode;
  capture_mode = mode;
  return before;
}

}  // namespace gpusim
