// Streams, capture, host functions.
#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>

#include "tests/sim/core/graph.h"
#include "tests/sim/cuda/api.h"

using gpusim::FindStreamLocked;
using gpusim::Locked;
using gpusim::OpPtr;
using gpusim::Schedule;
using gpusim::Work;
using gpusim::WorkKind;

DRIVER_API(cuStreamCreate, (CUstream * phStream, unsigned int Flags), (phStream, Flags)) {
  if (phStream == nullptr || (Flags & ~1U) != 0) return CUDA_ERROR_INVALID_VALUE;
  CUctx_st* context = nullptr;
  GPUSIM_CHECK(gpusim::RequireContext(&context));
  return gpusim::NewStream(context, Flags, 0, phStream);
}

DRIVER_API(cuStreamCreateWithPriority, (CUstream * phStream, unsigned int flags, int priority),
           (phStream, flags, priority)) {
  if (phStream == nullptr || (flags & ~1U) != 0) return CUDA_ERROR_INVALID_VALUE;
  CUctx_st* context = nullptr;
  GPUSIM_CHECK(gpusim::RequireContext(&context));
  return gpusim::NewStream(context, flags, priority, phStream);
}

DRIVER_API(cuStreamDestroy_v2, (CUstream hStream), (hStream)) { return gpusim::DropStream(hStream); }

DRIVER_STREAM_API(cuStreamSynchronize, _ptsz, (CUstream hStream), (hStream)) {
  Locked locked;
  CUstream_st* stream = nullptr;
  GPUSIM_CHECK(FindStreamLocked(hStream, &stream));
  GPUSIM_CHECK(gpusim::RefuseInCaptureLocked(stream));
  gpusim::WaitReported(locked.Lock(), gpusim::PendingOfStreamLocked(stream), stream->context,
                       CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE, stream->id, 0);
  return CUDA_SUCCESS;
}

DRIVER_STREAM_API(cuStreamQuery, _ptsz, (CUstream hStream), (hStream)) {
  Locked locked;
  CUstream_st* stream = nullptr;
  GPUSIM_CHECK(FindStreamLocked(hStream, &stream));
  GPUSIM_CHECK(gpusim::RefuseInCaptureLocked(stream));
  for (const OpPtr& op : gpusim::PendingOfStreamLocked(stream)) {
    if (!Schedule::Get().Finished(locked.Lock(), op)) return CUDA_ERROR_NOT_READY;
  }
  return CUDA_SUCCESS;
}

DRIVER_STREAM_API(cuStreamWaitEvent, _ptsz, (CUstream hStream, CUevent hEvent, unsigned int Flags),
                  (hStream, hEvent, Flags)) {
  return gpusim::StreamWaitEvent(hStream, hEvent, Flags);
}

DRIVER_STREAM_API(cuStreamGetFlags, _ptsz, (CUstream hStream, unsigned int* flags), (hStream, flags)) {
  const Locked locked;
  CUstream_st* stream = nullptr;
  GPUSIM_CHECK(FindStreamLocked(hStream, &stream));
  *flags = stream->flags;
  return CUDA_SUCCESS;
}

DRIVER_STREAM_API(cuStreamGetPriority, _ptsz, (CUstream hStream, int* priority), (hStream, priority)) {
  const Locked locked;
  CUstream_st* stream = nullptr;
  GPUSIM_CHECK(FindStreamLocked(hStream, &stream));
  *priority = stream->priority;
  return CUDA_SUCCESS;
}

DRIVER_STREAM_API(cuStreamGetId, _ptsz, (CUstream hStream, unsigned long long* streamId),
                  (hStream, streamId)) {
  const Locked locked;
  CUstream_st* stream = nullptr;
  GPUSIM_CHECK(FindStreamLocked(hStream, &stream));
  *streamId = stream->id;
  return CUDA_SUCCESS;
}

DRIVER_STREAM_API(cuStreamGetCtx, _ptsz, (CUstream hStream, CUcontext* pctx), (hStream, pctx)) {
  const Locked locked;
  CUstream_st* stream = nullptr;
  GPUSIM_CHECK(FindStreamLocked(hStream, &stream));
  *pctx = stream->context;
  return CUDA_SUCCESS;
}

DRIVER_STREAM_API(cuStreamGetDevice, _ptsz, (CUstream hStream, CUdevice* device), (hStream, device)) {
  const Locked locked;
  CUstream_st* stream = nullptr;
  GPUSIM_CHECK(FindStreamLocked(hStream, &stream));
  *device = stream->context->device;
  return CUDA_SUCCESS;
}

DRIVER_STREAM_API(cuLaunchHostFunc, _ptsz, (CUstream hStream, CUhostFn fn, void* userData),
                  (hStream, fn, userData)) {
  if (fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Work work;
  work.kind = WorkKind::kHost;
  work.host = [fn, userData] { fn(userData); };
  return gpusim::Issue(hStream, std::move(work), CU_GRAPH_NODE_TYPE_HOST, nullptr);
}

DRIVER_STREAM_API(cuStreamAddCallback, _ptsz,
                  (CUstream hStream, CUstreamCallback callback, void* userData, unsigned int flags),
                  (hStream, callback, userData, flags)) {
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Work work;
  work.kind = WorkKind::kHost;
  work.host = [hStream, callback, userData] { callback(hStream, CUDA_SUCCESS, userData); };
  return gpusim::Issue(hStream, std::move(work), CU_GRAPH_NODE_TYPE_HOST, nullptr);
}

// Values that the stream writes when it comes to them, or waits for. CUPTI has no record of either, so
// neither has the truth log.
namespace {

template <typename Value>
CUresult WriteValue(CUstream stream, CUdeviceptr address, Value value, unsigned int flags) {
  if (address == 0 || address % sizeof value != 0 || flags > CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER)
    return CUDA_ERROR_INVALID_VALUE;
  Work work;
  work.effect = [address, value] { std::memcpy(reinterpret_cast<void*>(address), &value, sizeof value); };
  return gpusim::Issue(stream, std::move(work), CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, nullptr);
}

template <typename Value>
struct WaitedFor {
  CUdeviceptr address = 0;
  Value value = 0;
  unsigned int condition = CU_STREAM_WAIT_VALUE_GEQ;

  bool IsThere() const {
    Value now = 0;
    std::memcpy(&now, reinterpret_cast<const void*>(address), sizeof now);
    switch (condition) {
      case CU_STREAM_WAIT_VALUE_EQ:
        return now == value;
      case CU_STREAM_WAIT_VALUE_AND:
        return (now & value) != 0;
      case CU_STREAM_WAIT_VALUE_NOR:
        return static_cast<Value>(~(now | value)) != 0;
      default:  // cyclic
        return static_cast<std::make_signed_t<Value>>(now - value) >= 0;
    }
  }
};

template <typename Value>
class ValueWait : public gpusim::Rendezvous {
 public:
  explicit ValueWait(WaitedFor<Value> value) : value_(value) {}
  void Arrive(uint64_t ready_ns) override { ready_ns_ = ready_ns; }
  bool Resolve(gpusim::Interval* interval) override {
    if (!value_.IsThere()) return false;
    *interval = {ready_ns_, std::max(ready_ns_, gpusim::NowNs())};
    return true;
  }

 private:
  const WaitedFor<Value> value_;
  uint64_t ready_ns_ = 0;
};

template <typename Value>
CUresult WaitForValue(CUstream stream, WaitedFor<Value> value) {
  value.condition &= ~CU_STREAM_WAIT_VALUE_FLUSH;
  if (value.address == 0 || value.address % sizeof value.value != 0 ||
      value.condition > CU_STREAM_WAIT_VALUE_NOR)
    return CUDA_ERROR_INVALID_VALUE;
  gpusim::RendezvousLaunch wait;
  wait.state = std::make_shared<WaitedFor<Value>>(value);
  wait.factory = [](void* state) -> std::shared_ptr<gpusim::Rendezvous> {
    return std::make_shared<ValueWait<Value>>(*static_cast<const WaitedFor<Value>*>(state));
  };
  Work work;
  work.kind = WorkKind::kRendezvous;
  work.rendezvous = std::make_shared<const gpusim::RendezvousLaunch>(std::move(wait));
  return gpusim::Issue(stream, std::move(work), CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, nullptr);
}

CUresult IssueMemoryOperation(CUstream stream, const CUstreamBatchMemOpParams& operation) {
  switch (operation.operation) {
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return WriteValue<uint32_t>(stream, operation.writeValue.address, operation.writeValue.value,
                                  operation.writeValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return WriteValue<uint64_t>(stream, operation.writeValue.address, operation.writeValue.value64,
                                  operation.writeValue.flags);
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return WaitForValue<uint32_t>(
          stream, {operation.waitValue.address, operation.waitValue.value, operation.waitValue.flags});
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return WaitForValue<uint64_t>(
          stream, {operation.waitValue.address, operation.waitValue.value64, operation.waitValue.flags});
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
    case CU_STREAM_MEM_OP_BARRIER:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

DRIVER_STREAM_API(cuStreamWriteValue32_v2, _ptsz,
                  (CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags),
                  (stream, addr, value, flags)) {
  return WriteValue<uint32_t>(stream, addr, value, flags);
}

// One after the other; a real one may reorder writes.
DRIVER_STREAM_API(cuStreamBatchMemOp_v2, _ptsz,
                  (CUstream stream, unsigned int count, CUstreamBatchMemOpParams* paramArray,
                   unsigned int flags),
                  (stream, count, paramArray, flags)) {
  constexpr unsigned int kMost = 256;
  if (count == 0 || count > kMost || paramArray == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned int i = 0; i < count; ++i) GPUSIM_CHECK(IssueMemoryOperation(stream, paramArray[i]));
  return CUDA_SUCCESS;
}

DRIVER_STREAM_API(cuStreamBeginCapture_v2, _ptsz, (CUstream hStream, CUstreamCaptureMode mode),
                  (hStream, mode)) {
  return gpusim::BeginCapture(hStream, nullptr, nullptr, 0, mode);
}

DRIVER_STREAM_API(cuStreamEndCapture, _ptsz, (CUstream hStream, CUgraph* phGraph), (hStream, phGraph)) {
  return gpusim::EndCapture(hStream, phGraph);
}

DRIVER_STREAM_API(cuStreamIsCapturing, _ptsz, (CUstream hStream, CUstreamCaptureStatus* captureStatus),
                  (hStream, captureStatus)) {
  if (captureStatus == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Locked locked;
  CUstream_st* stream = nullptr;
  GPUSIM_CHECK(FindStreamLocked(hStream, &stream));
  *captureStatus = stream->capture != nullptr ? stream->capture->status : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

DRIVER_STREAM_API(cuStreamGetCaptureInfo_v3, _ptsz,
                  (CUstream hStream, CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out,
                   CUgraph* graph_out, const CUgraphNode** dependencies_out,
                   const CUgraphEdgeData** edgeData_out, size_t* numDependencies_out),
                  (hStream, captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out,
                   numDependencies_out)) {
  if (captureStatus_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Locked locked;
  CUstream_st* stream = nullptr;
  GPUSIM_CHECK(FindStreamLocked(hStream, &stream));
  if (edgeData_out != nullptr) *edgeData_out = nullptr;
  if (stream->capture == nullptr) {
    *captureStatus_out = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  }
  *captureStatus_out = stream->capture->status;
  if (id_out != nullptr) *id_out = stream->capture->id;
  if (graph_out != nullptr) *graph_out = stream->capture->graph;
  if (dependencies_out != nullptr) *dependencies_out = stream->capture_dependencies.data();
  if (numDependencies_out != nullptr) *numDependencies_out = stream->capture_dependencies.size();
  return CUDA_SUCCESS;
}

extern "C" CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                              cuuint64_t* id_out, CUgraph* graph_out,
                                              const CUgraphNode** dependencies_out,
                                              size_t* numDependencies_out);
DRIVER_STREAM_API(cuStreamGetCaptureInfo_v2, _ptsz,
                  (CUstream hStream, CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out,
                   CUgraph* graph_out, const CUgraphNode** dependencies_out, size_t* numDependencies_out),
                  (hStream, captureStatus_out, id_out, graph_out, dependencies_out, numDependencies_out)) {
  return cuStreamGetCaptureInfo_v3_body(hStream, captureStatus_out, id_out, graph_out, dependencies_out,
                                        nullptr, numDependencies_out);
}

DRIVER_STREAM_API(cuStreamUpdateCaptureDependencies_v2, _ptsz,
                  (CUstream hStream, CUgraphNode* dependencies, const CUgraphEdgeData* dependencyData,
                   size_t numDependencies, unsigned int flags),
                  (hStream, dependencies, dependencyData, numDependencies, flags)) {
  if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
  return gpusim::UpdateCapture(hStream, dependencies, numDependencies,
                               flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES);
}

DRIVER_API(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode), (mode)) {
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = gpusim::ExchangeCaptureMode(*mode);
  return CUDA_SUCCESS;
}
