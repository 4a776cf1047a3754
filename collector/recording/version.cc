#include "collector/recording/version.h"

#include <ctime>

namespace gpuprobe::recording {
namespace {

uint64_t ReadClock(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

std::string Version() { return GPUPROBE_VERSION; }
uint64_t NowNs() { return ReadClock(CLOCK_REALTIME); }
uint64_t MonotonicNs() { return ReadClock(CLOCK_MONOTONIC); }

}  // namespace gpuprobe::recording
