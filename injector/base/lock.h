// A scoped pthread mutex: std::mutex without the run-time library that its errors need.
//
// Thread: never on an application thread that waits for us, except in the rare case that CUPTI completes a
// buffer there. Code under such a lock never calls CUPTI, CUDA or the loader.
#pragma once

#include <pthread.h>

namespace gpuprobe::injector {

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
