// Shared by the two halves of the random program: a worker that holds objects, each of which can release
// itself.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "memory_checks.h"

struct Worker;

// Memory, or something that keeps memory. Whoever holds it lets go of it, on any thread.
struct Item {
  int device = 0;
  CUcontext context = nullptr;  // ends with it; null: outlives every context
  std::function<void(Worker&)> release;
};
using ItemPtr = std::unique_ptr<Item>;

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Bits() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  size_t Below(size_t most) { return static_cast<size_t>(Bits() % most); }
  bool One(size_t in) { return Below(in) == 0; }

 private:
  uint64_t state_;
};

struct Worker {
  Worker(size_t number, uint64_t seed, int devices_there)
      : self(number), random(seed), devices(devices_there) {}

  size_t self;
  Random random;
  int devices;
  int device = 0;
  std::vector<std::vector<cudaStream_t>> streams;  // by device
  std::vector<std::vector<cudaMemPool_t>> pools;   // by device; the first one is the device's own
  std::vector<ItemPtr> items;
  uint64_t checksum = 0;  // of what the calls returned

  void Note(int result) { checksum = (checksum ^ static_cast<uint64_t>(result + 1)) * 0x100000001b3; }
  cudaStream_t Stream() {
    std::vector<cudaStream_t>& mine = streams[static_cast<size_t>(device)];
    return mine[random.Below(mine.size())];
  }
  // Usually small, sometimes of a pool's granules.
  size_t Bytes() {
    return random.One(3) ? (1 + random.Below(24)) * kMiB / 2 + random.Below(3) : 1 + random.Below(300'000);
  }
  // A context of its own is current while a thing is made in one.
  CUcontext Context() {
    CUcontext context = nullptr;
    CHECK(cuCtxGetCurrent(&context));
    return context;
  }
  void Hold(int on_device, CUcontext context, std::function<void(Worker&)> release) {
    items.push_back(std::make_unique<Item>(Item{on_device, context, std::move(release)}));
  }
  void Hold(std::function<void(Worker&)> release) { Hold(device, Context(), std::move(release)); }
};

inline CUdeviceptr Device(void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }
inline void* Pointer(CUdeviceptr address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}
// A file descriptor, where CUDA wants a pointer.
inline void* Descriptor(int file) { return Pointer(static_cast<CUdeviceptr>(file)); }

// What every call that takes device memory back does with it.
void FreeInAnyWay(Worker& worker, void* pointer);
void FreeInOrder(Worker& worker, void* pointer);

void MakeGraph(Worker& worker);
void MakePhysical(Worker& worker);
void MakeSeveralPhysical(Worker& worker);
void MakeMulticast(Worker& worker);
