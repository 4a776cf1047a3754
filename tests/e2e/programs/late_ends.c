/* Preloaded: lets each thread that is named "gpuprobe" end later than its work does, by as long as a busy
 * machine may take. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

struct work {
  void* (*main)(void*);
  void* argument;
};

static void* end_late(void* data) {
  struct work work = *(struct work*)data;
  char name[16] = "";
  free(data);
  void* result = work.main(work.argument);
  prctl(PR_GET_NAME, name);
  if (strcmp(name, "gpuprobe") == 0) usleep(2000000);
  return result;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*main)(void*),
                   void* argument) {
  int (*create)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*) =
      (int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*))dlsym(RTLD_NEXT, "pthread_create");
  struct work* work = malloc(sizeof(*work));
  if (work == NULL) abort();
  work->main = main;
  work->argument = argument;
  return create(thread, attributes, end_late, work);
}
