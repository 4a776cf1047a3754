// Algorithm and bus bandwidth as nccl-tests defines them.
//
// With `bytes` = count argument x element size and n ranks, an operation moves size S and has the factor f;
// algbw = S / t, busbw = S x f / t. (NVIDIA, nccl-tests, doc/PERFORMANCE.md and src/)
//
// Sends and receives of one plan overlap, so S is what goes in one direction, the larger one. Example:
// sendrecv sends 4 MiB to the next rank and receives 4 MiB from the previous one: S = 4 MiB, f = 1. A plan
// that sends to all ranks, itself included, is an all-to-all: f = (n - 1) / n, as in alltoall and alltoallv.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace gpuprobe::analysis {

struct MovedBytes {
  double algorithm = 0;  // S
  double bus = 0;        // S x f
};

// `op` is NCCL's name without its prefix. `ranks` must be at least 1. Operations that the table does not know
// count as S = bytes, f = 1.
MovedBytes MovedBytesOf(std::string_view op, uint64_t bytes, int ranks);

// The calls of plans by operation. `to_all`: their sends and receives go to every rank.
struct PlanPart {
  std::string op;
  uint64_t bytes = 0;
};
MovedBytes MovedBytesOf(std::span<const PlanPart> plan, int ranks, bool to_all);

}  // namespace gpuprobe::analysis
