// The clock that a guest registers: CUPTI stamps all records with it for good, and we convert ours back.
//
// Thread: the guest's own for its call, ours for readings, whichever completes a buffer for conversions. The
// guest's clock is called with no lock held. Allocation: none. Failure: times before the first reading stay
// as near as the readings allow (tick_clock.h).
#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>

namespace gpuprobe::injector {

// The times of our kinds' records are CLOCK_REALTIME afterwards, whatever clock a guest gave CUPTI.
void RestoreTimes(uint8_t* buffer, size_t valid_bytes) noexcept;
// Now and then, so that a guest's clock can be converted at any time: a few microseconds.
void ReadGuestClock() noexcept;

namespace guest {

// What the guest's call leads to, in place of CUPTI's function.
CUptiResult CUPTIAPI RegisterClock(CUpti_TimestampCallbackFunc function);

// What CUPTI stamps records with at this moment.
uint64_t RecordTime() noexcept;

void ForgetClockForTest() noexcept;

}  // namespace guest
}  // namespace gpuprobe::injector
