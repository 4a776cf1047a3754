#include "injector/capture/cupti/guest_callbacks.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "injector/capture/cupti/callbacks.h"
#include "injector/capture/cupti/guest.h"
#include "injector/capture/cupti/guest_calls.h"

namespace gpuprobe::injector {
namespace guest {
namespace {

constexpr uint32_t kDomains = 8;  // CUDA 13.0 has 6

constinit std::atomic<bool> subscribed{false};
constinit std::atomic<CUpti_CallbackFunc> callback{nullptr};
constinit std::atomic<void*> callback_data{nullptr};
constinit std::atomic<uint64_t> callbacks[kDomains][kMaxCallbackId / 64] = {};
constinit std::atomic<uint32_t> callbacks_enabled{0};

// The guest's handle: never dereferenced, and no other subscriber's.
CUpti_SubscriberHandle Handle() noexcept { return reinterpret_cast<CUpti_SubscriberHandle>(&subscribed); }

bool Bit(CUpti_CallbackDomain domain, CUpti_CallbackId cbid) noexcept {
  const auto row = static_cast<uint32_t>(domain);
  return row < kDomains && cbid < kMaxCallbackId &&
         (callbacks[row][cbid / 64].load(std::memory_order_relaxed) >> (cbid % 64) & 1) != 0;
}

CUptiResult SetCallback(bool enable, CUpti_CallbackDomain domain, CUpti_CallbackId cbid) noexcept {
  const auto row = static_cast<uint32_t>(domain);
  if (row == 0 || row >= kDomains || cbid >= kMaxCallbackId) return CUPTI_ERROR_INVALID_PARAMETER;
  const uint64_t mask = uint64_t{1} << (cbid % 64);
  if (!enable) {
    const bool was = (callbacks[row][cbid / 64].fetch_and(~mask) & mask) != 0;
    if (was) callbacks_enabled.fetch_sub(1, std::memory_order_relaxed);
    if (!was || host.needs_callback(domain, cbid)) return CUPTI_SUCCESS;
    return api->EnableCallback(0, host.subscriber, domain, cbid);
  }
  const CUptiResult result = api->EnableCallback(1, host.subscriber, domain, cbid);
  if (result == CUPTI_SUCCESS && (callbacks[row][cbid / 64].fetch_or(mask) & mask) == 0)
    callbacks_enabled.fetch_add(1, std::memory_order_relaxed);
  return result;
}

// CUPTI refuses unknown ids one by one; that is not an error here.
CUptiResult SetDomain(bool enable, CUpti_CallbackDomain domain) noexcept {
  bool any = false;
  for (CUpti_CallbackId cbid = 1; cbid < kMaxCallbackId; ++cbid)
    any = SetCallback(enable, domain, cbid) == CUPTI_SUCCESS || any;
  return any ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}

bool IsReceived() noexcept { return Receiving() && subscribed.load(std::memory_order_acquire); }

bool WantsCompany(const v2::SubscriberParams* parameters) noexcept {
  return parameters != nullptr && parameters->bytes > v2::kParamsWithoutOthers &&
         parameters->allow_others != 0;
}

CUptiResult RefuseCompany(v2::SubscriberParams* parameters) noexcept {
  static constexpr char kUs[] = "CUPTI for gpuprobe";
  if (parameters->old_name != nullptr && parameters->old_name_bytes != 0) {
    const size_t length = std::min(sizeof(kUs) - 1, parameters->old_name_bytes - 1);
    std::memcpy(parameters->old_name, kUs, length);
    parameters->old_name[length] = '\0';
  }
  return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
}

}  // namespace

bool IsGuest(CUpti_SubscriberHandle subscriber) noexcept { return subscriber == Handle(); }

bool IsSubscribed() noexcept { return subscribed.load(std::memory_order_relaxed); }

void EndSubscription() noexcept {
  for (uint32_t domain = 1; domain < kDomains; ++domain) {
    for (CUpti_CallbackId cbid = 1; cbid < kMaxCallbackId; ++cbid) {
      if (Bit(static_cast<CUpti_CallbackDomain>(domain), cbid))
        SetCallback(false, static_cast<CUpti_CallbackDomain>(domain), cbid);
    }
  }
  callback.store(nullptr);
  subscribed.store(false, std::memory_order_release);
  MaybeGone();
}

CUptiResult CUPTIAPI Subscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc function,
                               void* user_data) {
  CUptiResult result = CUPTI_SUCCESS;
  if (PassOn(&result, [&] { return bound.Subscribe(subscriber, function, user_data); })) return result;
  if (subscriber == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (subscribed.exchange(true)) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  Came();
  callback_data.store(user_data, std::memory_order_relaxed);
  callback.store(function, std::memory_order_release);
  *subscriber = Handle();
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI SubscribeV2(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc function,
                                 void* user_data, v2::SubscriberParams* parameters) {
  CUptiResult result = CUPTI_SUCCESS;
  if (PassOn(&result, [&] { return bound.Subscribe_v2(subscriber, function, user_data, parameters); }))
    return result;
  if (host.others_allowed) return AdmitSubscriber(bound, subscriber, function, user_data, parameters);
  if (WantsCompany(parameters)) return RefuseCompany(parameters);
  return Subscribe(subscriber, function, user_data);
}

CUptiResult CUPTIAPI Unsubscribe(CUpti_SubscriberHandle subscriber) {
  if (!IsGuest(subscriber)) return bound.Unsubscribe(subscriber);
  if (!IsReceived()) return CUPTI_ERROR_INVALID_PARAMETER;
  EndSubscription();
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI EnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                    CUpti_CallbackDomain domain, CUpti_CallbackId cbid) {
  if (!IsGuest(subscriber)) return bound.EnableCallback(enable, subscriber, domain, cbid);
  if (!IsReceived()) return CUPTI_ERROR_INVALID_PARAMETER;
  return SetCallback(enable != 0, domain, cbid);
}

CUptiResult CUPTIAPI EnableDomain(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                  CUpti_CallbackDomain domain) {
  if (!IsGuest(subscriber)) return bound.EnableDomain(enable, subscriber, domain);
  if (!IsReceived()) return CUPTI_ERROR_INVALID_PARAMETER;
  return SetDomain(enable != 0, domain);
}

CUptiResult CUPTIAPI EnableAllDomains(uint32_t enable, CUpti_SubscriberHandle subscriber) {
  if (!IsGuest(subscriber)) return bound.EnableAllDomains(enable, subscriber);
  if (!IsReceived()) return CUPTI_ERROR_INVALID_PARAMETER;
  for (uint32_t domain = 1; domain < CUPTI_CB_DOMAIN_SIZE; ++domain)
    SetDomain(enable != 0, static_cast<CUpti_CallbackDomain>(domain));
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI GetCallbackState(uint32_t* enabled, CUpti_SubscriberHandle subscriber,
                                      CUpti_CallbackDomain domain, CUpti_CallbackId cbid) {
  if (!IsGuest(subscriber)) return bound.GetCallbackState(enabled, subscriber, domain, cbid);
  if (enabled == nullptr || !IsReceived()) return CUPTI_ERROR_INVALID_PARAMETER;
  *enabled = Bit(domain, cbid) ? 1 : 0;
  return CUPTI_SUCCESS;
}

}  // namespace guest

void ForwardToGuest(CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const void* data) noexcept {
  if (guest::callbacks_enabled.load(std::memory_order_relaxed) == 0 || !guest::Bit(domain, cbid)) return;
  const guest::Call call;
  const auto function = guest::callback.load();
  if (function != nullptr) function(guest::callback_data.load(std::memory_order_relaxed), domain, cbid, data);
}

}  // namespace gpuprobe::injector
