#include "tests/sim/test_node.h"

#include <cupti.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <mutex>

extern "C" void** __cudaRegisterFatBinary(void* fatCubin);
extern "C" void __cudaRegisterFunction(void** fatCubinHandle, const char* hostFun, char* deviceFun,
                                       const char* deviceName, int thread_limit, uint3* tid, uint3* bid,
                                       dim3* bDim, dim3* gDim, int* wSize);

namespace gpusim {
namespace {

char slow_entry;
char fast_entry;
std::string* truth_dir = nullptr;
size_t truth_lines_before = 0;

struct Recorder {
  std::mutex mutex;
  bool api_wanted = false;
  std::vector<Activity> activities;
  std::vector<ApiEvent> api;
  std::vector<Resource> resources;
};
Recorder& All() {
  static auto* recorder = new Recorder;
  return *recorder;
}

ApiEvent EventOf(const ApiCall& call, bool enter) {
  ApiEvent event;
  event.enter = enter;
  event.domain = call.domain;
  event.cbid = call.cbid;
  event.function = call.function_name;
  event.symbol = call.symbol_name != nullptr ? call.symbol_name : "";
  event.correlation = call.correlation;
  if (!enter) event.result = *static_cast<int*>(call.result);
  return event;
}

void Record(const ApiCall& call, bool enter) {
  const std::lock_guard<std::mutex> lock(All().mutex);
  All().api.push_back(EventOf(call, enter));
}

const CuptiHooks kHooks = {
    [](int, uint32_t) {
      const std::lock_guard<std::mutex> lock(All().mutex);
      return All().api_wanted;
    },
    [](ApiCall* call) { Record(*call, true); },
    [](ApiCall* call) { Record(*call, false); },
    [](const Resource& resource) {
      const std::lock_guard<std::mutex> lock(All().mutex);
      All().resources.push_back(resource);
    },
    [](const Activity& activity) {
      const std::lock_guard<std::mutex> lock(All().mutex);
      All().activities.push_back(activity);
    },
};

// Before main: the knobs are read once, and gtest may list tests without running any.
const bool kPrepared = [] {
  char dir[] = "/tmp/gpusim-test-XXXXXX";
  truth_dir = new std::string(mkdtemp(dir));
  setenv("GPUSIM_DEVICES", "2", 1);
  setenv("GPUSIM_MEMORY_GIB", "1", 1);
  setenv("GPUSIM_KERNELS", "^slow=25ms;^fast=20us", 1);
  setenv("GPUSIM_PCIE", "25GB/s", 1);
  setenv("GPUSIM_TRUTH", truth_dir->c_str(), 1);
  setenv("RANK", "5", 1);
  cupti_hooks.store(&kHooks, std::memory_order_release);
  static void** const module = __cudaRegisterFatBinary(nullptr);
  __cudaRegisterFunction(module, &slow_entry, &slow_entry, "_Z4slowPf", -1, nullptr, nullptr, nullptr,
                         nullptr, nullptr);
  __cudaRegisterFunction(module, &fast_entry, &fast_entry, "_Z4fastPf", -1, nullptr, nullptr, nullptr,
                         nullptr, nullptr);
  std::atexit([] {
    const std::string file = *truth_dir + "/" + std::to_string(getpid()) + ".jsonl";
    unlink(file.c_str());
    rmdir(truth_dir->c_str());
  });
  return true;
}();

std::vector<std::string> AllTruthLines() {
  std::ifstream file(*truth_dir + "/" + std::to_string(getpid()) + ".jsonl");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

}  // namespace

void NodeTest::SetUp() {
  ASSERT_TRUE(kPrepared);
  ASSERT_CUDA(cudaSetDevice(0));
  ASSERT_CUDA(cudaDeviceSynchronize());
  SettleFinishedWork();
  cudaGetLastError();
  truth_lines_before = AllTruthLines().size();
  const std::lock_guard<std::mutex> lock(All().mutex);
  All().api_wanted = false;
  All().activities.clear();
  All().api.clear();
  All().resources.clear();
}

void NodeTest::TearDown() {
  RecordApi(false);
  EXPECT_CUDA(cudaDeviceSynchronize());
}

const void* NodeTest::Slow() { return &slow_entry; }
const void* NodeTest::Fast() { return &fast_entry; }

void NodeTest::Launch(const void* entry, cudaStream_t stream) {
  ASSERT_CUDA(cudaLaunchKernel(entry, dim3(4, 2, 1), dim3(64, 1, 1), nullptr, 128, stream));
}

cudaStream_t NodeTest::NewStream(unsigned flags) {
  cudaStream_t stream = nullptr;
  EXPECT_CUDA(cudaStreamCreateWithFlags(&stream, flags));
  return stream;
}

std::vector<Activity> NodeTest::Activities() {
  SettleFinishedWork();
  const std::lock_guard<std::mutex> lock(All().mutex);
  return All().activities;
}

std::vector<Activity> NodeTest::Activities(ActivityKind kind) {
  std::vector<Activity> chosen;
  for (const Activity& activity : Activities()) {
    if (activity.kind == kind) chosen.push_back(activity);
  }
  return chosen;
}

void NodeTest::RecordApi(bool on) {
  const std::lock_guard<std::mutex> lock(All().mutex);
  All().api_wanted = on;
}

std::vector<ApiEvent> NodeTest::ApiEvents() {
  const std::lock_guard<std::mutex> lock(All().mutex);
  return All().api;
}

std::vector<Resource> NodeTest::Resources() {
  const std::lock_guard<std::mutex> lock(All().mutex);
  return All().resources;
}

std::vector<std::string> NodeTest::TruthLines() {
  SettleFinishedWork();
  std::vector<std::string> lines = AllTruthLines();
  lines.erase(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(truth_lines_before));
  return lines;
}

}  // namespace gpusim
