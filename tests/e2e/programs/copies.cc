// Copies to the device as often as its argument says. Without device code, so that a host compiler can build
// it with any sanitizer.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 1;
  void* memory = nullptr;
  if (cudaMalloc(&memory, 4096) != cudaSuccess) return 1;
  const std::vector<char> host(4096);
  for (int i = 0; i < count; ++i) {
    if (cudaMemcpy(memory, host.data(), host.size(), cudaMemcpyHostToDevice) != cudaSuccess) return 1;
  }
  if (cudaFree(memory) != cudaSuccess) return 1;
  std::printf("copied %d times\n", count);
  return 3;
}
