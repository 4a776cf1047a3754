// The communicators of this process: handle -> id, hash, rank, sequence numbers.
//
// A lock-free data structure: a fixed open-addressing table keyed by NCCL's handle, which NCCL reuses after a
// communicator is destroyed. Thread: any application thread, inside the guard. Allocation: none. Failure:
// when no place is free within the probe length, Register returns null and the calls are counted as
// LOSS_COMMUNICATOR_UNKNOWN. Using a handle while another thread destroys it is an application error anyway;
// the probe then records stale numbers, but never touches invalid memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gpuprobe::injector::nccl {

inline constexpr uint32_t kMaxCommunicators = 2048;

// Whether NCCL launches a communicator's kernels on the calling thread or on one of its own.
enum class Blocking : uint8_t { kUnknown, kYes, kNo };

struct Communicator {
  std::atomic<uintptr_t> key{0};
  std::atomic<uint32_t> id{0};  // from 1, process-wide, never reused
  std::atomic<uint32_t> parent{0};
  std::atomic<uint64_t> hash{0};   // 0: not known
  std::atomic<bool> named{false};  // by NCCL: the hash is the one that its log prints
  std::atomic<int32_t> rank{-1};
  std::atomic<int32_t> ranks{0};
  std::atomic<int32_t> device{-1};
  std::atomic<uint32_t> children{0};     // splits so far: the ordinal of the next one
  std::atomic<uint32_t> queries{0};      // how often NCCL was asked for missing facts
  std::atomic<uint64_t> collectives{0};  // sequence number of the next one
  std::atomic<uint64_t> transfers{0};    // of the next send or receive
  std::atomic<uint64_t> context{0};      // CUcontext that its kernels were launched in, 0: not seen yet
  std::atomic<uint64_t> on_device{0};    // its address on the device, as its kernels get it; 0: not seen yet
  std::atomic<Blocking> blocking{Blocking::kUnknown};
};

struct CommunicatorFacts {
  uint64_t hash = 0;
  uint32_t parent = 0;
  int32_t rank = -1;
  int32_t ranks = 0;
  int32_t device = -1;
};

// Enters a new communicator. A handle that is there already belongs to one that was destroyed unseen: it gets
// a new id.
Communicator* Register(const void* handle, const CommunicatorFacts& facts) noexcept;

// Null when the handle was never registered or was removed.
Communicator* Find(const void* handle) noexcept;

// The communicator that is known by this hash (not 0) and rank, other than `but`'s; null if none. Looks at
// the whole table.
Communicator* FindByHash(uint64_t hash, int32_t rank, const void* but) noexcept;

// By Communicator.id; null if it is gone. Looks at the whole table.
Communicator* FindById(uint32_t id) noexcept;

// The one communicator of this rank and size that is non-blocking, has no parent, and has no name from NCCL
// yet; null if there are several. Splits are left out: NCCL makes several at once, and their ranks are known
// late.
Communicator* FindUnnamed(int32_t rank, int32_t ranks) noexcept;

// The handle is dead or about to be: its place is free for another one.
void Remove(const void* handle) noexcept;

// What a communicator has become besides its facts.
struct CommunicatorState {
  uint32_t id = 0;
  uint32_t children = 0;
  uint64_t collectives = 0;
  uint64_t transfers = 0;
  uint64_t context = 0;
  uint64_t on_device = 0;
  Blocking blocking = Blocking::kUnknown;
  bool named = false;
};
CommunicatorState StateOf(const Communicator& comm) noexcept;

// Takes a removal back, when NCCL refused to destroy.
void Restore(const void* handle, const CommunicatorFacts& facts, const CommunicatorState& state) noexcept;

// Identity of a new communicator, equal on all its ranks, until NCCL reports its own hash: djb2a over the
// unique id's bytes ...
uint64_t HashUniqueId(const void* unique_id) noexcept;
// ... or, for one made from another, a mix of the parent's hash, the ordinal of the split among the parent's,
// and its color. Never 0 unless the parent's is not known.
uint64_t HashChild(uint64_t parent_hash, uint32_t ordinal, int32_t color) noexcept;

}  // namespace gpuprobe::injector::nccl
