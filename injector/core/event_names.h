// Names and numbers behind the handles in events: only the capture part that made an event knows them.
//
// A part fills in its own functions in start(). The rows ask for them, on the probe's own thread; a null
// function means that the part has no such names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gpuprobe::injector {

struct EventNames {
  const char* (*collective_op)(uint16_t op) = nullptr;            // "AllReduce"
  const char* (*collective_datatype)(uint8_t type) = nullptr;     // "float32"
  const char* (*collective_how)(uint8_t number) = nullptr;        // "RING", "LL"; empty: none
  const char* (*collective_reduction)(uint8_t number) = nullptr;  // "sum"; empty: none
  // Functions that the program imports and no wrapper intercepts: the name in a place, empty behind the last
  // one.
  const char* (*unknown_function)(size_t place, uint32_t* imports) = nullptr;
  uint32_t (*other_unknown_functions)() = nullptr;  // how many further ones
  // Who this process is by its NCCL communicators; false while they do not say.
  bool (*nccl_identity)(int32_t* rank, int32_t* world_size) = nullptr;
  // What a communicator (Communicator.id) is called on all its ranks, 0: not known; and how many they are.
  uint64_t (*communicator_hash)(uint32_t id, int32_t* ranks) = nullptr;
  // The number of a place in a payload's bytes; false behind the last one. Kind none: the bytes end before
  // it.
  bool (*payload_field)(uint32_t schema, size_t field, std::string_view bytes, std::string_view* name,
                        uint64_t* value, uint32_t* kind) = nullptr;
  // Copies the name of an NVTX domain; returns its length, 0 when it has none.
  size_t (*range_domain)(uint64_t handle, char* out, size_t capacity) = nullptr;
};
extern EventNames event_names;

}  // namespace gpuprobe::injector
