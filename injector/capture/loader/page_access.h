// Asks the kernel whether pages of this process can be read or written, without a fault.
//
// From Linux 5.14 on that is one call, which brings the pages in (0.5 us); before, it is a look at a byte of
// each page, and at /proc/self/maps (microseconds to a millisecond). Thread: any, CanWrite one at a time.
// Allocation: none. Leaves errno as it was. Failure: where the kernel answers no such question (some
// sandboxes), every page counts as readable and none as writable.
#pragma once

#include <cstdint>

namespace gpuprobe::injector::nccl {

inline constexpr uintptr_t kPageBytes = 4096;

// All pages from `begin` on to `end`: both are multiples of kPageBytes.
bool CanRead(uintptr_t begin, uintptr_t end) noexcept;
// The page of `address`, which can be read.
bool CanWrite(uintptr_t address) noexcept;

}  // namespace gpuprobe::injector::nccl
