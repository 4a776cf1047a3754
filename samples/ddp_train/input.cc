#include "samples/ddp_train/input.h"

#include <cmath>
#include <cstring>
#include <random>

#include "samples/common/check.h"

namespace gpuprobe::samples {
namespace {

constexpr int kBatches = 8;

std::vector<float> MakeBatch(int rows, int width, std::mt19937* random) {
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  const size_t values = static_cast<size_t>(rows) * static_cast<size_t>(width);
  std::vector<float> batch(2 * values);
  for (size_t i = 0; i < values; ++i) batch[i] = uniform(*random);
  for (int row = 0; row < rows; ++row) {
    const float* x = &batch[static_cast<size_t>(row) * static_cast<size_t>(width)];
    float* y = &batch[values + static_cast<size_t>(row) * static_cast<size_t>(width)];
    for (int j = 0; j < width; ++j) y[j] = x[j] + std::tanh(x[(j + 1) % width]);
  }
  return batch;
}

}  // namespace

InputPipeline::InputPipeline(const Options& options, int rank)
    : values_(static_cast<size_t>(options.batch) * static_cast<size_t>(options.width)) {
  std::mt19937 random(static_cast<unsigned>(1000 + rank));
  for (int i = 0; i < kBatches; ++i) batches_.push_back(MakeBatch(options.batch, options.width, &random));
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  for (Slot& slot : slots_) {
    CHECK_CUDA(cudaMallocHost(&slot.host, 2 * values_ * sizeof(float)));
    CHECK_CUDA(cudaMalloc(&slot.device, 2 * values_ * sizeof(float)));
    CHECK_CUDA(cudaEventCreateWithFlags(&slot.copied, cudaEventDisableTiming));
    CHECK_CUDA(cudaEventCreateWithFlags(&slot.used, cudaEventDisableTiming));
  }
}

InputPipeline::~InputPipeline() {
  for (const Slot& slot : slots_) {
    CHECK_CUDA(cudaEventDestroy(slot.used));
    CHECK_CUDA(cudaEventDestroy(slot.copied));
    CHECK_CUDA(cudaFree(slot.device));
    CHECK_CUDA(cudaFreeHost(slot.host));
  }
  CHECK_CUDA(cudaStreamDestroy(stream_));
}

InputPipeline::Batch InputPipeline::Next(cudaStream_t compute) {
  const Slot& slot = slots_[next_ % kSlots];
  const std::vector<float>& batch = batches_[next_ % batches_.size()];
  // The host buffer is free once its last copy is done, the device buffer once the step that read it is.
  CHECK_CUDA(cudaEventSynchronize(slot.copied));
  std::memcpy(slot.host, batch.data(), batch.size() * sizeof(float));
  CHECK_CUDA(cudaStreamWaitEvent(stream_, slot.used, 0));
  CHECK_CUDA(
      cudaMemcpyAsync(slot.device, slot.host, values_ * sizeof(float), cudaMemcpyHostToDevice, stream_));
  CHECK_CUDA(cudaMemcpyAsync(slot.device + values_, slot.host + values_, values_ * sizeof(float),
                             cudaMemcpyHostToDevice, stream_));
  CHECK_CUDA(cudaEventRecord(slot.copied, stream_));
  CHECK_CUDA(cudaStreamWaitEvent(compute, slot.copied, 0));
  return {slot.device, slot.device + values_};
}

void InputPipeline::Release(cudaStream_t compute) {
  CHECK_CUDA(cudaEventRecord(slots_[next_ % kSlots].used, compute));
  ++next_;
}

}  // namespace gpuprobe::samples
