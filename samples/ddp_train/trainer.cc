#include "samples/ddp_train/trainer.h"

#include <algorithm>
#include <cmath>

#include "samples/common/check.h"
#include "samples/common/check_nccl.h"
#include "samples/common/range.h"
#include "samples/ddp_train/kernels.h"

namespace gpuprobe::samples {
namespace {

// What is kept for good is counted in `held_bytes`.
float* AllocateFloats(int count, size_t* held_bytes = nullptr) {
  float* values = nullptr;
  CHECK_CUDA(cudaMalloc(&values, static_cast<size_t>(count) * sizeof(float)));
  if (held_bytes != nullptr) *held_bytes += static_cast<size_t>(count) * sizeof(float);
  return values;
}

int CurrentDevice() {
  int device = 0;
  CHECK_CUDA(cudaGetDevice(&device));
  return device;
}

}  // namespace

Trainer::Trainer(const Options& options, const RankIdentity& identity, ncclComm_t world)
    : options_(options),
      identity_(identity),
      world_(world),
      input_(options, identity.rank),
      autograd_("pt_autograd_0", CurrentDevice()) {
  CHECK_CUDA(cudaStreamCreateWithFlags(&compute_, cudaStreamNonBlocking));
  CHECK_CUDA(cudaStreamCreateWithFlags(&comm_, cudaStreamNonBlocking));
  loss_ = AllocateFloats(1, &memory_.other);
  memory_.other += input_.DeviceBytes();
  CHECK_CUDA(cudaMallocHost(&host_loss_, sizeof(float)));
  AllocateLayers();
  AllocateBuckets();
  InitializeWeights();
}

Trainer::~Trainer() {
  CHECK_CUDA(cudaDeviceSynchronize());
  FreeWorkspace();
  for (const Bucket& bucket : buckets_) {
    CHECK_CUDA(cudaFree(bucket.gradients));
    CHECK_CUDA(cudaEventDestroy(bucket.ready));
    CHECK_CUDA(cudaEventDestroy(bucket.reduced));
  }
  for (const Layer& layer : layers_) {
    for (float* values :
         {layer.weight, layer.first_moment, layer.second_moment, layer.activation, layer.output}) {
      CHECK_CUDA(cudaFree(values));
    }
  }
  CHECK_CUDA(cudaFreeHost(host_loss_));
  CHECK_CUDA(cudaFree(loss_));
  CHECK_CUDA(cudaStreamDestroy(comm_));
  CHECK_CUDA(cudaStreamDestroy(compute_));
}

void Trainer::AllocateLayers() {
  layers_.resize(static_cast<size_t>(options_.layers));
  for (Layer& layer : layers_) {
    layer.weight = AllocateFloats(LayerValues(), &memory_.weights);
    layer.first_moment = AllocateFloats(LayerValues(), &memory_.optimizer_state);
    layer.second_moment = AllocateFloats(LayerValues(), &memory_.optimizer_state);
    layer.activation = AllocateFloats(BatchValues(), &memory_.other);
    layer.output = AllocateFloats(BatchValues(), &memory_.other);
    const size_t bytes = static_cast<size_t>(LayerValues()) * sizeof(float);
    CHECK_CUDA(cudaMemsetAsync(layer.first_moment, 0, bytes, compute_));
    CHECK_CUDA(cudaMemsetAsync(layer.second_moment, 0, bytes, compute_));
  }
}

void Trainer::AllocateBuckets() {
  const double layer_mib = static_cast<double>(LayerValues()) * sizeof(float) / (1 << 20);
  const int per_bucket = std::max(1, static_cast<int>(options_.bucket_mib / layer_mib));
  for (int end = options_.layers; end > 0; end -= per_bucket) {
    Bucket bucket;
    bucket.first_layer = std::max(0, end - per_bucket);
    bucket.layers = end - bucket.first_layer;
    bucket.gradients = AllocateFloats(bucket.layers * LayerValues(), &memory_.gradients);
    CHECK_CUDA(cudaEventCreateWithFlags(&bucket.ready, cudaEventDisableTiming));
    CHECK_CUDA(cudaEventCreateWithFlags(&bucket.reduced, cudaEventDisableTiming));
    for (int i = 0; i < bucket.layers; ++i) {
      const int layer = bucket.first_layer + i;
      layers_[static_cast<size_t>(layer)].gradient =
          bucket.gradients + static_cast<size_t>(i) * static_cast<size_t>(LayerValues());
    }
    buckets_.push_back(bucket);
  }
}

void Trainer::InitializeWeights() {
  const float bound = 0.5F / std::sqrt(static_cast<float>(options_.width));
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto seed = static_cast<unsigned>(i) + 1000U * static_cast<unsigned>(identity_.rank);
    LaunchFillUniform(layers_[i].weight, LayerValues(), bound, seed, compute_);
  }
  CHECK_NCCL(ncclGroupStart());
  for (const Layer& layer : layers_) {
    CHECK_NCCL(ncclBroadcast(layer.weight, layer.weight, static_cast<size_t>(LayerValues()), ncclFloat, 0,
                             world_, compute_));
  }
  CHECK_NCCL(ncclGroupEnd());
  CHECK_CUDA(cudaStreamSynchronize(compute_));
}

void Trainer::AllocateWorkspace() {
  if (product_gradient_ != nullptr) return;
  for (float*& gradient : output_gradients_) gradient = AllocateFloats(BatchValues());
  product_gradient_ = AllocateFloats(BatchValues());
}

void Trainer::FreeWorkspace() {
  if (product_gradient_ == nullptr) return;
  for (float*& gradient : output_gradients_) {
    CHECK_CUDA(cudaFree(gradient));
    gradient = nullptr;
  }
  CHECK_CUDA(cudaFree(product_gradient_));
  product_gradient_ = nullptr;
}

void Trainer::Step() {
  const Range step_range("step", options_.nvtx);
  ++step_;
  InputPipeline::Batch batch;
  {
    const Range range("input", options_.nvtx);
    batch = input_.Next(compute_);
  }
  {
    const Range range("forward", options_.nvtx);
    Forward(batch.x);
  }
  {
    const Range range("backward", options_.nvtx);
    autograd_.RunAndWait([this, &batch] { Backward(batch); });
  }
  input_.Release(compute_);
  {
    const Range range("optimizer", options_.nvtx);
    Optimize();
  }
}

void Trainer::Forward(const float* x) {
  const float* h = x;
  for (const Layer& layer : layers_) {
    LaunchLinearForward(h, layer.weight, layer.activation, layer.output, options_.batch, options_.width,
                        compute_);
    h = layer.output;
  }
}

void Trainer::Backward(const InputPipeline::Batch& batch) {
  AllocateWorkspace();
  float* output_gradient = output_gradients_[0];
  float* input_gradient = output_gradients_[1];
  CHECK_CUDA(cudaMemsetAsync(loss_, 0, sizeof(float), compute_));
  LaunchMseLoss(layers_.back().output, batch.y, output_gradient, loss_, BatchValues(), compute_);
  for (const Bucket& bucket : buckets_) {
    for (int i = bucket.first_layer + bucket.layers - 1; i >= bucket.first_layer; --i) {
      const Layer& layer = layers_[static_cast<size_t>(i)];
      const float* h = i == 0 ? batch.x : layers_[static_cast<size_t>(i) - 1].output;
      LaunchTanhBackward(output_gradient, layer.activation, product_gradient_, BatchValues(), compute_);
      LaunchLinearBackwardWeight(h, product_gradient_, layer.gradient, options_.batch, options_.width,
                                 compute_);
      if (i == 0) break;  // nobody wants the gradient by the input data
      LaunchLinearBackwardInput(output_gradient, product_gradient_, layer.weight, input_gradient,
                                options_.batch, options_.width, compute_);
      std::swap(output_gradient, input_gradient);
    }
    ReduceBucket(bucket);
  }
}

void Trainer::ReduceBucket(const Bucket& bucket) {
  CHECK_CUDA(cudaEventRecord(bucket.ready, compute_));
  CHECK_CUDA(cudaStreamWaitEvent(comm_, bucket.ready, 0));
  CHECK_NCCL(ncclAllReduce(bucket.gradients, bucket.gradients,
                           static_cast<size_t>(bucket.layers) * static_cast<size_t>(LayerValues()), ncclFloat,
                           ncclSum, world_, comm_));
  CHECK_CUDA(cudaEventRecord(bucket.reduced, comm_));
}

void Trainer::Optimize() {
  const float scale = 1.0F / static_cast<float>(identity_.world_size);
  for (const Bucket& bucket : buckets_) {
    CHECK_CUDA(cudaStreamWaitEvent(compute_, bucket.reduced, 0));
    for (int i = bucket.first_layer; i < bucket.first_layer + bucket.layers; ++i) {
      const Layer& layer = layers_[static_cast<size_t>(i)];
      LaunchAdamStep(layer.weight, layer.gradient, layer.first_moment, layer.second_moment, scale,
                     static_cast<float>(options_.learning_rate), step_, LayerValues(), compute_);
    }
  }
  CHECK_CUDA(cudaMemcpyAsync(host_loss_, loss_, sizeof(float), cudaMemcpyDeviceToHost, compute_));
}

float Trainer::ReadLoss() {
  CHECK_CUDA(cudaStreamSynchronize(compute_));
  return *host_loss_;
}

float Trainer::Evaluate() {
  CHECK_CUDA(cudaStreamSynchronize(compute_));
  FreeWorkspace();
  const Range range("evaluate", options_.nvtx);
  const InputPipeline::Batch batch = input_.Next(compute_);
  float* unused_gradient = AllocateFloats(BatchValues());
  Forward(batch.x);
  CHECK_CUDA(cudaMemsetAsync(loss_, 0, sizeof(float), compute_));
  LaunchMseLoss(layers_.back().output, batch.y, unused_gradient, loss_, BatchValues(), compute_);
  input_.Release(compute_);
  CHECK_CUDA(cudaMemcpyAsync(host_loss_, loss_, sizeof(float), cudaMemcpyDeviceToHost, compute_));
  CHECK_CUDA(cudaStreamSynchronize(compute_));
  CHECK_CUDA(cudaFree(unused_gradient));
  return *host_loss_;
}

std::vector<double> Trainer::WeightChecksums() {
  const auto world_size = static_cast<size_t>(identity_.world_size);
  double* sums = nullptr;  // one a layer
  CHECK_CUDA(cudaMalloc(&sums, layers_.size() * sizeof(double)));
  for (size_t i = 0; i < layers_.size(); ++i)
    LaunchChecksum(layers_[i].weight, LayerValues(), sums + i, compute_);
  double* all = nullptr;
  CHECK_CUDA(cudaMalloc(&all, world_size * layers_.size() * sizeof(double)));
  CHECK_NCCL(ncclAllGather(sums, all, layers_.size(), ncclDouble, world_, compute_));
  std::vector<double> host(world_size * layers_.size());
  CHECK_CUDA(
      cudaMemcpyAsync(host.data(), all, host.size() * sizeof(double), cudaMemcpyDeviceToHost, compute_));
  CHECK_CUDA(cudaStreamSynchronize(compute_));
  CHECK_CUDA(cudaFree(all));
  CHECK_CUDA(cudaFree(sums));
  std::vector<double> checksums(world_size, 0.0);
  for (size_t rank = 0; rank < world_size; ++rank) {
    // Weighted by position, so that two layers that changed places are noticed.
    for (size_t i = 0; i < layers_.size(); ++i) {
      checksums[rank] += static_cast<double>(i + 1) * host[rank * layers_.size() + i];
    }
  }
  return checksums;
}

}  // namespace gpuprobe::samples
