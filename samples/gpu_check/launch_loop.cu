// Launches an empty kernel over and over: what a launch costs, and whether each one is recorded.
// Prints one JSON object.
//
// usage: launch_loop LAUNCHES REPETITIONS [leave]
//        leave: ends without waiting for the kernels

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "samples/common/check.h"

namespace {

using Clock = std::chrono::steady_clock;

__global__ void Empty() {}

// Microseconds that one of `launches` launches took.
double Launch(long launches, cudaStream_t stream) {
  const Clock::time_point begin = Clock::now();
  for (long i = 0; i < launches; ++i) Empty<<<1, 32, 0, stream>>>();
  const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
  return took.count() / static_cast<double>(launches);
}

}  // namespace

int main(int argc, char** argv) {
  const long launches = argc > 2 ? std::atol(argv[1]) : 0;
  const int repetitions = argc > 2 ? std::atoi(argv[2]) : 0;
  const bool leave = argc > 3 && std::strcmp(argv[3], "leave") == 0;
  if (launches <= 0 || repetitions <= 0 || argc > (leave ? 4 : 3)) {
    std::fprintf(stderr, "usage: launch_loop LAUNCHES REPETITIONS [leave]\n");
    return 2;
  }
  cudaStream_t stream = nullptr;
  CHECK_CUDA(cudaStreamCreate(&stream));
  Launch(1, stream);  // loads the kernel
  CHECK_CUDA(cudaStreamSynchronize(stream));

  std::vector<double> launch_us;
  for (int i = 0; i < repetitions; ++i) {
    launch_us.push_back(Launch(launches, stream));
    if (!leave) CHECK_CUDA(cudaStreamSynchronize(stream));
  }
  CHECK_CUDA(cudaGetLastError());
  std::sort(launch_us.begin(), launch_us.end());
  std::printf("{\"kernels\": %ld, \"best_us\": %.3f, \"median_us\": %.3f, \"worst_us\": %.3f}\n",
              launches * repetitions + 1, launch_us.front(), launch_us[launch_us.size() / 2],
              launch_us.back());
  return 0;
}
