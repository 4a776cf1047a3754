// Keeps the Python stack that was sampled last in the flight recorder's ring, with its texts.
//
// A frame that was there at an earlier sample comes without its texts, which are on the wire already; so the
// texts of the latest places are kept here. Thread: the probe's own. Allocation: none. Failure: a frame whose
// texts are gone is left out.
#pragma once

#include <cstdint>

#include "proto/flight_ring.h"
#include "stacks/python_stack.h"

namespace gpuprobe::injector {

class LastStack {
 public:
  // `call`: the CUDA or NCCL function that the thread is in, or null.
  void Record(uint32_t tid, uint64_t now_ns, const char* call, const stacks::PythonStack& stack) noexcept;

 private:
  struct Text {
    stacks::PythonPlace place;
    flight::Frame frame;
  };
  static constexpr uint32_t kTexts = 512;  // 100 KB, whose pages come when they are written

  const flight::Frame* Find(const stacks::PythonFrame& frame) noexcept;

  Text texts_[kTexts] = {};
};

}  // namespace gpuprobe::injector
