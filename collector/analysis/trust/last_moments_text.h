// How a process's last moments are said.
#pragma once

#include <cstdint>
#include <string>

#include "collector/report/last_moments.h"

namespace gpuprobe::analysis {

// "12.0 ms before", relative to the end that is known.
std::string TimeBefore(const LastMoments& moments, uint64_t time_ns);
// "AllReduce 4711 (4.00 MiB, 8 ranks, tp), entered 12.0 ms before the end and not returned"
std::string CallText(const LastMoments& moments, const LastCall& call);
// The latest call, the main thread's innermost range and the line of Python, in one sentence; empty: nothing
// is known.
std::string MomentsText(const LastMoments& moments);

}  // namespace gpuprobe::analysis
