// The system call that a sleeping thread is in, in words: "read /data/shard-3.bin".
#pragma once

#include <cstdint>
#include <string>

namespace gpuprobe::observe {

enum class Calls : uint8_t {
  kOutside,  // that wait for something outside the process: files, sockets, children, descriptors
  kAll,      // and locks and sleeps
};

// `folder` is a descriptor of /proc/PID or /proc/PID/task/TID. Empty: in none of them, or not permitted to
// know.
std::string SystemCallOf(int folder, Calls calls);

}  // namespace gpuprobe::observe
