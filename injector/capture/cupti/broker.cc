#include "injector/capture/cupti/broker.h"

#include <dlfcn.h>

#include <cstring>

#include "injector/base/lifecycle.h"
#include "injector/base/text.h"
#include "injector/capture/cupti/guest.h"
#include "injector/capture/cupti/guest_buffers.h"
#include "injector/capture/cupti/guest_callbacks.h"
#include "injector/capture/cupti/guest_calls.h"
#include "injector/capture/cupti/guest_clock.h"
#include "injector/capture/cupti/guest_records.h"

namespace gpuprobe::injector {

using guest::bound;

namespace {

// CUPTI's subscription functions do not know a guest's handle: returns CUPTI's error for mixing both kinds of
// functions.
template <auto Function>
struct ForSubscriptions;
template <typename... Arguments,
          CUptiResult (CUPTIAPI* CuptiApi::*Function)(CUpti_SubscriberHandle, Arguments...)>
struct ForSubscriptions<Function> {
  static CUptiResult CUPTIAPI Call(CUpti_SubscriberHandle subscriber, Arguments... arguments) {
    if (guest::IsGuest(subscriber)) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    return (bound.*Function)(subscriber, arguments...);
  }
};

// On our subscription, if CUPTI has several.
template <auto Function>
struct OnOurs;
template <typename... Arguments, CUptiResult (CUPTIAPI* CuptiApi::*Function)(Arguments...)>
struct OnOurs<Function> {
  static CUptiResult CUPTIAPI Call(Arguments... arguments) {
    return (guest::Functions().*Function)(arguments...);
  }
};

// A tool may be unloaded as soon as this has returned, so none of its functions may be called after it.
CUptiResult CUPTIAPI Finalize() {
  const bool ours = guest::Receiving();
  const CUptiResult result = ours ? CUPTI_SUCCESS : bound.Finalize();
  if (InForkedChild()) return result;
  guest::EndClock();
  if (!ours) guest::ForgetGivenClock();
  if (ours) guest::DisableAll();
  guest::NoteAllDisabled();
  guest::EndSubscription();
  guest::ForgetBuffers();
  guest::calls.AwaitOthers(guest::OwnCalls());
  return result;
}

// Another copy of libcupti, of our version or an older one.
bool IsServedCopy(void* handle, const void* function) noexcept {
  Dl_info file{};
  if (dladdr(function, &file) == 0 || file.dli_fname == nullptr) return false;
  const char* slash = std::strrchr(file.dli_fname, '/');
  if (!StartsWith(slash == nullptr ? file.dli_fname : slash + 1, "libcupti")) return false;
  auto* get_version = reinterpret_cast<decltype(&cuptiGetVersion)>(dlsym(handle, "cuptiGetVersion"));
  uint32_t version = 0;
  return get_version != nullptr && get_version(&version) == CUPTI_SUCCESS && version <= bound.version;
}

}  // namespace

void WatchForGuests(const CuptiApi* api) noexcept {
  guest::bound = *api;
  guest::api = api;
}

void ReceiveGuests(const BrokerHost& session) noexcept {
  guest::host = session;
  guest::received.store(true, std::memory_order_release);
  guest::MaybeGone();  // a tool that had CUPTI before us may have left
}

void SendGuestsAway() noexcept { guest::received.store(false, std::memory_order_release); }

void ForEachRedirection(void (*visit)(const Redirection& redirection, void* data) noexcept,
                        void* data) noexcept {
  if (guest::api == nullptr) return;
  const auto redirect = [visit, data](const char* name, auto real, auto ours) noexcept {
    if (real != nullptr) visit({name, reinterpret_cast<void*>(real), reinterpret_cast<void*>(ours)}, data);
  };
#define GPUPROBE_REDIRECT(name, ours) redirect("cupti" #name, bound.name, ours);
  GPUPROBE_REDIRECT(Subscribe, guest::Subscribe)
  GPUPROBE_REDIRECT(Subscribe_v2, guest::SubscribeV2)
  GPUPROBE_REDIRECT(Unsubscribe, guest::Unsubscribe)
  GPUPROBE_REDIRECT(EnableCallback, guest::EnableCallback)
  GPUPROBE_REDIRECT(EnableDomain, guest::EnableDomain)
  GPUPROBE_REDIRECT(EnableAllDomains, guest::EnableAllDomains)
  GPUPROBE_REDIRECT(GetCallbackState, guest::GetCallbackState)
  GPUPROBE_REDIRECT(ActivityRegisterCallbacks, guest::RegisterCallbacks)
  GPUPROBE_REDIRECT(ActivityEnable, guest::Enable)
  GPUPROBE_REDIRECT(ActivityDisable, guest::Disable)
  GPUPROBE_REDIRECT(ActivityFlushAll, guest::FlushAll)
  GPUPROBE_REDIRECT(ActivityGetNumDroppedRecords, guest::NumDropped)
  GPUPROBE_REDIRECT(ActivitySetAttribute, guest::SetAttribute)
  GPUPROBE_REDIRECT(ActivityRegisterTimestampCallback, guest::RegisterClock)
  GPUPROBE_REDIRECT(Finalize, Finalize)
#undef GPUPROBE_REDIRECT
#define GPUPROBE_REDIRECT(name) redirect("cupti" #name, bound.name, &OnOurs<&CuptiApi::name>::Call);
  GPUPROBE_REDIRECT(ActivityGetNextRecord)
  GPUPROBE_REDIRECT(ActivityEnableAndDump)
  GPUPROBE_REDIRECT(ActivityGetAttribute)
  GPUPROBE_REDIRECT(ActivityPushExternalCorrelationId)
  GPUPROBE_REDIRECT(ActivityPopExternalCorrelationId)
  GPUPROBE_REDIRECT(GetTimestamp)
  GPUPROBE_REDIRECT(SetThreadIdType)
  GPUPROBE_REDIRECT(GetThreadIdType)
#undef GPUPROBE_REDIRECT
#define GPUPROBE_REDIRECT(name) redirect("cupti" #name, bound.name, &ForSubscriptions<&CuptiApi::name>::Call);
  GPUPROBE_REDIRECT(ActivityEnable_v2)
  GPUPROBE_REDIRECT(ActivityDisable_v2)
  GPUPROBE_REDIRECT(ActivityEnableAndDump_v2)
  GPUPROBE_REDIRECT(ActivityRegisterCallbacks_v2)
  GPUPROBE_REDIRECT(ActivitySetAttribute_v2)
  GPUPROBE_REDIRECT(ActivityGetAttribute_v2)
  GPUPROBE_REDIRECT(ActivityGetNextRecord_v2)
  GPUPROBE_REDIRECT(ActivityGetNumDroppedRecords_v2)
  GPUPROBE_REDIRECT(ActivityPushExternalCorrelationId_v2)
  GPUPROBE_REDIRECT(ActivityPopExternalCorrelationId_v2)
  GPUPROBE_REDIRECT(GetTimestamp_v2)
#undef GPUPROBE_REDIRECT
}

void* BrokerReplacement(const char* symbol, const void* value) noexcept {
  if (std::strncmp(symbol, "cupti", 5) != 0) return nullptr;
  struct Search {
    const char* symbol;
    const void* value;
    void* found;
  } search{symbol, value, nullptr};
  ForEachRedirection(
      [](const Redirection& redirection, void* data) noexcept {
        auto* wanted = static_cast<Search*>(data);
        if (std::strcmp(redirection.name, wanted->symbol) != 0) return;
        if (wanted->value == nullptr || wanted->value == redirection.real) wanted->found = redirection.ours;
      },
      &search);
  return search.found;
}

// What libcupti exports has been redirected (patching.cc), unless its symbol table could not be written.
void* BrokerAnswer(void* handle, const char* symbol, const void* value) noexcept {
  void* const ours = BrokerReplacement(symbol, value);
  if (ours != nullptr || !guest::Receiving() || bound.library == nullptr) return ours;
  void* const real = dlsym(bound.library, symbol);
  if (real == nullptr || real == value || !IsServedCopy(handle, value)) return nullptr;
  void* const replacement = BrokerReplacement(symbol, real);
  return replacement != nullptr ? replacement : real;
}

}  // namespace gpuprobe::injector
