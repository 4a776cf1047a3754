// Which processes of this host use a GPU, whoever started them.
//
// A process counts that has the driver's library mapped and its devices open. Programs that only watch GPUs
// (nvidia-smi, DCGM) do not map it. A child that was forked after CUDA was up counts like its parent.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gpuprobe::observe {

struct GpuProcess {
  pid_t pid = 0;
  pid_t parent = 0;
  std::string program;  // path of its executable
};

struct GpuProcesses {
  std::vector<GpuProcess> found;  // by pid, without those of this program
  size_t unreadable = 0;          // other users' processes, of which it is not known
};
GpuProcesses FindGpuProcesses();

// Processor time of all threads so far; absent: the process has gone.
std::optional<uint64_t> CpuTimeNs(pid_t pid);

}  // namespace gpuprobe::observe
