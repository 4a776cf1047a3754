// Every kind of NCCL call that a profiler must understand, each with a result that is checked on a real GPU:
// all collectives, several data types, fused groups, send and receive in a ring, split communicators, and
// communicators of one process over all its devices; on request a CUDA graph that holds a captured one twice.
//
// usage: nccl_calls [--count=N] [--rounds=N] [--init-all | --child-graphs]   launched as ddp_train is;
// --init-all wants one process

#include <nccl.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "samples/common/check.h"
#include "samples/common/check_nccl.h"
#include "samples/common/ranks.h"
#include "samples/common/simulated.h"

namespace gpuprobe::samples {
namespace {

struct World {
  RankIdentity identity;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  size_t count = 0;  // elements of one rank's share
  bool checks = true;
};

// Device memory that starts with a value in every element.
class Buffer {
 public:
  Buffer(size_t count, float value, cudaStream_t stream) : host_(count, value), stream_(stream) {
    CHECK_CUDA(cudaMalloc(&device_, count * sizeof(float)));
    CHECK_CUDA(cudaMemcpyAsync(device_, host_.data(), count * sizeof(float), cudaMemcpyHostToDevice, stream));
  }
  ~Buffer() { CHECK_CUDA(cudaFree(device_)); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  float* Device() const { return device_; }
  // Waits for the stream and compares the share of one rank with a value.
  bool Holds(const World& world, const char* what, float expected, size_t first) {
    CHECK_CUDA(cudaMemcpyAsync(host_.data(), device_, host_.size() * sizeof(float), cudaMemcpyDeviceToHost,
                               stream_));
    CHECK_CUDA(cudaStreamSynchronize(stream_));
    if (!world.checks) return true;
    for (size_t i = first; i < first + world.count; ++i) {
      if (host_[i] == expected) continue;
      std::fprintf(stderr, "rank %d: %s: element %zu is %g instead of %g\n", world.identity.rank, what, i,
                   host_[i], expected);
      return false;
    }
    return true;
  }

 private:
  float* device_ = nullptr;
  std::vector<float> host_;
  cudaStream_t stream_;
};

float SumOfRanks(int ranks) {
  const int sum = ranks * (ranks + 1) / 2;
  return static_cast<float>(sum);
}

// Rank r contributes r + 1 everywhere.
bool Collectives(const World& world) {
  const auto ranks = static_cast<size_t>(world.identity.world_size);
  const float own = static_cast<float>(world.identity.rank + 1);
  const float last = static_cast<float>(world.identity.world_size);
  const size_t last_share = (ranks - 1) * world.count;
  Buffer share(world.count, own, world.stream);
  Buffer all(world.count * ranks, own, world.stream);
  Buffer out(world.count * ranks, 0.0F, world.stream);
  bool good = true;

  CHECK_NCCL(
      ncclAllReduce(share.Device(), out.Device(), world.count, ncclFloat, ncclSum, world.comm, world.stream));
  good &= out.Holds(world, "AllReduce", SumOfRanks(world.identity.world_size), 0);
  CHECK_NCCL(ncclAllGather(share.Device(), out.Device(), world.count, ncclFloat, world.comm, world.stream));
  good &= out.Holds(world, "AllGather", last, last_share);
  CHECK_NCCL(ncclReduceScatter(all.Device(), out.Device(), world.count, ncclFloat, ncclMax, world.comm,
                               world.stream));
  good &= out.Holds(world, "ReduceScatter", last, 0);
  CHECK_NCCL(ncclBroadcast(share.Device(), out.Device(), world.count, ncclFloat,
                           world.identity.world_size - 1, world.comm, world.stream));
  good &= out.Holds(world, "Broadcast", last, 0);
  CHECK_NCCL(ncclBcast(out.Device(), world.count, ncclFloat, 0, world.comm, world.stream));
  CHECK_NCCL(
      ncclReduce(share.Device(), out.Device(), world.count, ncclFloat, ncclSum, 0, world.comm, world.stream));
  if (world.identity.rank == 0) good &= out.Holds(world, "Reduce", SumOfRanks(world.identity.world_size), 0);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 3)
  int version = 0;
  CHECK_NCCL(ncclGetVersion(&version));
  if (version >= NCCL_VERSION(2, 28, 3)) {  // of the library that is there, which may be older
    CHECK_NCCL(ncclAlltoAll(all.Device(), out.Device(), world.count, ncclFloat, world.comm, world.stream));
    good &= out.Holds(world, "AlltoAll", last, last_share);
    CHECK_NCCL(ncclGather(share.Device(), out.Device(), world.count, ncclFloat, 0, world.comm, world.stream));
    if (world.identity.rank == 0) good &= out.Holds(world, "Gather", last, last_share);
    CHECK_NCCL(ncclScatter(all.Device(), out.Device(), world.count, ncclFloat, 0, world.comm, world.stream));
    good &= out.Holds(world, "Scatter", 1.0F, 0);
  }
#endif
  // Other data types: only their bit patterns of zero are used, so that no conversion is needed here.
  CHECK_CUDA(cudaMemsetAsync(out.Device(), 0, world.count * sizeof(float), world.stream));
  for (const ncclDataType_t type : {ncclInt8, ncclInt32, ncclHalf, ncclBfloat16}) {
    CHECK_NCCL(
        ncclAllReduce(out.Device(), out.Device(), world.count, type, ncclSum, world.comm, world.stream));
  }
  good &= out.Holds(world, "AllReduce of zeros", 0.0F, 0);
  return good;
}

// Several calls in one group: NCCL may run them in one kernel.
bool FusedGroup(const World& world) {
  constexpr int kCalls = 4;
  const float own = static_cast<float>(world.identity.rank + 1);
  std::vector<Buffer*> buffers;
  buffers.reserve(kCalls);
  for (int i = 0; i < kCalls; ++i) buffers.push_back(new Buffer(world.count, own, world.stream));
  CHECK_NCCL(ncclGroupStart());
  for (Buffer* buffer : buffers) {
    CHECK_NCCL(ncclAllReduce(buffer->Device(), buffer->Device(), world.count, ncclFloat, ncclSum, world.comm,
                             world.stream));
  }
  CHECK_NCCL(ncclGroupEnd());
  bool good = true;
  for (Buffer* buffer : buffers) {
    good &= buffer->Holds(world, "grouped AllReduce", SumOfRanks(world.identity.world_size), 0);
    delete buffer;
  }
  return good;
}

// To the next rank, from the one before, in one group, as pipeline stages do. A world of one has nobody to
// send to.
bool Ring(const World& world) {
  const int ranks = world.identity.world_size;
  if (ranks == 1) return true;
  const int next = (world.identity.rank + 1) % ranks;
  const int previous = (world.identity.rank + ranks - 1) % ranks;
  Buffer out(world.count, static_cast<float>(world.identity.rank), world.stream);
  Buffer in(world.count, -1.0F, world.stream);
  CHECK_NCCL(ncclGroupStart());
  CHECK_NCCL(ncclSend(out.Device(), world.count, ncclFloat, next, world.comm, world.stream));
  CHECK_NCCL(ncclRecv(in.Device(), world.count, ncclFloat, previous, world.comm, world.stream));
  CHECK_NCCL(ncclGroupEnd());
  return in.Holds(world, "Recv", static_cast<float>(previous), 0);
}

// Even and odd ranks in communicators of their own.
bool Split(const World& world) {
  const int color = world.identity.rank % 2;
  ncclComm_t half = nullptr;
  CHECK_NCCL(ncclCommSplit(world.comm, color, world.identity.rank, &half, nullptr));
  float expected = 0;
  for (int rank = color; rank < world.identity.world_size; rank += 2)
    expected += static_cast<float>(rank + 1);
  Buffer buffer(world.count, static_cast<float>(world.identity.rank + 1), world.stream);
  CHECK_NCCL(
      ncclAllReduce(buffer.Device(), buffer.Device(), world.count, ncclFloat, ncclSum, half, world.stream));
  const bool good = buffer.Holds(world, "AllReduce in a half", expected, 0);
  CHECK_NCCL(ncclCommDestroy(half));
  return good;
}

// One process drives all its devices: communicators from ncclCommInitAll, one call a device inside a group.
bool InitAll(size_t count, bool checks) {
  int devices = 0;
  CHECK_CUDA(cudaGetDeviceCount(&devices));
  std::vector<ncclComm_t> comms(static_cast<size_t>(devices));
  CHECK_NCCL(ncclCommInitAll(comms.data(), devices, nullptr));
  std::vector<World> worlds;
  std::vector<Buffer*> buffers;
  for (int device = 0; device < devices; ++device) {
    CHECK_CUDA(cudaSetDevice(device));
    World world;
    world.identity = {device, device, devices};
    world.comm = comms[static_cast<size_t>(device)];
    world.count = count;
    world.checks = checks;
    CHECK_CUDA(cudaStreamCreate(&world.stream));
    buffers.push_back(new Buffer(count, static_cast<float>(device + 1), world.stream));
    worlds.push_back(world);
  }
  CHECK_NCCL(ncclGroupStart());
  for (size_t i = 0; i < worlds.size(); ++i) {
    CHECK_NCCL(ncclAllReduce(buffers[i]->Device(), buffers[i]->Device(), count, ncclFloat, ncclSum,
                             worlds[i].comm, worlds[i].stream));
  }
  CHECK_NCCL(ncclGroupEnd());
  bool good = true;
  for (size_t i = 0; i < worlds.size(); ++i) {
    CHECK_CUDA(cudaSetDevice(static_cast<int>(i)));
    good &= buffers[i]->Holds(worlds[i], "AllReduce over the process's devices", SumOfRanks(devices), 0);
    delete buffers[i];
    CHECK_CUDA(cudaStreamDestroy(worlds[i].stream));
    CHECK_NCCL(ncclCommDestroy(worlds[i].comm));
  }
  return good;
}

// Sums twice what was captured once, `rounds` times.
bool ChildGraphs(const World& world, size_t rounds) {
  Buffer share(world.count, 1.0F, world.stream);
  Buffer out(world.count, 0.0F, world.stream);
  cudaGraph_t child = nullptr;
  cudaGraph_t parent = nullptr;
  cudaGraphExec_t exec = nullptr;
  cudaGraphNode_t nodes[2] = {};
  CHECK_CUDA(cudaStreamSynchronize(world.stream));
  CHECK_CUDA(cudaStreamBeginCapture(world.stream, cudaStreamCaptureModeThreadLocal));
  CHECK_NCCL(
      ncclAllReduce(share.Device(), out.Device(), world.count, ncclFloat, ncclSum, world.comm, world.stream));
  CHECK_CUDA(cudaStreamEndCapture(world.stream, &child));
  CHECK_CUDA(cudaGraphCreate(&parent, 0));
  CHECK_CUDA(cudaGraphAddChildGraphNode(&nodes[0], parent, nullptr, 0, child));
  CHECK_CUDA(cudaGraphAddChildGraphNode(&nodes[1], parent, nodes, 1, child));
  CHECK_CUDA(cudaGraphInstantiate(&exec, parent, 0));
  for (size_t round = 0; round < rounds; ++round) CHECK_CUDA(cudaGraphLaunch(exec, world.stream));
  const bool good =
      out.Holds(world, "AllReduce in a child graph", static_cast<float>(world.identity.world_size), 0);
  CHECK_CUDA(cudaGraphExecDestroy(exec));
  CHECK_CUDA(cudaGraphDestroy(parent));
  CHECK_CUDA(cudaGraphDestroy(child));
  return good;
}

bool ReadOption(const char* argument, const char* name, size_t* value) {
  const size_t length = std::strlen(name);
  if (std::strncmp(argument, name, length) != 0 || argument[length] != '=') return false;
  char* end = nullptr;
  *value = std::strtoull(argument + length + 1, &end, 10);
  return *end == '\0' && *value > 0;
}

int Run(int argc, char** argv) {
  size_t count = size_t{1} << 16;
  size_t rounds = 3;
  bool init_all = false;
  bool child_graphs = false;
  for (int i = 1; i < argc; ++i) {
    if (ReadOption(argv[i], "--count", &count) || ReadOption(argv[i], "--rounds", &rounds)) continue;
    if (std::strcmp(argv[i], "--init-all") == 0) {
      init_all = true;
      continue;
    }
    if (std::strcmp(argv[i], "--child-graphs") == 0) {
      child_graphs = true;
      continue;
    }
    std::fprintf(stderr, "usage: nccl_calls [--count=N] [--rounds=N] [--init-all | --child-graphs]\n");
    return 2;
  }
  World world;
  world.count = count;
  world.checks = !OnSimulatedNode();
  bool good = true;
  if (init_all) {
    for (size_t round = 0; round < rounds; ++round) good &= InitAll(count, world.checks);
  } else {
    world.identity = FindRankIdentity();
    ChooseDevice(world.identity);
    world.comm = JoinWorld(world.identity, "");
    CHECK_CUDA(cudaStreamCreateWithFlags(&world.stream, cudaStreamNonBlocking));
    if (child_graphs) good = ChildGraphs(world, rounds);
    for (size_t round = 0; round < rounds && !child_graphs; ++round) {
      good &= Collectives(world);
      good &= FusedGroup(world);
      good &= Ring(world);
      good &= Split(world);
    }
    CHECK_CUDA(cudaStreamDestroy(world.stream));
    CHECK_NCCL(ncclCommDestroy(world.comm));
  }
  if (world.identity.rank == 0) {
    std::printf("nccl_calls: %zu rounds, %s\n", rounds,
                !world.checks ? "the simulated node computes nothing, so results are not checked"
                : good        ? "all results are right"
                              : "with wrong results");
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace gpuprobe::samples

int main(int argc, char** argv) { return gpuprobe::samples::Run(argc, argv); }
