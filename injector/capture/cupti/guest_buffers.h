// The guest's own buffers: how records reach it.
//
// One buffer is open at a time. A thread takes it out to fill it, so that nothing is locked while the guest's
// functions run. Thread: any. Allocation: none. Failure: records for which the guest gives no buffer are
// counted, and it can ask for their number.
#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>

namespace gpuprobe::injector {

// On the program's threads, in any callback: asks a guest that records for its first buffer.
void GiveGuestABuffer() noexcept;

// True if a known tool may own the buffers that are not ours.
bool GuestHasBuffers() noexcept;

// Counts records that the guest should have received.
void NoteGuestDropped(size_t records) noexcept;

namespace guest {

struct Buffer {
  uint8_t* data = nullptr;
  size_t bytes = 0;
  size_t used = 0;
  size_t records = 0;
  size_t max_records = 0;  // 0: as many as fit
  CUcontext context = nullptr;
  uint32_t stream_id = 0;
};

// The buffer that is being filled; without data if there is none.
Buffer TakeOpenBuffer() noexcept;
void PutOpenBuffer(const Buffer& buffer) noexcept;
// Copies a record to the end of `to`, which is handed over and replaced if it is full. The record is from
// a buffer of `from`'s context and stream.
void Append(const CUpti_Activity* record, size_t bytes, const Buffer& from, Buffer* to) noexcept;
// Hands the buffer to the guest unchanged.
void Complete(const Buffer& buffer) noexcept;
// Hands the open buffer to the guest if it holds records.
void HandOver() noexcept;
// The next callback on the program's threads asks the guest for a buffer, as CUPTI does. Some tools take it
// as a sign that there is something to flush.
void AskForBuffer() noexcept;
// The guest has gone: it is not asked before it comes back.
void AskForNoBuffer() noexcept;
// The guest has finalized CUPTI: none of its functions is called again, and records in its buffer are lost,
// as with CUPTI.
void ForgetBuffers() noexcept;

// Called by the guest in place of CUPTI's functions.
CUptiResult CUPTIAPI RegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                       CUpti_BuffersCallbackCompleteFunc completed);
CUptiResult CUPTIAPI FlushAll(uint32_t flags);
CUptiResult CUPTIAPI SetAttribute(CUpti_ActivityAttribute attribute, size_t* bytes, void* value);
CUptiResult CUPTIAPI NumDropped(CUcontext context, uint32_t stream_id, size_t* dropped);

}  // namespace guest
}  // namespace gpuprobe::injector
