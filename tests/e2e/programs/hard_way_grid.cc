// One rank of eight in a 2 x 2 x 2 grid of tensor, pipeline and data parallelism: the world is split along
// each axis, and every step uses all three communicators.

#include <cstdio>

#include "samples/common/check.h"
#include "samples/common/check_nccl.h"
#include "samples/common/ranks.h"

namespace {

constexpr int kSteps = 3;

ncclComm_t SplitOff(ncclComm_t world, int color, int key) {
  ncclComm_t axis = nullptr;
  CHECK_NCCL(ncclCommSplit(world, color, key, &axis, nullptr));
  return axis;
}

}  // namespace

int main() {
  using namespace gpuprobe::samples;
  const RankIdentity identity = FindRankIdentity();
  if (identity.world_size != 8) {
    std::fprintf(stderr, "the grid needs 8 ranks\n");
    return 2;
  }
  ChooseDevice(identity);
  ncclComm_t world = JoinWorld(identity, "");
  const int rank = identity.rank;
  const int tensor = rank & 1;
  const int stage = (rank >> 1) & 1;
  const int data = rank >> 2;
  ncclComm_t tensor_axis = SplitOff(world, rank >> 1, tensor);
  ncclComm_t stage_axis = SplitOff(world, data * 2 + tensor, stage);
  ncclComm_t data_axis = SplitOff(world, rank & 3, data);

  cudaStream_t stream = nullptr;
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  float* buffer = nullptr;
  CHECK_CUDA(cudaMalloc(&buffer, size_t{1} << 20));
  for (size_t step = 1; step <= kSteps; ++step) {
    CHECK_NCCL(ncclAllReduce(buffer, buffer, 1000 * step, ncclFloat, ncclSum, tensor_axis, stream));
    CHECK_NCCL(ncclAllReduce(buffer, buffer, 2000 * step, ncclHalf, ncclSum, tensor_axis, stream));
    if (stage == 0) {
      CHECK_NCCL(ncclSend(buffer, 300 * step, ncclFloat, 1, stage_axis, stream));
    } else {
      CHECK_NCCL(ncclRecv(buffer, 300 * step, ncclFloat, 0, stage_axis, stream));
    }
    CHECK_NCCL(ncclReduceScatter(buffer, buffer, 400 * step, ncclFloat, ncclSum, data_axis, stream));
    CHECK_NCCL(ncclAllGather(buffer, buffer, 500 * step, ncclFloat, data_axis, stream));
  }
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK_CUDA(cudaFree(buffer));
  CHECK_CUDA(cudaStreamDestroy(stream));
  for (ncclComm_t comm : {tensor_axis, stage_axis, data_axis, world}) CHECK_NCCL(ncclCommDestroy(comm));
  if (rank == 0) std::printf("grid: %d calls\n", 8 * kSteps * 5);
  return 0;
}
