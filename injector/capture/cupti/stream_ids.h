// Maps the program's stream handles to CUPTI's stream numbers, so that streams can be named.
//
// Records carry CUPTI's numbers, the program has handles, and CUPTI can translate a handle only while the
// stream exists, inside a CUPTI callback. So each stream's number is noted while it is made, and looked up
// here when it is named: naming needs no call into CUPTI on the program's thread. Thread: any. Allocation:
// none. Failure: a stream that was made before CUPTI was there, the default streams, and one whose place
// another took (beyond kMaxStreams) are not known.
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

}  // namespace gpuprobe::injector
