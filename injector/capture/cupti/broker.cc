#include "injector/capture/cupti/broker.h"

#include <dlfcn.h>

#include <cstring>

#include "injector/base/text.h"
#include "injector/capture/cupti/guest.h"
#include "injector/capture/cupti/guest_buffers.h"
#include "injector/capture/cupti/guest_callbacks.h"
#include "injector/capture/cupti/guest_clock.h"
#include "injector/capture/cupti/guest_records.h"

namespace gpuprobe::injector {

using guest::host;

namespace {

// A guest's handle means nothing to CUPTI's functions for subscriptions, which it answers as CUPTI does where
// both kinds of functions are used.
template <auto Function>
struct ForSubscriptions;
template <typename... Arguments,
          CUptiResult (CUPTIAPI* CuptiApi::*Function)(CUpti_SubscriberHandle, Arguments...)>
struct ForSubscriptions<Function> {
  static CUptiResult CUPTIAPI Call(CUpti_SubscriberHandle subscriber, Arguments... arguments) {
    if (guest::IsGuest(subscriber)) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    return (host.bound.*Function)(subscriber, arguments...);
  }
};

CUptiResult CUPTIAPI Finalize() {
  if (!guest::Receiving()) return host.api->Finalize();
  guest::DisableAll();
  guest::HandOver();
  guest::EndSubscription();
  return CUPTI_SUCCESS;
}

template <typename Function>
void* Instead(const void* value, Function real, Function ours) noexcept {
  const bool same = value == nullptr || value == reinterpret_cast<const void*>(real);
  return real != nullptr && ours != real && same ? reinterpret_cast<void*>(ours) : nullptr;
}

// Another copy of libcupti, of our version or an older one.
bool IsServedCopy(void* handle, const void* function) noexcept {
  Dl_info file{};
  if (dladdr(function, &file) == 0 || file.dli_fname == nullptr) return false;
  const char* slash = std::strrchr(file.dli_fname, '/');
  if (!StartsWith(slash == nullptr ? file.dli_fname : slash + 1, "libcupti")) return false;
  auto* get_version = reinterpret_cast<decltype(&cuptiGetVersion)>(dlsym(handle, "cuptiGetVersion"));
  uint32_t version = 0;
  return get_version != nullptr && get_version(&version) == CUPTI_SUCCESS && version <= host.api->version;
}

}  // namespace

void WatchForGuests(const CuptiApi* api) noexcept {
  host.api = api;
  host.bound = *api;
}

void ReceiveGuests(const BrokerHost& session) noexcept {
  host = session;
  guest::received.store(true, std::memory_order_release);
}

void SendGuestsAway() noexcept { guest::received.store(false, std::memory_order_release); }

void* BrokerReplacement(const char* symbol, const void* value) noexcept {
  if (host.api == nullptr || std::strncmp(symbol, "cupti", 5) != 0) return nullptr;
  const char* name = symbol + 5;
#define GPUPROBE_INSTEAD(api_name, ours) \
  if (std::strcmp(name, #api_name) == 0) return Instead(value, host.bound.api_name, ours);
  GPUPROBE_INSTEAD(Subscribe, guest::Subscribe)
  GPUPROBE_INSTEAD(Subscribe_v2, guest::SubscribeV2)
  GPUPROBE_INSTEAD(Unsubscribe, guest::Unsubscribe)
  GPUPROBE_INSTEAD(EnableCallback, guest::EnableCallback)
  GPUPROBE_INSTEAD(EnableDomain, guest::EnableDomain)
  GPUPROBE_INSTEAD(EnableAllDomains, guest::EnableAllDomains)
  GPUPROBE_INSTEAD(GetCallbackState, guest::GetCallbackState)
  GPUPROBE_INSTEAD(ActivityRegisterCallbacks, guest::RegisterCallbacks)
  GPUPROBE_INSTEAD(ActivityEnable, guest::Enable)
  GPUPROBE_INSTEAD(ActivityDisable, guest::Disable)
  GPUPROBE_INSTEAD(ActivityFlushAll, guest::FlushAll)
  GPUPROBE_INSTEAD(ActivityGetNumDroppedRecords, guest::NumDropped)
  GPUPROBE_INSTEAD(ActivitySetAttribute, guest::SetAttribute)
  GPUPROBE_INSTEAD(ActivityRegisterTimestampCallback, guest::RegisterClock)
  GPUPROBE_INSTEAD(Finalize, Finalize)
  // On our subscription, if CUPTI has several.
  GPUPROBE_INSTEAD(ActivityGetNextRecord, host.api->ActivityGetNextRecord)
  GPUPROBE_INSTEAD(ActivityEnableAndDump, host.api->ActivityEnableAndDump)
  GPUPROBE_INSTEAD(ActivityGetAttribute, host.api->ActivityGetAttribute)
  GPUPROBE_INSTEAD(ActivityPushExternalCorrelationId, host.api->ActivityPushExternalCorrelationId)
  GPUPROBE_INSTEAD(ActivityPopExternalCorrelationId, host.api->ActivityPopExternalCorrelationId)
  GPUPROBE_INSTEAD(GetTimestamp, host.api->GetTimestamp)
  GPUPROBE_INSTEAD(SetThreadIdType, host.api->SetThreadIdType)
  GPUPROBE_INSTEAD(GetThreadIdType, host.api->GetThreadIdType)
#undef GPUPROBE_INSTEAD
#define GPUPROBE_INSTEAD(api_name)       \
  if (std::strcmp(name, #api_name) == 0) \
    return Instead(value, host.bound.api_name, &ForSubscriptions<&CuptiApi::api_name>::Call);
  GPUPROBE_INSTEAD(ActivityEnable_v2)
  GPUPROBE_INSTEAD(ActivityDisable_v2)
  GPUPROBE_INSTEAD(ActivityEnableAndDump_v2)
  GPUPROBE_INSTEAD(ActivityRegisterCallbacks_v2)
  GPUPROBE_INSTEAD(ActivitySetAttribute_v2)
  GPUPROBE_INSTEAD(ActivityGetAttribute_v2)
  GPUPROBE_INSTEAD(ActivityGetNextRecord_v2)
  GPUPROBE_INSTEAD(ActivityGetNumDroppedRecords_v2)
  GPUPROBE_INSTEAD(ActivityPushExternalCorrelationId_v2)
  GPUPROBE_INSTEAD(ActivityPopExternalCorrelationId_v2)
  GPUPROBE_INSTEAD(GetTimestamp_v2)
#undef GPUPROBE_INSTEAD
  return nullptr;
}

void* BrokerAnswer(void* handle, const char* symbol, const void* value) noexcept {
  void* const ours = BrokerReplacement(symbol, value);
  if (ours != nullptr || !guest::Receiving() || host.api->library == nullptr) return ours;
  void* const real = dlsym(host.api->library, symbol);
  if (real == nullptr || real == value || !IsServedCopy(handle, value)) return nullptr;
  void* const replacement = BrokerReplacement(symbol, real);
  return replacement != nullptr ? replacement : real;
}

void ForgetGuestsForTest() noexcept {
  guest::ForgetForTest();
  guest::ForgetCallbacksForTest();
  guest::ForgetKindsForTest();
  guest::ForgetBuffersForTest();
  guest::ForgetClockForTest();
}

}  // namespace gpuprobe::injector
