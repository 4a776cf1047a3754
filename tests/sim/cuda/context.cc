// Contexts: primary ones, created ones, the thread's stack, and waiting for everything.
#include "tests/sim/core/memory.h"
#include "tests/sim/cuda/api.h"

DRIVER_API(cuDevicePrimaryCtxRetain, (CUcontext * pctx, CUdevice dev), (pctx, dev)) {
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!gpusim::IsDevice(dev)) return CUDA_ERROR_INVALID_DEVICE;
  return gpusim::RetainPrimary(dev, pctx);
}

DRIVER_API(cuDevicePrimaryCtxRelease_v2, (CUdevice dev), (dev)) {
  if (!gpusim::IsDevice(dev)) return CUDA_ERROR_INVALID_DEVICE;
  return gpusim::ReleasePrimary(dev);
}

DRIVER_API(cuDevicePrimaryCtxReset_v2, (CUdevice dev), (dev)) {
  if (!gpusim::IsDevice(dev)) return CUDA_ERROR_INVALID_DEVICE;
  return gpusim::ResetPrimary(dev);
}

DRIVER_API(cuDevicePrimaryCtxSetFlags_v2, (CUdevice dev, unsigned int flags), (dev, flags)) {
  if (!gpusim::IsDevice(dev)) return CUDA_ERROR_INVALID_DEVICE;
  return gpusim::SetPrimaryFlags(dev, flags);
}

DRIVER_API(cuDevicePrimaryCtxGetState, (CUdevice dev, unsigned int* flags, int* active),
           (dev, flags, active)) {
  if (!gpusim::IsDevice(dev)) return CUDA_ERROR_INVALID_DEVICE;
  gpusim::PrimaryState(dev, flags, active);
  return CUDA_SUCCESS;
}

DRIVER_API(cuCtxCreate_v4,
           (CUcontext * pctx, CUctxCreateParams* ctxCreateParams, unsigned int flags, CUdevice dev),
           (pctx, ctxCreateParams, flags, dev)) {
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!gpusim::IsDevice(dev)) return CUDA_ERROR_INVALID_DEVICE;
  *pctx = gpusim::NewContext(dev, flags);
  gpusim::PushContext(*pctx);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev);
DRIVER_API(cuCtxCreate_v2, (CUcontext * pctx, unsigned int flags, CUdevice dev), (pctx, flags, dev)) {
  return cuCtxCreate_v4_body(pctx, nullptr, flags, dev);
}

DRIVER_API(cuCtxDestroy_v2, (CUcontext ctx), (ctx)) {
  GPUSIM_CHECK(gpusim::DestroyContext(ctx));
  if (gpusim::CurrentContextOrNull() == ctx) gpusim::PopContext(nullptr);
  return CUDA_SUCCESS;
}

DRIVER_API(cuCtxPushCurrent_v2, (CUcontext ctx), (ctx)) {
  if (!gpusim::IsLive(ctx)) return CUDA_ERROR_INVALID_CONTEXT;
  gpusim::PushContext(ctx);
  return CUDA_SUCCESS;
}

DRIVER_API(cuCtxPopCurrent_v2, (CUcontext * pctx), (pctx)) {
  return gpusim::PopContext(pctx) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

DRIVER_API(cuCtxSetCurrent, (CUcontext ctx), (ctx)) {
  if (ctx != nullptr && !gpusim::IsLive(ctx)) return CUDA_ERROR_INVALID_CONTEXT;
  gpusim::SetContext(ctx);
  return CUDA_SUCCESS;
}

DRIVER_API(cuCtxGetCurrent, (CUcontext * pctx), (pctx)) {
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pctx = gpusim::CurrentContextOrNull();
  return CUDA_SUCCESS;
}

DRIVER_API(cuCtxGetDevice, (CUdevice * device), (device)) {
  CUctx_st* context = nullptr;
  GPUSIM_CHECK(gpusim::RequireContext(&context));
  *device = context->device;
  return CUDA_SUCCESS;
}

DRIVER_API(cuCtxGetFlags, (unsigned int* flags), (flags)) {
  CUctx_st* context = nullptr;
  GPUSIM_CHECK(gpusim::RequireContext(&context));
  *flags = context->flags;
  return CUDA_SUCCESS;
}

DRIVER_API(cuCtxGetId, (CUcontext ctx, unsigned long long* ctxId), (ctx, ctxId)) {
  CUctx_st* context = ctx;
  if (context == nullptr) GPUSIM_CHECK(gpusim::RequireContext(&context));
  if (!gpusim::IsLive(context)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *ctxId = context->uid;
  return CUDA_SUCCESS;
}

DRIVER_API(cuCtxGetApiVersion, (CUcontext ctx, unsigned int* version), (ctx, version)) {
  if (ctx != nullptr && !gpusim::IsLive(ctx)) return CUDA_ERROR_INVALID_CONTEXT;
  *version = 3020;
  return CUDA_SUCCESS;
}

DRIVER_API(cuCtxGetStreamPriorityRange, (int* leastPriority, int* greatestPriority),
           (leastPriority, greatestPriority)) {
  if (leastPriority != nullptr) *leastPriority = 0;
  if (greatestPriority != nullptr) *greatestPriority = -5;
  return CUDA_SUCCESS;
}

DRIVER_API(cuCtxGetLimit, (size_t * pvalue, CUlimit limit), (pvalue, limit)) {
  CUctx_st* context = nullptr;
  GPUSIM_CHECK(gpusim::RequireContext(&context));
  const gpusim::Locked locked;
  const auto found = context->limits.find(limit);
  if (found == context->limits.end()) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  *pvalue = found->second;
  return CUDA_SUCCESS;
}

DRIVER_API(cuCtxSetLimit, (CUlimit limit, size_t value), (limit, value)) {
  CUctx_st* context = nullptr;
  GPUSIM_CHECK(gpusim::RequireContext(&context));
  const gpusim::Locked locked;
  if (context->limits.count(limit) == 0) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  context->limits[limit] = value;
  return CUDA_SUCCESS;
}

DRIVER_API(cuCtxEnablePeerAccess, (CUcontext peerContext, unsigned int Flags), (peerContext, Flags)) {
  if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  CUctx_st* context = nullptr;
  GPUSIM_CHECK(gpusim::RequireContext(&context));
  if (!gpusim::IsLive(peerContext)) return CUDA_ERROR_INVALID_CONTEXT;
  if (peerContext->device == context->device) return CUDA_ERROR_INVALID_DEVICE;
  const gpusim::Locked locked;
  return context->peers.insert(peerContext->uid).second ? CUDA_SUCCESS
                                                        : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

DRIVER_API(cuCtxDisablePeerAccess, (CUcontext peerContext), (peerContext)) {
  CUctx_st* context = nullptr;
  GPUSIM_CHECK(gpusim::RequireContext(&context));
  if (!gpusim::IsLive(peerContext)) return CUDA_ERROR_INVALID_CONTEXT;
  const gpusim::Locked locked;
  return context->peers.erase(peerContext->uid) != 0 ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

namespace {

// Null: the calling thread's.
CUresult SynchronizeContext(CUctx_st* context) {
  if (context == nullptr) GPUSIM_CHECK(gpusim::RequireContext(&context));
  gpusim::Locked locked;
  if (gpusim::AnyStreamCapturesLocked(context)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  gpusim::WaitReported(locked.Lock(), gpusim::PendingOfContextLocked(context), context,
                       CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE, 0, 0);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" CUresult cuCtxSynchronize() {
  if (!gpusim::DriverIsUp()) return CUDA_ERROR_NOT_INITIALIZED;
  return gpusim::Traced<CUresult>(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuCtxSynchronize,
                                  "cuCtxSynchronize", nullptr, nullptr,
                                  [] { return SynchronizeContext(nullptr); });
}

// What the runtime of CUDA 13 calls.
extern "C" CUresult cuCtxSynchronize_v2(CUcontext ctx) {
  if (!gpusim::DriverIsUp()) return CUDA_ERROR_NOT_INITIALIZED;
  const cuCtxSynchronize_v2_params params{ctx};
  return gpusim::Traced<CUresult>(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuCtxSynchronize_v2,
                                  "cuCtxSynchronize_v2", &params, nullptr,
                                  [ctx] { return SynchronizeContext(ctx); });
}

extern "C" CUresult cuProfilerStart() {
  return gpusim::DriverIsUp() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}
extern "C" CUresult cuProfilerStop() {
  return gpusim::DriverIsUp() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}
