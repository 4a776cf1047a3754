// A library to preload: the program's wall clock is SHIFTED_CLOCK_S seconds fast. Other clocks are as they
// are.
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>

#include "tests/e2e/programs/wall_clock.h"

namespace {

time_t Shift() {
  const char* seconds = std::getenv("SHIFTED_CLOCK_S");
  return seconds == nullptr ? 0 : std::strtol(seconds, nullptr, 10);
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const long result = syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && clock == CLOCK_REALTIME) now->tv_sec += Shift();
  return static_cast<int>(result);
}

}  // extern "C"
