// Makes communicators in every way, and has each of them called once.
//
// usage: communicator_names world    two ranks or more, launched as ddp_train is: ncclCommInitRank,
// InitRankConfig,
//                                    Split and Shrink. It is rank 0's first use of CUDA, as in a program that
//                                    has one device and no other need of it.
//        communicator_names devices  one process with all its devices: ncclCommInitAll, and Split in a group
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "samples/common/check.h"
#include "samples/common/check_nccl.h"
#include "samples/common/ranks.h"

namespace {

struct Rank {
  int rank = 0;
  int ranks = 1;
  float* data = nullptr;
  cudaStream_t stream = nullptr;

  void Prepare() {
    CHECK_CUDA(cudaMalloc(&data, 1 << 20));
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  void Reduce(ncclComm_t comm) const {
    CHECK_NCCL(ncclAllReduce(data, data, 1 << 16, ncclFloat, ncclSum, comm, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
  }
};

void World() {
  const gpuprobe::samples::RankIdentity identity = gpuprobe::samples::FindRankIdentity();
  Rank r;
  r.rank = identity.rank;
  r.ranks = identity.world_size;
  if (r.rank > 0) CHECK_CUDA(cudaSetDevice(identity.local_rank));
  ncclComm_t world = gpuprobe::samples::JoinWorld(identity, "");
  r.Prepare();
  r.Reduce(world);

  // The id of another one goes from rank 0 to all.
  ncclUniqueId id;
  if (r.rank == 0) CHECK_NCCL(ncclGetUniqueId(&id));
  const char* file = std::getenv("DDP_ID_FILE");
  const std::string path = std::string(file) + ".second";
  if (r.rank == 0) std::ofstream(path, std::ios::binary).write(id.internal, sizeof id.internal);
  r.Reduce(world);
  std::ifstream(path, std::ios::binary).read(id.internal, sizeof id.internal);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t configured = nullptr;
  CHECK_NCCL(ncclCommInitRankConfig(&configured, r.ranks, id, r.rank, &config));
  r.Reduce(configured);

  std::vector<ncclComm_t> children;
  for (const int color : {r.rank % 2, 7}) {
    CHECK_NCCL(ncclCommSplit(world, color, r.rank, &children.emplace_back(nullptr), nullptr));
    r.Reduce(children.back());
  }
  if (r.rank != r.ranks - 1) {
    int excluded[] = {r.ranks - 1};
    CHECK_NCCL(ncclCommShrink(configured, excluded, 1, &children.emplace_back(nullptr), nullptr,
                              NCCL_SHRINK_DEFAULT));
    r.Reduce(children.back());
  }
  for (ncclComm_t child : children) CHECK_NCCL(ncclCommDestroy(child));
  CHECK_NCCL(ncclCommDestroy(configured));
  CHECK_NCCL(ncclCommDestroy(world));
}

void Devices() {
  int devices = 0;
  CHECK_CUDA(cudaGetDeviceCount(&devices));
  std::vector<ncclComm_t> comms(static_cast<size_t>(devices));
  std::vector<ncclComm_t> halves(comms.size());
  CHECK_NCCL(ncclCommInitAll(comms.data(), devices, nullptr));
  CHECK_NCCL(ncclGroupStart());
  for (size_t i = 0; i < comms.size(); ++i)
    CHECK_NCCL(ncclCommSplit(comms[i], static_cast<int>(i % 2), 0, &halves[i], nullptr));
  CHECK_NCCL(ncclGroupEnd());
  std::vector<Rank> ranks(comms.size());
  for (size_t i = 0; i < comms.size(); ++i) {
    CHECK_CUDA(cudaSetDevice(static_cast<int>(i)));
    ranks[i].Prepare();
  }
  for (const auto& of : {comms, halves}) {
    CHECK_NCCL(ncclGroupStart());
    for (size_t i = 0; i < of.size(); ++i)
      CHECK_NCCL(
          ncclAllReduce(ranks[i].data, ranks[i].data, 1 << 16, ncclFloat, ncclSum, of[i], ranks[i].stream));
    CHECK_NCCL(ncclGroupEnd());
    for (const Rank& r : ranks) CHECK_CUDA(cudaStreamSynchronize(r.stream));
  }
  for (const auto& of : {halves, comms}) {
    for (ncclComm_t comm : of) CHECK_NCCL(ncclCommDestroy(comm));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::strcmp(argv[1], "devices") == 0 ? Devices() : World();
  std::printf("done\n");
  return 0;
}
