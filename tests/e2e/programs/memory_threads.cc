/* Threads that allocate and release by several calls at the same time, give each other what they allocated,
 * and so share addresses and handles as fast as they are given out again. Then all of them hold what they
 * have at once, in one moment that nobody can mistake: the highest level of each kind. `memory_threads
 * THREADS ROUNDS`; with `race` at the end there is no such moment: the level is highest while some allocate
 * and others release. */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

constexpr size_t kGranule = size_t{2} << 20;
constexpr size_t kPieces = 20;
constexpr size_t kMaxThreads = 64;

void Check(int result, const char* what) {
  if (result == 0) return;
  std::fprintf(stderr, "%s returned %d\n", what, result);
  std::exit(1);
}
#define CHECK(call) Check(static_cast<int>(call), #call)

std::atomic<void*> mailbox[kMaxThreads];

void VirtualMemory(CUdeviceptr address, size_t pieces, pthread_barrier_t* meet) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle handle = 0;
  for (size_t i = 0; i < pieces; ++i) {
    CHECK(cuMemCreate(&handle, kGranule, &properties, 0));
    CHECK(cuMemMap(address + i * kGranule, kGranule, 0, handle, 0));
    CHECK(cuMemRelease(handle));
  }
  if (meet != nullptr) pthread_barrier_wait(meet);
  for (size_t i = 0; i < pieces; ++i) CHECK(cuMemUnmap(address + i * kGranule, kGranule));
}

void Work(size_t self, size_t threads, size_t rounds, pthread_barrier_t* meet) {
  CHECK(cudaSetDevice(0));
  cudaStream_t stream = nullptr;
  CUdeviceptr address = 0;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cuMemAddressReserve(&address, 4 * kGranule, 0, 0, 0));
  std::vector<void*> linear(kPieces);
  std::vector<void*> ordered(kPieces);
  std::vector<void*> host(kPieces);
  for (size_t round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < kPieces; ++i) {
      CHECK(cudaMalloc(&linear[i], 1000 + 17 * self + round));
      // One in four goes to the next thread, which releases what it finds.
      if (i % 4 == 0) linear[i] = mailbox[(self + 1) % threads].exchange(linear[i]);
    }
    CHECK(cudaMallocHost(&host[0], 300 + self));
    CHECK(cudaMallocAsync(&ordered[0], 500 + 3 * self + round, stream));
    VirtualMemory(address, 1, nullptr);
    for (void* pointer : linear) CHECK(cudaFree(pointer));
    CHECK(cudaFreeHost(host[0]));
    CHECK(cudaFreeAsync(ordered[0], stream));
  }
  CHECK(cudaStreamSynchronize(stream));
  pthread_barrier_wait(meet);
  if (void* left = mailbox[self].exchange(nullptr); left != nullptr) CHECK(cudaFree(left));
  pthread_barrier_wait(meet);
  for (size_t i = 0; i < kPieces; ++i) {
    CHECK(cudaMalloc(&linear[i], 50'000 + 17 * self + i));
    CHECK(cudaMallocAsync(&ordered[i], 60'000 + 17 * self + i, stream));
    CHECK(cudaMallocHost(&host[i], 70'000 + 17 * self + i));
  }
  VirtualMemory(address, 4, meet);
  pthread_barrier_wait(meet);
  for (size_t i = 0; i < kPieces; ++i) {
    CHECK(cudaFree(linear[i]));
    CHECK(cudaFreeAsync(ordered[i], stream));
    CHECK(cudaFreeHost(host[i]));
  }
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cuMemAddressFree(address, 4 * kGranule));
  CHECK(cudaStreamDestroy(stream));
}

// Each holds now more, now less, of every kind.
void Race(size_t self, size_t rounds, pthread_barrier_t* meet) {
  CHECK(cudaSetDevice(0));
  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::vector<void*> linear(kPieces);
  std::vector<void*> ordered(kPieces);
  std::vector<void*> host(kPieces);
  uint64_t random = self + 1;
  const auto next = [&random](uint64_t most) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    return (random >> 33) % most;
  };
  pthread_barrier_wait(meet);
  for (size_t round = 0; round < rounds; ++round) {
    const size_t i = next(kPieces);
    const size_t bytes = 1000 + next(100'000);
    if (linear[i] == nullptr) {
      CHECK(cudaMalloc(&linear[i], bytes));
      CHECK(cudaMallocHost(&host[i], bytes));
      CHECK(cudaMallocAsync(&ordered[i], bytes, stream));
    } else {
      CHECK(cudaFree(linear[i]));
      CHECK(cudaFreeHost(host[i]));
      CHECK(cudaFreeAsync(ordered[i], stream));
      linear[i] = host[i] = ordered[i] = nullptr;
    }
  }
  for (size_t i = 0; i < kPieces; ++i) {
    CHECK(cudaFree(linear[i]));
    CHECK(cudaFreeHost(host[i]));
    if (ordered[i] != nullptr) CHECK(cudaFreeAsync(ordered[i], stream));
  }
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaStreamDestroy(stream));
}

}  // namespace

int main(int argc, char** argv) {
  const size_t threads = argc > 2 ? std::strtoul(argv[1], nullptr, 10) : 0;
  const size_t rounds = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 0;
  if (threads == 0 || threads > kMaxThreads || rounds == 0) {
    std::fprintf(stderr, "usage: memory_threads THREADS ROUNDS [race]\n");
    return 2;
  }
  CHECK(cudaSetDevice(0));
  pthread_barrier_t meet;
  pthread_barrier_init(&meet, nullptr, static_cast<unsigned>(threads));
  std::vector<std::thread> all;
  const bool race = argc > 3 && std::strcmp(argv[3], "race") == 0;
  for (size_t i = 0; i < threads; ++i) {
    if (race) {
      all.emplace_back(Race, i, rounds, &meet);
    } else {
      all.emplace_back(Work, i, threads, rounds, &meet);
    }
  }
  for (std::thread& thread : all) thread.join();
  pthread_barrier_destroy(&meet);
  return 0;
}
