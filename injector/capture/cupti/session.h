// Our subscription to CUPTI: what is enabled, where its buffers come from and go, when it is flushed.
//
// Records are the decoder's, functions the callback table's. Thread: Start on the starting thread, inside
// cuInit; Tick, Flush and Stop on the probe's own; the callbacks on whichever thread CUPTI picks. Allocation:
// the buffer pool's mapping. Locking: CUPTI is never called with a lock of ours held. Failure: Start says
// what is missing; the other parts go on without GPU times.
#pragma once

#include <atomic>
#include <cstdint>

#include "injector/capture/cupti/buffer_pool.h"
#include "injector/capture/cupti/decoder.h"
#include "injector/capture/cupti/function_table.h"
#include "injector/ledgers/stream.h"
#include "proto/cupti_versions.h"

namespace gpuprobe::injector {

class CuptiSession {
 public:
  enum class StartResult {
    kCapturing,
    kNoCupti,        // no libcupti that could be bound
    kOtherProfiler,  // another tool is the one subscriber
    kRefused,        // any other error, see LastCuptiError
    kNoMemory,
  };

  explicit CuptiSession(Stream* stream) noexcept : decoder_(&api_, stream) {}

  // Takes a table that is already bound (BindCupti, or a test's fake). From now on calls of other tools may
  // come to us; before anything is patched.
  void Bind(const CuptiApi& api) noexcept;
  // REQUIRES: Bind.
  [[nodiscard]] StartResult Start(uint32_t buffers, size_t buffer_bytes,
                                  size_t most_bytes = SIZE_MAX) noexcept;

  // Sets what could not be set while the driver was starting, and dumps device facts once. Cheap when there
  // is nothing to do. Checks once a second whether a profiler that was there first has left; then we capture.
  void Tick() noexcept;
  // How long that profiler held CUPTI since Start; 0 if there was none, or it still does.
  uint64_t yielded_ns() const noexcept { return yielded_ns_; }

  // Collects complete records; with `forced` also incomplete ones, for the end of the process. Does nothing
  // before CUPTI has asked for a buffer: the driver may still be inside cuInit.
  void Flush(bool forced) noexcept;
  // Also collects complete records that are held back because something in the same buffer still runs. The
  // running one's record is lost, and counted. Seen on an H100: its start and end are 0, and no other record
  // of it comes later.
  void FlushUnfinished() noexcept;

  // At level idle, kinds are enabled for a capture only. False: they cannot be.
  [[nodiscard]] bool StartKinds() noexcept;
  // Records no more of the device's work; callbacks stay. Where it holds the budget, never again: see
  // core/governor.h.
  void StopKinds() noexcept;

  // The program makes a CUDA graph. On its thread, inside a callback, before the graph is begun.
  static void OnGraph() noexcept;
  // A module was unloaded under a CUPTI that may give its kernels' names to those of later ones.
  static bool names_may_be_stale() noexcept;
  // Now.
  bool records_kernels() const noexcept;

  // Records of the devices have come, or will not.
  bool has_devices() const noexcept { return decoder_.devices_seen() || !capturing(); }

  // Time spent completing buffers.
  uint64_t completion_ns() const noexcept { return completion_ns_.load(std::memory_order_relaxed); }

  // Ends capture for good: kinds and callbacks off, subscription returned. Not at exit.
  void Stop() noexcept;

  bool capturing() const noexcept { return capturing_.load(std::memory_order_relaxed); }
  // The driver is up: it finished cuInit, made a context, or was called. Not yet when CUPTI asks for a
  // buffer: it does so for the devices' records, inside cuInit.
  bool driver_is_up() const noexcept { return driver_up_.load(std::memory_order_acquire); }
  const CuptiApi& api() const noexcept { return api_; }
  // Precautions against this CUPTI's defects that affect what is recorded (proto/cupti_versions.h).
  uint32_t felt_precautions() const noexcept {
    const bool uncertain = names_uncertain_.load(std::memory_order_relaxed) && Avoids(cupti::kNamesUncertain);
    return felt_precautions_ | (uncertain ? uint32_t{cupti::kNamesUncertain} : 0);
  }
  const BufferPool& pool() const noexcept { return pool_; }

 private:
  void NoteContext(CUcontext context) const noexcept;
  void NoteModules(CUpti_CallbackId cbid) noexcept;
  void NoteStreamIds(CUcontext context, CUstream stream) const noexcept;
  static void NoteGraphNodeType(const CUpti_GraphData& graph) noexcept;
  void NoteGraphNode(const CUpti_GraphData& graph, bool cloned) const noexcept;
  static void CUPTIAPI OnCallback(void* self, CUpti_CallbackDomain domain, CUpti_CallbackId cbid,
                                  const void* data);
  static void CUPTIAPI OnBufferRequested(uint8_t** buffer, size_t* bytes, size_t* max_records);
  static void CUPTIAPI OnBufferCompleted(CUcontext context, uint32_t stream_id, uint8_t* buffer, size_t bytes,
                                         size_t valid_bytes);

  static void TakeCallback(void* self, CUpti_CallbackDomain domain, CUpti_CallbackId cbid,
                           const void* data) noexcept;
  // Subscribes, and enables everything. `beside_others` allows other subscribers, where CUPTI supports
  // several (many_subscribers.h).
  StartResult Attach(bool beside_others) noexcept;
  bool EnableEverything() noexcept;
  void AttachOnceAlone(uint64_t now_ns) noexcept;
  void DriverIsUp() noexcept;
  static void TakeBuffersBack(void* self) noexcept;
  static bool graphs_seen() noexcept;
  static bool NeedsKind(void* self, CUpti_ActivityKind kind) noexcept;
  static bool NeedsCallback(CUpti_CallbackDomain domain, CUpti_CallbackId cbid) noexcept;
  void CompleteGuestsBuffer(CUcontext context, uint32_t stream_id, uint8_t* buffer, size_t bytes,
                            size_t valid_bytes) noexcept;
  void Decode(uint8_t* buffer, size_t valid_bytes) noexcept;
  // Records that CUPTI had no buffer for.
  void CountDropped(CUcontext context, uint32_t stream_id) noexcept;
  // Looks up what this CUPTI must not be asked for, and turns off the settings that need it.
  void TakePrecautions() noexcept;
  bool Avoids(cupti::Precaution precaution) const noexcept { return (precautions_ & precaution) != 0; }
  bool StaysEnabled(CUpti_ActivityKind kind) const noexcept;
  bool Records(CUpti_ActivityKind kind) const noexcept;
  void DisableKinds() noexcept;
  bool Check(CUptiResult result) noexcept;
  void SetAttributes() noexcept;
  void EnableCallbacks() noexcept;
  // Sizes buffers from here on by how much arrived.
  void AimBuffers() noexcept;

  CuptiApi api_;
  Decoder decoder_;
  BufferPool pool_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  uint32_t precautions_ = 0;
  uint32_t felt_precautions_ = 0;
  std::atomic<bool> capturing_{false};
  std::atomic<bool> driver_up_{false};
  std::atomic<bool> module_unloaded_{false};  // at least once
  std::atomic<bool> names_uncertain_{false};  // a module was loaded after that
  std::atomic<bool> declined_{false};         // a buffer, since records were last counted as dropped
  std::atomic<bool> flush_called_{false};     // because buffers ran short
  std::atomic<bool> flushed_{false};          // at least once
  std::atomic<uint64_t> completion_ns_{0};
  std::atomic<uint64_t> completed_bytes_{0};  // since AimBuffers
  uint64_t aimed_ns_ = 0;                     // probe's thread only, like the next
  uint64_t half_second_bytes_ = 0;
  std::atomic<bool> kinds_enabled_{false};
  bool beside_others_ = false;  // CUPTI has several subscribers (many_subscribers.h)
  // Since when another profiler has held CUPTI; 0: none. Probe's thread only, after Start.
  uint64_t other_since_ns_ = 0;
  uint64_t other_asked_ns_ = 0;
  uint64_t yielded_ns_ = 0;
  bool attributes_set_ = false;
  bool devices_asked_ = false;
};

}  // namespace gpuprobe::injector
