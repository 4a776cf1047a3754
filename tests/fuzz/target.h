// What a fuzz target begins with:
//
//   GPUPROBE_FUZZ_TARGET(batches)(const uint8_t* data, size_t size) {
//
// libFuzzer calls one function of a fixed name, so there each target is a program. Without libFuzzer all are
// in one program, which is told the target's name (replay_main.cc): they compile and link in half the time.
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

#define GPUPROBE_FUZZ_TARGET(name)                                                             \
  static int RunTarget_##name(const uint8_t* data, size_t size);                               \
  [[maybe_unused]] static const auto& known_target_##name =                                    \
      gpuprobe::fuzz::Targets().emplace_back(gpuprobe::fuzz::Target{#name, RunTarget_##name}); \
  static int RunTarget_##name
#else
#define GPUPROBE_FUZZ_TARGET(name) extern "C" int LLVMFuzzerTestOneInput
#endif
