#include "collector/simulate/step_programs.h"

#include <algorithm>
#include <cmath>

#include "collector/simulate/random.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::simulate {
namespace {

constexpr uint8_t kCompute = 0;
constexpr uint8_t kTensorStream = 3;
constexpr uint8_t kReceiveForward = 4;
constexpr uint8_t kSendForward = 5;
constexpr uint8_t kReceiveBackward = 6;
constexpr uint8_t kSendBackward = 7;

constexpr uint64_t kFirstAddress = 0x7f00'0000'0000;
constexpr uint64_t kActivationSegments = 8;
// Tensors, by kind.
constexpr uint64_t kTensorAddress = 0x6000'0000'0000;
constexpr uint64_t kTensorRegion = 0x0100'0000'0000;
constexpr uint64_t kWorkspaceBytes = 16 * kMiB;

enum TensorRegion : int {
  kWeights,
  kOptimizerStates,
  kActivations,
  kGradients,
  kWorkspaces,
  kForgotten,
  kFrozen
};

enum RangeName : uint32_t {
  kStepRange,
  kInputRange,
  kForwardRange,
  kBackwardRange,
  kOptimizerRange,
  kEvaluationRange
};

struct LayerKernel {
  Kernel kernel;
  int64_t duration_ns;
  double gradient_share = 0;  // of the layer's gradients that are ready after it
  bool is_part = false;       // the ranks of a tensor group add their parts up after it
};

constexpr LayerKernel kForward[] = {
    {Kernel::kLayerNormForward, 30'000},
    {Kernel::kGemmForward, 220'000},
    {Kernel::kAttentionForward, 180'000},
    {Kernel::kGemmForward, 90'000, 0, true},
    {Kernel::kAdd, 25'000},
    {Kernel::kLayerNormForward, 30'000},
    {Kernel::kGemmForward, 300'000},
    {Kernel::kGeluForward, 60'000},
    {Kernel::kGemmForward, 300'000, 0, true},
    {Kernel::kAdd, 25'000},
};

constexpr LayerKernel kBackward[] = {
    {Kernel::kGemmBackwardInput, 300'000},
    {Kernel::kGemmBackwardWeight, 310'000, 4.0 / 12},
    {Kernel::kGeluBackward, 70'000},
    {Kernel::kGemmBackwardInput, 300'000},
    {Kernel::kGemmBackwardWeight, 310'000, 4.0 / 12, true},
    {Kernel::kLayerNormBackward, 45'000},
    {Kernel::kAdd, 25'000},
    {Kernel::kGemmBackwardInput, 90'000},
    {Kernel::kGemmBackwardWeight, 95'000, 1.0 / 12},
    {Kernel::kAttentionBackward, 420'000},
    {Kernel::kGemmBackwardInput, 220'000},
    {Kernel::kGemmBackwardWeight, 230'000, 3.0 / 12, true},
    {Kernel::kLayerNormBackward, 45'000},
    {Kernel::kAdd, 25'000},
};

constexpr int kAdamKernels = 4;
constexpr int64_t kAdamNs = 350'000;

// From -1 to 1, another in every step of every rank.
double SpreadOf(int rank, int step) {
  Random random(static_cast<uint64_t>(step) * 1'000'003 + static_cast<uint64_t>(rank));
  return 2 * random.Uniform() - 1;
}

// One program's emission: the job, who it is for, and the step's factor on everything.
class StepBuilder {
 public:
  StepBuilder(const TrainingJob& job, int rank, int step, Program& program)
      : job_(job),
        program_(program),
        rank_(rank),
        step_(step),
        stage_(rank / job.tensor / job.data()),
        layers_(job.layers / job.pipeline) {
    double length = 1;
    if (!job.input.lengths.empty())
      length = job.input.lengths[static_cast<size_t>(step) % job.input.lengths.size()];
    if (job.slow.by == SlowBy::kMoreWork && IsSlow(job, rank, step)) length *= job.slow.factor;
    length *= 1 + job.input.spread * SpreadOf(rank, step);
    length_ = length;
    factor_ = job.work * length;
    if (step >= 0 && step < job.warmup.steps) factor_ *= job.warmup.factor;
    program.SetGridPercent(static_cast<uint16_t>(std::lround(100 * length)));
  }

  void Step();
  void Evaluation();

 private:
  void Launch(Kernel kernel, int64_t duration_ns) {
    program_.Launch(kernel, static_cast<int64_t>(static_cast<double>(duration_ns) * factor_));
  }
  // A layer's kernel, of which each rank of a tensor group has a part.
  void Launch(const LayerKernel& kernel) {
    Launch(kernel.kernel, kernel.duration_ns / job_.tensor);
    if (kernel.is_part) ReduceTensor();
  }
  // An operation on bytes of which each data rank has its share.
  void Share(CollectiveOp op, uint64_t bytes) {
    program_.Collective(op, 0, bytes / static_cast<uint64_t>(job_.data()), kDataStream);
  }
  void Push(RangeName name) {
    if (job_.nvtx) program_.PushRange(name);
  }
  void Pop() {
    if (job_.nvtx) program_.PopRange();
  }
  bool hangs() const { return job_.hang.by != HangBy::kNothing && step_ == job_.hang.step; }
  bool Dies() const { return rank_ == job_.death.rank && step_ == job_.death.step; }
  bool IsCulprit() const { return hangs() && rank_ == job_.hang.rank; }

  void Input();
  void Forward();
  void Backward(bool reduce);
  void TinyKernels();
  void Microbatches();
  void OneForwardOneBackward();
  void Optimizer();
  void Memory();
  void MemoryAfter();
  void Activations(bool release);
  void AllocatorLevel(uint64_t activations, uint64_t cached);
  void ReadLoss();
  void Pause();
  void OutOfMemory();
  void Tensors(int region, uint64_t all_bytes, int layer, bool release = false);
  void SyncAfterLayer();
  void ReduceTensor();
  void Gather(int layer);
  void AwaitWeights(int layer, int next);
  void GatherWeights();
  void Reduce(uint64_t bytes);
  void ReduceReady(double produced_bytes);
  void Transfer(CollectiveOp op, uint8_t stream, int peer);
  uint64_t activation_transfer_bytes() const {
    const auto usual = static_cast<double>(std::max<uint64_t>(job_.input.batch_bytes, 8 * kMiB));
    return static_cast<uint64_t>(usual * length_);
  }

  const TrainingJob& job_;
  Program& program_;
  int rank_;
  int step_;
  int stage_;
  int layers_;
  double length_ = 1;
  double factor_ = 1;
  std::vector<uint64_t> buckets_;
  size_t next_bucket_ = 0;
  uint64_t reduced_bytes_ = 0;
  uint32_t gathered_[2] = {0, 0};  // events of the two latest gathers
};

void StepBuilder::Input() {
  program_.SetPhase(Phase::kInput);
  Push(kInputRange);
  int64_t wait = job_.input.wait_ns;
  if (job_.slow.by == SlowBy::kInput && IsSlow(job_, rank_, step_))
    wait = static_cast<int64_t>(static_cast<double>(wait) * job_.slow.factor);
  program_.HostWork(wait, HostCause::kInput);
  program_.SetPhase(Phase::kCopyIn);
  const auto bytes = static_cast<uint64_t>(static_cast<double>(job_.input.batch_bytes) * length_);
  program_.Copy(v1::COPY_DIRECTION_H2D, bytes,
                job_.input.pageable ? MemoryPlace::kPageable : MemoryPlace::kPinned, kCompute,
                job_.input.pageable);
  Pop();
}

void StepBuilder::SyncAfterLayer() {
  if (!job_.host.syncs) return;
  program_.SyncDevice();
  if (job_.host.sync_work_ns > 0) program_.HostWork(job_.host.sync_work_ns);
}

void StepBuilder::ReduceTensor() {
  if (job_.tensor == 1) return;
  program_.Order(kCompute, kTensorStream);
  program_.Collective(CollectiveOp::kAllReduce, 1, 64 * kMiB, kTensorStream);
  program_.Order(kTensorStream, kCompute);
}

// A layer's weights, where they are sharded.
void StepBuilder::Gather(int layer) {
  if (!job_.sharded || layer < 0 || layer >= layers_) return;
  Share(CollectiveOp::kAllGather, job_.gradients.layer_bytes);
  gathered_[layer % 2] = program_.Record(kDataStream);
}

// Those of the `next` layer are gathered meanwhile.
void StepBuilder::AwaitWeights(int layer, int next) {
  if (!job_.sharded) return;
  const uint32_t ready = gathered_[layer % 2];
  Gather(next);
  program_.Wait(ready, kCompute);
}

void StepBuilder::TinyKernels() {
  static constexpr Kernel kTiny[] = {Kernel::kAdd, Kernel::kLayerNormForward, Kernel::kGeluForward,
                                     Kernel::kReduce};
  program_.SetPhase(Phase::kForward);
  for (int i = 0; i < job_.tiny_kernels / 3; ++i) Launch(kTiny[i % 4], 3'000);
  program_.SetPhase(Phase::kBackward);
  program_.Thread(RankStream::kAutogradThread);
  for (int i = 0; i < job_.tiny_kernels * 2 / 3; ++i) Launch(kTiny[i % 4], 3'000);
  for (const uint64_t bytes : buckets_) Reduce(bytes);
  program_.Thread(RankStream::kMainThread);
}

void StepBuilder::Forward() {
  program_.SetPhase(Phase::kForward);
  Push(kForwardRange);
  if (stage_ == 0) Launch(Kernel::kEmbedding, 40'000);
  Gather(0);
  for (int layer = 0; layer < layers_; ++layer) {
    AwaitWeights(layer, layer + 1);
    Tensors(kActivations, job_.memory.activation_bytes, layer);
    Tensors(kWorkspaces, kWorkspaceBytes * static_cast<uint64_t>(layers_), 0);
    Tensors(kForgotten, job_.memory.leak_bytes, layer + step_ * layers_);
    for (const LayerKernel& kernel : kForward) Launch(kernel);
    Tensors(kWorkspaces, kWorkspaceBytes * static_cast<uint64_t>(layers_), 0, true);
    SyncAfterLayer();
  }
  if (stage_ == job_.pipeline - 1) Launch(Kernel::kLossForward, 50'000);
  Pop();
}

void StepBuilder::Reduce(uint64_t bytes) {
  const bool first = next_bucket_ == 0;
  ++next_bucket_;
  reduced_bytes_ += bytes;
  if (job_.data() == 1) return;
  program_.Order(kCompute, kDataStream);
  if (job_.zero > 0) {
    Share(CollectiveOp::kReduceScatter, bytes);
    return;
  }
  const bool strange = IsCulprit() && first;
  program_.Collective(CollectiveOp::kAllReduce, 0,
                      strange && job_.hang.by == HangBy::kMismatch ? bytes / 2 : bytes, kDataStream);
  if (strange && job_.hang.by == HangBy::kAllIssued) program_.Last().failed = true;
}

void StepBuilder::ReduceReady(double produced_bytes) {
  while (next_bucket_ + 1 < buckets_.size() &&
         static_cast<double>(reduced_bytes_ + buckets_[next_bucket_]) <= produced_bytes) {
    Reduce(buckets_[next_bucket_]);
  }
}

void StepBuilder::Backward(bool reduce) {
  program_.SetPhase(Phase::kBackward);
  Push(kBackwardRange);
  if (!job_.graph) program_.Thread(RankStream::kAutogradThread);
  if (IsCulprit() && job_.hang.by == HangBy::kMissingRank && !job_.graph)
    program_.Add(Instruction::Op::kStop);
  if (Dies()) program_.Add(Instruction::Op::kExit);
  if (stage_ == job_.pipeline - 1) Launch(Kernel::kLossBackward, 60'000);
  const bool in_buckets = reduce && !job_.sharded;
  const double all_bytes = static_cast<double>(job_.gradients.layer_bytes) * layers_;
  double produced = 0;
  Gather(layers_ - 1);
  for (int layer = layers_ - 1; layer >= 0; --layer) {
    AwaitWeights(layer, layer - 1);
    Tensors(kGradients, job_.gradient_bytes(), layer);
    for (const LayerKernel& kernel : kBackward) {
      Launch(kernel);
      if (kernel.gradient_share == 0) continue;
      produced += static_cast<double>(job_.gradients.layer_bytes) * kernel.gradient_share;
      if (in_buckets && job_.gradients.overlap && produced >= job_.gradients.overlap_from * all_bytes)
        ReduceReady(produced);
    }
    Tensors(kActivations, job_.memory.activation_bytes, layer, true);
    SyncAfterLayer();
    if (job_.sharded) {
      program_.Order(kCompute, kDataStream);
      Share(CollectiveOp::kReduceScatter, job_.gradients.layer_bytes);
    }
  }
  if (stage_ == 0) Launch(Kernel::kEmbeddingBackward, job_.tail_ns);
  if (in_buckets) {
    while (next_bucket_ < buckets_.size()) Reduce(buckets_[next_bucket_]);
  }
  if (!job_.graph) program_.Thread(RankStream::kMainThread);
  Pop();
}

void StepBuilder::Microbatches() {
  for (int i = 0; i < job_.microbatches; ++i) {
    Forward();
    Backward(i + 1 == job_.microbatches);
  }
}

void StepBuilder::Transfer(CollectiveOp op, uint8_t stream, int peer) {
  const auto comm = static_cast<uint8_t>(job_.tensor > 1 ? 2 : 1);
  program_.Order(kCompute, stream);
  program_.Collective(op, comm, activation_transfer_bytes(), stream, peer);
  if (op == CollectiveOp::kRecv) program_.Order(stream, kCompute);
}

void StepBuilder::OneForwardOneBackward() {
  const int last = job_.pipeline - 1;
  const int warmup = std::min(last - stage_, job_.microbatches);
  const auto forward = [&] {
    if (stage_ > 0) Transfer(CollectiveOp::kRecv, kReceiveForward, stage_ - 1);
    Forward();
    if (stage_ < last) Transfer(CollectiveOp::kSend, kSendForward, stage_ + 1);
  };
  int backwards = 0;
  const auto backward = [&] {
    if (stage_ < last) Transfer(CollectiveOp::kRecv, kReceiveBackward, stage_ + 1);
    Backward(++backwards == job_.microbatches);
    if (stage_ > 0) Transfer(CollectiveOp::kSend, kSendBackward, stage_ - 1);
  };
  for (int i = 0; i < warmup; ++i) forward();
  for (int i = warmup; i < job_.microbatches; ++i) {
    forward();
    backward();
  }
  for (int i = 0; i < warmup; ++i) backward();
}

void StepBuilder::Optimizer() {
  program_.SetPhase(Phase::kOptimizer);
  Push(kOptimizerRange);
  if (job_.data() > 1) program_.Order(kDataStream, kCompute);
  const int64_t share = job_.sharded || job_.zero > 0 ? job_.data() : 1;
  for (int layer = 0; step_ == 0 && layer < layers_; ++layer)
    Tensors(kOptimizerStates, job_.optimizer_bytes(), layer);
  for (int i = 0; i < kAdamKernels; ++i)
    Launch(Kernel::kAdam, kAdamNs * layers_ / job_.layers / job_.tensor / share);
  Launch(Kernel::kZeroGradients, 60'000 / share);
  if (job_.zero > 0) GatherWeights();
  Pop();
}

// Each rank has updated its share.
void StepBuilder::GatherWeights() {
  program_.Order(kCompute, kDataStream);
  for (const uint64_t bytes : buckets_) Share(CollectiveOp::kAllGather, bytes);
  program_.Order(kDataStream, kCompute);
}

// The layer's share of all of that kind.
void StepBuilder::Tensors(int region, uint64_t all_bytes, int layer, bool release) {
  const uint64_t bytes = all_bytes / static_cast<uint64_t>(layers_);
  if (!job_.memory.tensors || bytes == 0) return;
  const uint64_t address =
      kTensorAddress + kTensorRegion * static_cast<uint64_t>(region) + bytes * static_cast<uint64_t>(layer);
  if (release) {
    program_.FreeTensor(address, bytes);
  } else {
    program_.Tensor(address, bytes);
  }
}

void StepBuilder::OutOfMemory() {
  constexpr uint64_t kAsked = uint64_t{2} << 30;
  program_.Allocate(0, kAsked, true);
  program_.Add(Instruction::Op::kAllocatorRefusal).bytes = kAsked;
  program_.Add(Instruction::Op::kExit);
}

// The allocator's segments for them.
void StepBuilder::Activations(bool release) {
  const uint64_t bytes = job_.memory.activation_bytes / kActivationSegments;
  for (uint64_t i = 0; i < kActivationSegments; ++i) {
    const uint64_t address = kFirstAddress + job_.held_bytes() + bytes * i;
    if (release) {
      program_.Free(address, bytes);
    } else {
      program_.Allocate(address, bytes);
    }
  }
}

// `cached`: what the allocator keeps for activations.
void StepBuilder::AllocatorLevel(uint64_t activations, uint64_t cached) {
  const auto step = static_cast<uint64_t>(step_);
  const uint64_t held = job_.held_bytes() + job_.memory.leak_bytes * (step + 1);
  const uint64_t fragments = job_.memory.fragment_bytes * std::min<uint64_t>(step, 10) / 10;
  program_.AllocatorLevel(held + activations, held + cached + fragments);
}

void StepBuilder::Memory() {
  if (step_ == job_.memory.refuses_in_step && rank_ == job_.slow.rank) {
    OutOfMemory();
    return;
  }
  if (step_ == 0 || job_.memory.allocates_every_step) Activations(/*release=*/false);
  const auto step = static_cast<uint64_t>(step_);
  const uint64_t above = kFirstAddress + job_.held_bytes() + job_.memory.activation_bytes;
  const uint64_t leak = job_.memory.leak_bytes;
  const uint64_t fragments = job_.memory.fragment_bytes;
  if (leak > 0) program_.Allocate(above + leak * step, leak);
  if (fragments > 0 && step > 0 && step <= 10) program_.Allocate(above + fragments * step, fragments / 10);
  AllocatorLevel(job_.memory.activation_bytes, job_.memory.activation_bytes);
}

void StepBuilder::MemoryAfter() {
  for (int layer = 0; layer < layers_; ++layer) Tensors(kGradients, job_.gradient_bytes(), layer, true);
  if (job_.memory.allocates_every_step) Activations(/*release=*/true);
  AllocatorLevel(0, job_.memory.allocates_every_step ? 0 : job_.memory.activation_bytes);
}

void StepBuilder::ReadLoss() {
  program_.SetPhase(Phase::kOther);
  program_.Copy(v1::COPY_DIRECTION_D2H, 4, MemoryPlace::kPageable, kCompute);
  program_.SyncStream(kCompute);
}

void StepBuilder::Step() {
  buckets_ = Buckets(job_);
  Push(kStepRange);
  Input();
  if (step_ == 0) program_.HostWork(job_.warmup.compile_ns);
  Memory();
  if (job_.graph) {
    if (IsCulprit() && job_.hang.by == HangBy::kMissingRank) program_.Add(Instruction::Op::kStop);
    program_.Add(Instruction::Op::kGraphBegin).id = 0;
  }
  if (job_.tiny_kernels > 0) {
    TinyKernels();
  } else if (job_.pipeline > 1) {
    OneForwardOneBackward();
  } else {
    Microbatches();
  }
  Optimizer();
  if (job_.graph) program_.Add(Instruction::Op::kGraphEnd);
  MemoryAfter();
  if (job_.host.read_loss_every > 0 && (step_ + 1) % job_.host.read_loss_every == 0) ReadLoss();
  const bool dies = job_.death.rank >= 0 && step_ == job_.death.step;
  if (hangs() || dies || step_ == job_.memory.refuses_in_step) program_.SyncDevice();
  Pause();
  Pop();
}

void StepBuilder::Pause() {
  const HostPause& pause = job_.host.pause;
  // Neighbours are some steps apart; 7 shares no factor with most periods.
  const int shift = pause.staggered ? 7 * rank_ : 0;
  if (pause.ns == 0 || (pause.rank >= 0 && pause.rank != rank_) || (step_ + 1 + shift) % pause.every != 0)
    return;
  program_.SetPhase(Phase::kOther);
  program_.HostWork(pause.ns, HostCause::kFramework, pause.code);
}

void StepBuilder::Evaluation() {
  Push(kEvaluationRange);
  for (int i = 0; i < job_.evaluation.batches; ++i) {
    Input();
    Forward();
  }
  ReadLoss();
  Pop();
}

}  // namespace

const std::vector<std::string>& RangeNames() {
  static const auto* const kNames =
      new std::vector<std::string>{"step", "input", "forward", "backward", "optimizer", "evaluate"};
  return *kNames;
}

void BuildSetup(const TrainingJob& job, Program& program) {
  program.Clear();
  const uint64_t weights = job.weight_bytes() + job.memory.frozen_bytes;
  program.Allocate(kFirstAddress, weights);
  program.Allocate(kFirstAddress + weights, job.optimizer_bytes());
  program.AllocatorLevel(job.held_bytes(), job.held_bytes());
  if (job.memory.tensors) {
    program.Tensor(kTensorAddress + kTensorRegion * kWeights, job.weight_bytes());
    program.Tensor(kTensorAddress + kTensorRegion * kFrozen, job.memory.frozen_bytes);
  }
  program.Launch(Kernel::kFill, 200'000);
  if (job.data() > 1) {
    program.Order(kCompute, kDataStream);
    program.Collective(CollectiveOp::kBroadcast, 0, std::min<uint64_t>(weights, 256 * kMiB), kDataStream);
    program.Order(kDataStream, kCompute);
  }
  program.SyncDevice();
}

void BuildStep(const TrainingJob& job, int rank, int step, Program& program) {
  program.Clear();
  StepBuilder(job, rank, step, program).Step();
}

void BuildEvaluation(const TrainingJob& job, int rank, int step, Program& program) {
  program.Clear();
  if (job.evaluation.every == 0 || (step + 1) % job.evaluation.every != 0) return;
  StepBuilder(job, rank, step, program).Evaluation();
}

}  // namespace gpuprobe::simulate
