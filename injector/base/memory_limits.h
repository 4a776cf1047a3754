// How much address space or data the process's limits leave.
//
// Example: `ulimit -v 4000000`, of which 500 MB are mapped: 3,596,000,000 bytes are left.
//
// Thread: any. Allocation: none. Failure: 0 bytes are left where there is a limit and the kernel does not say
// how much of it is used.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuprobe::injector {

// The smaller of what RLIMIT_AS and RLIMIT_DATA leave; SIZE_MAX without such limits.
size_t LimitedMemoryLeft() noexcept;

}  // namespace gpuprobe::injector
