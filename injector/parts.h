// The interface between the backbone and the capture parts (NCCL, NVTX, memory): what to call when.
//
// The backbone depends on no part, and a part only on the seams (events.h, callbacks.h, guard.h). A part
// defines its Part in injector/<part>/part.h; parts.cc lists them. Failure: a part that cannot start counts
// it and stays silent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

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
  // On the probe's own thread, when somebody called WakeProbeThreadForALook, and while it has no collector
  // yet.
  void (*look)() noexcept = nullptr;
};

// Names behind the handles in events; asked by the consumer on the probe's own thread. A part sets its own in
// start().
struct EventNames {
  const char* (*collective_op)(uint16_t op) = nullptr;         // "AllReduce"
  const char* (*collective_datatype)(uint8_t type) = nullptr;  // "float32"
  const char* (*collective_how)(uint8_t number) = nullptr;     // "RING", "LL"; empty: none
  // Functions that the program imports and nobody stands before: the name in a place, empty behind the last
  // one.
  const char* (*unknown_function)(size_t place, uint32_t* imports) = nullptr;
  uint32_t (*other_unknown_functions)() = nullptr;  // how many further ones
  // Who this process is by its NCCL communicators; false while they do not say.
  bool (*nccl_identity)(int32_t* rank, int32_t* world_size) = nullptr;
  // The number of a place in a payload's bytes; false behind the last one. Kind none: the bytes end before
  // it.
  bool (*payload_field)(uint32_t schema, size_t field, std::string_view bytes, std::string_view* name,
                        uint64_t* value, uint32_t* kind) = nullptr;
  // Copies the name of an NVTX domain; returns its length, 0 when it has none.
  size_t (*range_domain)(uint64_t handle, char* out, size_t capacity) = nullptr;
};
extern EventNames event_names;

void StartParts() noexcept;
void TickParts() noexcept;
void FinishParts() noexcept;
void LookParts() noexcept;

}  // namespace gpuprobe::injector
