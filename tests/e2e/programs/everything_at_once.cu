// Uses whatever makes the probe hold memory, all of it at once: threads with streams of their own, kernels of
// ever new shapes, allocations that live on, ranges that stay open, communicators and groups.
//
// usage: everything_at_once THREADS LAUNCHES ALLOCATIONS COMMUNICATORS    launches and allocations: of each
// thread Prints what the kernels have counted, when every thread has ended.
#include <cuda_runtime.h>
#include <nccl.h>
#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "samples/common/check.h"
#include "samples/common/check_nccl.h"

namespace {

__global__ void Count(int* counter) {
  if (threadIdx.x == 0 && blockIdx.x == 0) *counter += 1;
}

void Work(int self, int launches, int allocations, long* counted) {
  constexpr int kShapes = 500;
  constexpr int kOpenRanges = 40;
  CHECK_CUDA(cudaSetDevice(0));
  cudaStream_t stream = nullptr;
  int* counter = nullptr;
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK_CUDA(cudaMalloc(&counter, sizeof(int)));
  CHECK_CUDA(cudaMemset(counter, 0, sizeof(int)));
  for (int i = 0; i < kOpenRanges; ++i)
    nvtxRangePushA(("open " + std::to_string(self * kOpenRanges + i)).c_str());
  std::vector<void*> kept(static_cast<size_t>(allocations));
  for (int i = 0; i < allocations || i < launches; ++i) {
    if (i < allocations) CHECK_CUDA(cudaMalloc(&kept[static_cast<size_t>(i)], 256));
    if (i < launches) Count<<<1 + i % kShapes, 32, 0, stream>>>(counter);
  }
  CHECK_CUDA(cudaStreamSynchronize(stream));
  for (void* pointer : kept) CHECK_CUDA(cudaFree(pointer));
  for (int i = 0; i < kOpenRanges; ++i) nvtxRangePop();
  int value = 0;
  CHECK_CUDA(cudaMemcpy(&value, counter, sizeof(value), cudaMemcpyDeviceToHost));
  *counted = value;
  CHECK_CUDA(cudaFree(counter));
  CHECK_CUDA(cudaStreamDestroy(stream));
}

void Communicate(int communicators) {
  std::vector<ncclComm_t> all(static_cast<size_t>(communicators));
  float* data = nullptr;
  CHECK_CUDA(cudaMalloc(&data, 4096));
  for (ncclComm_t& comm : all) {
    ncclUniqueId id;
    CHECK_NCCL(ncclGetUniqueId(&id));
    CHECK_NCCL(ncclCommInitRank(&comm, 1, id, 0));
  }
  for (int round = 0; round < 10; ++round) {
    CHECK_NCCL(ncclGroupStart());
    for (ncclComm_t comm : all)
      CHECK_NCCL(ncclAllReduce(data, data, 1024, ncclFloat, ncclSum, comm, nullptr));
    CHECK_NCCL(ncclGroupEnd());
  }
  CHECK_CUDA(cudaDeviceSynchronize());
  for (ncclComm_t comm : all) CHECK_NCCL(ncclCommDestroy(comm));
  CHECK_CUDA(cudaFree(data));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: everything_at_once THREADS LAUNCHES ALLOCATIONS COMMUNICATORS\n");
    return 2;
  }
  const int count = std::atoi(argv[1]);
  std::vector<long> counted(static_cast<size_t>(count));
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i)
    threads.emplace_back(Work, i, std::atoi(argv[2]), std::atoi(argv[3]), &counted[static_cast<size_t>(i)]);
  Communicate(std::atoi(argv[4]));
  long sum = 0;
  for (int i = 0; i < count; ++i) {
    threads[static_cast<size_t>(i)].join();
    sum += counted[static_cast<size_t>(i)];
  }
  std::printf("%ld kernels counted\n", sum);
  return 0;
}
