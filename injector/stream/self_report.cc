#include "injector/stream/self_report.h"

#include <atomic>

namespace gpuprobe::injector {

namespace {

constinit std::atomic<uint64_t> counters[static_cast<int>(SelfCounter::kCount)] = {};
constinit std::atomic<int32_t> last_cupti_error{0};
constinit std::atomic<int32_t> nccl_version{0};

}  // namespace

void CountSelf(SelfCounter counter, uint64_t amount) noexcept {
  counters[static_cast<int>(counter)].fetch_add(amount, std::memory_order_relaxed);
}

uint64_t SelfCount(SelfCounter counter) noexcept {
  return counters[static_cast<int>(counter)].load(std::memory_order_relaxed);
}

void CountCuptiError(int32_t code) noexcept {
  last_cupti_error.store(code, std::memory_order_relaxed);
  CountSelf(SelfCounter::kCuptiErrors);
}

int32_t LastCuptiError() noexcept { return last_cupti_error.load(std::memory_order_relaxed); }

void SetNcclVersion(int32_t version) noexcept { nccl_version.store(version, std::memory_order_relaxed); }

int32_t NcclVersion() noexcept { return nccl_version.load(std::memory_order_relaxed); }

}  // namespace gpuprobe::injector
