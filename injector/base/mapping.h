// Memory of our own, straight from the kernel and never from the program's allocator, which may be anything.
//
// Everything that the probe keeps lives in such mappings. Thread: any. Allocation: address space; pages come
// when they are first written. Failure: null.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <utility>

namespace gpuprobe::injector {

// Under mlockall the kernel populates a new mapping at once, unless it is inaccessible or unlocked. So we map
// it inaccessible, unlock it, and then allow access.
inline void* MapMemory(size_t bytes) noexcept {
  void* memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  munlock(memory, bytes);
  if (mprotect(memory, bytes, PROT_READ | PROT_WRITE) == 0) return memory;
  munmap(memory, bytes);
  return nullptr;
}

inline void UnmapMemory(void* memory, size_t bytes) noexcept {
  if (memory != nullptr) munmap(memory, bytes);
}

// A mapping that ends with its owner.
class Mapping {
 public:
  Mapping() = default;
  ~Mapping() { Reset(); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  bool Map(size_t bytes) noexcept {
    Reset();
    data_ = static_cast<char*>(MapMemory(bytes));
    bytes_ = data_ == nullptr ? 0 : bytes;
    return data_ != nullptr;
  }
  void Reset() noexcept {
    UnmapMemory(data_, bytes_);
    data_ = nullptr;
    bytes_ = 0;
  }
  void Swap(Mapping& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  char* data() const noexcept { return data_; }
  size_t size() const noexcept { return bytes_; }

 private:
  char* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace gpuprobe::injector
