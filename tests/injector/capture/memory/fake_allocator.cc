// A stand-in for libc10_cuda: reports through a relocation, as the caching allocator does.
#include <cstddef>
#include <cstdint>

namespace c10 {
struct Device {
  int8_t type;
  int8_t index;
};
#ifdef TOTALS
void reportMemoryUsageToProfiler(void* pointer, int64_t size, TOTALS allocated, TOTALS reserved,
                                 Device device);
void reportOutOfMemoryToProfiler(int64_t size, TOTALS allocated, TOTALS reserved, Device device);
#else
void reportMemoryUsageToProfiler(void* pointer, int64_t size, Device device);
#endif
}  // namespace c10

// NOLINTBEGIN(readability-identifier-naming)
extern "C" {

void fake_allocator_report(void* pointer, int64_t size, uint64_t allocated, uint64_t reserved, int type,
                           int index) {
  const c10::Device device{static_cast<int8_t>(type), static_cast<int8_t>(index)};
#ifdef TOTALS
  c10::reportMemoryUsageToProfiler(pointer, size, static_cast<TOTALS>(allocated),
                                   static_cast<TOTALS>(reserved), device);
#else
  static_cast<void>(allocated);
  static_cast<void>(reserved);
  c10::reportMemoryUsageToProfiler(pointer, size, device);
#endif
}

// False when this version has no such function.
bool fake_allocator_out_of_memory(int64_t size, uint64_t allocated, uint64_t reserved, int type, int index) {
#ifdef TOTALS
  c10::reportOutOfMemoryToProfiler(size, static_cast<TOTALS>(allocated), static_cast<TOTALS>(reserved),
                                   {static_cast<int8_t>(type), static_cast<int8_t>(index)});
  return true;
#else
  static_cast<void>(size);
  static_cast<void>(allocated);
  static_cast<void>(reserved);
  static_cast<void>(type);
  static_cast<void>(index);
  return false;
#endif
}
}
// NOLINTEND(readability-identifier-naming)
