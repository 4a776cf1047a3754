// The least that a tool of kernels asks of CUPTI: kernel records and a callback for each launch, all of it
// thrown away. What it costs, the probe cannot be cheaper than. Loaded by CUDA_INJECTION64_PATH.
//
// CUPTI_ALONE in the environment makes it ask for more, in words separated by commas: `kinds` for every kind
// of record that the probe enables, and callbacks for copies, memory and waits; `flush` for a flush twice a
// second, on a thread of its own.

#include <cupti.h>
#include <pthread.h>
#include <unistd.h>

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

bool Asks(const char* word) {
  const char* words = std::getenv("CUPTI_ALONE");
  return words != nullptr && std::strstr(words, word) != nullptr;
}

// Not CUPTI_ACTIVITY_KIND_OVERHEAD: whoever receives its records has to free their details.
constexpr CUpti_ActivityKind kOtherKinds[] = {
    CUPTI_ACTIVITY_KIND_MEMCPY,         CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMSET,
    CUPTI_ACTIVITY_KIND_DEVICE,         CUPTI_ACTIVITY_KIND_MEMORY2, CUPTI_ACTIVITY_KIND_MEMORY_POOL,
    CUPTI_ACTIVITY_KIND_SYNCHRONIZATION};
constexpr const char* kOtherCalls[] = {"cuLaunch",
                                       "cuMemcpy",
                                       "cuMemset",
                                       "cuMemAlloc",
                                       "cuMemFree",
                                       "cuModule",
                                       "cuStreamSynchronize",
                                       "cuCtxSynchronize",
                                       "cuEventSynchronize"};

void AskForMore(CUpti_SubscriberHandle subscriber) {
  for (const CUpti_ActivityKind kind : kOtherKinds) cuptiActivityEnable(kind);
  for (uint32_t id = 1; id < CUPTI_DRIVER_TRACE_CBID_SIZE; ++id) {
    const char* name = nullptr;
    if (cuptiGetCallbackName(CUPTI_CB_DOMAIN_DRIVER_API, id, &name) != CUPTI_SUCCESS) continue;
    for (const char* call : kOtherCalls) {
      if (std::strncmp(name, call, std::strlen(call)) == 0)
        cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, id);
    }
  }
}

void* FlushForever(void* /*unused*/) {
  for (;;) {
    usleep(500'000);
    cuptiActivityFlushAll(0);
  }
}

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
  if (Asks("kinds")) AskForMore(subscriber);
  pthread_t flusher{};
  if (Asks("flush")) pthread_create(&flusher, nullptr, FlushForever, nullptr);
  return 1;
}
