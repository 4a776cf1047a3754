// Our subscription to CUPTI: what is enabled, where its buffers come from and go, when it is flushed.
//
// Separate from the decoder (records) and the callback table (functions). Thread: Start on the starting
// thread, inside cuInit; Tick, Flush and Stop on the probe's own; the callbacks on whichever thread CUPTI
// picks. Allocation: the buffer pool's mapping. Locking: CUPTI is never called with a lock of ours held.
// Failure: Start says what is missing; the other parts go on without GPU times.
#pragma once

#include <atomic>
#include <cstdint>

#include "injector/cupti/buffer_pool.h"
#include "injector/cupti/decoder.h"
#include "injector/cupti/function_table.h"
#include "injector/stream/stream.h"

namespace gpuprobe::injector {

class CuptiSession {
 public:
  enum class StartResult {
    kCapturing,
    kNoCupti,        // no libcupti that could be bound
    kOtherProfiler,  // somebody else is the one subscriber
    kRefused,        // any other error, see LastCuptiError
    kNoMemory,
  };

  explicit CuptiSession(Stream* stream) noexcept : decoder_(&api_, stream) {}

  // With a table that was bound before (BindCupti, or a test's fake).
  [[nodiscard]] StartResult Start(const CuptiApi& api, uint32_t buffers, size_t buffer_bytes) noexcept;

  // What could not be set while the driver was starting, and one dump of device facts. Cheap when there is
  // nothing to do.
  void Tick() noexcept;

  // Brings in what is complete; `forced` also what is not, for the end of the process. Does nothing before
  // CUPTI has asked for a buffer: the driver may still be inside cuInit.
  void Flush(bool forced) noexcept;

  // Ends capture for good: kinds and callbacks off, subscription returned. Not at exit.
  void Stop() noexcept;

  bool capturing() const noexcept { return capturing_.load(std::memory_order_relaxed); }
  // The driver is up: it finished cuInit, made a context, or asked for a buffer.
  bool driver_is_up() const noexcept {
    return driver_up_.load(std::memory_order_acquire) || pool_.ever_taken();
  }
  const CuptiApi& api() const noexcept { return api_; }
  const BufferPool& pool() const noexcept { return pool_; }

 private:
  void NoteContext(CUcontext context) const noexcept;
  void NoteGraphNode(const CUpti_GraphData& graph, bool cloned) const noexcept;
  static void CUPTIAPI OnCallback(void* self, CUpti_CallbackDomain domain, CUpti_CallbackId cbid,
                                  const void* data);
  static void CUPTIAPI OnBufferRequested(uint8_t** buffer, size_t* bytes, size_t* max_records);
  static void CUPTIAPI OnBufferCompleted(CUcontext context, uint32_t stream_id, uint8_t* buffer, size_t bytes,
                                         size_t valid_bytes);

  bool Check(CUptiResult result) noexcept;
  void SetAttributes() noexcept;
  void EnableCallbacks() noexcept;

  CuptiApi api_;
  Decoder decoder_;
  BufferPool pool_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  std::atomic<bool> capturing_{false};
  std::atomic<bool> driver_up_{false};
  bool attributes_set_ = false;
  bool devices_asked_ = false;
};

}  // namespace gpuprobe::injector
