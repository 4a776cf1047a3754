// Streams, events, capture.
#include "tests/sim/cudart/api.h"

using gpusim::cudart::FromDriver;
using gpusim::cudart::Ready;

RUNTIME_API(cudaStreamCreate, 3020, (cudaStream_t * pStream), (pStream)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuStreamCreate(pStream, CU_STREAM_DEFAULT));
}

RUNTIME_API(cudaStreamCreateWithFlags, 5000, (cudaStream_t * pStream, unsigned int flags), (pStream, flags)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuStreamCreate(pStream, flags));
}

RUNTIME_API(cudaStreamCreateWithPriority, 5050, (cudaStream_t * pStream, unsigned int flags, int priority),
            (pStream, flags, priority)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuStreamCreateWithPriority(pStream, flags, priority));
}

RUNTIME_API(cudaStreamDestroy, 5050, (cudaStream_t stream), (stream)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuStreamDestroy_v2(stream));
}

RUNTIME_STREAM_API(cudaStreamSynchronize, 3020, _ptsz, 7000, (cudaStream_t stream), (stream)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuStreamSynchronize(stream));
}

RUNTIME_STREAM_API(cudaStreamQuery, 3020, _ptsz, 7000, (cudaStream_t stream), (stream)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuStreamQuery(stream));
}

RUNTIME_STREAM_API(cudaStreamWaitEvent, 3020, _ptsz, 7000,
                   (cudaStream_t stream, cudaEvent_t event, unsigned int flags), (stream, event, flags)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuStreamWaitEvent(stream, event, flags));
}

RUNTIME_STREAM_API(cudaStreamGetFlags, 5050, _ptsz, 7000, (cudaStream_t hStream, unsigned int* flags),
                   (hStream, flags)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuStreamGetFlags(hStream, flags));
}

RUNTIME_STREAM_API(cudaStreamGetPriority, 5050, _ptsz, 7000, (cudaStream_t hStream, int* priority),
                   (hStream, priority)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuStreamGetPriority(hStream, priority));
}

RUNTIME_STREAM_API(cudaStreamGetId, 12000, _ptsz, 12000, (cudaStream_t hStream, unsigned long long* streamId),
                   (hStream, streamId)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuStreamGetId(hStream, streamId));
}

RUNTIME_STREAM_API(cudaStreamGetDevice, 12080, _ptsz, 12080, (cudaStream_t hStream, int* device),
                   (hStream, device)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuStreamGetDevice(hStream, device));
}

RUNTIME_STREAM_API(cudaStreamAddCallback, 5000, _ptsz, 7000,
                   (cudaStream_t stream, cudaStreamCallback_t callback, void* userData, unsigned int flags),
                   (stream, callback, userData, flags)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(
      cuStreamAddCallback(stream, reinterpret_cast<CUstreamCallback>(callback), userData, flags));
}

RUNTIME_STREAM_API(cudaStreamBeginCapture, 10000, _ptsz, 10000,
                   (cudaStream_t stream, enum cudaStreamCaptureMode mode), (stream, mode)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuStreamBeginCapture_v2(stream, static_cast<CUstreamCaptureMode>(mode)));
}

RUNTIME_STREAM_API(cudaStreamEndCapture, 10000, _ptsz, 10000, (cudaStream_t stream, cudaGraph_t* pGraph),
                   (stream, pGraph)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuStreamEndCapture(stream, pGraph));
}

RUNTIME_STREAM_API(cudaStreamIsCapturing, 10000, _ptsz, 10000,
                   (cudaStream_t stream, enum cudaStreamCaptureStatus* pCaptureStatus),
                   (stream, pCaptureStatus)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuStreamIsCapturing(stream, reinterpret_cast<CUstreamCaptureStatus*>(pCaptureStatus)));
}

RUNTIME_STREAM_API(cudaStreamGetCaptureInfo, 12030, _ptsz, 12030,
                   (cudaStream_t stream, enum cudaStreamCaptureStatus* captureStatus_out,
                    unsigned long long* id_out, cudaGraph_t* graph_out,
                    const cudaGraphNode_t** dependencies_out, const cudaGraphEdgeData** edgeData_out,
                    size_t* numDependencies_out),
                   (stream, captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out,
                    numDependencies_out)) {
  GPUSIM_RETURN_IF(Ready());
  cuuint64_t id = 0;
  GPUSIM_RETURN_IF(cuStreamGetCaptureInfo_v3(
      stream, reinterpret_cast<CUstreamCaptureStatus*>(captureStatus_out), &id, graph_out, dependencies_out,
      reinterpret_cast<const CUgraphEdgeData**>(edgeData_out), numDependencies_out));
  if (id_out != nullptr && id != 0) *id_out = id;
  return cudaSuccess;
}

RUNTIME_STREAM_API(cudaStreamUpdateCaptureDependencies, 12030, _ptsz, 12030,
                   (cudaStream_t stream, cudaGraphNode_t* dependencies,
                    const cudaGraphEdgeData* dependencyData, size_t numDependencies, unsigned int flags),
                   (stream, dependencies, dependencyData, numDependencies, flags)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuStreamUpdateCaptureDependencies_v2(
      stream, dependencies, reinterpret_cast<const CUgraphEdgeData*>(dependencyData), numDependencies,
      flags));
}

RUNTIME_API(cudaThreadExchangeStreamCaptureMode, 10010, (enum cudaStreamCaptureMode * mode), (mode)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuThreadExchangeStreamCaptureMode(reinterpret_cast<CUstreamCaptureMode*>(mode)));
}

RUNTIME_API(cudaEventCreate, 3020, (cudaEvent_t * event), (event)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuEventCreate(event, CU_EVENT_DEFAULT));
}

RUNTIME_API(cudaEventCreateWithFlags, 3020, (cudaEvent_t * event, unsigned int flags), (event, flags)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuEventCreate(event, flags));
}

RUNTIME_API(cudaEventDestroy, 3020, (cudaEvent_t event), (event)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuEventDestroy_v2(event));
}

RUNTIME_STREAM_API(cudaEventRecord, 3020, _ptsz, 7000, (cudaEvent_t event, cudaStream_t stream),
                   (event, stream)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuEventRecord(event, stream));
}

RUNTIME_STREAM_API(cudaEventRecordWithFlags, 11010, _ptsz, 11010,
                   (cudaEvent_t event, cudaStream_t stream, unsigned int flags), (event, stream, flags)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuEventRecordWithFlags(event, stream, flags));
}

RUNTIME_API(cudaEventQuery, 3020, (cudaEvent_t event), (event)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuEventQuery(event));
}

RUNTIME_API(cudaEventSynchronize, 3020, (cudaEvent_t event), (event)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuEventSynchronize(event));
}

RUNTIME_API(cudaEventElapsedTime, 12080, (float* ms, cudaEvent_t start, cudaEvent_t end), (ms, start, end)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuEventElapsedTime_v2(ms, start, end));
}
