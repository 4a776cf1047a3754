// Counts the process's allocations by the C library's allocator, which our code in the program must not use
// for an event.
//
// The counter has to interpose on the whole test program: link counted_allocations.cc into it. Mappings are
// not counted: they are the probe's own memory, made at start and when a table grows.
#pragma once

#include <cstdint>

namespace gpuprobe::injector::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kAllocationsAreCounted = false;  // the sanitizer has an allocator of its own
#else
inline constexpr bool kAllocationsAreCounted = true;
#endif

uint64_t Allocations();

}  // namespace gpuprobe::injector::testing
