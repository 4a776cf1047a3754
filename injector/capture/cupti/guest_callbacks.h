// The guest's subscription: a handle of ours, and the callbacks that it enabled on our subscription.
//
// Thread: the guest's own for its calls, any of the program's for callbacks. The guest's function is called
// outside our guard. Allocation: none. Failure: a second guest is refused as CUPTI refuses a second
// subscriber.
#pragma once

#include <cupti.h>

#include <cstdint>

#include "injector/capture/cupti/many_subscribers.h"

namespace gpuprobe::injector {

// A callback that CUPTI made to us: the guest's, if it enabled it.
void ForwardToGuest(CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const void* data) noexcept;

namespace guest {

// Called by the guest in place of CUPTI's functions of these names.
CUptiResult CUPTIAPI Subscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc function,
                               void* user_data);
CUptiResult CUPTIAPI SubscribeV2(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc function,
                                 void* user_data, v2::SubscriberParams* parameters);
CUptiResult CUPTIAPI Unsubscribe(CUpti_SubscriberHandle subscriber);
CUptiResult CUPTIAPI EnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                    CUpti_CallbackDomain domain, CUpti_CallbackId cbid);
CUptiResult CUPTIAPI EnableDomain(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                  CUpti_CallbackDomain domain);
CUptiResult CUPTIAPI EnableAllDomains(uint32_t enable, CUpti_SubscriberHandle subscriber);
CUptiResult CUPTIAPI GetCallbackState(uint32_t* enabled, CUpti_SubscriberHandle subscriber,
                                      CUpti_CallbackDomain domain, CUpti_CallbackId cbid);

// True for the handle that we give to guests. It means nothing to CUPTI, even when we no longer accept
// guests.
bool IsGuest(CUpti_SubscriberHandle subscriber) noexcept;
bool IsSubscribed() noexcept;
void EndSubscription() noexcept;

}  // namespace guest
}  // namespace gpuprobe::injector
