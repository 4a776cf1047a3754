// A program with a tool of its own inside, which uses CUPTI for a while as torch.profiler and others do; or
// one that keeps the probe busy.
//
// usage: second_tool guest STYLE ROUNDS   memsets, then rounds of memsets under the tool and without it
//            STYLE: new (buffers only), old (subscribes, has a clock of its own, buffers that are not
//            zeroed), finalizes (subscribes, and ends CUPTI after each round), dlsym (old, finds CUPTI by
//            dlsym; SECOND_TOOL_CUPTI: the path of a copy of its own), many (asks for a subscription beside
//            others, and uses the functions for subscriptions; if it is refused, as old without a clock)
//        second_tool first HOW ROUNDS  the tool is there before CUDA starts, leaves while the program runs,
//            and comes back for some rounds
//            HOW: leaves (with everything that it enabled), stays (its subscription goes, its records do not)
//        second_tool busy SECONDS     memsets, a CUDA graph and ranges, as fast as they go
// guest prints each record and API callback that the tool saw, and what its calls returned.
#include <cuda_runtime_api.h>
#include <cupti.h>
#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr int kMemsets = 50;

// By relocation, or by dlsym.
struct Cupti {
  decltype(&cuptiSubscribe) subscribe = cuptiSubscribe;
  decltype(&cuptiUnsubscribe) unsubscribe = cuptiUnsubscribe;
  decltype(&cuptiEnableCallback) enable_callback = cuptiEnableCallback;
  decltype(&cuptiFinalize) finalize = cuptiFinalize;
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = cuptiActivityRegisterCallbacks;
  decltype(&cuptiActivityRegisterTimestampCallback) register_clock = cuptiActivityRegisterTimestampCallback;
  decltype(&cuptiActivityEnable) enable = cuptiActivityEnable;
  decltype(&cuptiActivityDisable) disable = cuptiActivityDisable;
  decltype(&cuptiActivityFlushAll) flush = cuptiActivityFlushAll;
  decltype(&cuptiActivityGetNextRecord) next_record = cuptiActivityGetNextRecord;
};

template <typename Function>
void Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
}

Cupti FindCupti(const char* path) {
  Cupti found;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "second_tool: %s\n", dlerror());
    std::exit(1);
  }
  Find(library, "cuptiSubscribe", &found.subscribe);
  Find(library, "cuptiUnsubscribe", &found.unsubscribe);
  Find(library, "cuptiEnableCallback", &found.enable_callback);
  Find(library, "cuptiFinalize", &found.finalize);
  Find(library, "cuptiActivityRegisterCallbacks", &found.register_callbacks);
  Find(library, "cuptiActivityRegisterTimestampCallback", &found.register_clock);
  Find(library, "cuptiActivityEnable", &found.enable);
  Find(library, "cuptiActivityDisable", &found.disable);
  Find(library, "cuptiActivityFlushAll", &found.flush);
  Find(library, "cuptiActivityGetNextRecord", &found.next_record);
  return found;
}

// The functions for subscriptions, of which this toolkit's headers may know nothing.
struct SubscriberParams {
  size_t bytes;
  const char* name;
  char* old_name;
  size_t old_name_bytes;
  uint8_t allow_others;
  uint8_t padding[7];
};
using RequestV2 = void (*)(uint8_t**, size_t*, size_t*, void*);
using CompleteV2 = void (*)(uint8_t*, size_t, size_t, void*);
struct CuptiV2 {
  CUptiResult (*subscribe)(CUpti_SubscriberHandle*, CUpti_CallbackFunc, void*, SubscriberParams*) = nullptr;
  CUptiResult (*register_callbacks)(CUpti_SubscriberHandle, RequestV2, CompleteV2) = nullptr;
  CUptiResult (*enable)(CUpti_SubscriberHandle, CUpti_ActivityKind, void*) = nullptr;
  CUptiResult (*disable)(CUpti_SubscriberHandle, CUpti_ActivityKind, void*) = nullptr;
  CUptiResult (*next_record)(CUpti_SubscriberHandle, uint8_t*, size_t, CUpti_Activity**) = nullptr;
};

CuptiV2 FindCuptiV2() {
  CuptiV2 found;
  void* library = dlopen("libcupti.so.13", RTLD_NOW | RTLD_LOCAL);
  Find(library, "cuptiSubscribe_v2", &found.subscribe);
  Find(library, "cuptiActivityRegisterCallbacks_v2", &found.register_callbacks);
  Find(library, "cuptiActivityEnable_v2", &found.enable);
  Find(library, "cuptiActivityDisable_v2", &found.disable);
  Find(library, "cuptiActivityGetNextRecord_v2", &found.next_record);
  return found;
}

Cupti cupti;
CuptiV2 v2;
CUpti_SubscriberHandle subscription = nullptr;  // beside others
std::mutex mutex;
std::set<uint8_t*> own;
std::atomic<int> foreign{0};
std::atomic<int> wrong_times{0};
std::atomic<int> called{0};
std::vector<std::pair<uint32_t, std::string>> seen;  // by correlation id
uint64_t round_began = 0;                            // in the clock that records have
bool has_clock = false;

// Neither starts nor runs as CLOCK_REALTIME.
uint64_t Ticks() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec)) * 3;
}
uint64_t RecordClock() {
  if (has_clock) return Ticks();
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

void CUPTIAPI Requested(uint8_t** buffer, size_t* bytes, size_t* records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  std::memset(*buffer, 0xa5, kBufferBytes);
  const std::scoped_lock lock(mutex);
  own.insert(*buffer);
  *bytes = kBufferBytes;
  *records = 0;
}

void CUPTIAPI Completed(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  const std::scoped_lock lock(mutex);
  if (own.erase(buffer) == 0) {
    ++foreign;
    return;
  }
  CUpti_Activity* record = nullptr;
  const auto next = [&] {
    return subscription != nullptr ? v2.next_record(subscription, buffer, valid, &record)
                                   : cupti.next_record(buffer, valid, &record);
  };
  while (next() == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
      const auto* row = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
      wrong_times += row->start < round_began || row->end > RecordClock() || row->end < row->start;
      seen.emplace_back(row->correlationId, "memset " + std::to_string(row->value) + ", " +
                                                std::to_string(row->bytes) + " bytes");
    } else {
      seen.emplace_back(0, "kind " + std::to_string(record->kind));
    }
  }
  std::free(buffer);
}

void CUPTIAPI Called(void* /*data*/, CUpti_CallbackDomain, CUpti_CallbackId, const void*) { ++called; }

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

void PrintSeen() {
  const std::scoped_lock lock(mutex);
  std::sort(seen.begin(), seen.end());
  for (const auto& [correlation, record] : seen) std::printf("%s\n", record.c_str());
  std::printf("%d callbacks, %d buffers that are not the tool's, %d wrong times\n", called.load(),
              foreign.load(), wrong_times.load());
}

void RequestedV2(uint8_t** buffer, size_t* bytes, size_t* records, void*) {
  Requested(buffer, bytes, records);
}
void CompletedV2(uint8_t* buffer, size_t bytes, size_t valid, void*) {
  Completed(nullptr, 0, buffer, bytes, valid);
}

CUpti_SubscriberHandle SubscribeBesideOthers() {
  char old_name[64] = {};
  SubscriberParams params{sizeof(params), "second_tool", old_name, sizeof(old_name), 1, {}};
  CUpti_SubscriberHandle handle = nullptr;
  std::printf("subscribe beside others %d\n", v2.subscribe(&handle, Called, nullptr, &params));
  return handle;
}

// One time on and off.
void Round(const std::string& style, bool subscribes) {
  CUpti_SubscriberHandle handle = nullptr;
  if (style == "many") handle = subscription = SubscribeBesideOthers();
  if (subscribes && handle == nullptr)
    std::printf("subscribe %d\n", cupti.subscribe(&handle, Called, nullptr));
  if (subscribes) {
    std::printf("callback %d\n", cupti.enable_callback(1, handle, CUPTI_CB_DOMAIN_RUNTIME_API,
                                                       CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020));
  }
  round_began = RecordClock();
  const bool many = subscription != nullptr;
  std::printf("register %d\n", many ? v2.register_callbacks(subscription, RequestedV2, CompletedV2)
                                    : cupti.register_callbacks(Requested, Completed));
  std::printf("enable %d\n", many ? v2.enable(subscription, CUPTI_ACTIVITY_KIND_MEMSET, nullptr)
                                  : cupti.enable(CUPTI_ACTIVITY_KIND_MEMSET));
  Work();
  {
    // Some tools flush only then.
    const std::scoped_lock lock(mutex);
    std::printf("was asked for a buffer: %d\n", own.empty() ? 0 : 1);
  }
  std::printf("flush %d\n", cupti.flush(0));
  std::printf("disable %d\n", many ? v2.disable(subscription, CUPTI_ACTIVITY_KIND_MEMSET, nullptr)
                                   : cupti.disable(CUPTI_ACTIVITY_KIND_MEMSET));
  std::printf("flush %d\n", cupti.flush(1));
  if (style == "finalizes") {
    std::printf("finalize %d\n", cupti.finalize());
  } else if (subscribes) {
    std::printf("unsubscribe %d\n", cupti.unsubscribe(handle));
  }
  subscription = nullptr;
  Work();
}

int Guest(const std::string& style, int rounds) {
  Work();
  Sleep(1500);  // the probe has looked for objects again by then
  Work();
  const char* const own_copy = std::getenv("SECOND_TOOL_CUPTI");
  if (style == "dlsym") cupti = FindCupti(own_copy != nullptr ? own_copy : "libcupti.so.13");
  if (style == "many") v2 = FindCuptiV2();
  for (int round = 0; round < rounds; ++round) {
    if (round == 0 && (style == "old" || style == "dlsym")) {
      std::printf("clock %d\n", cupti.register_clock(Ticks));
      has_clock = true;
    }
    Round(style, style != "new");
  }
  PrintSeen();
  return 0;
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

void StartRecording() {
  round_began = RecordClock();
  std::printf("register %d\n", cupti.register_callbacks(Requested, Completed));
  std::printf("enable %d\n", cupti.enable(CUPTI_ACTIVITY_KIND_MEMSET));
}

void StopRecording() {
  std::printf("flush %d\n", cupti.flush(1));
  std::printf("disable %d\n", cupti.disable(CUPTI_ACTIVITY_KIND_MEMSET));
}

int First(bool stays, int rounds) {
  CUpti_SubscriberHandle handle = nullptr;
  std::printf("subscribe %d\n", cupti.subscribe(&handle, Called, nullptr));
  if (!stays) StartRecording();
  Check(cudaMalloc(&memory, 4096));
  cudaStream_t stream = nullptr;
  Check(cudaStreamCreate(&stream));
  Sleep(500);  // the probe has looked for objects by then
  if (stays) StartRecording();
  Work();
  cudaGraphExec_t early = MakeGraph(stream);
  if (!stays) StopRecording();
  std::printf("unsubscribe %d\n", cupti.unsubscribe(handle));
  Sleep(3000);
  Work();
  for (int i = 0; i < 3; ++i) Check(cudaGraphLaunch(early, stream));
  cudaGraphExec_t late = MakeGraph(stream);
  for (int i = 0; i < 4; ++i) Check(cudaGraphLaunch(late, stream));
  Work();
  if (stays) StopRecording();
  Work();
  for (int round = 0; round < rounds; ++round) Round("first", true);
  PrintSeen();
  return 0;
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
  if (argc == 4 && std::strcmp(argv[1], "first") == 0)
    return First(std::strcmp(argv[2], "stays") == 0, std::atoi(argv[3]));
  Check(cudaMalloc(&memory, 4096));
  if (argc == 4 && std::strcmp(argv[1], "guest") == 0) return Guest(argv[2], std::atoi(argv[3]));
  return argc == 3 && std::strcmp(argv[1], "busy") == 0 ? Busy(std::atoi(argv[2])) : 2;
}
