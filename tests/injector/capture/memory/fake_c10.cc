// A stand-in for libc10: exports the reporting functions under the names of one version of PyTorch. TOTALS is
// the type of the totals; without it the version is the one that told none. Counts what arrived.
#include <cstddef>
#include <cstdint>

namespace c10 {

struct Device {
  int8_t type;
  int8_t index;
};

namespace {
uint64_t calls = 0;
uint64_t sum = 0;  // of everything that was passed
}  // namespace

#ifdef TOTALS
void reportMemoryUsageToProfiler(void* pointer, int64_t size, TOTALS allocated, TOTALS reserved,
                                 Device device) {
  ++calls;
  sum += reinterpret_cast<uint64_t>(pointer) + static_cast<uint64_t>(size) +
         static_cast<uint64_t>(allocated) + static_cast<uint64_t>(reserved) +
         static_cast<uint64_t>(device.type) + static_cast<uint64_t>(device.index);
}

void reportOutOfMemoryToProfiler(int64_t size, TOTALS allocated, TOTALS reserved, Device device) {
  ++calls;
  sum += static_cast<uint64_t>(size) + static_cast<uint64_t>(allocated) + static_cast<uint64_t>(reserved) +
         static_cast<uint64_t>(device.type) + static_cast<uint64_t>(device.index);
}
#else
void reportMemoryUsageToProfiler(void* pointer, int64_t size, Device device) {
  ++calls;
  sum += reinterpret_cast<uint64_t>(pointer) + static_cast<uint64_t>(size) +
         static_cast<uint64_t>(device.type) + static_cast<uint64_t>(device.index);
}
#endif

}  // namespace c10

extern "C" {
uint64_t fake_c10_calls() { return c10::calls; }  // NOLINT(readability-identifier-naming)
uint64_t fake_c10_sum() { return c10::sum; }      // NOLINT(readability-identifier-naming)
}
