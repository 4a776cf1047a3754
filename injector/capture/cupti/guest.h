// What all parts of the broker share: CUPTI behind us, and whether we have a guest (broker.h).
//
// Thread: any. Allocation: none. Failure: none.
#pragma once

#include <atomic>

#include "injector/base/lifecycle.h"
#include "injector/capture/cupti/broker.h"

namespace gpuprobe::injector {

// A guest records, or has callbacks.
bool GuestIsActive() noexcept;

namespace guest {

// Set before anything is patched, and not changed after guests are received.
extern BrokerHost host;

// The guest's calls are answered by us; otherwise they go to CUPTI.
extern std::atomic<bool> received;
// A forked child has neither CUPTI's threads nor, perhaps, our locks.
inline bool Receiving() noexcept { return received.load(std::memory_order_acquire) && !InForkedChild(); }

void Came() noexcept;
// After the guest gave something up: with neither kinds nor a subscription it is gone.
void MaybeGone() noexcept;

void ForgetForTest() noexcept;

}  // namespace guest
}  // namespace gpuprobe::injector
