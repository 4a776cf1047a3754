// Decides which records are the guest's: those of the kinds that it enabled, while it had them enabled.
//
// A kind that either side wants is enabled. The guest gets what was launched after it enabled the kind and
// before it disabled it. Thread: the guest's own for its calls, the one that completes a buffer for records.
// Allocation: none. Failure: CUPTI's error.
#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>

namespace gpuprobe::injector {

// Call with a completed buffer before it is changed: the guest gets copies of its records.
void FeedGuest(CUcontext context, uint32_t stream_id, uint8_t* buffer, size_t valid_bytes) noexcept;
// Returns a buffer that belongs to the guest, with only the records of its kinds.
void CompleteForGuest(CUcontext context, uint32_t stream_id, uint8_t* buffer, size_t bytes,
                      size_t valid_bytes) noexcept;

bool GuestNeedsKind(CUpti_ActivityKind kind) noexcept;
// True if a guest has, or had, this kind enabled.
bool IsGuestsKind(CUpti_ActivityKind kind) noexcept;

namespace guest {

// Called by the guest in place of CUPTI's functions.
CUptiResult CUPTIAPI Enable(CUpti_ActivityKind kind);
CUptiResult CUPTIAPI Disable(CUpti_ActivityKind kind);

void DisableAll() noexcept;
// CUPTI has disabled all kinds.
void NoteAllDisabled() noexcept;
// True while the guest has a kind enabled.
bool RecordsAnything() noexcept;
// Whether it ever had one: records may be on their way to it.
bool HasRecorded() noexcept;
// CUPTI's clock has changed: records of the enabled kinds are the guest's from `now` on.
void RestartWindows(uint64_t now) noexcept;

}  // namespace guest
}  // namespace gpuprobe::injector
