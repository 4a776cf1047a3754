// What a queue holds, for tests that compare it with a model. No other thread may use the queue meanwhile.
#pragma once

#include "injector/send/send_queue.h"

namespace gpuprobe::injector {

struct SendQueueCounts {
  static size_t Kept(const SendQueue& queue) { return queue.frames_; }  // sent or not
  static size_t Unsent(const SendQueue& queue) { return queue.unsent_; }
};

}  // namespace gpuprobe::injector
