// A scoped pthread mutex: std::mutex without the run-time library that its errors need.
//
// If InheritPriority was called on a mutex, its holder runs at the priority of the thread that waits for it:
// CUPTI may complete a buffer on one of the program's real-time threads while our thread has the lock.
//
// Thread: never on an application thread that waits for us, except in the rare case that CUPTI completes a
// buffer there. Code under such a lock never calls CUPTI, CUDA or the loader.
#pragma once

#include <pthread.h>

namespace gpuprobe::injector {

// Before the mutex is used. Without the kernel's support, it stays as it is.
inline void InheritPriority(pthread_mutex_t& mutex) noexcept {
  pthread_mutexattr_t attributes;
  if (pthread_mutexattr_init(&attributes) != 0) return;
  pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
  pthread_mutex_init(&mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

class Lock {
 public:
  explicit Lock(pthread_mutex_t& mutex) noexcept : mutex_(mutex) { pthread_mutex_lock(&mutex_); }
  ~Lock() { pthread_mutex_unlock(&mutex_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

}  // namespace gpuprobe::injector
