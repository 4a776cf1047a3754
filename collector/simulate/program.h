// One step of a simulated rank as a list of instructions: the host's calls in order.
//
// A scenario writes programs; the node runs them against the other ranks' programs and gives each call its
// time. Times are nanoseconds. A rank has one host timeline; `Thread` says on which of its threads the next
// calls are made (autograd's thread works while the main thread waits for it). Streams and events are small
// numbers of the rank's own.
#pragma once

#include <cstdint>
#include <vector>

#include "collector/simulate/host_code.h"
#include "collector/simulate/kernel_catalog.h"
#include "proto/nccl_operations.h"

namespace gpuprobe::simulate {

// The purpose of the work; the truth of a step's phases. A collective has the phase in which it is issued.
enum class Phase : uint8_t {
  kOther,
  kInput,
  kCopyIn,
  kForward,
  kBackward,
  kOptimizer,
  kCommunication,
  kCount
};

// Why the host does not launch; the truth of idle time.
enum class HostCause : uint8_t { kFramework, kInput, kSync };

// Collective operations, in the order of their kernels in the catalog.
// Those that training jobs use.
enum class CollectiveOp : uint8_t {
  kAllReduce = static_cast<uint8_t>(nccl::Operation::kAllReduce),
  kAllGather = static_cast<uint8_t>(nccl::Operation::kAllGather),
  kReduceScatter = static_cast<uint8_t>(nccl::Operation::kReduceScatter),
  kBroadcast = static_cast<uint8_t>(nccl::Operation::kBroadcast),
  kSend = static_cast<uint8_t>(nccl::Operation::kSend),
  kRecv = static_cast<uint8_t>(nccl::Operation::kRecv),
};
constexpr std::string_view NameOf(CollectiveOp op) { return nccl::NameOf(static_cast<nccl::Operation>(op)); }

enum class MemoryPlace : uint8_t { kPinned, kPageable, kDevice };

struct Instruction {
  enum class Op : uint8_t {
    kKernel,       // kernel, stream, duration
    kCollective,   // collective, comm, stream, bytes, peer
    kCopy,         // direction (id), memory, stream, bytes, blocking
    kMemset,       // stream, bytes, duration
    kRecordEvent,  // id, stream
    kWaitEvent,    // id, stream: the device waits
    kSyncStream,   // stream: the host waits
    kSyncDevice,
    kHostWork,   // duration, cause, id: HostCode
    kThread,     // id
    kPushRange,  // id: one of the simulation's range names
    kPopRange,
    kAllocate,          // address, bytes, id: v1::MemoryKind; failed: refused
    kFree,              // address, bytes, id
    kAllocatorLevel,    // bytes: allocated, address: reserved
    kAllocatorRefusal,  // bytes: asked
    kTensor,            // address, bytes: the allocator hands out
    kTensorFree,        // and takes back
    kGraphBegin,        // id: what follows until kGraphEnd is one launch of this graph
    kGraphEnd,
    kStop,  // hangs: waits for an event that never happens
    kExit,  // the process ends
  };
  Op op = Op::kKernel;
  Phase phase = Phase::kOther;
  Kernel kernel = Kernel::kFill;
  CollectiveOp collective = CollectiveOp::kAllReduce;
  uint8_t stream = 0;
  uint8_t comm = 0;  // the rank's own number
  HostCause cause = HostCause::kFramework;
  MemoryPlace memory = MemoryPlace::kPinned;
  bool blocking = false;
  bool failed = false;
  uint16_t grid_percent = 100;  // of the kernel's usual grid: more work is a larger grid
  uint32_t id = 0;
  int32_t peer = -1;
  int64_t duration_ns = 0;
  uint64_t bytes = 0;
  uint64_t address = 0;
};

class Program {
 public:
  void Clear() {
    instructions_.clear();
    phase_ = Phase::kOther;
    grid_percent_ = 100;
  }
  const std::vector<Instruction>& instructions() const { return instructions_; }

  void SetPhase(Phase phase) { phase_ = phase; }
  // Kernels launched from here on work on this much data.
  void SetGridPercent(uint16_t percent) { grid_percent_ = percent; }
  Instruction& Last() { return instructions_.back(); }
  Instruction& Add(Instruction::Op op) {
    Instruction& added = instructions_.emplace_back();
    added.op = op;
    added.phase = phase_;
    return added;
  }

  void Launch(Kernel kernel, int64_t duration_ns, uint8_t stream = 0) {
    Instruction& i = Add(Instruction::Op::kKernel);
    i.kernel = kernel;
    i.duration_ns = duration_ns;
    i.stream = stream;
    i.grid_percent = grid_percent_;
  }
  // `bytes` is count x element size, the API's arguments.
  void Collective(CollectiveOp op, uint8_t comm, uint64_t bytes, uint8_t stream, int32_t peer = -1) {
    Instruction& i = Add(Instruction::Op::kCollective);
    i.collective = op;
    i.comm = comm;
    i.bytes = bytes;
    i.stream = stream;
    i.peer = peer;
  }
  // `direction`: v1::CopyDirection; `place`: of the host's side.
  void Copy(uint32_t direction, uint64_t bytes, MemoryPlace place, uint8_t stream, bool blocking = false) {
    Instruction& i = Add(Instruction::Op::kCopy);
    i.id = direction;
    i.bytes = bytes;
    i.memory = place;
    i.stream = stream;
    i.blocking = blocking;
  }
  void Memset(uint64_t bytes, int64_t duration_ns, uint8_t stream = 0) {
    Instruction& i = Add(Instruction::Op::kMemset);
    i.bytes = bytes;
    i.duration_ns = duration_ns;
    i.stream = stream;
  }
  // Work that is launched on `after` later than this waits for all that was launched on `before` until now.
  void Order(uint8_t before, uint8_t after) {
    Instruction& record = Add(Instruction::Op::kRecordEvent);
    record.id = events_;
    record.stream = before;
    Instruction& wait = Add(Instruction::Op::kWaitEvent);
    wait.id = events_;
    wait.stream = after;
    events_ = (events_ + 1) % kEvents;
  }
  // The same in two parts: Record gives the event that Wait takes. At most kEvents are alive.
  uint32_t Record(uint8_t stream) {
    Instruction& record = Add(Instruction::Op::kRecordEvent);
    record.id = events_;
    record.stream = stream;
    events_ = (events_ + 1) % kEvents;
    return record.id;
  }
  void Wait(uint32_t event, uint8_t stream) {
    Instruction& wait = Add(Instruction::Op::kWaitEvent);
    wait.id = event;
    wait.stream = stream;
  }
  void SyncStream(uint8_t stream) { Add(Instruction::Op::kSyncStream).stream = stream; }
  void SyncDevice() { Add(Instruction::Op::kSyncDevice); }
  void HostWork(int64_t duration_ns, HostCause cause = HostCause::kFramework,
                HostCode code = HostCode::kNotSampled) {
    Instruction& i = Add(Instruction::Op::kHostWork);
    i.id = static_cast<uint32_t>(code);
    i.duration_ns = duration_ns;
    i.cause = cause;
  }
  void Thread(uint32_t thread) { Add(Instruction::Op::kThread).id = thread; }
  void PushRange(uint32_t name) { Add(Instruction::Op::kPushRange).id = name; }
  void PopRange() { Add(Instruction::Op::kPopRange); }
  void Allocate(uint64_t address, uint64_t bytes, bool failed = false) {
    Instruction& i = Add(Instruction::Op::kAllocate);
    i.address = address;
    i.bytes = bytes;
    i.failed = failed;
  }
  void Free(uint64_t address, uint64_t bytes) {
    Instruction& i = Add(Instruction::Op::kFree);
    i.address = address;
    i.bytes = bytes;
  }
  void AllocatorLevel(uint64_t allocated, uint64_t reserved) {
    Instruction& i = Add(Instruction::Op::kAllocatorLevel);
    i.bytes = allocated;
    i.address = reserved;
  }
  void Tensor(uint64_t address, uint64_t bytes) {
    Instruction& i = Add(Instruction::Op::kTensor);
    i.address = address;
    i.bytes = bytes;
  }
  void FreeTensor(uint64_t address, uint64_t bytes) {
    Instruction& i = Add(Instruction::Op::kTensorFree);
    i.address = address;
    i.bytes = bytes;
  }

  static constexpr uint32_t kEvents = 4096;

 private:
  std::vector<Instruction> instructions_;
  Phase phase_ = Phase::kOther;
  uint16_t grid_percent_ = 100;
  uint32_t events_ = 0;
};

}  // namespace gpuprobe::simulate
