// A capture part (NCCL, NVTX, memory): what the probe calls when.
//
// A part defines its own in part.h of its folder; probe/parts.cc lists them. A part that cannot start counts
// it and stays silent.
#pragma once

namespace gpuprobe::injector {

struct Part {
  const char* name;
  // Once, on the thread that initialises CUDA (inside cuInit), before the probe is live and before CUPTI
  // callbacks are chosen: registers API hooks, patches, maps memory. No CUDA call, no thread. May be null,
  // like the others.
  void (*start)() noexcept;
  // On the probe's own thread, at every flush: rescans and the like.
  void (*tick)() noexcept;
  // On the probe's own thread, before the last drain.
  void (*finish)() noexcept;
  // On the probe's own thread, after a call of WakeProbeThreadForALook, and while it has no collector yet.
  void (*look)() noexcept = nullptr;
};

}  // namespace gpuprobe::injector
