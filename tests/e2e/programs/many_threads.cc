/* Threads by the thousand. `many_threads short N`: N threads one after another, each with a group of two
 * all-reduces, an allocation and its release. `many_threads long N M`: N threads at once that launch M times
 * each. */
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

constexpr int kRanks = 2;
constexpr size_t kBytes = size_t{1} << 20;

void Check(int result, const char* what) {
  if (result == 0) return;
  std::fprintf(stderr, "%s returned %d\n", what, result);
  std::exit(1);
}
#define CHECK(call) Check(static_cast<int>(call), #call)

void Short(int threads) {
  ncclComm_t communicators[kRanks] = {};
  float* data[kRanks] = {};
  CHECK(ncclCommInitAll(communicators, kRanks, nullptr));
  for (int i = 0; i < kRanks; ++i) {
    CHECK(cudaSetDevice(i));
    CHECK(cudaMalloc(reinterpret_cast<void**>(&data[i]), kBytes));
  }
  for (int thread = 1; thread <= threads; ++thread) {
    std::thread([&] {
      CHECK(ncclGroupStart());
      for (int i = 0; i < kRanks; ++i) {
        CHECK(ncclAllReduce(data[i], data[i], static_cast<size_t>(thread), ncclFloat, ncclSum,
                            communicators[i], nullptr));
      }
      CHECK(ncclGroupEnd());
      void* scratch = nullptr;
      CHECK(cudaSetDevice(thread % kRanks));
      CHECK(cudaMalloc(&scratch, static_cast<size_t>(1000 + thread)));
      CHECK(cudaFree(scratch));
    }).join();
  }
  for (int i = 0; i < kRanks; ++i) {
    CHECK(cudaSetDevice(i));
    CHECK(cudaDeviceSynchronize());
    CHECK(ncclCommDestroy(communicators[i]));
    CHECK(cudaFree(data[i]));
  }
}

void Long(int threads, int launches) {
  CHECK(cudaSetDevice(0));
  char* data = nullptr;
  CHECK(cudaMalloc(reinterpret_cast<void**>(&data), kBytes));
  pthread_barrier_t meet;
  pthread_barrier_init(&meet, nullptr, static_cast<unsigned>(threads));
  std::vector<std::thread> all;
  for (int thread = 0; thread < threads; ++thread) {
    all.emplace_back([&] {
      CHECK(cudaSetDevice(0));
      cudaStream_t stream = nullptr;
      CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      for (int i = 0; i < launches; ++i) {
        CHECK(cudaMemsetAsync(data, i, 64, stream));
        if (i % 20 == 0) pthread_barrier_wait(&meet);  // nobody ends while another has not begun
      }
      CHECK(cudaStreamSynchronize(stream));
      CHECK(cudaStreamDestroy(stream));
    });
  }
  for (std::thread& thread : all) thread.join();
  pthread_barrier_destroy(&meet);
  CHECK(cudaFree(data));
}

pthread_barrier_t everybody;

void* OneOfTheCrowd(void*) {
  void* data = nullptr;
  CHECK(cudaMalloc(&data, 1024));
  nvtxRangePushA("one of the crowd");
  CHECK(cudaMemset(data, 0, 64));
  nvtxRangePop();
  pthread_barrier_wait(&everybody);
  CHECK(cudaFree(data));
  pthread_barrier_wait(&everybody);  // nobody ends while another has something to do
  return nullptr;
}

void Crowd(int threads) {
  CHECK(cudaSetDevice(0));
  pthread_barrier_init(&everybody, nullptr, static_cast<unsigned>(threads));
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, size_t{128} << 10);
  std::vector<pthread_t> all(static_cast<size_t>(threads));
  for (pthread_t& thread : all) CHECK(pthread_create(&thread, &small, OneOfTheCrowd, nullptr));
  for (const pthread_t thread : all) CHECK(pthread_join(thread, nullptr));
  pthread_attr_destroy(&small);
  pthread_barrier_destroy(&everybody);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "short") == 0) {
    Short(std::atoi(argv[2]));
  } else if (argc == 4 && std::strcmp(argv[1], "long") == 0) {
    Long(std::atoi(argv[2]), std::atoi(argv[3]));
  } else if (argc == 3 && std::strcmp(argv[1], "crowd") == 0) {
    Crowd(std::atoi(argv[2]));
  } else {
    std::fprintf(stderr, "usage: many_threads short N | long N M | crowd N\n");
    return 2;
  }
  return 0;
}
