// The GPU work of the training loop: matrix products and element-wise kernels, launched on a stream.
//
// Matrices are row-major floats. A layer maps h to h + tanh(h W): `rows` samples of `width` features.
#pragma once

#include <cuda_runtime.h>

namespace gpuprobe::samples {

// activation = tanh(h weight); next = h + activation.
void LaunchLinearForward(const float* h, const float* weight, float* activation, float* next, int rows,
                         int width, cudaStream_t stream);

// pre = gradient of the loss by h W, from that by the layer's output and the saved activation.
void LaunchTanhBackward(const float* output_gradient, const float* activation, float* pre, int count,
                        cudaStream_t stream);

// weight_gradient = h^T pre.
void LaunchLinearBackwardWeight(const float* h, const float* pre, float* weight_gradient, int rows, int width,
                                cudaStream_t stream);

// input_gradient = output_gradient + pre weight^T.
void LaunchLinearBackwardInput(const float* output_gradient, const float* pre, const float* weight,
                               float* input_gradient, int rows, int width, cudaStream_t stream);

// Adds the mean squared error to *loss (zero it first); gradient = its derivative by the prediction.
void LaunchMseLoss(const float* prediction, const float* target, float* gradient, float* loss, int count,
                   cudaStream_t stream);

// One Adam update. `gradient` is the sum over the ranks; `scale` makes it the mean. `step` counts from 1.
void LaunchAdamStep(float* weight, const float* gradient, float* first_moment, float* second_moment,
                    float scale, float learning_rate, int step, int count, cudaStream_t stream);

// Pseudo-random weights, uniform in +-bound, the same for the same seed.
void LaunchFillUniform(float* values, int count, float bound, unsigned seed, cudaStream_t stream);

// *sum = sum of all values, in a fixed order, so that equal inputs give equal bits on every rank.
void LaunchChecksum(const float* values, int count, double* sum, cudaStream_t stream);

}  // namespace gpuprobe::samples
