// A program with a tool of its own inside, which takes CUPTI's activity buffers for a while as torch.profiler
// does; or one that keeps the probe busy.
//
// usage: second_tool steal            50 memsets, 50 under the tool, a pause, 50 more
//        second_tool busy SECONDS     memsets, a CUDA graph and ranges, as fast as they go
// steal says how many memsets the tool saw; it must be 50.
#include <cuda_runtime_api.h>
#include <cupti.h>
#include <nvtx3/nvToolsExt.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>

namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr int kMemsets = 50;

std::set<uint8_t*> own;
std::atomic<int> seen{0};
std::atomic<int> foreign{0};

void CUPTIAPI Requested(uint8_t** buffer, size_t* bytes, size_t* records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  own.insert(*buffer);
  *bytes = kBufferBytes;
  *records = 0;
}

void CUPTIAPI Completed(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  if (own.erase(buffer) == 0) {
    ++foreign;
    return;
  }
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
    seen += record->kind == CUPTI_ACTIVITY_KIND_MEMSET;
  std::free(buffer);
}

void Check(cudaError_t result) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "second_tool: %s\n", cudaGetErrorString(result));
  std::exit(1);
}

void* memory = nullptr;

void Work() {
  for (int i = 0; i < kMemsets; ++i) Check(cudaMemsetAsync(memory, i, 4096, nullptr));
  Check(cudaDeviceSynchronize());
}

void Sleep(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

int Steal() {
  Work();
  Sleep(1500);  // the probe has looked for objects again by then
  Work();
  if (cuptiActivityRegisterCallbacks(Requested, Completed) != CUPTI_SUCCESS ||
      cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET) != CUPTI_SUCCESS) {
    return 1;
  }
  Work();
  cuptiActivityFlushAll(0);
  cuptiActivityDisable(CUPTI_ACTIVITY_KIND_MEMSET);
  cuptiActivityFlushAll(1);
  std::printf("the tool saw %d memsets and %d buffers that are not its own\n", seen.load(), foreign.load());
  Sleep(4000);
  Work();
  return seen == kMemsets && foreign == 0 ? 0 : 1;
}

cudaGraphExec_t MakeGraph(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t made = nullptr;
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < kMemsets; ++i) Check(cudaMemsetAsync(memory, i, 4096, stream));
  Check(cudaStreamEndCapture(stream, &graph));
  Check(cudaGraphInstantiate(&made, graph, 0));
  return made;
}

int Busy(int seconds) {
  cudaStream_t stream = nullptr;
  Check(cudaStreamCreate(&stream));
  cudaGraphExec_t graph = MakeGraph(stream);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (std::chrono::steady_clock::now() < until) {
    Work();
    Check(cudaGraphLaunch(graph, stream));
    for (int i = 0; i < 100000; ++i) {
      nvtxRangePushA("busy");
      nvtxRangePop();
    }
  }
  std::printf("done\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  Check(cudaMalloc(&memory, 4096));
  if (std::strcmp(argv[1], "steal") == 0) return Steal();
  return argc == 3 && std::strcmp(argv[1], "busy") == 0 ? Busy(std::atoi(argv[2])) : 2;
}
