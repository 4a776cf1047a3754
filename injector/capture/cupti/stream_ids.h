// What CUPTI calls the streams of the program: for names that are given to their handles.
//
// Separate because records have CUPTI's numbers and the program has handles; and a handle may be asked for
// only while the stream is there, and in a callback of CUPTI's. So each stream's number is noted while it is
// made, and looked up here when it is named: on the program's thread no call into CUPTI is needed then.
// Thread: any. Allocation: none. Failure: a stream that was made before CUPTI was there, the default streams,
// and one whose place another took (beyond kMaxStreams) are not known.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuprobe::injector {

inline constexpr size_t kMaxStreams = 4096;

struct StreamIds {
  uint32_t context = 0;
  uint32_t stream = 0;
};

// `handle` is the CUstream. A handle that is used again takes its new numbers.
void NoteStream(const void* handle, StreamIds ids) noexcept;
// False when it is not known.
bool FindStream(const void* handle, StreamIds* ids) noexcept;

void ClearStreamsForTest() noexcept;

}  // namespace gpuprobe::injector
