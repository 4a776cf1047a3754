#include "injector/capture/cupti/many_subscribers.h"

#include <atomic>
#include <cstring>

#include "injector/capture/cupti/function_table.h"

namespace gpuprobe::injector {

namespace {

constexpr uint32_t kNamesSubscribers = 130000;
constexpr uint32_t kOldFunctionsExclude = 130200;  // those of the new kind: they are not to be mixed
constexpr uint32_t kManySubscribers = 130400;
constexpr char kName[] = "gpuprobe";

// The table before its functions were replaced, and the subscription that they act on.
constinit CuptiApi real;
constinit std::atomic<CUpti_SubscriberHandle> ours{nullptr};
constinit std::atomic<CUpti_BuffersCallbackRequestFunc> request{nullptr};
constinit std::atomic<CUpti_BuffersCallbackCompleteFunc> complete{nullptr};

CUpti_SubscriberHandle Ours() noexcept { return ours.load(std::memory_order_acquire); }

void CUPTIAPI Request(uint8_t** buffer, size_t* bytes, size_t* max_records, void* /*info*/) {
  request.load(std::memory_order_acquire)(buffer, bytes, max_records);
}

void CUPTIAPI Complete(uint8_t* buffer, size_t bytes, size_t valid_bytes, void* /*info*/) {
  complete.load(std::memory_order_acquire)(nullptr, 0, buffer, bytes, valid_bytes);
}

CUptiResult CUPTIAPI RegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                       CUpti_BuffersCallbackCompleteFunc completed) {
  if (requested == nullptr || completed == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  request.store(requested, std::memory_order_release);
  complete.store(completed, std::memory_order_release);
  return real.ActivityRegisterCallbacks_v2(Ours(), Request, Complete);
}

CUptiResult CUPTIAPI Enable(CUpti_ActivityKind kind) { return real.ActivityEnable_v2(Ours(), kind, nullptr); }
CUptiResult CUPTIAPI Disable(CUpti_ActivityKind kind) {
  return real.ActivityDisable_v2(Ours(), kind, nullptr);
}
CUptiResult CUPTIAPI EnableAndDump(CUpti_ActivityKind kind) {
  return real.ActivityEnableAndDump_v2(Ours(), kind, nullptr);
}
CUptiResult CUPTIAPI SetAttribute(CUpti_ActivityAttribute attribute, size_t* bytes, void* value) {
  return real.ActivitySetAttribute_v2(Ours(), attribute, bytes, value);
}
CUptiResult CUPTIAPI GetAttribute(CUpti_ActivityAttribute attribute, size_t* bytes, void* value) {
  return real.ActivityGetAttribute_v2(Ours(), attribute, bytes, value);
}
CUptiResult CUPTIAPI NextRecord(uint8_t* buffer, size_t valid_bytes, CUpti_Activity** record) {
  return real.ActivityGetNextRecord_v2(Ours(), buffer, valid_bytes, record);
}
CUptiResult CUPTIAPI NumDropped(CUcontext context, uint32_t stream_id, size_t* dropped) {
  return real.ActivityGetNumDroppedRecords_v2(Ours(), context, stream_id, dropped);
}
CUptiResult CUPTIAPI PushExternalId(CUpti_ExternalCorrelationKind kind, uint64_t id) {
  return real.ActivityPushExternalCorrelationId_v2(Ours(), kind, id);
}
CUptiResult CUPTIAPI PopExternalId(CUpti_ExternalCorrelationKind kind, uint64_t* id) {
  return real.ActivityPopExternalCorrelationId_v2(Ours(), kind, id);
}
CUptiResult CUPTIAPI Timestamp(uint64_t* timestamp) { return real.GetTimestamp_v2(Ours(), timestamp); }

CUptiResult CUPTIAPI RegisterClock(CUpti_TimestampCallbackFunc function) {
  if (function == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  size_t bytes = sizeof(function);
  return real.ActivitySetAttribute_v2(Ours(), v2::kAttributeClock, &bytes,
                                      reinterpret_cast<void*>(&function));
}
CUptiResult CUPTIAPI SetThreadIdType(CUpti_ActivityThreadIdType type) {
  size_t bytes = sizeof(type);
  return real.ActivitySetAttribute_v2(Ours(), v2::kAttributeThreadIdType, &bytes, &type);
}
CUptiResult CUPTIAPI GetThreadIdType(CUpti_ActivityThreadIdType* type) {
  size_t bytes = sizeof(*type);
  return type == nullptr ? CUPTI_ERROR_INVALID_PARAMETER
                         : real.ActivityGetAttribute_v2(Ours(), v2::kAttributeThreadIdType, &bytes, type);
}

bool HasAllFunctions(const CuptiApi& api) noexcept {
#define GPUPROBE_IS_THERE(name, parameters) \
  if (api.name == nullptr) return false;
  GPUPROBE_CUPTI_V2_FUNCTIONS(GPUPROBE_IS_THERE)
#undef GPUPROBE_IS_THERE
  return true;
}

void ActOnSubscription(CuptiApi* api) noexcept {
  api->ActivityRegisterCallbacks = RegisterCallbacks;
  api->ActivityEnable = Enable;
  api->ActivityDisable = Disable;
  api->ActivityEnableAndDump = EnableAndDump;
  api->ActivitySetAttribute = SetAttribute;
  api->ActivityGetAttribute = GetAttribute;
  api->ActivityGetNextRecord = NextRecord;
  api->ActivityGetNumDroppedRecords = NumDropped;
  api->ActivityPushExternalCorrelationId = PushExternalId;
  api->ActivityPopExternalCorrelationId = PopExternalId;
  api->ActivityRegisterTimestampCallback = RegisterClock;
  api->GetTimestamp = Timestamp;
  api->SetThreadIdType = SetThreadIdType;
  api->GetThreadIdType = GetThreadIdType;
}

}  // namespace

bool SubscribeBesideOthers(CuptiApi* api, CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback,
                           void* data) noexcept {
  if (api->version < kManySubscribers || !HasAllFunctions(*api)) return false;
  v2::SubscriberParams params{.bytes = sizeof(params),
                              .name = kName,
                              .old_name = nullptr,
                              .old_name_bytes = 0,
                              .allow_others = 1,
                              .padding = {}};
  if (api->Subscribe_v2(subscriber, callback, data, &params) != CUPTI_SUCCESS) return false;
  real = *api;
  ours.store(*subscriber, std::memory_order_release);
  ActOnSubscription(api);
  return true;
}

CUptiResult SubscribeAlone(const CuptiApi& api, CUpti_SubscriberHandle* subscriber,
                           CUpti_CallbackFunc callback, void* data) noexcept {
  if (api.version < kNamesSubscribers || api.version >= kOldFunctionsExclude || api.Subscribe_v2 == nullptr)
    return api.Subscribe(subscriber, callback, data);
  v2::SubscriberParams params{.bytes = v2::kParamsWithoutOthers,
                              .name = kName,
                              .old_name = nullptr,
                              .old_name_bytes = 0,
                              .allow_others = 0,
                              .padding = {}};
  return api.Subscribe_v2(subscriber, callback, data, &params);
}

CUptiResult AdmitSubscriber(const CuptiApi& api, CUpti_SubscriberHandle* subscriber,
                            CUpti_CallbackFunc callback, void* data, v2::SubscriberParams* asked) noexcept {
  v2::SubscriberParams params{};
  if (asked != nullptr)
    std::memcpy(&params, asked, asked->bytes < sizeof(params) ? asked->bytes : sizeof(params));
  params.bytes = sizeof(params);
  params.allow_others = 1;
  return api.Subscribe_v2(subscriber, callback, data, &params);
}

}  // namespace gpuprobe::injector
