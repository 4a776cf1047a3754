// A profiling plug-in that a program opens, uses, ends and closes. What it does is a word for each step:
//   start   s subscribes, c has a clock of its own, b records kernels into buffers of its own
//   stop    d disables its kind, r registers its buffer functions again, f flushes, u unsubscribes, z
//   finalizes
//           CUPTI, w waits a while; M: all but f and w while it holds the lock that its functions take
// Each returns the first error. TOOL_STARTS names what it starts in its constructor.
#include "tests/e2e/programs/tool_plugin.h"

#include <cupti.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>

namespace {

constexpr size_t kBytes = size_t{1} << 16;
constexpr int kBuffers = 8;

// Gone when the plug-in is.
alignas(8) uint8_t buffers[kBuffers][kBytes];
std::atomic<unsigned> lent{0};
std::mutex lock;
std::atomic<int> kernels{0};
std::atomic<int> calls{0};
std::atomic<int> foreign{0};
int started = 0;
CUpti_SubscriberHandle subscription = nullptr;

uint64_t Ticks() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec)) * 2;
}

int PlaceOf(const uint8_t* buffer) {
  for (int i = 0; i < kBuffers; ++i) {
    if (buffer == buffers[i]) return i;
  }
  return -1;
}

void CUPTIAPI Requested(uint8_t** buffer, size_t* bytes, size_t* records) {
  *buffer = nullptr;
  *bytes = kBytes;
  *records = 0;
  for (int i = 0; i < kBuffers && *buffer == nullptr; ++i) {
    if ((lent.fetch_or(1u << i) >> i & 1) == 0) *buffer = buffers[i];
  }
}

void CUPTIAPI Completed(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  const std::scoped_lock held(lock);
  const int place = PlaceOf(buffer);
  if (place < 0) {
    ++foreign;
    return;
  }
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
    kernels += record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  lent.fetch_and(~(1u << place));
}

void CUPTIAPI Called(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) { ++calls; }

int Worse(int error, int also) { return error != 0 ? error : also; }

__attribute__((constructor)) void StartAtOnce() {
  const char* how = std::getenv("TOOL_STARTS");
  if (how != nullptr) started = tool_start(how);
}

}  // namespace

int tool_start(const char* how) {
  int error = started;
  if (std::strchr(how, 's') != nullptr) {
    error = Worse(error, cuptiSubscribe(&subscription, Called, nullptr));
    error = Worse(error, cuptiEnableDomain(1, subscription, CUPTI_CB_DOMAIN_RUNTIME_API));
  }
  if (std::strchr(how, 'c') != nullptr) error = Worse(error, cuptiActivityRegisterTimestampCallback(Ticks));
  if (std::strchr(how, 'b') != nullptr) {
    error = Worse(error, cuptiActivityRegisterCallbacks(Requested, Completed));
    error = Worse(error, cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
  }
  return error;
}

int tool_stop(const char* how) {
  int error = 0;
  const bool locks = std::strchr(how, 'M') != nullptr;
  for (; *how != '\0'; ++how) {
    std::unique_lock<std::mutex> held(lock, std::defer_lock);
    // A flush calls the tool, whoever holds what.
    if (locks && *how != 'f' && *how != 'w') held.lock();
    if (*how == 'w') usleep(200'000);
    if (*how == 'd') error = Worse(error, cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
    if (*how == 'r') error = Worse(error, cuptiActivityRegisterCallbacks(Requested, Completed));
    if (*how == 'f') error = Worse(error, cuptiActivityFlushAll(1));
    if (*how == 'u') error = Worse(error, cuptiUnsubscribe(subscription));
    if (*how == 'z') error = Worse(error, cuptiFinalize());
  }
  return error;
}

int tool_kernels() { return kernels; }
int tool_calls() { return calls; }
int tool_foreign() { return foreign; }
