// Selects what is recorded: which kinds, on which ranks, in which window of time.
//
// Parsed once from the settings' text, for the session, the parts, the decoder and the drain. Thread: chosen
// on the starting thread, before the probe is live; read by any afterwards. Allocation: none. Failure: a
// setting that cannot be parsed is rejected, and everything is recorded.
//
// Records outside the window are dropped where they are decoded. CUPTI's kinds stay enabled: switching them
// off and on around the capture of a CUDA graph has left kernel activity dead for the life of a process.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "injector/base/settings.h"
#include "injector/core/identity.h"

namespace gpuprobe::injector {

enum RecordKinds : uint32_t {
  kRecordKernels = 1 << 0,
  kRecordCopies = 1 << 1,
  kRecordMemsets = 1 << 2,
  kRecordSyncs = 1 << 3,
  kRecordMemory = 1 << 4,
  kRecordNccl = 1 << 5,
  kRecordNvtx = 1 << 6,
  kRecordDriver = 1 << 7,       // the driver's slow functions
  kRecordGraphsWhole = 1 << 8,  // launches of CUDA graphs instead of their nodes: only if asked for
};
inline constexpr uint32_t kRecordAll = (1 << 8) - 1;
inline constexpr uint32_t kRecordDeviceWork = kRecordKernels | kRecordCopies | kRecordMemsets;

// When recording ended to hold the overhead budget (core/governor.h); set once, by the probe's thread.
extern std::atomic<uint64_t> recorded_until_ns;

struct Recording {
  uint32_t kinds = kRecordAll;
  uint64_t from_ns = 0;
  uint64_t span_ns = UINT64_MAX;
  bool this_rank = true;
  uint32_t ranks = 0;        // how many record; 0: all
  bool times_calls = false;  // GPUPROBE_NCCL_TIMES
  uint64_t min_copy_bytes = 0;
  uint64_t min_allocation_bytes = 0;

  bool Wants(uint32_t kind) const noexcept { return (kinds & kind) != 0; }
  bool Holds(uint64_t time_ns) const noexcept {
    return time_ns - from_ns < span_ns && time_ns < recorded_until_ns.load(std::memory_order_relaxed);
  }
  // Work runs some time after its launch, so launches from shortly before the window are kept as well.
  bool HoldsLaunch(uint64_t time_ns) const noexcept {
    return Holds(time_ns) || (time_ns < from_ns && from_ns - time_ns < kLaunchLeadNs);
  }
  bool Overlaps(uint64_t start_ns, uint64_t end_ns) const noexcept {
    return Holds(start_ns) || (start_ns < from_ns && end_ns >= from_ns);
  }

 private:
  static constexpr uint64_t kLaunchLeadNs = 2'000'000'000;
};

// The process's own, chosen once.
extern Recording recording;

// From GPUPROBE_KINDS, GPUPROBE_RANKS, GPUPROBE_MIN_COPY_BYTES, GPUPROBE_MIN_ALLOCATION_BYTES,
// GPUPROBE_START_AFTER_S and GPUPROBE_STOP_AFTER_S; rejects what cannot be used. `now_ns` is the program's
// first use of CUDA.
Recording ChooseRecording(Settings* settings, const Identity& identity, uint64_t now_ns) noexcept;

// "kernels,nccl". False when it is not a list of known names.
bool ParseKinds(std::string_view text, uint32_t* kinds) noexcept;

// "0,4-7", ascending: whether `rank` is among them, and how many of them a job of `world_size` ranks (0: not
// known) has. False when it is not such a list.
bool ParseRanks(std::string_view text, int32_t rank, int32_t world_size, bool* listed,
                uint32_t* count) noexcept;

}  // namespace gpuprobe::injector
