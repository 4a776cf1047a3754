// Python code that a simulated host runs instead of launching, as samples of it show.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace gpuprobe::simulate {

enum class HostCode : uint8_t {
  kNotSampled,
  kEmptiesCache,
  kSavesCheckpoint,
  kComputesMetric,
  kCollectsGarbage
};

struct HostFunction {
  std::string_view function;
  std::string_view file;
  uint32_t line;
};

struct SampledCode {
  std::span<const HostFunction>
      stack;                   // outermost first; the last is at its line and at those after it by turns
  uint32_t lines = 1;          // that it is at
  std::string_view call = {};  // of CUDA
  bool writes = false;         // it is in write
  std::string_view file = {};  // to that
};

// REQUIRES: it is sampled.
SampledCode CodeOf(HostCode code);

}  // namespace gpuprobe::simulate
