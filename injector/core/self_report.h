// The counters behind wire.proto's SelfReport: problems that lost no record, and facts about the probe.
//
// Missing records are counted in losses.h. Thread: any, including callbacks. Allocation: none; relaxed
// atomics.
#pragma once

#include <cstdint>

namespace gpuprobe::injector {

enum class SelfCounter : int32_t {
  kRangePopWithoutPush,
  kRangeEndWithoutStart,
  kCuptiErrors,
  kRelocationsPatched,
  kAutostartFailures,
  kConnectFailures,
  kSettingsRejected,
  kOwnAllocationFailures,
  kLateEvents,
  kOutsideWindow,
  kLaunches,  // of kernels, that returned; estimated, like the next
  kLaunchNs,  // their time from entry to exit
  kCount,
};

void CountSelf(SelfCounter counter, uint64_t amount = 1) noexcept;
uint64_t SelfCount(SelfCounter counter) noexcept;

// A launch or NCCL call of that time was left out on request.
void CountLeftOut(uint64_t time_ns) noexcept;
// When the latest of these was; 0: none.
uint64_t LeftOutUntilNs() noexcept;

// Counts a call into CUPTI that failed, and keeps its code.
void CountCuptiError(int32_t code) noexcept;
int32_t LastCuptiError() noexcept;

// CPU time of the probe's own thread, and what it has written to the collector.
void SetBackgroundCpuNs(uint64_t nanoseconds) noexcept;
uint64_t BackgroundCpuNs() noexcept;
void AddBytesSent(uint64_t bytes) noexcept;
uint64_t BytesSent() noexcept;

// How much of the device's work is recorded, and why. Set by the probe's thread before it seals.
struct DetailReport {
  int32_t level;  // wire::DetailLevel
  uint64_t reductions;
  uint64_t reduced_ns;
  uint64_t yields;
  uint64_t yielded_ns;
};
void SetDetailReport(const DetailReport& report) noexcept;
DetailReport CurrentDetailReport() noexcept;

// ncclGetVersion's answer, once known; 0 before.
void SetNcclVersion(int32_t version) noexcept;
int32_t NcclVersion() noexcept;

}  // namespace gpuprobe::injector
