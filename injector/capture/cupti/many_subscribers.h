// Subscribes to CUPTI beside other tools: from CUPTI 13.4 on several subscribers may coexist.
//
// NVIDIA's rules: all of them use the functions that take a subscription (_v2), each has its own kinds,
// buffers and clock, and the first one must allow others. It needs driver 610 or newer. A subscriber of the
// old functions excludes all others, so such a tool stays our guest (broker.h), on our subscription. CUPTI
// has this since 13.3; there it could crash when two subscribers switched kinds at once (mended in 13.3
// Update 1), and has no _v2 form for what guests may ask for: a clock, a type of thread ids. Hence 13.4.
//
// SubscribeBesideOthers replaces a table's old functions by ones that act on our subscription, so callers of
// the table (the decoder, the session, the broker) do not change.
//
// Thread: as the functions replaced. Allocation: none. Failure: it returns false, and everything is as with
// an older CUPTI.
#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>

namespace gpuprobe::injector {

struct CuptiApi;

// CUPTI's own declarations, which headers before 13.4 do not have all of. e2e.real_cupti compares them.
namespace v2 {

// CUpti_SubscriberParams. In 13.0 and 13.1 it ends behind old_name_bytes.
struct SubscriberParams {
  size_t bytes;
  const char* name;
  char* old_name;
  size_t old_name_bytes;
  uint8_t allow_others;
  uint8_t padding[7];
};
inline constexpr size_t kParamsWithoutOthers = offsetof(SubscriberParams, allow_others);

using RequestFunction = void(CUPTIAPI*)(uint8_t** buffer, size_t* bytes, size_t* max_records, void* info);
using CompleteFunction = void(CUPTIAPI*)(uint8_t* buffer, size_t bytes, size_t valid_bytes, void* info);

inline constexpr auto kAttributeThreadIdType = static_cast<CUpti_ActivityAttribute>(21);
inline constexpr auto kAttributeClock = static_cast<CUpti_ActivityAttribute>(22);

}  // namespace v2

// One row for each function that newer releases have: X(name without "cupti", parameters).
#define GPUPROBE_CUPTI_V2_FUNCTIONS(X)                                                                       \
  X(Subscribe_v2, (CUpti_SubscriberHandle*, CUpti_CallbackFunc, void*, v2::SubscriberParams*))               \
  X(ActivityEnable_v2, (CUpti_SubscriberHandle, CUpti_ActivityKind, void*))                                  \
  X(ActivityDisable_v2, (CUpti_SubscriberHandle, CUpti_ActivityKind, void*))                                 \
  X(ActivityEnableAndDump_v2, (CUpti_SubscriberHandle, CUpti_ActivityKind, void*))                           \
  X(ActivityRegisterCallbacks_v2, (CUpti_SubscriberHandle, v2::RequestFunction, v2::CompleteFunction))       \
  X(ActivitySetAttribute_v2, (CUpti_SubscriberHandle, CUpti_ActivityAttribute, size_t*, void*))              \
  X(ActivityGetAttribute_v2, (CUpti_SubscriberHandle, CUpti_ActivityAttribute, size_t*, void*))              \
  X(ActivityGetNextRecord_v2, (CUpti_SubscriberHandle, uint8_t*, size_t, CUpti_Activity**))                  \
  X(ActivityGetNumDroppedRecords_v2, (CUpti_SubscriberHandle, CUcontext, uint32_t, size_t*))                 \
  X(ActivityPushExternalCorrelationId_v2, (CUpti_SubscriberHandle, CUpti_ExternalCorrelationKind, uint64_t)) \
  X(ActivityPopExternalCorrelationId_v2, (CUpti_SubscriberHandle, CUpti_ExternalCorrelationKind, uint64_t*)) \
  X(GetTimestamp_v2, (CUpti_SubscriberHandle, uint64_t*))

// Names us, and allows others; the table's old functions then act on the subscription. False when this CUPTI
// or the driver does not support several subscribers, or the first subscriber does not allow others; then
// nothing has changed.
bool SubscribeBesideOthers(CuptiApi* api, CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback,
                           void* data) noexcept;

// Subscribes alone: with our name where CUPTI takes one.
CUptiResult SubscribeAlone(const CuptiApi& api, CUpti_SubscriberHandle* subscriber,
                           CUpti_CallbackFunc callback, void* data) noexcept;

// Another tool's cuptiSubscribe_v2 beside us: it is admitted whether or not it allows other subscribers.
CUptiResult AdmitSubscriber(const CuptiApi& api, CUpti_SubscriberHandle* subscriber,
                            CUpti_CallbackFunc callback, void* data, v2::SubscriberParams* asked) noexcept;

}  // namespace gpuprobe::injector
