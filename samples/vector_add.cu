// Adds two vectors on the GPU: the smallest program with every kind of record. Copies both ways, a memset,
// kernels on a stream, a verified sum.
//
// usage: vector_add [--elements=N] [--rounds=N]

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "samples/common/check.h"
#include "samples/common/simulated.h"

namespace {

__global__ void VectorAdd(const float* a, const float* b, float* sum, size_t count) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) sum[i] = a[i] + b[i];
}

__global__ void Accumulate(float* sum, const float* addend, size_t count) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) sum[i] += addend[i];
}

// `--name=number`; ends the program on anything else.
bool ReadOption(const char* argument, const char* name, size_t* value) {
  const size_t length = std::strlen(name);
  if (std::strncmp(argument, name, length) != 0 || argument[length] != '=') return false;
  char* end = nullptr;
  *value = std::strtoull(argument + length + 1, &end, 10);
  return *end == '\0' && *value > 0;
}

// Sums of small integers are exact in float, so equality is the right test.
bool Verify(const std::vector<float>& sum, size_t rounds) {
  for (size_t i = 0; i < sum.size(); ++i) {
    const float expected =
        static_cast<float>(i % 1000) + static_cast<float>(rounds) * static_cast<float>(i % 7);
    if (sum[i] != expected) {
      std::fprintf(stderr, "element %zu is %g instead of %g\n", i, sum[i], expected);
      return false;
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  size_t elements = size_t{1} << 20;
  size_t rounds = 10;
  for (int i = 1; i < argc; ++i) {
    if (!ReadOption(argv[i], "--elements", &elements) && !ReadOption(argv[i], "--rounds", &rounds)) {
      std::fprintf(stderr, "usage: vector_add [--elements=N] [--rounds=N]\n");
      return 2;
    }
  }
  const size_t bytes = elements * sizeof(float);
  std::vector<float> host_a(elements);
  std::vector<float> host_b(elements);
  for (size_t i = 0; i < elements; ++i) {
    host_a[i] = static_cast<float>(i % 1000);
    host_b[i] = static_cast<float>(i % 7);
  }

  float* a = nullptr;
  float* b = nullptr;
  float* sum = nullptr;
  CHECK_CUDA(cudaMalloc(&a, bytes));
  CHECK_CUDA(cudaMalloc(&b, bytes));
  CHECK_CUDA(cudaMalloc(&sum, bytes));
  cudaStream_t stream = nullptr;
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));

  CHECK_CUDA(cudaMemcpy(a, host_a.data(), bytes, cudaMemcpyHostToDevice));
  CHECK_CUDA(cudaMemcpy(b, host_b.data(), bytes, cudaMemcpyHostToDevice));
  CHECK_CUDA(cudaMemsetAsync(sum, 0xff, bytes, stream));

  constexpr unsigned kBlock = 256;
  const unsigned grid = static_cast<unsigned>((elements + kBlock - 1) / kBlock);
  VectorAdd<<<grid, kBlock, 0, stream>>>(a, b, sum, elements);
  for (size_t round = 1; round < rounds; ++round) {
    Accumulate<<<grid, kBlock, 0, stream>>>(sum, b, elements);
  }
  CHECK_CUDA(cudaGetLastError());

  std::vector<float> host_sum(elements);
  CHECK_CUDA(cudaMemcpyAsync(host_sum.data(), sum, bytes, cudaMemcpyDeviceToHost, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK_CUDA(cudaStreamDestroy(stream));
  CHECK_CUDA(cudaFree(sum));
  CHECK_CUDA(cudaFree(b));
  CHECK_CUDA(cudaFree(a));

  if (gpuprobe::samples::OnSimulatedNode()) {
    std::printf(
        "vector_add: %zu elements, %zu kernels; the simulated node computes nothing, so the sum is not "
        "checked\n",
        elements, rounds);
    return 0;
  }
  if (!Verify(host_sum, rounds)) return 1;
  std::printf("vector_add: %zu elements, %zu kernels, the sum is right\n", elements, rounds);
  return 0;
}
