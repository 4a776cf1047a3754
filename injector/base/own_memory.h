// Reads memory of this process that may not be there, without a fault.
//
// Thread: any. Allocation: none. Failure: says so; some sandboxes do not allow it. Leaves errno as it was.
#pragma once

#include <cstddef>

namespace gpuprobe::injector {

enum class ReadResult { kRead, kGone, kUnsupported };
ReadResult ReadMemory(const void* from, void* to, size_t bytes) noexcept;

// Copies a text that ends with 0, at most `capacity` bytes of it and without the 0. The number of bytes; 0
// also when it cannot be read.
size_t ReadText(const char* from, char* to, size_t capacity) noexcept;

}  // namespace gpuprobe::injector
