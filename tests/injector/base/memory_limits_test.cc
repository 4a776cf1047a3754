#include "injector/base/memory_limits.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

namespace gpuprobe::injector {
namespace {

constexpr size_t kGib = size_t{1} << 30;

// Sanitizers map terabytes.
size_t Mapped() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// A soft limit for as long as the object lives.
class LimitedTo {
 public:
  LimitedTo(__rlimit_resource resource, rlim_t bytes) : resource_(resource) {
    getrlimit(resource_, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    EXPECT_EQ(setrlimit(resource_, &limit), 0);
  }
  ~LimitedTo() { setrlimit(resource_, &before_); }
  LimitedTo(const LimitedTo&) = delete;
  LimitedTo& operator=(const LimitedTo&) = delete;

 private:
  __rlimit_resource resource_;
  rlimit before_{};
};

TEST(MemoryLimits, WithoutALimitNothingIsScarce) { EXPECT_EQ(LimitedMemoryLeft(), SIZE_MAX); }

TEST(MemoryLimits, WhatIsMappedIsNoLongerLeft) {
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA}) {
    const LimitedTo limited(resource, Mapped() + 64 * kGib);
    const size_t before = LimitedMemoryLeft();
    EXPECT_LT(before, Mapped() + 64 * kGib);
    EXPECT_GT(before, kGib);
    void* memory =
        mmap(nullptr, kGib, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    EXPECT_LE(LimitedMemoryLeft(), before - kGib);
    EXPECT_EQ(munmap(memory, kGib), 0);
  }
}

TEST(MemoryLimits, TheTighterLimitCounts) {
  const LimitedTo data(RLIMIT_DATA, Mapped() + 64 * kGib);
  const LimitedTo address_space(RLIMIT_AS, Mapped() + 8 * kGib);
  EXPECT_LE(LimitedMemoryLeft(), 8 * kGib);
}

TEST(MemoryLimits, ALimitBelowWhatIsMappedLeavesNothing) {
  const LimitedTo data(RLIMIT_DATA, 4096);
  EXPECT_EQ(LimitedMemoryLeft(), 0u);
}

}  // namespace
}  // namespace gpuprobe::injector
