/* A caching allocator like PyTorch's, on libraries that stand in for libc10 and libc10_cuda: takes segments
 * from CUDA, hands out parts, and reports every step. Prints what it knows of itself. */
#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

extern "C" {
void fake_allocator_report(void* pointer, int64_t size, uint64_t allocated, uint64_t reserved, int type,
                           int index);
bool fake_allocator_out_of_memory(int64_t size, uint64_t allocated, uint64_t reserved, int type, int index);
}

namespace {

constexpr int kCuda = 1;
constexpr uint64_t kSegment = uint64_t{20} << 20;

struct Allocator {
  uint64_t allocated = 0;
  uint64_t reserved = 0;
  uint64_t peak_allocated = 0;
  uint64_t peak_reserved = 0;
  std::vector<void*> segments;

  bool Malloc(uint64_t bytes) {
    if (allocated + bytes > reserved) {
      void* segment = nullptr;
      const uint64_t wanted = std::max(kSegment, bytes);
      if (cudaMalloc(&segment, wanted) != cudaSuccess) {
        fake_allocator_out_of_memory(static_cast<int64_t>(bytes), allocated, reserved, kCuda, 0);
        return false;
      }
      segments.push_back(segment);
      reserved += wanted;
    }
    allocated += bytes;
    Report(static_cast<int64_t>(bytes));
    return true;
  }
  void Free(uint64_t bytes) {
    allocated -= bytes;
    Report(-static_cast<int64_t>(bytes));
  }
  void Report(int64_t size) {
    peak_allocated = std::max(peak_allocated, allocated);
    peak_reserved = std::max(peak_reserved, reserved);
    fake_allocator_report(segments.back(), size, allocated, reserved, kCuda, 0);
  }
};

}  // namespace

int main() {
  if (cudaSetDevice(0) != cudaSuccess || cudaFree(nullptr) != cudaSuccess) return 1;
  Allocator allocator;
  for (int step = 0; step < 50; ++step) {
    for (uint64_t i = 1; i <= 20; ++i) {
      if (!allocator.Malloc(i << 18)) return 2;
    }
    for (uint64_t i = 1; i <= 20; ++i) allocator.Free(i << 18);
  }
  if (!allocator.Malloc(12345)) return 3;
  nvtxRangePushA("too much");
  if (allocator.Malloc(uint64_t{1} << 40)) return 4;
  nvtxRangePop();
  std::printf("%llu %llu %llu %llu\n", static_cast<unsigned long long>(allocator.allocated),
              static_cast<unsigned long long>(allocator.reserved),
              static_cast<unsigned long long>(allocator.peak_allocated),
              static_cast<unsigned long long>(allocator.peak_reserved));
  for (void* segment : allocator.segments) cudaFree(segment);
  return 0;
}
