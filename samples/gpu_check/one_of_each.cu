// Makes one of each CUDA call that the probe records: allocations, copies, memsets, kernels, waits, a graph
// that allocates, a child graph held twice. Prints what it did as one JSON object.

#include <cstdio>

#include "samples/common/check.h"

namespace {

constexpr size_t kMiB = size_t{1} << 20;

struct Done {
  int kernels = 0;
  int copies = 0;
  int memsets = 0;
};

__global__ void Increment(float* values, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) values[i] += 1;
}

__global__ void Spin(long long clocks) {
  const long long begin = clock64();
  while (clock64() - begin < clocks) {
  }
}

struct Memory {
  float* device = nullptr;
  float* pooled = nullptr;
  float* pinned = nullptr;
  float* managed = nullptr;
  void* pitched = nullptr;
};

Memory Allocate(cudaStream_t stream) {
  Memory memory;
  size_t pitch = 0;
  CHECK_CUDA(cudaMalloc(&memory.device, 10 * kMiB));
  CHECK_CUDA(cudaMallocAsync(&memory.pooled, 3 * kMiB, stream));
  CHECK_CUDA(cudaMallocHost(&memory.pinned, kMiB));
  CHECK_CUDA(cudaMallocManaged(&memory.managed, 2 * kMiB));
  CHECK_CUDA(cudaMallocPitch(&memory.pitched, &pitch, 1000, 1000));
  return memory;
}

void Free(const Memory& memory) {
  CHECK_CUDA(cudaFree(memory.device));
  CHECK_CUDA(cudaFreeHost(memory.pinned));
  CHECK_CUDA(cudaFree(memory.managed));
  CHECK_CUDA(cudaFree(memory.pitched));
}

void RunEager(const Memory& memory, cudaStream_t stream, Done* done) {
  cudaStream_t other = nullptr;
  cudaEvent_t event = nullptr;
  CHECK_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  CHECK_CUDA(cudaMemset(memory.device, 0, 10 * kMiB));
  CHECK_CUDA(cudaMemcpy(memory.pinned, memory.device, kMiB, cudaMemcpyDeviceToHost));
  CHECK_CUDA(cudaMemcpyAsync(memory.device, memory.pinned, kMiB, cudaMemcpyHostToDevice, stream));
  Increment<<<100, 256, 0, stream>>>(memory.device, 1000);
  Increment<<<100, 256, 0, stream>>>(memory.pooled, 1000);
  Spin<<<1, 1, 0, other>>>(20'000'000);
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK_CUDA(cudaDeviceSynchronize());
  CHECK_CUDA(cudaEventCreate(&event));
  CHECK_CUDA(cudaEventRecord(event, other));
  CHECK_CUDA(cudaStreamWaitEvent(stream, event, 0));
  CHECK_CUDA(cudaEventSynchronize(event));
  CHECK_CUDA(cudaEventDestroy(event));
  CHECK_CUDA(cudaFreeAsync(memory.pooled, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK_CUDA(cudaStreamDestroy(other));
  done->kernels += 3;
  done->copies += 2;
  done->memsets += 1;
}

void ReplayAndDestroy(cudaGraph_t graph, int replays, cudaStream_t stream) {
  cudaGraphExec_t made = nullptr;
  CHECK_CUDA(cudaGraphInstantiate(&made, graph, 0));
  for (int i = 0; i < replays; ++i) CHECK_CUDA(cudaGraphLaunch(made, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK_CUDA(cudaGraphExecDestroy(made));
  CHECK_CUDA(cudaGraphDestroy(graph));
}

void RunGraph(const Memory& memory, cudaStream_t stream, Done* done) {
  constexpr int kReplays = 3;
  cudaGraph_t graph = nullptr;
  float* inner = nullptr;
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  Increment<<<10, 256, 0, stream>>>(memory.device, 500);
  Increment<<<20, 256, 0, stream>>>(memory.device, 700);
  CHECK_CUDA(cudaMemsetAsync(memory.device, 1, 4096, stream));
  CHECK_CUDA(cudaMemcpyAsync(memory.device + 4096, memory.device, 4096, cudaMemcpyDeviceToDevice, stream));
  CHECK_CUDA(cudaMallocAsync(&inner, kMiB, stream));
  Increment<<<1, 256, 0, stream>>>(inner, 100);
  CHECK_CUDA(cudaFreeAsync(inner, stream));
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  ReplayAndDestroy(graph, kReplays, stream);
  done->kernels += 3 * kReplays;
  done->copies += kReplays;
  done->memsets += kReplays;
}

void RunChildGraphs(const Memory& memory, cudaStream_t stream, Done* done) {
  constexpr int kReplays = 2;
  cudaGraph_t child = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphNode_t first = nullptr;
  cudaGraphNode_t second = nullptr;
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  Increment<<<7, 256, 0, stream>>>(memory.device, 1000);
  CHECK_CUDA(cudaStreamEndCapture(stream, &child));
  CHECK_CUDA(cudaGraphCreate(&graph, 0));
  CHECK_CUDA(cudaGraphAddChildGraphNode(&first, graph, nullptr, 0, child));
  CHECK_CUDA(cudaGraphAddChildGraphNode(&second, graph, &first, 1, child));
  ReplayAndDestroy(graph, kReplays, stream);
  CHECK_CUDA(cudaGraphDestroy(child));
  done->kernels += 2 * kReplays;
}

}  // namespace

int main() {
  cudaStream_t stream = nullptr;
  CHECK_CUDA(cudaSetDevice(0));
  CHECK_CUDA(cudaStreamCreate(&stream));
  const Memory memory = Allocate(stream);
  Done done;
  RunEager(memory, stream, &done);
  RunGraph(memory, stream, &done);
  RunChildGraphs(memory, stream, &done);
  Free(memory);
  CHECK_CUDA(cudaStreamDestroy(stream));
  CHECK_CUDA(cudaGetLastError());
  std::printf("{\"kernels\": %d, \"copies\": %d, \"memsets\": %d}\n", done.kernels, done.copies,
              done.memsets);
  return 0;
}
