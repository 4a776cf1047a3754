/* A library to preload: it moves CLOCK_REALTIME by $OWN_CLOCK_S seconds for everybody but CUDA's libraries
 * and the C++ library that they read the clock through. The program and CUPTI are then on two clocks. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int (*next_clock_gettime)(clockid_t, struct timespec*);
static long moved_s;

__attribute__((constructor)) static void Start(void) {
  const char* text = getenv("OWN_CLOCK_S");
  *(void**)&next_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
  moved_s = text == NULL ? 0 : atol(text);
}

static int IsCudas(const void* caller) {
  Dl_info object;
  if (dladdr(caller, &object) == 0 || object.dli_fname == NULL) return 0;
  return strstr(object.dli_fname, "libcuda.") != NULL || strstr(object.dli_fname, "libcupti.") != NULL ||
         strstr(object.dli_fname, "libstdc++.") != NULL;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec* time) {
  if (next_clock_gettime == NULL) Start();
  const int result = next_clock_gettime(clock, time);
  if (result == 0 && clock == CLOCK_REALTIME && moved_s != 0 && !IsCudas(__builtin_return_address(0)))
    time->tv_sec += moved_s;
  return result;
}
