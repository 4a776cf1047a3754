// Memory of our own, straight from the kernel and never from the program's allocator, which may be anything.
//
// Everything that the probe keeps lives in such mappings, and is charged to its account (memory_account.h).
// Thread: any. Allocation: address space; pages come when they are first written. Failure: null, when the
// account or the kernel refuses.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "injector/base/memory_account.h"

namespace gpuprobe::injector {

// Address space, of which the caller charges what it uses. Under mlockall the kernel populates a new mapping
// at once, unless it is inaccessible or unlocked. So we map it inaccessible, unlock it, and then allow
// access.
inline void* ReserveAddresses(size_t bytes) noexcept {
  void* memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  munlock(memory, bytes);
  madvise(memory, bytes, MADV_NOHUGEPAGE);  // a huge page would hold more than what is charged
  if (mprotect(memory, bytes, PROT_READ | PROT_WRITE) == 0) return memory;
  munmap(memory, bytes);
  return nullptr;
}

inline void* MapMemory(size_t bytes, MemoryUse use = MemoryUse::kOrdinary) noexcept {
  if (!ChargeMemory(bytes, use)) return nullptr;
  void* memory = ReserveAddresses(bytes);
  if (memory == nullptr) ReleaseMemory(bytes);
  return memory;
}

inline void UnmapMemory(void* memory, size_t bytes) noexcept {
  if (memory == nullptr) return;
  munmap(memory, bytes);
  ReleaseMemory(bytes);
}

// A mapping that ends with its owner.
class Mapping {
 public:
  Mapping() = default;
  ~Mapping() { Reset(); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  bool Map(size_t bytes, MemoryUse use = MemoryUse::kOrdinary) noexcept {
    Reset();
    data_ = static_cast<char*>(MapMemory(bytes, use));
    bytes_ = charged_ = data_ == nullptr ? 0 : bytes;
    return data_ != nullptr;
  }
  // Address space that is charged as far as Use says, or by the owner.
  bool Reserve(size_t bytes) noexcept {
    Reset();
    data_ = static_cast<char*>(ReserveAddresses(bytes));
    bytes_ = data_ == nullptr ? 0 : bytes;
    return data_ != nullptr;
  }
  // Charges everything before `end`, in steps; false when the account refuses, or it is beyond the mapping.
  bool Use(size_t end, MemoryUse use = MemoryUse::kOrdinary) noexcept {
    if (end <= charged_) return true;
    if (end > bytes_) return false;
    const size_t wanted = std::min(bytes_, (end + kUseStep - 1) & ~(kUseStep - 1));
    if (!ChargeMemory(wanted - charged_, use)) return false;
    charged_ = wanted;
    return true;
  }
  void Reset() noexcept {
    if (data_ != nullptr) munmap(data_, bytes_);
    ReleaseMemory(charged_);
    data_ = nullptr;
    bytes_ = charged_ = 0;
  }
  void Swap(Mapping& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(charged_, other.charged_);
  }
  char* data() const noexcept { return data_; }
  size_t size() const noexcept { return bytes_; }

 private:
  static constexpr size_t kUseStep = size_t{64} << 10;

  char* data_ = nullptr;
  size_t bytes_ = 0;
  size_t charged_ = 0;
};

}  // namespace gpuprobe::injector
