// A small profiling tool and a small application on the simulated driver, for the tests of libcupti.
#pragma once

#include <cuda.h>
#include <cupti.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace gpusim::cupti {

struct SeenCall {
  CUpti_CallbackDomain domain;
  uint32_t cbid;
  CUpti_ApiCallbackSite site;
  std::string function;
  std::string symbol;
  uint32_t correlation;
  uint32_t context_uid;
  uint64_t data;  // what correlationData held
};

// Subscribes, enables kinds and keeps everything that comes. One at a time.
class Tool {
 public:
  Tool();
  ~Tool();
  Tool(const Tool&) = delete;
  Tool& operator=(const Tool&) = delete;

  void Enable(CUpti_ActivityKind kind);
  void Listen(CUpti_CallbackDomain domain, uint32_t cbid);
  void Flush(bool forced = false);

  // Copies of the records of a kind that were completed so far.
  template <typename T>
  std::vector<T> Records(CUpti_ActivityKind kind) {
    const std::scoped_lock lock(mutex_);
    std::vector<T> found;
    for (const std::vector<uint8_t>& bytes : records_) {
      if (reinterpret_cast<const CUpti_Activity*>(bytes.data())->kind == kind) {
        T record;
        std::memset(&record, 0, sizeof(record));
        std::memcpy(&record, bytes.data(), std::min(sizeof(record), bytes.size()));
        found.push_back(record);
      }
    }
    return found;
  }

  CUpti_SubscriberHandle subscriber = nullptr;
  CUptiResult subscribed = CUPTI_SUCCESS;
  std::function<void(CUpti_CallbackDomain, uint32_t, const void*)> on_callback;
  std::function<void()> on_complete;
  std::vector<SeenCall> calls;
  size_t buffer_size = 1 << 16;
  bool decline_buffers = false;
  int requests = 0;
  int completions = 0;

 private:
  static void OnCallback(void* self, CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const void* data);
  static void OnRequest(uint8_t** buffer, size_t* size, size_t* max_records);
  static void OnComplete(CUcontext context, uint32_t stream, uint8_t* buffer, size_t size, size_t valid);

  std::mutex mutex_;
  std::vector<std::vector<uint8_t>> records_;
  std::vector<CUpti_ActivityKind> kinds_;
};

// Device 0's primary context, a stream and two kernels: fast_kernel (20 us) and slow_kernel (800 ms).
class Application {
 public:
  Application();
  ~Application();
  Application(const Application&) = delete;
  Application& operator=(const Application&) = delete;
  void Launch(CUfunction function) const;
  void Synchronize() const;

  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CUfunction fast = nullptr;
  CUfunction slow = nullptr;

 private:
  CUmodule module_ = nullptr;
};

// Runs the test `name` (disabled in this program) in a process of its own with `environment`; its exit status
// as waitpid gives it. `alarm_s`: SIGALRM ends it after so many seconds.
int RunAlone(const std::string& name, const std::vector<std::pair<std::string, std::string>>& environment,
             unsigned alarm_s = 0);

}  // namespace gpusim::cupti
