/* A library to preload: it moves CLOCK_REALTIME by $OWN_CLOCK_S seconds for everybody who looks the function
 * up by its name, CUDA's libraries included, as libfaketime does. The probe is bound to the C library, so
 * that it and CUPTI are then on two clocks. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static int (*next_clock_gettime)(clockid_t, struct timespec*);
static long moved_s;

__attribute__((constructor)) static void Start(void) {
  const char* text = getenv("OWN_CLOCK_S");
  *(void**)&next_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
  moved_s = text == NULL ? 0 : atol(text);
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec* time) {
  if (next_clock_gettime == NULL) Start();
  const int result = next_clock_gettime(clock, time);
  if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += moved_s;
  return result;
}
