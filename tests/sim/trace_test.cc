// Callbacks and the truth: runtime around driver under one correlation id, and a log that says what the
// activities say.
#include <cupti.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "tests/sim/test_node.h"

namespace gpusim {
namespace {

class TraceTest : public NodeTest {};

TEST_F(TraceTest, ARuntimeCallEnclosesItsDriverCallUnderOneCorrelationId) {
  void* pointer = nullptr;
  RecordApi(true);
  ASSERT_CUDA(cudaMalloc(&pointer, 100));
  RecordApi(false);
  const std::vector<ApiEvent> events = ApiEvents();
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[0].function, "cudaMalloc");
  EXPECT_EQ(events[0].domain, CUPTI_CB_DOMAIN_RUNTIME_API);
  EXPECT_EQ(events[0].cbid, static_cast<uint32_t>(CUPTI_RUNTIME_TRACE_CBID_cudaMalloc_v3020));
  EXPECT_TRUE(events[0].enter);
  EXPECT_EQ(events[1].function, "cuMemAlloc_v2");
  EXPECT_EQ(events[1].domain, CUPTI_CB_DOMAIN_DRIVER_API);
  EXPECT_EQ(events[1].cbid, static_cast<uint32_t>(CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2));
  EXPECT_TRUE(events[1].enter);
  EXPECT_EQ(events[2].function, "cuMemAlloc_v2");
  EXPECT_FALSE(events[2].enter);
  EXPECT_EQ(events[3].function, "cudaMalloc");
  EXPECT_FALSE(events[3].enter);
  for (const ApiEvent& event : events) EXPECT_EQ(event.correlation, events[0].correlation);
  const std::vector<Activity> memory = Activities(ActivityKind::kMemory);
  ASSERT_EQ(memory.size(), 1U);
  EXPECT_EQ(memory[0].correlation, events[0].correlation);
  EXPECT_EQ(memory[0].address, reinterpret_cast<uint64_t>(pointer));
  EXPECT_CUDA(cudaFree(pointer));
}

TEST_F(TraceTest, ALaunchNamesItsKernelAndTheKernelCarriesItsId) {
  RecordApi(true);
  Launch(Fast(), nullptr);
  RecordApi(false);
  ASSERT_CUDA(cudaDeviceSynchronize());
  const std::vector<ApiEvent> events = ApiEvents();
  const std::vector<Activity> kernels = Activities(ActivityKind::kKernel);
  ASSERT_EQ(events.size(), 4U);
  ASSERT_EQ(kernels.size(), 1U);
  EXPECT_EQ(events[0].function, "cudaLaunchKernel");
  EXPECT_EQ(events[1].function, "cuLaunchKernel");
  for (const ApiEvent& event : events) {
    EXPECT_EQ(event.symbol, "_Z4fastPf");
    EXPECT_EQ(event.correlation, kernels[0].correlation);
  }
  EXPECT_EQ(kernels[0].grid[0], 4U);
  EXPECT_EQ(kernels[0].grid[1], 2U);
  EXPECT_EQ(kernels[0].block[0], 64U);
  EXPECT_EQ(kernels[0].dynamic_shared_bytes, 128U);
}

TEST_F(TraceTest, TheResultIsThereAtExit) {
  void* pointer = nullptr;
  RecordApi(true);
  EXPECT_EQ(cudaMalloc(&pointer, 2 * kMemoryBytes), cudaErrorMemoryAllocation);
  RecordApi(false);
  const std::vector<ApiEvent> events = ApiEvents();
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[2].result, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(events[3].result, cudaErrorMemoryAllocation);
  cudaGetLastError();
}

TEST_F(TraceTest, AToolsOwnCallsAreNotTraced) {
  RecordApi(true);
  ThreadBeginToolCallback();
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  ThreadEndToolCallback();
  EXPECT_TRUE(ApiEvents().empty());
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(ApiEvents().size(), 2U);
}

TEST_F(TraceTest, StreamsAreAnnounced) {
  cudaStream_t stream = NewStream();
  ASSERT_CUDA(cudaStreamDestroy(stream));
  const std::vector<Resource> resources = Resources();
  ASSERT_EQ(resources.size(), 2U);
  EXPECT_EQ(resources[0].event, ResourceEvent::kStreamCreated);
  EXPECT_EQ(resources[1].event, ResourceEvent::kStreamDestroyStarting);
  EXPECT_EQ(resources[0].stream, stream);
}

// `"key":value` as a line of the truth has it.
std::string Field(const char* key, uint64_t value) {
  return std::string("\"") + key + "\":" + std::to_string(value);
}

bool Says(const std::string& line, const std::string& field) {
  const size_t at = line.find(field);
  if (at == std::string::npos) return false;
  const char after = line[at + field.size()];
  return after == ',' || after == '}';
}

const char* KindOf(const Activity& activity) {
  switch (activity.kind) {
    case ActivityKind::kKernel:
      return "kernel";
    case ActivityKind::kMemset:
      return "memset";
    case ActivityKind::kSync:
      return "sync";
    case ActivityKind::kMemory:
    case ActivityKind::kMemoryPool:
      return "";
    default:
      return "memcpy";
  }
}

TEST_F(TraceTest, TheTruthSaysWhatTheActivitiesSay) {
  void* device = nullptr;
  std::vector<char> host(100'000);
  cudaStream_t stream = NewStream();
  ASSERT_CUDA(cudaMalloc(&device, host.size()));
  ASSERT_CUDA(cudaMemcpy(device, host.data(), host.size(), cudaMemcpyHostToDevice));
  ASSERT_CUDA(cudaMemsetAsync(device, 1, 500, stream));
  for (int i = 0; i < 20; ++i) Launch(i % 5 == 0 ? Slow() : Fast(), i % 2 == 0 ? stream : nullptr);
  ASSERT_CUDA(cudaMemcpy(host.data(), device, 300, cudaMemcpyDeviceToHost));
  ASSERT_CUDA(cudaDeviceSynchronize());
  ASSERT_CUDA(cudaFree(device));
  ASSERT_CUDA(cudaStreamDestroy(stream));
  std::vector<std::string> lines = TruthLines();
  size_t compared = 0;
  for (const Activity& activity : Activities()) {
    if (*KindOf(activity) == '\0') continue;
    const auto found = std::find_if(lines.begin(), lines.end(), [&activity](const std::string& line) {
      return line.rfind(std::string("{\"kind\":\"") + KindOf(activity) + '"', 0) == 0 &&
             Says(line, Field("start_ns", activity.start_ns)) &&
             Says(line, Field("end_ns", activity.end_ns)) &&
             Says(line, Field("stream", activity.stream_id)) &&
             Says(line, Field("correlation", activity.correlation)) && Says(line, Field("rank", 5));
    });
    ASSERT_NE(found, lines.end()) << KindOf(activity) << " at " << activity.start_ns;
    lines.erase(found);
    ++compared;
  }
  EXPECT_EQ(compared, 24U);  // 20 kernels, 2 copies, 1 fill, 1 synchronisation
  // The allocation and its end are calls of the driver, too, and so is the stream's end.
  std::erase_if(lines,
                [](const std::string& line) { return line.find("\"driver_call\"") != std::string::npos; });
  ASSERT_EQ(lines.size(), 2U) << "the rest is the allocation and its end";
  EXPECT_NE(lines[0].find("\"kind\":\"alloc\""), std::string::npos);
  EXPECT_TRUE(Says(lines[0], Field("bytes", host.size())));
  EXPECT_NE(lines[1].find("\"kind\":\"free\""), std::string::npos);
}

TEST_F(TraceTest, WorkIsInTheTruthOnceItHasBeenWaitedFor) {
  Launch(Slow(), nullptr);
  ASSERT_CUDA(cudaDeviceSynchronize());
  // Without settling: a program may call _exit here.
  const std::string path =
      std::string(std::getenv("GPUSIM_TRUTH")) + "/" + std::to_string(getpid()) + ".jsonl";
  std::string content;
  FILE* file = std::fopen(path.c_str(), "r");
  ASSERT_NE(file, nullptr);
  char chunk[4096];
  for (size_t got = 0; (got = std::fread(chunk, 1, sizeof chunk, file)) > 0;) content.append(chunk, got);
  std::fclose(file);
  EXPECT_TRUE(Says(content, Field("end_ns", Activities(ActivityKind::kKernel).at(0).end_ns)));
}

TEST_F(TraceTest, AForkedChildHasNoDriver) {
  const pid_t child = fork();
  if (child == 0) {
    void* pointer = nullptr;
    const bool refused = cudaMalloc(&pointer, 100) == cudaErrorInitializationError &&
                         cuInit(0) == CUDA_ERROR_NOT_INITIALIZED &&
                         cuCtxSynchronize() == CUDA_ERROR_NOT_INITIALIZED;
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(TraceTest, FunctionsAreFoundByNameAndVersion) {
  void* runtime = dlopen("libcudart.so.13", RTLD_NOW | RTLD_NOLOAD);
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(runtime, nullptr);
  ASSERT_NE(driver, nullptr);
  EXPECT_NE(dlvsym(runtime, "cudaMalloc", "libcudart.so.13"), nullptr);
  EXPECT_EQ(dlsym(runtime, "cudaCreateTextureObject"), nullptr) << "what is not simulated is not there";
  EXPECT_NE(dlsym(driver, "gpusim_version"), nullptr);
  void* function = nullptr;
  CUdriverProcAddressQueryResult status{};
  ASSERT_EQ(cuGetProcAddress("cuMemAlloc", &function, 13000, CU_GET_PROC_ADDRESS_DEFAULT, &status),
            CUDA_SUCCESS);
  EXPECT_EQ(function, dlsym(driver, "cuMemAlloc_v2"));
  ASSERT_EQ(cuGetProcAddress("cuLaunchKernel", &function, 13000,
                             CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status),
            CUDA_SUCCESS);
  EXPECT_EQ(function, dlsym(driver, "cuLaunchKernel_ptsz"));
  ASSERT_EQ(cuGetProcAddress("cuNoSuchFunction", &function, 13000, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
}

}  // namespace
}  // namespace gpusim
