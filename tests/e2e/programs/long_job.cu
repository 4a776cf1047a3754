// A job of configurable length: launches a CUDA graph of ten kernels over and over, with an NVTX range and an
// allocation around each hundredth launch. Prints the process's memory in KiB after a quarter of the job and
// at its end (activity buffers and the queue come into use meanwhile, once): `long_job REPLAYS`.
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "samples/common/check.h"

namespace {

constexpr int kKernels = 10;

__global__ void LongJobKernel(int* counter) {
  if (threadIdx.x == 0) *counter += 1;
}

long ResidentKib() {
  long pages = 0;
  std::FILE* statm = std::fopen("/proc/self/statm", "r");
  if (statm == nullptr || std::fscanf(statm, "%*s %ld", &pages) != 1) std::abort();
  std::fclose(statm);
  return pages * sysconf(_SC_PAGESIZE) / 1024;
}

}  // namespace

int main(int argc, char** argv) {
  const long replays = argc > 1 ? std::atol(argv[1]) : 0;
  if (replays < 400) {
    std::fprintf(stderr, "usage: long_job REPLAYS, at least 400\n");
    return 2;
  }
  int* counter = nullptr;
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  CHECK_CUDA(cudaMalloc(&counter, sizeof(int)));
  CHECK_CUDA(cudaMemset(counter, 0, sizeof(int)));
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < kKernels; ++i) LongJobKernel<<<1, 32, 0, stream>>>(counter);
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  long quarter_kib = 0;
  for (long i = 0; i < replays; ++i) {
    if (i == replays / 4) quarter_kib = ResidentKib();
    CHECK_CUDA(cudaGraphLaunch(exec, stream));
    if (i % 100 != 0) continue;
    nvtxRangePushA("hundred");
    void* memory = nullptr;
    CHECK_CUDA(cudaMalloc(&memory, 4096));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_CUDA(cudaFree(memory));
    nvtxRangePop();
  }
  CHECK_CUDA(cudaStreamSynchronize(stream));
  std::printf("resident KiB: %ld %ld\n", quarter_kib, ResidentKib());
  CHECK_CUDA(cudaGraphExecDestroy(exec));
  CHECK_CUDA(cudaGraphDestroy(graph));
  CHECK_CUDA(cudaStreamDestroy(stream));
  CHECK_CUDA(cudaFree(counter));
  return 0;
}
