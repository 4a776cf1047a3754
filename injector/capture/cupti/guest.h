// What all parts of the broker share: CUPTI behind us, and whether we have a guest (broker.h).
//
// Thread: any. Allocation: none. Failure: none.
#pragma once

#include <atomic>

#include "injector/base/lifecycle.h"
#include "injector/capture/cupti/broker.h"

namespace gpuprobe::injector {

// True while a guest records or has callbacks.
bool GuestIsActive() noexcept;

namespace guest {

// CUPTI's own functions, and the table that acts on our subscription. Set before anything is patched.
extern CuptiApi bound;
extern const CuptiApi* api;
// Set before guests are received.
extern BrokerHost host;

// True: we answer the guest's calls; false: they go to CUPTI.
extern std::atomic<bool> received;
// A forked child has neither CUPTI's threads nor, perhaps, our locks.
inline bool Receiving() noexcept { return received.load(std::memory_order_acquire) && !InForkedChild(); }

inline const CuptiApi& Functions() noexcept { return Receiving() ? *api : bound; }

// Calls CUPTI itself unless guests are received. False: the call is ours, also if CUPTI refused it because we
// subscribed meanwhile.
template <typename Call>
bool PassOn(CUptiResult* result, Call call) noexcept {
  if (Receiving()) return false;
  *result = call();
  return *result != CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED || !Receiving();
}

void Came() noexcept;
// Call after the guest gave something up: with neither kinds nor a subscription it is gone.
void MaybeGone() noexcept;

}  // namespace guest
}  // namespace gpuprobe::injector
