// Every definition sent so far (names, sites, threads, communicators ...), as one frame for a collector that
// may not have received them.
//
// Example: a collector dies after batch 40 and another one takes its place. Batch 41 refers to the kernel
// name that batch 3 defined, so this frame goes before it.
//
// Thread: Append under the builder's lock; Frame on the probe's thread, which sees what was appended before.
// Allocation: address space at Init; pages as definitions come. Failure: when it is full, complete() turns
// false for good and nothing can be restated.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "injector/base/mapping.h"

namespace gpuprobe::injector {

class DefinitionHistory {
 public:
  static constexpr size_t kCapacity = size_t{8} << 20;  // half of the largest frame

  // Without memory nothing can be restated.
  void Init() noexcept;

  // Encoded fields of Batch.
  void Append(const char* fields, size_t size) noexcept;

  // A restated batch with everything so far, valid until the next call. Null when there is nothing to
  // restate.
  const char* Frame(size_t* size) noexcept;
  bool complete() const noexcept { return !overflowed_.load(std::memory_order_acquire); }

 private:
  Mapping memory_;  // room for the frame's head, then the fields
  std::atomic<size_t> size_{0};
  std::atomic<bool> overflowed_{false};
};

}  // namespace gpuprobe::injector
