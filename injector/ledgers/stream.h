// Everything between a captured record and the socket, behind one lock: builder, drain and queue.
//
// The decoder (CUPTI's thread) and the sender (ours) share this object with one rule: hold `mutex` for
// builder and drain, and while holding it never call CUPTI, CUDA or the loader. Allocation: mappings at Init.
// Failure: Init says so and the probe stays Off.
#pragma once

#include <pthread.h>

#include <cstddef>

#include "injector/base/lock.h"
#include "injector/ledgers/event_drain.h"
#include "injector/rows/batch_builder.h"
#include "injector/send/send_queue.h"

namespace gpuprobe::injector {

struct Stream {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  SendQueue queue;
  BatchBuilder builder;
  EventDrain drain{&builder};

  [[nodiscard]] bool Init(size_t queue_bytes,
                          size_t definition_bytes = Definitions::kMostDefinitionBytes) noexcept {
    InheritPriority(mutex);
    return queue.Init(queue_bytes) && builder.Init(&queue, definition_bytes);
  }
};

}  // namespace gpuprobe::injector
