// The clock that a guest registers: CUPTI stamps all records with it for good, and we convert ours back.
//
// CUPTI cannot give a clock up, so it gets a function of ours, which asks the guest's as long as the guest is
// active: from the first kind that it enables until it has neither kinds nor a subscription, or finalizes
// CUPTI. Its library may be unloaded after that, and its clock is extrapolated from our readings:
//
//   the guest's clock read 3000 at 1000 ns and 6000 at 2000 ns; it has gone  ->  at 2500 ns it is 7500
//
// Thread: the guest's own for its call, ours for readings, the one that completes a buffer for conversions.
// The guest's clock is called with no lock held. Allocation: none. Failure: times before the first reading
// stay as near as the readings allow (tick_clock.h).
#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>

namespace gpuprobe::injector {

// Converts the times of our kinds' records to CLOCK_REALTIME, whatever clock a guest gave CUPTI.
void RestoreTimes(uint8_t* buffer, size_t valid_bytes) noexcept;
// Reads the guest's clock, so that its times can be converted later. Call now and then; takes a few
// microseconds.
void ReadGuestClock() noexcept;

namespace guest {

// Called by the guest in place of CUPTI's function.
CUptiResult CUPTIAPI RegisterClock(CUpti_TimestampCallbackFunc function);

// The guest records from now on: its clock is CUPTI's.
void StartClock() noexcept;
// The guest has gone: its clock is not called again until it records. On return no other thread is calling
// it.
void StopClock() noexcept;
// The same, for good.
void EndClock() noexcept;
// CUPTI itself was finalized: it has no clock of ours.
void ForgetGivenClock() noexcept;

// The current time of the clock that CUPTI stamps records with.
uint64_t RecordTime() noexcept;

}  // namespace guest
}  // namespace gpuprobe::injector
