// What a fuzz target begins with:
//
//   GPUPROBE_FUZZ_TARGET(batches)(const uint8_t* data, size_t size) {
//
// libFuzzer calls one function of a fixed name, so each target is a program of its own there. Otherwise they
// all go into one program (replay_main.cc), which takes the target's name as an argument.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#ifdef GPUPROBE_REPLAY
namespace gpuprobe::fuzz {

struct Target {
  const char* name;
  int (*run)(const uint8_t* data, size_t size);
};

std::vector<Target>& Targets();

}  // namespace gpuprobe::fuzz

#define GPUPROBE_FUZZ_TARGET(name)                                            \
  static int RunTarget_##name(const uint8_t* data, size_t size);              \
  [[maybe_unused]] static const bool known_target_##name =                    \
      (gpuprobe::fuzz::Targets().push_back({#name, RunTarget_##name}), true); \
  static int RunTarget_##name
#else
#define GPUPROBE_FUZZ_TARGET(name) extern "C" int LLVMFuzzerTestOneInput
#endif
