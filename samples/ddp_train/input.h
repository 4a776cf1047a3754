// The training data and its way to the device: batches from pinned host memory, copied on a stream of their
// own one step ahead of their use.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "samples/ddp_train/options.h"

namespace gpuprobe::samples {

class InputPipeline {
 public:
  // Every rank draws its own batches; the function to be learnt is the same for all: y[j] = x[j] + tanh(x[j +
  // 1]).
  InputPipeline(const Options& options, int rank);
  ~InputPipeline();
  InputPipeline(const InputPipeline&) = delete;
  InputPipeline& operator=(const InputPipeline&) = delete;

  struct Batch {
    const float* x = nullptr;  // device
    const float* y = nullptr;
  };
  // Copies the next batch and makes `compute` wait for it. Valid until the next but one call.
  Batch Next(cudaStream_t compute);

  // To be called when the work on a batch has been issued: its buffers are not overwritten before that work
  // is done.
  void Release(cudaStream_t compute);

  size_t DeviceBytes() const { return sizeof(float) * kSlots * 2 * values_; }

 private:
  static constexpr int kSlots = 2;
  struct Slot {
    float* host = nullptr;    // pinned: x, then y
    float* device = nullptr;  // the same
    cudaEvent_t copied = nullptr;
    cudaEvent_t used = nullptr;
  };

  size_t values_;                            // of x, or of y
  std::vector<std::vector<float>> batches_;  // each x, then y
  Slot slots_[kSlots];
  size_t next_ = 0;
  cudaStream_t stream_ = nullptr;
};

}  // namespace gpuprobe::samples
