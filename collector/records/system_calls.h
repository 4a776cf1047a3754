// The system calls that a thread may be found in, by their numbers on this machine, which is one of those
// that were recorded.
#pragma once

#include <cstdint>

namespace gpuprobe::model {

struct SystemCallInfo {
  enum class Waits : uint8_t {
    kNot,
    kForDescriptor,  // its first argument: a file, a pipe, a socket, a device
    kForOutside,     // something outside the process
    kForTime,
    kForThread,  // of the same process: a lock, a queue, the end of a thread
  };
  const char* name = "";  // empty: not known
  Waits waits = Waits::kNot;
  bool reads = false;  // from the descriptor
};

SystemCallInfo SystemCallOf(int64_t number);

}  // namespace gpuprobe::model
