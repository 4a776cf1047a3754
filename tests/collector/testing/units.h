// Units that tests count in.
#pragma once

#include <cstdint>

namespace gpuprobe::testing {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;

}  // namespace gpuprobe::testing
