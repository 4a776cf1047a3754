// A program with a CUPTI tool of its own inside, as torch.profiler is one. The tool traces the middle third
// of the program's kernels; what it saw is printed as one JSON object.
//
// usage: guest_tool old|new
//        old: subscribes and registers a clock, as torch.profiler did until 2026; new: buffers only
// In both styles the tool's buffers are not zeroed.

#include <time.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>

#include "samples/common/check.h"
#include "samples/gpu_check/cupti_records.h"

namespace {

using gpuprobe::samples::As;
using gpuprobe::samples::KernelRecord;

constexpr size_t kBufferBytes = size_t{4} << 20;
constexpr int kNodes = 10;

__global__ void Empty() {}

uint64_t Nanoseconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

// Neither starts nor runs as CLOCK_REALTIME does.
uint64_t Ticks() { return Nanoseconds(CLOCK_MONOTONIC) * 3; }

struct Tool {
  std::mutex mutex;
  std::set<uint8_t*> buffers;
  std::atomic<bool> has_clock{false};
  uint64_t began = 0;  // in the clock of the records
  int callbacks = 0;
  int kernels = 0;
  int other_records = 0;
  int wrong_times = 0;
  int foreign_buffers = 0;  // completed, but never handed out by this tool
  int refused_calls = 0;
} tool;

uint64_t RecordClock() { return tool.has_clock ? Ticks() : Nanoseconds(CLOCK_REALTIME); }

void Expect(const char* call, CUptiResult result) {
  if (result == CUPTI_SUCCESS) return;
  std::fprintf(stderr, "guest_tool: %s returned %d\n", call, static_cast<int>(result));
  ++tool.refused_calls;
}
#define EXPECT_CUPTI(call) Expect(#call, call)

void CUPTIAPI OnRequested(uint8_t** buffer, size_t* bytes, size_t* records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  std::memset(*buffer, 0xa5, kBufferBytes);
  *bytes = kBufferBytes;
  *records = 0;
  const std::lock_guard<std::mutex> lock(tool.mutex);
  tool.buffers.insert(*buffer);
}

void Read(const CUpti_Activity* record) {
  if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
    ++tool.other_records;
    return;
  }
  constexpr uint64_t kSlack = 3'000'000;  // CUPTI relates the device's clock to the host's by estimate
  const auto& kernel = As<KernelRecord>(record);
  ++tool.kernels;
  if (kernel.start + kSlack < tool.began || kernel.end < kernel.start ||
      kernel.end > RecordClock() + kSlack) {
    ++tool.wrong_times;
  }
}

void CUPTIAPI OnCompleted(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  const std::lock_guard<std::mutex> lock(tool.mutex);
  if (tool.buffers.erase(buffer) == 0) {
    ++tool.foreign_buffers;
    return;
  }
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) Read(record);
  std::free(buffer);
}

void CUPTIAPI OnCall(void* /*data*/, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {
  ++tool.callbacks;
}

CUpti_SubscriberHandle StartTool(bool old_style) {
  CUpti_SubscriberHandle subscriber = nullptr;
  if (old_style) {
    EXPECT_CUPTI(cuptiSubscribe(&subscriber, OnCall, nullptr));
    EXPECT_CUPTI(cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API,
                                     CUPTI_RUNTIME_TRACE_CBID_cudaDeviceSynchronize_v3020));
    EXPECT_CUPTI(cuptiActivityRegisterTimestampCallback(Ticks));
    tool.has_clock = true;
  }
  tool.began = RecordClock();
  EXPECT_CUPTI(cuptiActivityRegisterCallbacks(OnRequested, OnCompleted));
  EXPECT_CUPTI(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
  return subscriber;
}

void StopTool(CUpti_SubscriberHandle subscriber) {
  EXPECT_CUPTI(cuptiActivityFlushAll(0));
  EXPECT_CUPTI(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
  EXPECT_CUPTI(cuptiActivityFlushAll(1));
  if (subscriber != nullptr) EXPECT_CUPTI(cuptiUnsubscribe(subscriber));
}

cudaGraphExec_t MakeGraph(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t made = nullptr;
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < kNodes; ++i) Empty<<<1, 32, 0, stream>>>();
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  CHECK_CUDA(cudaGraphInstantiate(&made, graph, 0));
  return made;
}

// Kernels one by one and a graph; returns how many kernels there were.
int Work(cudaGraphExec_t graph, cudaStream_t stream, int kernels) {
  for (int i = 0; i < kernels; ++i) Empty<<<1, 32, 0, stream>>>();
  CHECK_CUDA(cudaGetLastError());
  CHECK_CUDA(cudaDeviceSynchronize());
  CHECK_CUDA(cudaGraphLaunch(graph, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  return kernels + kNodes;
}

}  // namespace

int main(int argc, char** argv) {
  const bool old_style = argc == 2 && std::strcmp(argv[1], "old") == 0;
  if (!old_style && !(argc == 2 && std::strcmp(argv[1], "new") == 0)) {
    std::fprintf(stderr, "usage: guest_tool old|new\n");
    return 2;
  }
  cudaStream_t stream = nullptr;
  CHECK_CUDA(cudaStreamCreate(&stream));
  cudaGraphExec_t graph = MakeGraph(stream);
  int launched = Work(graph, stream, 100);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // the probe has looked for tools again
  launched += Work(graph, stream, 100);

  CUpti_SubscriberHandle subscriber = StartTool(old_style);
  const int traced = Work(graph, stream, 50);
  StopTool(subscriber);

  launched += traced + Work(graph, stream, 100);
  const std::lock_guard<std::mutex> lock(tool.mutex);
  std::printf(
      "{\"launched\": %d, \"traced\": %d, \"kernels\": %d, \"other_records\": %d, \"callbacks\": %d, "
      "\"wrong_times\": %d, \"foreign_buffers\": %d, \"refused_calls\": %d}\n",
      launched, traced, tool.kernels, tool.other_records, tool.callbacks, tool.wrong_times,
      tool.foreign_buffers, tool.refused_calls);
  return 0;
}
