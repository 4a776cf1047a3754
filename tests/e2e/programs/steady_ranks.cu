// Ranks that work until FILE appears: each step has a copy, kernels, an allocation, a range and an
// all-reduce, and takes about 10 ms. `steady_ranks FILE`: the step after rank 0 has seen the file is the last
// but one, so that every rank takes the same steps. The output does not depend on their number.
#include <cuda_runtime.h>
#include <nccl.h>
#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "samples/common/check.h"
#include "samples/common/check_nccl.h"
#include "samples/common/ranks.h"

namespace {

constexpr int kFloats = 4096;

__global__ void SteadyKernel(float* data, float add) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kFloats) data[i] += add;
}

// Rank 0 writes it before its all-reduce of this step, so that nobody passes the next step without it.
long LastStep(const std::string& stop, int rank, long step) {
  const std::string agreed = stop + ".at";
  if (rank == 0 && access(stop.c_str(), F_OK) == 0 && access(agreed.c_str(), F_OK) != 0) {
    const std::string made = agreed + ".new";
    std::FILE* file = std::fopen(made.c_str(), "w");
    if (file == nullptr || std::fprintf(file, "%ld", step + 2) < 0 || std::fclose(file) != 0 ||
        std::rename(made.c_str(), agreed.c_str()) != 0) {
      std::abort();
    }
  }
  std::FILE* file = std::fopen(agreed.c_str(), "r");
  if (file == nullptr) return -1;
  long last = -1;
  if (std::fscanf(file, "%ld", &last) != 1) std::abort();
  std::fclose(file);
  return last;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: steady_ranks FILE\n");
    return 2;
  }
  const gpuprobe::samples::RankIdentity identity = gpuprobe::samples::FindRankIdentity();
  gpuprobe::samples::ChooseDevice(identity);
  ncclComm_t comm = gpuprobe::samples::JoinWorld(identity, "");
  cudaStream_t stream = nullptr;
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  float* host = nullptr;
  float* data = nullptr;
  CHECK_CUDA(cudaMallocHost(&host, kFloats * sizeof(float)));
  CHECK_CUDA(cudaMalloc(&data, kFloats * sizeof(float)));
  long last = -1;
  for (long step = 0; last < 0 || step <= last; ++step) {
    if (last < 0) last = LastStep(argv[1], identity.rank, step);
    nvtxRangePushA("step");
    void* scratch = nullptr;
    CHECK_CUDA(cudaMalloc(&scratch, 1 << 20));
    CHECK_CUDA(cudaMemcpyAsync(data, host, kFloats * sizeof(float), cudaMemcpyHostToDevice, stream));
    for (int i = 0; i < 8; ++i) SteadyKernel<<<kFloats / 256, 256, 0, stream>>>(data, 1.0F);
    CHECK_NCCL(ncclAllReduce(data, data, kFloats, ncclFloat, ncclSum, comm, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_CUDA(cudaFree(scratch));
    nvtxRangePop();
    usleep(10'000);
  }
  CHECK_NCCL(ncclCommDestroy(comm));
  if (identity.rank == 0) std::printf("done\n");
  return 0;
}
