// Algorithm and bus bandwidth as nccl-tests defines them.
//
// Separate so that the table is in one place. With `bytes` = count argument x element size and n ranks,
// an operation moves size S and has the factor f; algbw = S / t, busbw = S x f / t. (NVIDIA, nccl-tests,
// doc/PERFORMANCE.md)
#pragma once

#include <cstdint>
#include <string_view>

namespace gpuprobe::analysis {

struct MovedBytes {
  double algorithm = 0;  // S
  double bus = 0;        // S x f
};

// `op` is NCCL's name without its prefix. `ranks` must be at least 1. Operations that the table does not know
// count as S = bytes, f = 1.
MovedBytes MovedBytesOf(std::string_view op, uint64_t bytes, int ranks);

}  // namespace gpuprobe::analysis
