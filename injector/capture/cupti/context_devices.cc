#include "injector/capture/cupti/context_devices.h"

#include <atomic>

namespace gpuprobe::injector {

namespace {

struct Entry {
  std::atomic<const void*> context;
  std::atomic<int32_t> device;
};

// A process has one context a device, rarely more: a linear search finds the first ones at once.
constinit Entry entries[kMaxContexts] = {};

}  // namespace

void NoteContextDevice(const void* context, int32_t device) noexcept {
  if (context == nullptr) return;
  for (Entry& entry : entries) {
    const void* seen = entry.context.load(std::memory_order_acquire);
    if (seen == nullptr) {
      // No thread asks for the device of a context that is still being created.
      entry.device.store(device, std::memory_order_relaxed);
      if (entry.context.compare_exchange_strong(seen, context, std::memory_order_acq_rel)) return;
    }
    if (seen == context) {
      entry.device.store(device, std::memory_order_relaxed);
      return;
    }
  }
}

int32_t DeviceOfContext(const void* context) noexcept {
  if (context == nullptr) return -1;
  for (const Entry& entry : entries) {
    const void* seen = entry.context.load(std::memory_order_acquire);
    if (seen == context) return entry.device.load(std::memory_order_relaxed);
    if (seen == nullptr) break;
  }
  return -1;
}

}  // namespace gpuprobe::injector
