// cupti_activity.h: kinds, buffers, attributes, identities.

#include "tests/sim/core/cupti_seam.h"
#include "tests/sim/cupti/api.h"

namespace gpusim::cupti {
namespace {

// CUDA calls of a tool in a buffer callback are not traced; the lock fault is held over the callback.
BufferCallbacks Wrapped(CUpti_BuffersCallbackRequestFunc request,
                        CUpti_BuffersCallbackCompleteFunc complete) {
  BufferCallbacks callbacks;
  callbacks.request = [request](uint8_t** buffer, size_t* size, size_t* max_records) {
    const ApiLock lock;
    ThreadBeginToolCallback();
    request(buffer, size, max_records);
    ThreadEndToolCallback();
  };
  callbacks.complete = [complete](uint8_t* buffer, size_t size, size_t valid_size) {
    const ApiLock lock;
    ThreadBeginToolCallback();
    complete(nullptr, 0, buffer, size, valid_size);
    ThreadEndToolCallback();
  };
  return callbacks;
}

// [documented] CUPTI's guide, "Multiple subscribers": functions without a subscription answer error 39 where
// those with one are used.
// [assumed] That holds while a subscriber is here that allows others, for all activity functions but the
// flush. Probe: it uses none of them then. Fallback: none is needed.
bool Excluded() { return TheSession().ManyAllowed(); }
constexpr CUptiResult kExcluded = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;

}  // namespace

bool HasKind(CUpti_ActivityKind kind) {
  const auto number = static_cast<uint32_t>(kind);
  return number < kKindLimit && RecordSize(number, TheSession().GetKnobs().api_version) != 0;
}

// Kinds of this release that the node can write; the other known ones are accepted and stay silent, as on a
// machine where nothing of them happens.
// [documented] cupti_activity.h, cuptiActivityEnable: INVALID_KIND for a kind that is not supported,
// NOT_COMPATIBLE for one that cannot be enabled beside those that are.
CUptiResult SetKindOfFirst(CUpti_ActivityKind kind, bool enable) {
  const auto number = static_cast<uint32_t>(kind);
  if (TheSession().GetKnobs().unusable) {
    return CUPTI_ERROR_UNKNOWN;
  }
  if (!HasKind(kind)) {
    return CUPTI_ERROR_INVALID_KIND;
  }
  if (enable && kind == CUPTI_ACTIVITY_KIND_KERNEL &&
      TheSession().KindEnabled(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)) {
    return CUPTI_ERROR_NOT_COMPATIBLE;
  }
  TheSession().SetKind(number, enable);
  return CUPTI_SUCCESS;
}

// [observed] CUPTI 13.0.1 without a GPU: attributes, flush periods and thread id types answer 999 before the
// driver is up. Subscribing and enabling kinds work.
bool NeedsDriver() { return TheSession().GetKnobs().unusable || !DriverIsUp(); }

CUptiResult PushExternalId(CUpti_ExternalCorrelationKind kind, uint64_t id) {
  if (kind <= CUPTI_EXTERNAL_CORRELATION_KIND_INVALID || kind >= CUPTI_EXTERNAL_CORRELATION_KIND_SIZE) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  TheSession().ExternalIds()[static_cast<uint32_t>(kind)].push_back(id);
  return CUPTI_SUCCESS;
}

CUptiResult PopExternalId(CUpti_ExternalCorrelationKind kind, uint64_t* last_id) {
  if (kind <= CUPTI_EXTERNAL_CORRELATION_KIND_INVALID || kind >= CUPTI_EXTERNAL_CORRELATION_KIND_SIZE) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  std::vector<uint64_t>& ids = TheSession().ExternalIds()[static_cast<uint32_t>(kind)];
  if (ids.empty()) {
    return CUPTI_ERROR_QUEUE_EMPTY;
  }
  if (last_id != nullptr) {
    *last_id = ids.back();
  }
  ids.pop_back();
  return CUPTI_SUCCESS;
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  const ApiLock lock;
  if (Excluded()) return Return(kExcluded);
  return Return(SetKindOfFirst(kind, true));
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiActivityEnableAndDump(CUpti_ActivityKind kind) {
  const ApiLock lock;
  if (Excluded()) return Return(kExcluded);
  const CUptiResult result = SetKindOfFirst(kind, true);
  if (result == CUPTI_SUCCESS) {
    TheSession().Dump(static_cast<uint32_t>(kind));
  }
  return Return(result);
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  const ApiLock lock;
  if (Excluded()) return Return(kExcluded);
  return Return(SetKindOfFirst(kind, false));
}

// The node has one kind of context; a kind that is set for one is set for all.
GPUSIM_CUPTI_EXPORT CUptiResult cuptiActivityEnableContext(CUcontext context, CUpti_ActivityKind kind) {
  return ContextUid(context) == 0 ? Return(CUPTI_ERROR_INVALID_CONTEXT) : cuptiActivityEnable(kind);
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiActivityDisableContext(CUcontext context, CUpti_ActivityKind kind) {
  return ContextUid(context) == 0 ? Return(CUPTI_ERROR_INVALID_CONTEXT) : cuptiActivityDisable(kind);
}

// The times of CUDA events are not simulated: nobody gets records of them.
GPUSIM_CUPTI_EXPORT CUptiResult cuptiActivityEnableCudaEventDeviceTimestamps(uint8_t enable) {
  return enable == 0 ? CUPTI_SUCCESS : CUPTI_ERROR_NOT_SUPPORTED;
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId cbid, uint8_t enable) {
  const ApiLock lock;
  if (Excluded()) return Return(kExcluded);
  TheSession().SetApiFilter(CUPTI_CB_DOMAIN_DRIVER_API, cbid, enable != 0);
  return CUPTI_SUCCESS;
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId cbid, uint8_t enable) {
  const ApiLock lock;
  if (Excluded()) return Return(kExcluded);
  TheSession().SetApiFilter(CUPTI_CB_DOMAIN_RUNTIME_API, cbid, enable != 0);
  return CUPTI_SUCCESS;
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiActivityEnableHWTrace(uint8_t) {
  return Return(CUPTI_ERROR_NOT_SUPPORTED);
}

// [documented] cupti_activity.h, cuptiActivityRegisterCallbacks: NULL is an invalid parameter, so buffer
// callbacks cannot be taken back.
GPUSIM_CUPTI_EXPORT CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                                               CUpti_BuffersCallbackCompleteFunc complete) {
  const ApiLock lock;
  if (Excluded()) return Return(kExcluded);
  if (request == nullptr || complete == nullptr) {
    return Return(CUPTI_ERROR_INVALID_PARAMETER);
  }
  TheSession().GetBuffers().Register(Wrapped(request, complete));
  return CUPTI_SUCCESS;
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiActivityFlushAll(uint32_t flag) {
  if (TheSession().GetKnobs().unusable) {
    return Return(CUPTI_ERROR_UNKNOWN);
  }
  return Return(TheSession().Flush((flag & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) != 0));
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiActivityFlush(CUcontext, uint32_t, uint32_t flag) {
  return cuptiActivityFlushAll(flag);
}

// [assumed] Full buffers come back by themselves at once, so that a period adds nothing. Probe: it sets no
// period, and flushes by itself every GPUPROBE_FLUSH_MS. Fallback: none is needed.
GPUSIM_CUPTI_EXPORT CUptiResult cuptiActivityFlushPeriod(uint32_t) {
  return Return(NeedsDriver() ? CUPTI_ERROR_UNKNOWN : CUPTI_SUCCESS);
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t* dropped) {
  const ApiLock lock;
  if (Excluded()) return Return(kExcluded);
  if (dropped == nullptr) {
    return Return(CUPTI_ERROR_INVALID_PARAMETER);
  }
  *dropped = TheSession().GetBuffers().TakeDropped();
  return CUPTI_SUCCESS;
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid_size,
                                                           CUpti_Activity** record) {
  if (Excluded()) return Return(kExcluded);
  if (buffer == nullptr || record == nullptr) {
    return Return(CUPTI_ERROR_INVALID_PARAMETER);
  }
  return NextRecord(buffer, valid_size, record, TheSession().GetKnobs().api_version);
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute attribute, size_t* size,
                                                          void* value) {
  const ApiLock lock;
  if (Excluded()) return Return(kExcluded);
  return Return(NeedsDriver() ? CUPTI_ERROR_UNKNOWN : TheSession().SetAttribute(attribute, size, value));
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiActivityGetAttribute(CUpti_ActivityAttribute attribute, size_t* size,
                                                          void* value) {
  const ApiLock lock;
  if (Excluded()) return Return(kExcluded);
  return Return(NeedsDriver() ? CUPTI_ERROR_UNKNOWN : TheSession().GetAttribute(attribute, size, value));
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiSetThreadIdType(CUpti_ActivityThreadIdType type) {
  const ApiLock lock;
  if (Excluded()) return Return(kExcluded);
  if (NeedsDriver()) {
    return Return(CUPTI_ERROR_UNKNOWN);
  }
  if (type < 0 || type >= CUPTI_ACTIVITY_THREAD_ID_TYPE_SIZE) {
    return Return(CUPTI_ERROR_INVALID_PARAMETER);
  }
  TheSession().ThreadIdType() = type;
  return CUPTI_SUCCESS;
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiGetThreadIdType(CUpti_ActivityThreadIdType* type) {
  if (Excluded()) return Return(kExcluded);
  if (NeedsDriver()) {
    return Return(CUPTI_ERROR_UNKNOWN);
  }
  if (type == nullptr) {
    return Return(CUPTI_ERROR_INVALID_PARAMETER);
  }
  *type = static_cast<CUpti_ActivityThreadIdType>(TheSession().ThreadIdType().load());
  return CUPTI_SUCCESS;
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
                                                                       uint64_t id) {
  if (Excluded()) return Return(kExcluded);
  return Return(PushExternalId(kind, id));
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
                                                                      uint64_t* last_id) {
  if (Excluded()) return Return(kExcluded);
  return Return(PopExternalId(kind, last_id));
}

// [observed] CUPTI 13.0.1 without a GPU: within 2 us of CLOCK_REALTIME.
GPUSIM_CUPTI_EXPORT CUptiResult cuptiGetTimestamp(uint64_t* timestamp) {
  if (Excluded()) return Return(kExcluded);
  if (timestamp == nullptr) {
    return Return(CUPTI_ERROR_INVALID_PARAMETER);
  }
  *timestamp = NowNs();
  return CUPTI_SUCCESS;
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc function) {
  if (Excluded()) return Return(kExcluded);
  return Return(TheSession().RegisterClock(function));
}

// [observed] H100, CUPTI 13.0.1: the ids of a context and of a stream can be asked for inside CONTEXT_CREATED
// and STREAM_CREATED.
GPUSIM_CUPTI_EXPORT CUptiResult cuptiGetContextId(CUcontext context, uint32_t* context_id) {
  if (context_id == nullptr) {
    return Return(CUPTI_ERROR_INVALID_PARAMETER);
  }
  const uint32_t uid = ContextUid(context);
  if (uid == 0) {
    return Return(CUPTI_ERROR_INVALID_CONTEXT);
  }
  *context_id = uid;
  return CUPTI_SUCCESS;
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiGetDeviceId(CUcontext context, uint32_t* device_id) {
  if (device_id == nullptr) {
    return Return(CUPTI_ERROR_INVALID_PARAMETER);
  }
  return DeviceOfContext(context == nullptr ? CurrentContext() : context, device_id)
             ? CUPTI_SUCCESS
             : Return(CUPTI_ERROR_INVALID_CONTEXT);
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiGetStreamIdEx(CUcontext context, CUstream stream,
                                                   uint8_t per_thread_stream, uint32_t* stream_id) {
  if (stream_id == nullptr) {
    return Return(CUPTI_ERROR_INVALID_PARAMETER);
  }
  void* owner = context == nullptr ? CurrentContext() : context;
  if (owner == nullptr) {
    return Return(CUPTI_ERROR_INVALID_CONTEXT);
  }
  return StreamIdOf(owner, stream, per_thread_stream != 0, stream_id) ? CUPTI_SUCCESS
                                                                      : Return(CUPTI_ERROR_INVALID_STREAM);
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiGetStreamId(CUcontext context, CUstream stream, uint32_t* stream_id) {
  return cuptiGetStreamIdEx(context, stream, 0, stream_id);
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiGetGraphId(CUgraph graph, uint32_t* id) {
  const uint32_t found = graph == nullptr ? 0 : GraphId(graph);
  if (id == nullptr || found == 0) {
    return Return(CUPTI_ERROR_INVALID_PARAMETER);
  }
  *id = found;
  return CUPTI_SUCCESS;
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiGetGraphExecId(CUgraphExec graph_exec, uint32_t* id) {
  const uint32_t found = graph_exec == nullptr ? 0 : GraphId(graph_exec);
  if (id == nullptr || found == 0) {
    return Return(CUPTI_ERROR_INVALID_PARAMETER);
  }
  *id = found;
  return CUPTI_SUCCESS;
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiGetGraphNodeId(CUgraphNode node, uint64_t* node_id) {
  const uint64_t found = node == nullptr ? 0 : GraphNodeId(node);
  if (node_id == nullptr || found == 0) {
    return Return(CUPTI_ERROR_INVALID_PARAMETER);
  }
  *node_id = found;
  return CUPTI_SUCCESS;
}

// [documented] cupti_activity.h, cuptiFinalize: CUPTI detaches from the process.
// [assumed] After cuptiFinalize nothing is enabled, and kernels that had not finished are lost. Probe: it
// never calls this, and a guest that does ends only itself. Fallback: none is needed.
GPUSIM_CUPTI_EXPORT CUptiResult cuptiFinalize() {
  const ApiLock lock;
  for (uint32_t kind = 1; kind < kKindLimit; ++kind) {
    TheSession().SetKind(kind, false);
  }
  TheSession().GetBuffers().UnreserveAll();
  TheSession().UnsubscribeCurrent();
  return CUPTI_SUCCESS;
}

}  // namespace gpusim::cupti
