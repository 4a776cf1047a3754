// Reads memory of this process that may not be there, without a fault.
//
// The kernel copies it (process_vm_readv). Where a sandbox refuses that, the kernel only says whether a page
// can be read (by a futex call that compares a word of it), and we read it then: the remaining risk is
// another thread that unmaps the page in between. Thread: any. Allocation: none. Failure: says so. Leaves
// errno as it was.
#pragma once

#include <cstddef>

namespace gpuprobe::injector {

enum class ReadResult { kRead, kGone, kUnsupported };
ReadResult ReadMemory(const void* from, void* to, size_t bytes) noexcept;

// Copies a text that ends with 0, at most `capacity` characters of it and without the 0. The number of
// characters; -1 when it cannot be read up to its end.
ptrdiff_t CopyText(const char* from, char* to, size_t capacity) noexcept;
ptrdiff_t CopyText(const wchar_t* from, wchar_t* to, size_t capacity) noexcept;

// The same; 0 also when it cannot be read, or is null.
size_t ReadText(const char* from, char* to, size_t capacity) noexcept;

}  // namespace gpuprobe::injector
