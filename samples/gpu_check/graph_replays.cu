// Replays a captured graph of many empty kernels: what a replay takes, early and late, and how much device
// memory is free meanwhile. Prints one JSON object.
//
// usage: graph_replays NODES REPLAYS

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "samples/common/check.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kParts = 7;

__global__ void Empty() {}

cudaGraphExec_t MakeGraph(int nodes, cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t made = nullptr;
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < nodes; ++i) Empty<<<1, 32, 0, stream>>>();
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  CHECK_CUDA(cudaGraphInstantiate(&made, graph, 0));
  return made;
}

// Microseconds that one of `replays` replays took.
double Replay(cudaGraphExec_t graph, int replays, cudaStream_t stream) {
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < replays; ++i) {
    CHECK_CUDA(cudaGraphLaunch(graph, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
  }
  const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
  return took.count() / replays;
}

size_t FreeBytes() {
  size_t free = 0;
  size_t total = 0;
  CHECK_CUDA(cudaMemGetInfo(&free, &total));
  return free;
}

}  // namespace

int main(int argc, char** argv) {
  const int nodes = argc == 3 ? std::atoi(argv[1]) : 0;
  const int replays = argc == 3 ? std::atoi(argv[2]) / kParts : 0;  // of a part
  if (nodes <= 0 || replays <= 0) {
    std::fprintf(stderr, "usage: graph_replays NODES REPLAYS (at least %d)\n", kParts);
    return 2;
  }
  cudaStream_t stream = nullptr;
  CHECK_CUDA(cudaStreamCreate(&stream));
  cudaGraphExec_t graph = MakeGraph(nodes, stream);
  double replay_us[kParts] = {};
  size_t free_bytes[kParts] = {};
  for (int part = 0; part < kParts; ++part) {
    replay_us[part] = Replay(graph, replays, stream);
    free_bytes[part] = FreeBytes();
  }
  std::printf("{\"replays\": %d, \"kernels\": %lld, \"replay_us\": [", replays * kParts,
              static_cast<long long>(nodes) * replays * kParts);
  for (int part = 0; part < kParts; ++part) std::printf("%s%.1f", part == 0 ? "" : ", ", replay_us[part]);
  std::printf("], \"free_bytes\": [");
  for (int part = 0; part < kParts; ++part) std::printf("%s%zu", part == 0 ? "" : ", ", free_bytes[part]);
  std::printf("]}\n");
  return 0;
}
