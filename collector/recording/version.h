// Which gpuprobe records, and when.
#pragma once

#include <cstdint>
#include <string>

namespace gpuprobe::recording {

std::string Version();
uint64_t NowNs();  // CLOCK_REALTIME
uint64_t MonotonicNs();

}  // namespace gpuprobe::recording
