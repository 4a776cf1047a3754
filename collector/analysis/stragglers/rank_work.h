// Whether a rank that computes longer has more to compute, or computes the same more slowly.
//
// Kernel by kernel, per step, against the median of the other ranks. More calls, and more threads in the same
// calls, are more work. The same launches that take longer are a slower GPU if that holds for all kernels
// alike. Where some take longer and others of the same kind do not, the GPU is not slow: persistent kernels
// launch one block per multiprocessor however much they have to do, so their work shows in their time alone.
//
// Example: rank 3 launches HeadGemm 16 times a step, 1.2 ms each, and nobody else does: 19.2 ms of more work.
// Its MatmulForward takes 400 us, as everywhere, so no time is lost to a slower GPU.
//
// Pure, apart from KernelWorkOf.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "collector/report/stragglers.h"

namespace gpuprobe::model {
struct Member;
}

namespace gpuprobe::analysis {

// One kernel on one rank.
struct KernelWork {
  double calls = 0;    // per step
  double time_ns = 0;  // per step
  double threads = 0;  // per call
};
using RankWork = std::map<std::string, KernelWork>;  // by mangled name

// Over the steps after the warm-up, without NCCL's kernels.
RankWork KernelWorkOf(const model::Member& member);

// By rank, as `ranks`.
std::vector<WorkDifference> WorkDifferencesOf(const std::vector<RankWork>& ranks);

}  // namespace gpuprobe::analysis
