// What `gpuprobe attach` and the library agree on that goes over no wire: the function that it calls in a
// process, and the function's answers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuprobe::wire {

// int gpuprobe_attach(const char* variables). `variables`: "NAME=value" texts, each ended by a zero byte, and
// a zero byte after the last. The library looks for its settings and its rank there and not in the
// environment, which the process's other threads may be changing.
inline constexpr char kAttachEntry[] = "gpuprobe_attach";
inline constexpr size_t kMostAttachVariables = 96;
inline constexpr size_t kMostAttachBytes = 4096;  // a stub has less room

enum class AttachResult : int32_t {
  kRecording = 0,
  kDisabled = 1,       // GPUPROBE_DISABLE=1 in the environment of the process
  kSandbox = 2,        // it has a system-call filter that PID 1 does not have
  kStartedBefore = 3,  // the library records here already, or did once
  kNoCollector = 4,    // nobody listens at GPUPROBE_SOCKET
  kNoMemory = 5,       // ulimit -v or -d
  kNoCupti = 6,        // no libcupti that could be bound
  kOtherProfiler = 7,  // another tool is CUPTI's one subscriber
  kCuptiRefused = 8,   // any other error of CUPTI's
  kNoThread = 9,       // the process cannot have another one
  kNotThisRank = 10,   // GPUPROBE_RANKS leaves it out
  kTooLong = 11,       // the variables do not fit
};

}  // namespace gpuprobe::wire
