// Tracks what the program's main thread waits in, and how much the process has read and written, so that the
// collector can tell a hang from work.
//
// Separate because it is a state, not a record: every batch carries the latest. Thread: main_thread_waits.h
// writes on the application's threads; IoBytes on the probe's own. Allocation: none. Failure: 0, not known.
#pragma once

#include <atomic>
#include <cstdint>

namespace gpuprobe::injector {

// The function that the main thread is in; nullptr: none. The name is CUPTI's own, and stays.
extern std::atomic<const char*> main_thread_waits_in;
extern std::atomic<uint64_t> main_thread_waits_since_ns;
extern std::atomic<uint64_t> main_thread_waited_until_ns;  // return from the last one; 0: never

// Bytes read and written by the process so far, as /proc/self/io counts them; 0: not known.
uint64_t IoBytes() noexcept;

}  // namespace gpuprobe::injector
