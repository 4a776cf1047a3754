// A batch of fused NCCL calls, and the kernels seen while NCCL launched them.
//
// Outside a group a batch is one call and lives in the wrapper's frame; inside a group it comes from a fixed
// pool at the first call and goes back after the outermost GroupEnd. Owned by one application thread.
// Allocation: none. Failure: calls that do not fit are counted, not kept.
#pragma once

#include <cstdint>

#include "injector/capture/nccl/communicator_name.h"
#include "injector/capture/nccl/communicators.h"
#include "injector/capture/nccl/entry_points.h"
#include "injector/core/events.h"

namespace gpuprobe::injector::nccl {

// A call that was issued. Everything about its communicator is copied: the handle may be dead when the group
// ends.
struct PendingCall {
  CollectiveEvent event;
  uint64_t stream;     // CUstream, normalised (NormalStream)
  uint64_t context;    // CUcontext that the communicator launches in, 0: not known
  int32_t device;      // the communicator's, -1: not known
  uint64_t on_device;  // Communicator.on_device
  uint64_t order;      // the communicator's hash, if it is NCCL's own; 0: not known
  void* handle;        // ncclComm_t, for looking the communicator up again; may be stale
  int32_t ranks;       // 0: not known
  bool told;           // NCCL has reported to its plugin how it runs the call
};

// A kernel launch as the driver's callback reports it.
struct KernelLaunch {
  const char* name;  // mangled or plain, may be null
  const void* stream;
  const void* context;
  uint32_t correlation;
  // The kernel's arguments, one by one or in a buffer; not to be read if it takes none.
  void* const* each = nullptr;
  void* const* extra = nullptr;
};

// An NCCL kernel whose launch was entered on this thread inside an NCCL call. No member has a default, as in
// PendingCall: thousands of them lie in memory that must stay zero until it is used (calls.cc).
struct SeenLaunch {
  uint64_t stream;
  uint64_t context;
  uint32_t correlation;
  uint16_t ops;         // bit per EntryPoint that this kernel can carry
  uint16_t datatypes;   // bit per ncclDataType_t that it works on
  uint64_t plan;        // AssignPlans' answer
  uint32_t comm;        // AssignPlans' answer: Communicator.id
  uint64_t graph_node;  // the kernel was captured into this node of a graph; 0: launched
  int32_t device;       // of the context, -1: not known
  // Device address of its communicator, the first argument since NCCL 2.19; 0: not known.
  uint64_t on_device;
};

// The kernel certainly belongs to another communicator.
inline bool IsOfAnother(uint64_t on_device, const SeenLaunch& launch) noexcept {
  return on_device != 0 && launch.on_device != 0 && on_device != launch.on_device;
}

// Whether a kernel was launched where the call's communicator launches.
enum class Place : uint8_t { kUnknown, kSame, kOther };
inline Place PlaceOf(uint64_t context, int32_t device, const SeenLaunch& launch) noexcept {
  if (context != 0 && launch.context != 0) return context == launch.context ? Place::kSame : Place::kOther;
  if (device < 0 || launch.device < 0) return Place::kUnknown;
  return device == launch.device ? Place::kSame : Place::kOther;
}

// A communicator whose handle NCCL may write only when the group ends.
struct PendingInit {
  void** newcomm;  // ncclComm_t*
  uint64_t hash;
  uint32_t parent;
  int32_t rank;
  int32_t ranks;
  int32_t device;
  EntryPoint made_by;
  uint64_t told_before;  // communicators that NCCL had announced before the call that makes this one
  CommunicatorName name;
};

inline constexpr uint32_t kGroupCalls = 4096;  // an all-to-all over 1024 ranks is 2048 sends and receives
inline constexpr uint32_t kGroupLaunches = 256;
inline constexpr uint32_t kGroupInits = 64;
inline constexpr uint32_t kGroupBeyond = 64;  // communicators times two counts
inline constexpr uint32_t kSingleLaunches = 8;
inline constexpr int kGroupBatches = 32;  // threads inside a group at the same time

// A call that is counted and not kept.
struct NumberedCall {
  uint32_t comm = 0;  // Communicator.id, 0: none
  void* handle = nullptr;
  uint64_t seq = 0;
  uint16_t op = 0;
};

// A group's calls that found no room and are numbered by one of a communicator's two counts.
struct CallsBeyond {
  NumberedCall last;
  uint64_t calls = 0;
};

struct CallBatch {
  PendingCall* calls;
  SeenLaunch* launches;
  PendingInit* inits;
  CallsBeyond* beyond;  // a single call has none
  uint32_t call_capacity;
  uint32_t launch_capacity;
  uint32_t init_capacity;
  uint32_t call_count;
  uint32_t launch_count;
  uint32_t init_count;
  uint32_t beyond_count;
  bool copies_captured = false;  // into a CUDA graph
  bool torn = false;             // some of its calls may not have been seen (torn_groups.h)
  uint64_t copies_plan = 0;      // plan of the copies for its one-sided calls, or for all; 0: none
  bool copies_carry_all = false;
};

// A batch may be awaited (awaited.h) while its thread still adds calls: the others see only calls that are
// complete.
inline void CountCall(CallBatch& batch) noexcept {
  __atomic_store_n(&batch.call_count, batch.call_count + 1, __ATOMIC_RELEASE);
}
inline uint32_t CallCount(const CallBatch& batch) noexcept {
  return __atomic_load_n(&batch.call_count, __ATOMIC_ACQUIRE);
}

// A batch of one call, for the wrapper's frame. Only Reset() initialises it, and only what is needed.
struct SingleBatch {
  CallBatch batch;
  PendingCall call;
  SeenLaunch launches[kSingleLaunches];

  CallBatch* Reset() noexcept {
    batch.calls = &call;
    batch.launches = launches;
    batch.inits = nullptr;
    batch.beyond = nullptr;
    batch.call_capacity = 1;
    batch.launch_capacity = kSingleLaunches;
    batch.init_capacity = 0;
    batch.call_count = batch.launch_count = batch.init_count = batch.beyond_count = 0;
    batch.copies_captured = batch.torn = batch.copies_carry_all = false;
    batch.copies_plan = 0;
    return &batch;
  }
};

// Where the call's communicator launches, as far as that is known; `comm` may be null.
inline void SetPlace(PendingCall& call, const Communicator* comm) noexcept {
  call.context = comm == nullptr ? 0 : comm->context.load(std::memory_order_relaxed);
  call.device = comm == nullptr ? -1 : comm->device.load(std::memory_order_relaxed);
  call.on_device = comm == nullptr ? 0 : comm->on_device.load(std::memory_order_relaxed);
  const bool named = comm != nullptr && comm->named.load(std::memory_order_relaxed);
  call.order = named ? comm->hash.load(std::memory_order_relaxed) : 0;
}

// What the batches of groups take of this library's image. They are charged to the account as they are
// claimed, so the kernel is asked here not to back them with huge pages.
size_t PrepareGroupBatches() noexcept;

// An empty batch for a group, null when all are in use, or the account refuses another one.
CallBatch* ClaimGroupBatch() noexcept;
void ReleaseGroupBatch(CallBatch* batch) noexcept;

// The legacy default stream has two names.
inline uint64_t NormalStream(const void* stream) noexcept {
  const auto value = reinterpret_cast<uint64_t>(stream);
  return value == 1 ? 0 : value;
}

}  // namespace gpuprobe::injector::nccl
