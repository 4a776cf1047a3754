// Decides which records are the guest's: those of the kinds that it enabled, while it had them enabled.
//
// A kind that either side wants is enabled. The guest gets what was launched after it enabled the kind and
// before it disabled it. Thread: the guest's own for its calls, whichever completes a buffer for records.
// Allocation: none. Failure: what CUPTI answers.
#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>

namespace gpuprobe::injector {

// A buffer that completed, before anybody changes it: the guest gets copies of its records.
void FeedGuest(CUcontext context, uint32_t stream_id, uint8_t* buffer, size_t valid_bytes) noexcept;
// A buffer that is the guest's goes back to it, with the records of its kinds only.
void CompleteForGuest(CUcontext context, uint32_t stream_id, uint8_t* buffer, size_t bytes,
                      size_t valid_bytes) noexcept;

bool GuestNeedsKind(CUpti_ActivityKind kind) noexcept;
// A guest has, or had, it enabled.
bool IsGuestsKind(CUpti_ActivityKind kind) noexcept;

namespace guest {

// What the guest's calls lead to, in place of CUPTI's functions.
CUptiResult CUPTIAPI Enable(CUpti_ActivityKind kind);
CUptiResult CUPTIAPI Disable(CUpti_ActivityKind kind);

void DisableAll() noexcept;
// CUPTI has disabled them.
void NoteAllDisabled() noexcept;
// It has a kind enabled.
bool RecordsAnything() noexcept;
// CUPTI has another clock: the enabled kinds' records are the guest's from `now` on.
void RestartWindows(uint64_t now) noexcept;

void ForgetKindsForTest() noexcept;

}  // namespace guest
}  // namespace gpuprobe::injector
