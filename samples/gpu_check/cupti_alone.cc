// The least that a tool of kernels asks of CUPTI: kernel records and a callback for each launch, all of it
// thrown away. What it costs, the probe cannot be cheaper than. Loaded by CUDA_INJECTION64_PATH.

#include <cupti.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

namespace {

constexpr size_t kBufferBytes = size_t{4} << 20;

// Buffers to be used again, zeroed.
std::mutex mutex;
std::vector<uint8_t*>& Spare() {
  static auto* spare = new std::vector<uint8_t*>;
  return *spare;
}

void CUPTIAPI OnRequested(uint8_t** buffer, size_t* bytes, size_t* records) {
  *bytes = kBufferBytes;
  *records = 0;
  const std::lock_guard<std::mutex> lock(mutex);
  if (!Spare().empty()) {
    *buffer = Spare().back();
    Spare().pop_back();
    return;
  }
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(4096, kBufferBytes));
  std::memset(*buffer, 0, kBufferBytes);
}

void CUPTIAPI OnCompleted(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  std::memset(buffer, 0, valid);
  const std::lock_guard<std::mutex> lock(mutex);
  Spare().push_back(buffer);
}

void CUPTIAPI OnLaunch(void* /*data*/, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

}  // namespace

extern "C" int InitializeInjection() {
  CUpti_SubscriberHandle subscriber = nullptr;
  uint8_t yes = 1;
  size_t bytes = sizeof(yes);
  cuptiSubscribe(&subscriber, OnLaunch, nullptr);
  cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &bytes, &yes);
  cuptiActivityRegisterCallbacks(OnRequested, OnCompleted);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
  return 1;
}
