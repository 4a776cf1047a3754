// The clock that a guest registers: CUPTI stamps all records with it for good, and we convert ours back.
//
// CUPTI cannot give a clock up, so it gets a function of ours, which asks the guest's as long as the guest is
// here: from the first kind that it enables until it has neither kinds nor a subscription, or finalizes
// CUPTI. Its library may be unloaded after that, and its clock goes on by what was read of it:
//
//   the guest's clock read 3000 at 1000 ns and 6000 at 2000 ns; it has gone  ->  at 2500 ns it is 7500
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

// The guest records from now on: its clock is CUPTI's.
void StartClock() noexcept;
// It has gone, and its clock is not called again until it records; nor is it being called by another thread.
void StopClock() noexcept;
// The same, for good.
void EndClock() noexcept;

// What CUPTI stamps records with at this moment.
uint64_t RecordTime() noexcept;

void ForgetClockForTest() noexcept;

}  // namespace guest
}  // namespace gpuprobe::injector
