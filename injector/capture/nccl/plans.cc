#include "injector/capture/nccl/plans.h"

#include <algorithm>
#include <atomic>
#include <iterator>

#include "injector/capture/nccl/entry_points.h"
#include "injector/capture/nccl/kernel_names.h"
#include "injector/core/self_report.h"

namespace gpuprobe::injector::nccl {

namespace {

constinit std::atomic<uint64_t> last_plan{0};

constexpr uint32_t kStreams = 4;  // distinct streams that are tracked per communicator
constexpr uint32_t kClasses = 8;  // distinct kinds of kernels of one communicator in one batch

struct KernelClass {
  uint16_t ops;
  uint16_t datatypes;
  bool used;  // some call belongs to it
  uint64_t plan;
};

// One communicator of the batch.
struct CommPart {
  uint32_t comm;
  uint64_t context;
  int32_t device;
  uint64_t on_device;
  uint64_t order;
  uint64_t streams[kStreams];
  uint32_t stream_count;
  bool any_stream;            // more than kStreams
  uint16_t datatypes_of[16];  // of its calls, by operation
  KernelClass classes[kClasses];
  uint32_t class_count;
  uint64_t plan_without_kernels;

  // Streams and classes are never read beyond their counts.
  void Begin(uint32_t of) noexcept {
    comm = of;
    context = 0;
    device = -1;
    on_device = 0;
    order = 0;
    stream_count = 0;
    any_stream = false;
    std::fill(std::begin(datatypes_of), std::end(datatypes_of), uint16_t{0});
    class_count = 0;
    plan_without_kernels = 0;
  }
};

uint16_t OpBit(const PendingCall& call) noexcept {
  return call.event.op < 16 ? static_cast<uint16_t>(1u << call.event.op) : kAnyOp;
}

uint16_t TypeBit(const PendingCall& call) noexcept {
  return call.event.datatype < 16 ? static_cast<uint16_t>(1u << call.event.datatype) : kAnyDataType;
}

bool UsesStream(const CommPart& part, uint64_t stream) noexcept {
  if (part.any_stream) return true;
  for (uint32_t i = 0; i < part.stream_count; ++i) {
    if (part.streams[i] == stream) return true;
  }
  return false;
}

void AddCall(CommPart& part, const PendingCall& call) noexcept {
  if (call.event.op < 16) part.datatypes_of[call.event.op] |= TypeBit(call);
  if (part.context == 0) part.context = call.context;
  if (part.device < 0) part.device = call.device;
  if (part.on_device == 0) part.on_device = call.on_device;
  if (part.order == 0) part.order = call.order;
  if (UsesStream(part, call.stream)) return;
  if (part.stream_count == kStreams) {
    part.any_stream = true;
  } else {
    part.streams[part.stream_count++] = call.stream;
  }
}

// Whether some call of the part could run as this kernel; `with_type`: the element type must match as well.
bool Fits(const CommPart& part, const SeenLaunch& launch, bool with_type) noexcept {
  for (uint32_t op = 0; op < 16; ++op) {
    if ((launch.ops >> op & 1u) == 0 || part.datatypes_of[op] == 0) continue;
    if (!with_type || (part.datatypes_of[op] & launch.datatypes) != 0) return true;
  }
  return false;
}

bool HasClass(const CommPart& part, const SeenLaunch& launch) noexcept {
  for (uint32_t i = 0; i < part.class_count; ++i) {
    if (part.classes[i].ops == launch.ops && part.classes[i].datatypes == launch.datatypes) return true;
  }
  return false;
}

class Batch {
 public:
  explicit Batch(CallBatch& batch) noexcept : batch_(batch) {}

  void Run() noexcept {
    CollectParts();
    for (uint32_t i = 0; i < batch_.launch_count; ++i) Place(batch_.launches[i], batch_.launch_count - i);
    for (uint32_t i = 0; i < batch_.call_count; ++i) AssignCall(batch_.calls[i]);
    for (uint32_t i = 0; i < batch_.launch_count; ++i) AssignLaunch(batch_.launches[i]);
  }

 private:
  CommPart& PartOf(uint32_t comm) noexcept {
    if (last_ < part_count_ && parts_[last_].comm == comm) return parts_[last_];
    for (last_ = 0; last_ < part_count_; ++last_) {
      if (parts_[last_].comm == comm) return parts_[last_];
    }
    if (part_count_ == kPlanComms) return parts_[last_ = kPlanComms - 1];
    parts_[last_].Begin(comm);
    return parts_[part_count_++];
  }

  void CollectParts() noexcept {
    for (uint32_t i = 0; i < batch_.call_count; ++i) {
      if (Launches(batch_.calls[i])) AddCall(PartOf(batch_.calls[i].event.comm), batch_.calls[i]);
    }
  }

  // Which of two candidates NCCL launches for first: from 2.26 on by the order of their hashes, before that
  // by the order of their first calls.
  static bool ComesFirst(const CommPart& part, const CommPart& other) noexcept {
    constexpr int32_t kByHash = 22600;
    return NcclVersion() >= kByHash && part.order != 0 && other.order != 0 && part.order < other.order;
  }

  // Rules 1 and 2. Null when no call of the batch launches anything. The first with the highest rank wins.
  CommPart* Choose(const SeenLaunch& launch, uint32_t launches_left) noexcept {
    CommPart* best = nullptr;
    int best_rank = -1;
    uint32_t without_kernel = 0;
    for (uint32_t i = 0; i < part_count_; ++i) without_kernel += parts_[i].class_count == 0 ? 1 : 0;
    for (uint32_t i = 0; i < part_count_; ++i) {
      const CommPart& part = parts_[i];
      if (launch.on_device != 0 && part.on_device == launch.on_device) return &parts_[i];
      const nccl::Place place = PlaceOf(part.context, part.device, launch);
      const bool fits = Fits(part, launch, false);
      const bool lacks = Fits(part, launch, true) && !HasClass(part, launch);
      const bool due = part.class_count == 0 && launches_left <= without_kernel;
      const int rank = (IsOfAnother(part.on_device, launch) ? 0 : 64) +
                       (UsesStream(part, launch.stream) ? 32 : 0) + (place != nccl::Place::kOther ? 16 : 0) +
                       (due ? 8 : 0) + (lacks ? 4 : 0) + (fits ? 2 : 0) +
                       (place == nccl::Place::kSame ? 1 : 0);
      if (rank < best_rank || (rank == best_rank && !ComesFirst(part, *best))) continue;
      best = &parts_[i];
      best_rank = rank;
    }
    return best;
  }

  void Place(SeenLaunch& launch, uint32_t launches_left) noexcept {
    CommPart* part = Choose(launch, launches_left);
    launch.comm = part == nullptr ? 0 : part->comm;
    launch.plan = 0;
    if (part == nullptr) return;
    if (!HasClass(*part, launch) && part->class_count < kClasses) {
      part->classes[part->class_count++] = {launch.ops, launch.datatypes, false, 0};
    }
  }

  // Rule 3 for a call: a class of its operation and type, else of its operation, else one that takes all,
  // else the first.
  static KernelClass& ClassOf(CommPart& part, const PendingCall& call) noexcept {
    KernelClass* by_op = nullptr;
    for (uint32_t i = 0; i < part.class_count; ++i) {
      KernelClass& kind = part.classes[i];
      if ((kind.ops & OpBit(call)) == 0) continue;
      if (kind.ops != kAnyOp && (kind.datatypes & TypeBit(call)) != 0) return kind;
      if (by_op == nullptr || by_op->ops == kAnyOp) by_op = &kind;
    }
    return by_op != nullptr ? *by_op : part.classes[0];
  }

  void AssignCall(PendingCall& call) noexcept {
    call.event.plan = 0;
    if (!Launches(call)) return;
    CommPart& part = PartOf(call.event.comm);
    if (part.class_count == 0) {
      if (part.plan_without_kernels == 0) part.plan_without_kernels = NewPlan();
      call.event.plan = part.plan_without_kernels;
      return;
    }
    KernelClass& kind = ClassOf(part, call);
    if (!kind.used) {
      kind.used = true;
      kind.plan = NewPlan();
    }
    call.event.plan = kind.plan;
  }

  void AssignLaunch(SeenLaunch& launch) noexcept {
    if (part_count_ == 0) return;
    CommPart& part = PartOf(launch.comm);
    uint64_t first_plan = 0;
    for (uint32_t i = 0; i < part.class_count; ++i) {
      const KernelClass& kind = part.classes[i];
      if (!kind.used) continue;
      if (first_plan == 0 || kind.plan < first_plan) first_plan = kind.plan;
      if (kind.ops == launch.ops && kind.datatypes == launch.datatypes) {
        launch.plan = kind.plan;
        return;
      }
    }
    launch.plan = first_plan;
  }

  CallBatch& batch_;
  CommPart parts_[kPlanComms];
  uint32_t part_count_ = 0;
  uint32_t last_ = 0;
};

// The usual case, a call of its own: no table of communicators.
void AssignSingle(CallBatch& batch) noexcept {
  PendingCall& call = batch.calls[0];
  call.event.plan = Launches(call) ? NewPlan() : 0;
  for (uint32_t i = 0; i < batch.launch_count; ++i) {
    batch.launches[i].plan = call.event.plan;
    batch.launches[i].comm = call.event.comm;
  }
}

}  // namespace

bool Launches(const PendingCall& call) noexcept {
  // 7: ncclInProgress, a non-blocking communicator's success.
  const bool accepted = call.event.result == 0 || call.event.result == 7;
  // A rank alone copies, at most; but it sends to itself by a kernel.
  const bool alone = call.ranks == 1 && !IsPointToPoint(static_cast<EntryPoint>(call.event.op));
  const bool one_sided = IsOneSided(static_cast<EntryPoint>(call.event.op));
  return accepted && !alone && !one_sided && call.event.count != 0;
}

bool LaunchesSomething(const CallBatch& batch) noexcept {
  for (uint32_t i = 0; i < batch.call_count; ++i) {
    if (Launches(batch.calls[i])) return true;
  }
  return false;
}

uint64_t NewPlan() noexcept { return last_plan.fetch_add(1, std::memory_order_relaxed) + 1; }

void AssignPlans(CallBatch& batch) noexcept {
  if (batch.call_count == 1) {
    AssignSingle(batch);
  } else if (batch.call_count > 1) {
    Batch(batch).Run();
  }
}

}  // namespace gpuprobe::injector::nccl
