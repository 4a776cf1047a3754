// The guest's own buffers: how records reach it.
//
// One buffer is open at a time. Whoever fills it takes it out, so that nothing is locked while the guest's
// functions run. Thread: any. Allocation: none. Failure: records for which the guest gives no buffer are
// counted, and it can ask for their number.
#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>

namespace gpuprobe::injector {

// On the program's threads, in any callback: asks a guest that records for its first buffer.
void GiveGuestABuffer() noexcept;

// A tool is known whose buffers those may be that are not ours.
bool GuestHasBuffers() noexcept;

// Records that it would have had.
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
// To the guest, as it is.
void Complete(const Buffer& buffer) noexcept;
// The open buffer to the guest, if anything is in it.
void HandOver() noexcept;
// The next callback on the program's threads asks the guest for a buffer, as CUPTI does. Some tools take it
// as a sign that there is something to flush.
void AskForBuffer() noexcept;
// The guest has gone: it is not asked before it comes back.
void AskForNoBuffer() noexcept;
// It has finalized CUPTI: none of its functions is called again, and what is in its buffer is lost, as it is
// with CUPTI.
void ForgetBuffers() noexcept;

// What the guest's calls lead to, in place of CUPTI's functions.
CUptiResult CUPTIAPI RegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                       CUpti_BuffersCallbackCompleteFunc completed);
CUptiResult CUPTIAPI FlushAll(uint32_t flags);
CUptiResult CUPTIAPI SetAttribute(CUpti_ActivityAttribute attribute, size_t* bytes, void* value);
CUptiResult CUPTIAPI NumDropped(CUcontext context, uint32_t stream_id, size_t* dropped);

void ForgetBuffersForTest() noexcept;

}  // namespace guest
}  // namespace gpuprobe::injector
