// An object of each thread that also exit handlers and static destructors find alive.
//
// A thread_local with a destructor is gone when they run, and real libraries call CUDA there. This one is
// freed when its thread ends; the one of the thread that calls exit() stays. `Tag` tells two of the same type
// apart.
#pragma once

#include <pthread.h>

namespace gpusim {

template <typename T, typename Tag = T>
T& PerThread() {
  static const pthread_key_t kKey = [] {
    pthread_key_t key{};
    pthread_key_create(&key, [](void* mine) { delete static_cast<T*>(mine); });
    return key;
  }();
  auto* mine = static_cast<T*>(pthread_getspecific(kKey));
  if (mine == nullptr) {
    mine = new T();
    pthread_setspecific(kKey, mine);
  }
  return *mine;
}

}  // namespace gpusim
