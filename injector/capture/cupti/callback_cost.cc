#include "injector/capture/cupti/callback_cost.h"

#include <cuda.h>
#include <cupti.h>
#include <dlfcn.h>

#include <algorithm>
#include <ctime>

namespace gpuprobe::injector {

namespace {

constexpr auto kFunction = CUPTI_DRIVER_TRACE_CBID_cuDriverGetVersion;
using Function = CUresult(CUDAAPI*)(int*);

uint64_t ThreadCpuNs() noexcept {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

// Time of one call: the least of several runs, so that interruptions do not count.
uint64_t TimeOf(Function function) noexcept {
  constexpr int kRuns = 8;
  constexpr int kCalls = 64;
  uint64_t least_ns = UINT64_MAX;
  for (int run = 0; run < kRuns; ++run) {
    int version = 0;
    const uint64_t began_ns = ThreadCpuNs();
    for (int i = 0; i < kCalls; ++i) function(&version);
    least_ns = std::min(least_ns, ThreadCpuNs() - began_ns);
  }
  return least_ns / kCalls;
}

}  // namespace

uint64_t MeasureCallbacks(const CuptiApi& api, CUpti_SubscriberHandle subscriber) noexcept {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return 0;
  const auto function = reinterpret_cast<Function>(dlsym(driver, "cuDriverGetVersion"));
  uint64_t added_ns = 0;
  if (function != nullptr) {
    const uint64_t alone_ns = TimeOf(function);
    if (api.EnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, kFunction) == CUPTI_SUCCESS) {
      const uint64_t called_ns = TimeOf(function);
      api.EnableCallback(0, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, kFunction);
      added_ns = called_ns > alone_ns ? called_ns - alone_ns : 0;
    }
  }
  dlclose(driver);
  return added_ns;
}

}  // namespace gpuprobe::injector
