#include "injector/core/self_report.h"

#include <atomic>

namespace gpuprobe::injector {

namespace {

constinit std::atomic<uint64_t> counters[static_cast<int>(SelfCounter::kCount)] = {};
constinit std::atomic<uint64_t> left_out_until_ns{0};
constinit std::atomic<int32_t> last_cupti_error{0};
constinit std::atomic<int32_t> nccl_version{0};
constinit std::atomic<uint64_t> background_cpu_ns{0};
constinit std::atomic<uint64_t> bytes_sent{0};
constinit DetailReport detail_report = {};  // the probe's thread's

}  // namespace

void CountSelf(SelfCounter counter, uint64_t amount) noexcept {
  counters[static_cast<int>(counter)].fetch_add(amount, std::memory_order_relaxed);
}

uint64_t SelfCount(SelfCounter counter) noexcept {
  return counters[static_cast<int>(counter)].load(std::memory_order_relaxed);
}

void CountLeftOut(uint64_t time_ns) noexcept {
  CountSelf(SelfCounter::kOutsideWindow);
  uint64_t known = left_out_until_ns.load(std::memory_order_relaxed);
  while (known < time_ns &&
         !left_out_until_ns.compare_exchange_weak(known, time_ns, std::memory_order_relaxed)) {
  }
}

uint64_t LeftOutUntilNs() noexcept { return left_out_until_ns.load(std::memory_order_relaxed); }

void CountCuptiError(int32_t code) noexcept {
  last_cupti_error.store(code, std::memory_order_relaxed);
  CountSelf(SelfCounter::kCuptiErrors);
}

int32_t LastCuptiError() noexcept { return last_cupti_error.load(std::memory_order_relaxed); }

void SetBackgroundCpuNs(uint64_t nanoseconds) noexcept {
  background_cpu_ns.store(nanoseconds, std::memory_order_relaxed);
}

uint64_t BackgroundCpuNs() noexcept { return background_cpu_ns.load(std::memory_order_relaxed); }

void AddBytesSent(uint64_t bytes) noexcept { bytes_sent.fetch_add(bytes, std::memory_order_relaxed); }

uint64_t BytesSent() noexcept { return bytes_sent.load(std::memory_order_relaxed); }

void SetDetailReport(const DetailReport& report) noexcept { detail_report = report; }

DetailReport CurrentDetailReport() noexcept { return detail_report; }

void SetNcclVersion(int32_t version) noexcept { nccl_version.store(version, std::memory_order_relaxed); }

int32_t NcclVersion() noexcept { return nccl_version.load(std::memory_order_relaxed); }

}  // namespace gpuprobe::injector
