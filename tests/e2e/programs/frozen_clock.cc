// A library to preload, as libfaketime is: every clock of the program stands still at the time of its first
// reading by the thread.
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <ctime>

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  constexpr int kClocks = 16;
  static thread_local timespec frozen[kClocks];
  timespec& at = frozen[clock & (kClocks - 1)];
  if (at.tv_sec == 0 && at.tv_nsec == 0) syscall(SYS_clock_gettime, clock, &at);
  *now = at;
  return 0;
}

int gettimeofday(timeval* now, void* /*zone*/) noexcept {
  timespec at{};
  clock_gettime(CLOCK_REALTIME, &at);
  *now = {at.tv_sec, at.tv_nsec / 1000};
  return 0;
}

time_t time(time_t* out) noexcept {
  timespec at{};
  clock_gettime(CLOCK_REALTIME, &at);
  if (out != nullptr) *out = at.tv_sec;
  return at.tv_sec;
}

}  // extern "C"
