// cupti_activity.h from 13.2 on: the functions that take a subscription. Their types are our own where this
// toolkit does not declare them.

#include <utility>

#include "tests/sim/core/cupti_seam.h"
#include "tests/sim/cupti/api.h"
#include "tests/sim/cupti/v2.h"

#if CUPTI_API_VERSION < 130200
using CUpti_ActivityConfig = void;
using CUpti_BuffersCallbackRequestFunc_v2 = gpusim::cupti::RequestV2;
using CUpti_BuffersCallbackCompleteFunc_v2 = gpusim::cupti::CompleteV2;
#endif

namespace gpusim::cupti {
namespace {

bool IsFirst(CUpti_SubscriberHandle subscriber) { return TheSession().IsCurrent(subscriber); }
OtherSubscriber* Other(CUpti_SubscriberHandle subscriber) {
  return TheSession().GetCompany().Find(subscriber);
}

// [documented] cupti_activity.h (13.5), CUPTI_ACTIVITY_ATTR_ENABLE_MULTI_SUBSCRIBER_GRAPH_TRACE: unless it is
// set, and it is not on this node, graphs cannot be traced whole where several subscribers are allowed.
CUptiResult SetKind(CUpti_SubscriberHandle subscriber, CUpti_ActivityKind kind, bool enable) {
  if (enable && kind == CUPTI_ACTIVITY_KIND_GRAPH_TRACE && TheSession().ManyAllowed())
    return CUPTI_ERROR_NOT_COMPATIBLE;
  if (IsFirst(subscriber)) return SetKindOfFirst(kind, enable);
  OtherSubscriber* other = Other(subscriber);
  if (other == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (!HasKind(kind)) return CUPTI_ERROR_INVALID_KIND;
  other->SetKind(static_cast<uint32_t>(kind), enable);
  return CUPTI_SUCCESS;
}

BufferCallbacks Wrapped(RequestV2 request, CompleteV2 complete) {
  BufferCallbacks callbacks;
  callbacks.request = [request](uint8_t** buffer, size_t* size, size_t* max_records) {
    const ApiLock lock;
    ThreadBeginToolCallback();
    request(buffer, size, max_records, nullptr);
    ThreadEndToolCallback();
  };
  callbacks.complete = [complete](uint8_t* buffer, size_t size, size_t valid_size) {
    const ApiLock lock;
    ThreadBeginToolCallback();
    complete(buffer, size, valid_size, nullptr);
    ThreadEndToolCallback();
  };
  return callbacks;
}

// Those of the first subscriber that others do not have.
CUptiResult SetAttributeOfFirst(int attribute, size_t* size, void* value) {
  if (value == nullptr || size == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (attribute == kThreadIdTypeOfSubscriber) {
    TheSession().ThreadIdType() = *static_cast<const CUpti_ActivityThreadIdType*>(value);
    return CUPTI_SUCCESS;
  }
  if (attribute == kClockOfSubscriber)
    return TheSession().RegisterClock(*static_cast<const CUpti_TimestampCallbackFunc*>(value));
  return TheSession().SetAttribute(attribute, size, value);
}

}  // namespace

GPUSIM_CUPTI_EXPORT CUptiResult cuptiActivityEnable_v2(CUpti_SubscriberHandle subscriber,
                                                       CUpti_ActivityKind kind, CUpti_ActivityConfig*) {
  const ApiLock lock;
  return Return(SetKind(subscriber, kind, true));
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiActivityEnableAndDump_v2(CUpti_SubscriberHandle subscriber,
                                                              CUpti_ActivityKind kind,
                                                              CUpti_ActivityConfig*) {
  const ApiLock lock;
  const CUptiResult result = SetKind(subscriber, kind, true);
  if (result == CUPTI_SUCCESS && IsFirst(subscriber)) TheSession().Dump(static_cast<uint32_t>(kind));
  return Return(result);
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiActivityDisable_v2(CUpti_SubscriberHandle subscriber,
                                                        CUpti_ActivityKind kind, CUpti_ActivityConfig*) {
  const ApiLock lock;
  return Return(SetKind(subscriber, kind, false));
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiActivityRegisterCallbacks_v2(
    CUpti_SubscriberHandle subscriber, CUpti_BuffersCallbackRequestFunc_v2 request,
    CUpti_BuffersCallbackCompleteFunc_v2 complete) {
  const ApiLock lock;
  OtherSubscriber* other = Other(subscriber);
  if (request == nullptr || complete == nullptr || (other == nullptr && !IsFirst(subscriber)))
    return Return(CUPTI_ERROR_INVALID_PARAMETER);
  Buffers& buffers = other != nullptr ? other->GetBuffers() : TheSession().GetBuffers();
  buffers.Register(Wrapped(reinterpret_cast<RequestV2>(request), reinterpret_cast<CompleteV2>(complete)));
  return CUPTI_SUCCESS;
}

// [assumed] Attributes of a subscription answer 999 before the driver is up, as those of 13.0.1 do. Probe: it
// sets none of them that early. Fallback: none is needed.
GPUSIM_CUPTI_EXPORT CUptiResult cuptiActivitySetAttribute_v2(CUpti_SubscriberHandle subscriber,
                                                             CUpti_ActivityAttribute attribute, size_t* size,
                                                             void* value) {
  const ApiLock lock;
  if (NeedsDriver()) return Return(CUPTI_ERROR_UNKNOWN);
  if (IsFirst(subscriber)) return Return(SetAttributeOfFirst(attribute, size, value));
  return Return(Other(subscriber) != nullptr ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER);
}

// [documented] cupti_activity.h (13.5), CUPTI_ACTIVITY_ATTR_MULTIPLE_SUBSCRIBER_STATE: 2 while nobody has
// chosen.
GPUSIM_CUPTI_EXPORT CUptiResult cuptiActivityGetAttribute_v2(CUpti_SubscriberHandle subscriber,
                                                             CUpti_ActivityAttribute attribute, size_t* size,
                                                             void* value) {
  const ApiLock lock;
  if (attribute == static_cast<CUpti_ActivityAttribute>(kManySubscribersState) && value != nullptr) {
    const bool somebody = TheSession().IsCurrent(subscriber) || TheSession().ManyAllowed();
    *static_cast<uint8_t*>(value) = TheSession().ManyAllowed() ? 1 : (somebody ? 0 : 2);
    return CUPTI_SUCCESS;
  }
  return Return(NeedsDriver() ? CUPTI_ERROR_UNKNOWN : TheSession().GetAttribute(attribute, size, value));
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiActivityGetNumDroppedRecords_v2(CUpti_SubscriberHandle subscriber,
                                                                     CUcontext, uint32_t, size_t* dropped) {
  const ApiLock lock;
  OtherSubscriber* other = Other(subscriber);
  if (dropped == nullptr || (other == nullptr && !IsFirst(subscriber)))
    return Return(CUPTI_ERROR_INVALID_PARAMETER);
  *dropped = other != nullptr ? other->GetBuffers().TakeDropped() : TheSession().GetBuffers().TakeDropped();
  return CUPTI_SUCCESS;
}

// [documented] cupti_activity.h (13.5), cuptiActivityGetNextRecord_v2: needs a subscription. Here one that
// has ended will do, as its last buffers may come late.
GPUSIM_CUPTI_EXPORT CUptiResult cuptiActivityGetNextRecord_v2(CUpti_SubscriberHandle subscriber,
                                                              uint8_t* buffer, size_t valid_size,
                                                              CUpti_Activity** record) {
  if (subscriber == nullptr || buffer == nullptr || record == nullptr)
    return Return(CUPTI_ERROR_INVALID_PARAMETER);
  return NextRecord(buffer, valid_size, record, TheSession().GetKnobs().api_version);
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiActivityPushExternalCorrelationId_v2(CUpti_SubscriberHandle subscriber,
                                                                          CUpti_ExternalCorrelationKind kind,
                                                                          uint64_t id) {
  return Return(IsFirst(subscriber) ? PushExternalId(kind, id) : CUPTI_ERROR_INVALID_PARAMETER);
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiActivityPopExternalCorrelationId_v2(CUpti_SubscriberHandle subscriber,
                                                                         CUpti_ExternalCorrelationKind kind,
                                                                         uint64_t* last_id) {
  return Return(IsFirst(subscriber) ? PopExternalId(kind, last_id) : CUPTI_ERROR_INVALID_PARAMETER);
}

GPUSIM_CUPTI_EXPORT CUptiResult cuptiGetTimestamp_v2(CUpti_SubscriberHandle subscriber, uint64_t* timestamp) {
  if (timestamp == nullptr || (Other(subscriber) == nullptr && !IsFirst(subscriber)))
    return Return(CUPTI_ERROR_INVALID_PARAMETER);
  *timestamp = NowNs();
  return CUPTI_SUCCESS;
}

}  // namespace gpusim::cupti
