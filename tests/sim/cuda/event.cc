// Events.
#include "tests/sim/cuda/api.h"

using gpusim::Locked;
using gpusim::Schedule;

DRIVER_API(cuEventCreate, (CUevent * phEvent, unsigned int Flags), (phEvent, Flags)) {
  if (phEvent == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUctx_st* context = nullptr;
  GPUSIM_CHECK(gpusim::RequireContext(&context));
  return gpusim::NewEvent(context, Flags, phEvent);
}

DRIVER_API(cuEventDestroy_v2, (CUevent hEvent), (hEvent)) { return gpusim::DropEvent(hEvent); }

DRIVER_STREAM_API(cuEventRecord, _ptsz, (CUevent hEvent, CUstream hStream), (hEvent, hStream)) {
  return gpusim::RecordEvent(hEvent, hStream, 0);
}

DRIVER_STREAM_API(cuEventRecordWithFlags, _ptsz, (CUevent hEvent, CUstream hStream, unsigned int flags),
                  (hEvent, hStream, flags)) {
  return gpusim::RecordEvent(hEvent, hStream, flags);
}

DRIVER_API(cuEventQuery, (CUevent hEvent), (hEvent)) {
  Locked locked;
  if (!gpusim::IsLiveLocked(hEvent)) return CUDA_ERROR_INVALID_HANDLE;
  if (hEvent->capture != nullptr && hEvent->capture->graph != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
  const gpusim::OpPtr record = hEvent->record;
  return Schedule::Get().Finished(locked.Lock(), record) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

DRIVER_API(cuEventSynchronize, (CUevent hEvent), (hEvent)) {
  Locked locked;
  if (!gpusim::IsLiveLocked(hEvent)) return CUDA_ERROR_INVALID_HANDLE;
  if (hEvent->capture != nullptr && hEvent->capture->graph != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
  gpusim::OpPtr record = hEvent->record;
  if (record == nullptr) return CUDA_SUCCESS;
  gpusim::WaitReported(locked.Lock(), {record}, hEvent->context,
                       CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE, record->work.activity.stream_id,
                       hEvent->id);
  return CUDA_SUCCESS;
}

DRIVER_API(cuEventElapsedTime_v2, (float* pMilliseconds, CUevent hStart, CUevent hEnd),
           (pMilliseconds, hStart, hEnd)) {
  Locked locked;
  if (pMilliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (CUevent event : {hStart, hEnd}) {
    if (!gpusim::IsLiveLocked(event) || event->record == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if ((event->flags & CU_EVENT_DISABLE_TIMING) != 0) return CUDA_ERROR_INVALID_HANDLE;
  }
  const gpusim::OpPtr start = hStart->record;
  const gpusim::OpPtr end = hEnd->record;
  for (const gpusim::OpPtr& record : {start, end}) {
    if (!Schedule::Get().Finished(locked.Lock(), record)) return CUDA_ERROR_NOT_READY;
  }
  // The difference first: a time of day does not fit into a double's digits.
  const auto elapsed_ns = static_cast<int64_t>(end->end_ns - start->end_ns);
  *pMilliseconds = static_cast<float>(static_cast<double>(elapsed_ns) / 1e6);
  return CUDA_SUCCESS;
}

#undef cuEventElapsedTime
extern "C" CUresult cuEventElapsedTime(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  return cuEventElapsedTime_v2(pMilliseconds, hStart, hEnd);
}
