#include "samples/common/check.h"
#include "samples/ddp_train/kernels.h"

namespace gpuprobe::samples {
namespace {

constexpr int kTile = 16;
constexpr int kBlock = 256;

int Blocks(int count, int block) { return (count + block - 1) / block; }

// c[i][j] = sum over p of a(i, p) * b(p, j), through shared memory; a and b are accessors, so that one body
// serves the transposed products too.
template <typename A, typename B>
__device__ float TileProduct(A a, B b, int row, int column, int depth, int rows, int columns) {
  __shared__ float a_tile[kTile][kTile + 1];
  __shared__ float b_tile[kTile][kTile + 1];
  float sum = 0.0F;
  for (int start = 0; start < depth; start += kTile) {
    const int a_column = start + static_cast<int>(threadIdx.x);
    const int b_row = start + static_cast<int>(threadIdx.y);
    a_tile[threadIdx.y][threadIdx.x] = row < rows && a_column < depth ? a(row, a_column) : 0.0F;
    b_tile[threadIdx.y][threadIdx.x] = b_row < depth && column < columns ? b(b_row, column) : 0.0F;
    __syncthreads();
    for (int i = 0; i < kTile; ++i) sum += a_tile[threadIdx.y][i] * b_tile[i][threadIdx.x];
    __syncthreads();
  }
  return sum;
}

__global__ void LinearForward(const float* h, const float* weight, float* activation, float* next, int rows,
                              int width) {
  const int row = static_cast<int>(blockIdx.y * kTile + threadIdx.y);
  const int column = static_cast<int>(blockIdx.x * kTile + threadIdx.x);
  const float product =
      TileProduct([=](int i, int p) { return h[i * width + p]; },
                  [=](int p, int j) { return weight[p * width + j]; }, row, column, width, rows, width);
  if (row >= rows || column >= width) return;
  const int at = row * width + column;
  const float value = tanhf(product);
  activation[at] = value;
  next[at] = h[at] + value;
}

__global__ void TanhBackward(const float* output_gradient, const float* activation, float* pre, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) pre[i] = output_gradient[i] * (1.0F - activation[i] * activation[i]);
}

__global__ void LinearBackwardWeight(const float* h, const float* pre, float* weight_gradient, int rows,
                                     int width) {
  const int row = static_cast<int>(blockIdx.y * kTile + threadIdx.y);
  const int column = static_cast<int>(blockIdx.x * kTile + threadIdx.x);
  const float product =
      TileProduct([=](int i, int p) { return h[p * width + i]; },
                  [=](int p, int j) { return pre[p * width + j]; }, row, column, rows, width, width);
  if (row < width && column < width) weight_gradient[row * width + column] = product;
}

__global__ void LinearBackwardInput(const float* output_gradient, const float* pre, const float* weight,
                                    float* input_gradient, int rows, int width) {
  const int row = static_cast<int>(blockIdx.y * kTile + threadIdx.y);
  const int column = static_cast<int>(blockIdx.x * kTile + threadIdx.x);
  const float product =
      TileProduct([=](int i, int p) { return pre[i * width + p]; },
                  [=](int p, int j) { return weight[j * width + p]; }, row, column, width, rows, width);
  if (row >= rows || column >= width) return;
  const int at = row * width + column;
  input_gradient[at] = output_gradient[at] + product;
}

__global__ void MseLoss(const float* prediction, const float* target, float* gradient, float* loss,
                        int count) {
  __shared__ float partial[kBlock];
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const float inverse = 1.0F / static_cast<float>(count);
  float error = 0.0F;
  if (i < count) {
    error = prediction[i] - target[i];
    gradient[i] = 2.0F * error * inverse;
  }
  partial[threadIdx.x] = error * error * inverse;
  __syncthreads();
  for (unsigned half = kBlock / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(loss, partial[0]);
}

__global__ void AdamStep(float* weight, const float* gradient, float* first_moment, float* second_moment,
                         float scale, float learning_rate, float first_correction, float second_correction,
                         int count) {
  constexpr float kFirstDecay = 0.9F;
  constexpr float kSecondDecay = 0.999F;
  constexpr float kEpsilon = 1e-8F;
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  const float g = gradient[i] * scale;
  const float m = kFirstDecay * first_moment[i] + (1.0F - kFirstDecay) * g;
  const float v = kSecondDecay * second_moment[i] + (1.0F - kSecondDecay) * g * g;
  first_moment[i] = m;
  second_moment[i] = v;
  weight[i] -= learning_rate * (m / first_correction) / (sqrtf(v / second_correction) + kEpsilon);
}

__device__ unsigned Mix(unsigned x) {
  x ^= x >> 16;
  x *= 0x7feb352dU;
  x ^= x >> 15;
  x *= 0x846ca68bU;
  return x ^ (x >> 16);
}

__global__ void FillUniform(float* values, int count, float bound, unsigned seed) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  const unsigned bits = Mix(Mix(static_cast<unsigned>(i)) ^ Mix(seed));
  values[i] = bound * (static_cast<float>(bits >> 8) / 8388608.0F - 1.0F);
}

__global__ void Checksum(const float* values, int count, double* sum) {
  __shared__ double partial[kBlock];
  double own = 0.0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kBlock) own += values[i];
  partial[threadIdx.x] = own;
  __syncthreads();
  for (unsigned half = kBlock / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) *sum = partial[0];
}

dim3 TileGrid(int rows, int columns) {
  return dim3(static_cast<unsigned>(Blocks(columns, kTile)), static_cast<unsigned>(Blocks(rows, kTile)));
}

const dim3 kTileBlock(kTile, kTile);

}  // namespace

void LaunchLinearForward(const float* h, const float* weight, float* activation, float* next, int rows,
                         int width, cudaStream_t stream) {
  LinearForward<<<TileGrid(rows, width), kTileBlock, 0, stream>>>(h, weight, activation, next, rows, width);
  CHECK_CUDA(cudaGetLastError());
}

void LaunchTanhBackward(const float* output_gradient, const float* activation, float* pre, int count,
                        cudaStream_t stream) {
  TanhBackward<<<Blocks(count, kBlock), kBlock, 0, stream>>>(output_gradient, activation, pre, count);
  CHECK_CUDA(cudaGetLastError());
}

void LaunchLinearBackwardWeight(const float* h, const float* pre, float* weight_gradient, int rows, int width,
                                cudaStream_t stream) {
  LinearBackwardWeight<<<TileGrid(width, width), kTileBlock, 0, stream>>>(h, pre, weight_gradient, rows,
                                                                          width);
  CHECK_CUDA(cudaGetLastError());
}

void LaunchLinearBackwardInput(const float* output_gradient, const float* pre, const float* weight,
                               float* input_gradient, int rows, int width, cudaStream_t stream) {
  LinearBackwardInput<<<TileGrid(rows, width), kTileBlock, 0, stream>>>(output_gradient, pre, weight,
                                                                        input_gradient, rows, width);
  CHECK_CUDA(cudaGetLastError());
}

void LaunchMseLoss(const float* prediction, const float* target, float* gradient, float* loss, int count,
                   cudaStream_t stream) {
  MseLoss<<<Blocks(count, kBlock), kBlock, 0, stream>>>(prediction, target, gradient, loss, count);
  CHECK_CUDA(cudaGetLastError());
}

void LaunchAdamStep(float* weight, const float* gradient, float* first_moment, float* second_moment,
                    float scale, float learning_rate, int step, int count, cudaStream_t stream) {
  const float first_correction = 1.0F - powf(0.9F, static_cast<float>(step));
  const float second_correction = 1.0F - powf(0.999F, static_cast<float>(step));
  AdamStep<<<Blocks(count, kBlock), kBlock, 0, stream>>>(weight, gradient, first_moment, second_moment, scale,
                                                         learning_rate, first_correction, second_correction,
                                                         count);
  CHECK_CUDA(cudaGetLastError());
}

void LaunchFillUniform(float* values, int count, float bound, unsigned seed, cudaStream_t stream) {
  FillUniform<<<Blocks(count, kBlock), kBlock, 0, stream>>>(values, count, bound, seed);
  CHECK_CUDA(cudaGetLastError());
}

void LaunchChecksum(const float* values, int count, double* sum, cudaStream_t stream) {
  Checksum<<<1, kBlock, 0, stream>>>(values, count, sum);
  CHECK_CUDA(cudaGetLastError());
}

}  // namespace gpuprobe::samples
