// What native_stacks.py calls: a library with debug information that waits, and that calls back.
#include <pthread.h>
#include <unistd.h>

static inline long Fill(int file) {
  char byte;
  return read(file, &byte, 1);  // here: Fill
}

long ReadShard(int file) {
  long n = Fill(file);  // here: ReadShard
  return n + 1;
}

int CallBack(void (*function)(void)) {
  function();  // here: CallBack
  return 1;
}

int WaitForPeers(void) {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&mutex);
  return pthread_mutex_lock(&mutex);  // here: WaitForPeers
}
