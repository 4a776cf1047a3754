#include "collector/simulate/training_job.h"

#include <algorithm>
#include <cmath>
#include <iterator>

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
constexpr int kActivationSegments = 8;
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
  double gradient_share;  // of the layer's gradients that are ready after it
};

constexpr LayerKernel kForward[] = {
    {Kernel::kLayerNormForward, 30'000, 0},
    {Kernel::kGemmForward, 220'000, 0},
    {Kernel::kAttentionForward, 180'000, 0},
    {Kernel::kGemmForward, 90'000, 0},
    {Kernel::kAdd, 25'000, 0},
    {Kernel::kLayerNormForward, 30'000, 0},
    {Kernel::kGemmForward, 300'000, 0},
    {Kernel::kGeluForward, 60'000, 0},
    {Kernel::kGemmForward, 300'000, 0},
    {Kernel::kAdd, 25'000, 0},
};
// After these kernels of forward (and, mirrored, of backward) the ranks of a tensor group add their parts up.
constexpr size_t kForwardReductions[] = {3, 8};

constexpr LayerKernel kBackward[] = {
    {Kernel::kGemmBackwardInput, 300'000, 0},
    {Kernel::kGemmBackwardWeight, 310'000, 4.0 / 12},
    {Kernel::kGeluBackward, 70'000, 0},
    {Kernel::kGemmBackwardInput, 300'000, 0},
    {Kernel::kGemmBackwardWeight, 310'000, 4.0 / 12},
    {Kernel::kLayerNormBackward, 45'000, 0},
    {Kernel::kAdd, 25'000, 0},
    {Kernel::kGemmBackwardInput, 90'000, 0},
    {Kernel::kGemmBackwardWeight, 95'000, 1.0 / 12},
    {Kernel::kAttentionBackward, 420'000, 0},
    {Kernel::kGemmBackwardInput, 220'000, 0},
    {Kernel::kGemmBackwardWeight, 230'000, 3.0 / 12},
    {Kernel::kLayerNormBackward, 45'000, 0},
    {Kernel::kAdd, 25'000, 0},
};
constexpr size_t kBackwardReductions[] = {4, 11};

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
    if (!job.lengths.empty()) length = job.lengths[static_cast<size_t>(step) % job.lengths.size()];
    if (job.slow_by == SlowBy::kMoreWork && IsSlow(job, rank, step)) length *= job.slow_factor;
    length *= 1 + job.length_spread * SpreadOf(rank, step);
    length_ = length;
    factor_ = job.work * length;
    if (step >= 0 && step < job.warmup_steps) factor_ *= job.warmup_factor;
    program.SetGridPercent(static_cast<uint16_t>(std::lround(100 * length)));
  }

  void Step();
  void Evaluation();

 private:
  void Launch(Kernel kernel, int64_t duration_ns) {
    program_.Launch(kernel, static_cast<int64_t>(static_cast<double>(duration_ns) * factor_));
  }
  void Push(RangeName name) {
    if (job_.nvtx) program_.PushRange(name);
  }
  void Pop() {
    if (job_.nvtx) program_.PopRange();
  }
  bool hangs() const { return job_.hang != HangBy::kNothing && step_ == job_.hang_step; }
  bool IsCulprit() const { return hangs() && rank_ == job_.hang_rank; }

  void Input();
  void Forward();
  void Backward(bool reduce);
  void TinyKernels();
  void Microbatches();
  void OneForwardOneBackward();
  void Optimizer();
  void Memory();
  void MemoryAfter();
  void OutOfMemory();
  void Tensors(int region, uint64_t all_bytes, int layer, bool release = false);
  void SyncAfterLayer();
  void ReduceTensor();
  void Gather(int layer);
  void GatherWeights();
  void Reduce(uint64_t bytes);
  void ReduceReady(double produced_bytes);
  void Transfer(CollectiveOp op, uint8_t stream, int peer);
  uint64_t activation_transfer_bytes() const {
    const auto usual = static_cast<double>(std::max<uint64_t>(job_.batch_bytes, 8 * kMiB));
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
  int64_t wait = job_.input_wait_ns;
  if (job_.slow_by == SlowBy::kInput && IsSlow(job_, rank_, step_))
    wait = static_cast<int64_t>(static_cast<double>(wait) * job_.slow_factor);
  program_.HostWork(wait, HostCause::kInput);
  program_.SetPhase(Phase::kCopyIn);
  const auto bytes = static_cast<uint64_t>(static_cast<double>(job_.batch_bytes) * length_);
  program_.Copy(v1::COPY_DIRECTION_H2D, bytes, job_.pageable ? MemoryPlace::kPageable : MemoryPlace::kPinned,
                kCompute, job_.pageable);
  Pop();
}

void StepBuilder::SyncAfterLayer() {
  if (!job_.syncs) return;
  program_.SyncDevice();
  if (job_.sync_work_ns > 0) program_.HostWork(job_.sync_work_ns);
}

void StepBuilder::ReduceTensor() {
  if (job_.tensor == 1) return;
  program_.Order(kCompute, kTensorStream);
  program_.Collective(CollectiveOp::kAllReduce, 1, 64 * kMiB, kTensorStream);
  program_.Order(kTensorStream, kCompute);
}

void StepBuilder::Gather(int layer) {
  program_.Collective(CollectiveOp::kAllGather, 0, job_.layer_bytes / static_cast<uint64_t>(job_.data()),
                      kDataStream);
  gathered_[layer % 2] = program_.Record(kDataStream);
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
  if (job_.sharded) Gather(0);
  for (int layer = 0; layer < layers_; ++layer) {
    if (job_.sharded) {
      const uint32_t ready = gathered_[layer % 2];
      if (layer + 1 < layers_) Gather(layer + 1);
      program_.Wait(ready, kCompute);
    }
    Tensors(kActivations, job_.activation_bytes, layer);
    Tensors(kWorkspaces, kWorkspaceBytes * static_cast<uint64_t>(layers_), 0);
    Tensors(kForgotten, job_.leak_bytes, layer + step_ * layers_);
    for (size_t i = 0; i < std::size(kForward); ++i) {
      Launch(kForward[i].kernel, kForward[i].duration_ns / job_.tensor);
      if (std::find(std::begin(kForwardReductions), std::end(kForwardReductions), i) !=
          std::end(kForwardReductions))
        ReduceTensor();
    }
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
    program_.Collective(CollectiveOp::kReduceScatter, 0, bytes / static_cast<uint64_t>(job_.data()),
                        kDataStream);
    return;
  }
  const bool strange = IsCulprit() && first;
  program_.Collective(CollectiveOp::kAllReduce, 0,
                      strange && job_.hang == HangBy::kMismatch ? bytes / 2 : bytes, kDataStream);
  if (strange && job_.hang == HangBy::kAllIssued) program_.Last().failed = true;
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
  if (IsCulprit() && job_.hang == HangBy::kMissingRank && !job_.graph) program_.Add(Instruction::Op::kStop);
  if (stage_ == job_.pipeline - 1) Launch(Kernel::kLossBackward, 60'000);
  const bool in_buckets = reduce && !job_.sharded;
  const double all_bytes = static_cast<double>(job_.layer_bytes) * layers_;
  double produced = 0;
  if (job_.sharded) Gather(layers_ - 1);
  for (int layer = layers_ - 1; layer >= 0; --layer) {
    if (job_.sharded) {
      const uint32_t ready = gathered_[layer % 2];
      if (layer > 0) Gather(layer - 1);
      program_.Wait(ready, kCompute);
    }
    Tensors(kGradients, job_.gradient_bytes(), layer);
    for (size_t i = 0; i < std::size(kBackward); ++i) {
      Launch(kBackward[i].kernel, kBackward[i].duration_ns / job_.tensor);
      if (std::find(std::begin(kBackwardReductions), std::end(kBackwardReductions), i) !=
          std::end(kBackwardReductions))
        ReduceTensor();
      if (kBackward[i].gradient_share == 0) continue;
      produced += static_cast<double>(job_.layer_bytes) * kBackward[i].gradient_share;
      if (in_buckets && job_.overlap && produced >= job_.overlap_from * all_bytes) ReduceReady(produced);
    }
    Tensors(kActivations, job_.activation_bytes, layer, true);
    SyncAfterLayer();
    if (job_.sharded) {
      program_.Order(kCompute, kDataStream);
      program_.Collective(CollectiveOp::kReduceScatter, 0,
                          job_.layer_bytes / static_cast<uint64_t>(job_.data()), kDataStream);
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
  for (const uint64_t bytes : buckets_)
    program_.Collective(CollectiveOp::kAllGather, 0, bytes / static_cast<uint64_t>(job_.data()), kDataStream);
  program_.Order(kDataStream, kCompute);
}

// The layer's share of all of that kind.
void StepBuilder::Tensors(int region, uint64_t all_bytes, int layer, bool release) {
  const uint64_t bytes = all_bytes / static_cast<uint64_t>(layers_);
  if (!job_.tensors || bytes == 0) return;
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

void StepBuilder::Memory() {
  if (step_ == job_.out_of_memory_step && rank_ == job_.slow_rank) {
    OutOfMemory();
    return;
  }
  const uint64_t held = job_.held_bytes();
  const uint64_t segment = job_.activation_bytes / kActivationSegments;
  if (step_ == 0 || job_.allocates_every_step) {
    for (int i = 0; i < kActivationSegments; ++i)
      program_.Allocate(kFirstAddress + held + segment * static_cast<uint64_t>(i), segment);
  }
  const auto step = static_cast<uint64_t>(step_);
  const uint64_t leaked = job_.leak_bytes * (step + 1);
  const uint64_t fragments = job_.fragment_bytes * std::min<uint64_t>(step, 10) / 10;
  const uint64_t above = kFirstAddress + held + job_.activation_bytes;
  if (job_.leak_bytes > 0) program_.Allocate(above + job_.leak_bytes * step, job_.leak_bytes);
  if (job_.fragment_bytes > 0 && step > 0 && step <= 10)
    program_.Allocate(above + job_.fragment_bytes * step, job_.fragment_bytes / 10);
  program_.AllocatorLevel(held + job_.activation_bytes + leaked,
                          held + job_.activation_bytes + leaked + fragments);
}

void StepBuilder::MemoryAfter() {
  const uint64_t held = job_.held_bytes();
  const uint64_t segment = job_.activation_bytes / kActivationSegments;
  const auto step = static_cast<uint64_t>(step_);
  const uint64_t leaked = job_.leak_bytes * (step + 1);
  const uint64_t fragments = job_.fragment_bytes * std::min<uint64_t>(step, 10) / 10;
  for (int layer = 0; layer < layers_; ++layer) Tensors(kGradients, job_.gradient_bytes(), layer, true);
  if (job_.allocates_every_step) {
    for (int i = 0; i < kActivationSegments; ++i)
      program_.Free(kFirstAddress + held + segment * static_cast<uint64_t>(i), segment);
  }
  const uint64_t cached = job_.allocates_every_step ? 0 : job_.activation_bytes;
  program_.AllocatorLevel(held + leaked, held + cached + leaked + fragments);
}

void StepBuilder::Step() {
  buckets_ = Buckets(job_);
  Push(kStepRange);
  Input();
  if (step_ == 0) program_.HostWork(job_.compile_ns);
  Memory();
  if (job_.graph) {
    if (IsCulprit() && job_.hang == HangBy::kMissingRank) program_.Add(Instruction::Op::kStop);
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
  if (job_.read_loss_every > 0 && (step_ + 1) % job_.read_loss_every == 0) {
    program_.SetPhase(Phase::kOther);
    program_.Copy(v1::COPY_DIRECTION_D2H, 4, MemoryPlace::kPageable, kCompute);
    program_.SyncStream(kCompute);
  }
  if (hangs() || step_ == job_.out_of_memory_step) program_.SyncDevice();
  Pop();
}

void StepBuilder::Evaluation() {
  Push(kEvaluationRange);
  for (int i = 0; i < job_.evaluation_batches; ++i) {
    Input();
    Forward();
  }
  program_.SetPhase(Phase::kOther);
  program_.Copy(v1::COPY_DIRECTION_D2H, 4, MemoryPlace::kPageable, kCompute);
  program_.SyncStream(kCompute);
  Pop();
}

}  // namespace

const std::vector<std::string>& RangeNames() {
  static const auto* const kNames =
      new std::vector<std::string>{"step", "input", "forward", "backward", "optimizer", "evaluate"};
  return *kNames;
}

std::vector<uint64_t> Buckets(const TrainingJob& job) {
  std::vector<uint64_t> buckets;
  if (job.sharded) return buckets;
  const uint64_t total = job.layer_bytes * static_cast<uint64_t>(job.layers / job.pipeline);
  uint64_t done = 0;
  while (done < total) {
    const uint64_t wanted = done == 0 ? job.first_bucket_bytes : job.bucket_bytes;
    buckets.push_back(std::min(wanted, total - done));
    done += buckets.back();
  }
  return buckets;
}

bool IsSlow(const TrainingJob& job, int rank, int step) {
  return job.slow_by != SlowBy::kNothing && rank >= job.slow_rank && rank < job.slow_rank + job.slow_ranks &&
         step >= 0 && step >= job.slow_from * job.steps &&
         (step + job.slow_every / 2) % job.slow_every < job.slow_for;
}

bool IsOther(const TrainingJob& job, int rank) {
  return job.other_ranks > 0 && rank >= job.ranks - job.other_ranks;
}

Link LinkOf(const TrainingJob& job, const std::vector<int>& members, int step) {
  bool several = false;
  bool concerned = job.network_host < 0;
  for (const int rank : members) {
    several = several || rank / job.ranks_per_host != members.front() / job.ranks_per_host;
    concerned = concerned || rank / job.ranks_per_host == job.network_host;
  }
  if (!several) return job.link;
  Link link = job.network.value_or(job.link);
  if (!concerned || step < job.network_from * job.steps - (job.network_from > 0 ? 0 : 1)) return link;
  link.alpha_ns = static_cast<int64_t>(static_cast<double>(link.alpha_ns) * job.network_slowdown);
  link.beta_bytes_per_ns /= job.network_slowdown;
  return link;
}

// Ranks are numbered with the tensor group fastest, then data, then pipeline.
std::vector<NodeCommunicator> Communicators(const TrainingJob& job) {
  std::vector<NodeCommunicator> all;
  const auto add = [&](const char* name, std::vector<int> members) {
    const uint64_t hash = 0x9c1e'0000'0000'0001u + (static_cast<uint64_t>(all.size()) << 20) * 0x1357u;
    const Link link = LinkOf(job, members, -1);
    all.push_back({.hash = hash, .name = name, .members = std::move(members), .link = link});
  };
  const int data = job.data();
  const auto rank_of = [&](int stage, int d, int t) { return (stage * data + d) * job.tensor + t; };
  // The members that differ in one coordinate: `count` of them.
  const auto group = [](int count, const auto& member) {
    std::vector<int> members(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) members[static_cast<size_t>(i)] = member(i);
    return members;
  };
  for (int stage = 0; stage < job.pipeline; ++stage) {
    for (int t = 0; t < job.tensor; ++t)
      add("data", group(data, [&](int d) { return rank_of(stage, d, t); }));
  }
  for (int stage = 0; stage < job.pipeline && job.tensor > 1; ++stage) {
    for (int d = 0; d < data; ++d)
      add("tensor", group(job.tensor, [&](int t) { return rank_of(stage, d, t); }));
  }
  for (int d = 0; d < data && job.pipeline > 1; ++d) {
    for (int t = 0; t < job.tensor; ++t) {
      add("pipeline", group(job.pipeline, [&](int stage) { return rank_of(stage, d, t); }));
    }
  }
  return all;
}

RankSettings SettingsOf(const TrainingJob& job) {
  RankSettings settings;
  settings.launch_cost_ns = job.launch_cost_ns;
  settings.queue_depth = job.queue_depth;
  settings.kernel_noise = job.kernel_noise;
  settings.host_noise = job.host_noise;
  return settings;
}

void BuildSetup(const TrainingJob& job, Program& program) {
  program.Clear();
  const uint64_t weights = job.weight_bytes() + job.frozen_bytes;
  program.Allocate(kFirstAddress, weights);
  program.Allocate(kFirstAddress + weights, job.optimizer_bytes());
  program.AllocatorLevel(job.held_bytes(), job.held_bytes());
  if (job.tensors) {
    program.Tensor(kTensorAddress + kTensorRegion * kWeights, job.weight_bytes());
    program.Tensor(kTensorAddress + kTensorRegion * kFrozen, job.frozen_bytes);
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
  if (job.evaluate_every == 0 || (step + 1) % job.evaluate_every != 0) return;
  StepBuilder(job, rank, step, program).Evaluation();
}

}  // namespace gpuprobe::simulate
