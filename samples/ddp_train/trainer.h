// The model, its optimizer and the data-parallel step: forward, backward with bucketed all-reduce behind it,
// Adam.
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include <vector>

#include "samples/common/ranks.h"
#include "samples/ddp_train/input.h"
#include "samples/ddp_train/options.h"
#include "samples/ddp_train/worker_thread.h"

namespace gpuprobe::samples {

class Trainer {
 public:
  // Every rank draws weights of its own; rank 0's are then broadcast, as data-parallel wrappers do.
  Trainer(const Options& options, const RankIdentity& identity, ncclComm_t world);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  void Step();
  // Forward only, on the next batch; waits for the result. The backward workspace is released meanwhile.
  float Evaluate();
  // Waits for the last step and returns its loss on this rank.
  float ReadLoss();
  // One checksum of all weights for each rank, in rank order.
  std::vector<double> WeightChecksums();

  // Device memory that the trainer holds from its construction on.
  struct Memory {
    size_t weights = 0;
    size_t gradients = 0;
    size_t optimizer_state = 0;
    size_t other = 0;  // activations, input
  };
  const Memory& memory() const { return memory_; }

 private:
  // Gradients of adjacent layers that are reduced in one call, in one allocation.
  struct Bucket {
    int first_layer = 0;  // the lowest; the backward pass reaches it last
    int layers = 0;
    float* gradients = nullptr;
    cudaEvent_t ready = nullptr;    // gradients computed
    cudaEvent_t reduced = nullptr;  // all-reduce done
  };
  struct Layer {
    float* weight = nullptr;
    float* gradient = nullptr;  // inside its bucket
    float* first_moment = nullptr;
    float* second_moment = nullptr;
    float* activation = nullptr;
    float* output = nullptr;
  };

  void AllocateLayers();
  void AllocateBuckets();
  void InitializeWeights();
  void AllocateWorkspace();
  void FreeWorkspace();
  void Forward(const float* x);
  void Backward(const InputPipeline::Batch& batch);
  void ReduceBucket(const Bucket& bucket);
  void Optimize();
  int BatchValues() const { return options_.batch * options_.width; }
  int LayerValues() const { return options_.width * options_.width; }

  const Options options_;
  const RankIdentity identity_;
  const ncclComm_t world_;
  cudaStream_t compute_ = nullptr;
  cudaStream_t comm_ = nullptr;
  std::vector<Layer> layers_;
  std::vector<Bucket> buckets_;  // in the order of the backward pass
  float* loss_ = nullptr;        // device
  float* host_loss_ = nullptr;   // pinned
  // Workspace of the backward pass: gradients of the loss by a layer's output (two, used in turns) and by its
  // product.
  float* output_gradients_[2] = {nullptr, nullptr};
  float* product_gradient_ = nullptr;
  int step_ = 0;
  Memory memory_;
  InputPipeline input_;
  WorkerThread autograd_;
};

}  // namespace gpuprobe::samples
