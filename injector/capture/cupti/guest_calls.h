// Counts calls of a guest's functions that are in progress, so that none is left when the guest may be
// unloaded.
//
// A tool may be closed (dlclose) as soon as its cuptiFinalize has returned. Another thread may have read the
// address of one of its functions just before, and not have called it yet. So a caller first counts itself
// and then reads the address; cuptiFinalize first clears the address and then waits for the count:
//
//   calls a callback                        inside cuptiFinalize
//   1  Enter                                1  function = null
//   2  function is not null: call it        2  AwaitOthers: until no thread that may have read it is inside
//   3  Leave
//
// The wait has a limit, because a tool may hold a lock that its function waits for: kLongestWaitMs, once. A
// thread does not wait for its own calls: CUPTI wants to be finalized inside a callback.
//
// Thread: any. Allocation: none. Failure: after the limit a call may still be in progress, as it may be with
// CUPTI.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gpuprobe::injector::guest {

class Calls {
 public:
  static constexpr int64_t kLongestWaitMs = 100;

  void Enter() noexcept;
  void Leave() noexcept;
  // Waits until at most `own` calls, those of this thread, are in progress.
  void AwaitOthers(uint32_t own) noexcept;

 private:
  // About one cache line per processor, since all threads of the program pass here.
  struct alignas(64) Shard {
    std::atomic<uint32_t> inside{0};
  };
  static constexpr size_t kShards = 16;

  Shard& Mine() noexcept;
  uint32_t Inside() const noexcept;

  Shard shards_[kShards];
  std::atomic<uint32_t> waiting_{0};
  std::atomic<uint32_t> left_{0};  // while a thread waits
};

// Counts calls of the guest's clock, and of its other functions.
extern Calls clock_calls;
extern Calls calls;

// How many of these calls are in progress on this thread.
uint32_t OwnCalls() noexcept;

// Counts as one call of `calls` while it exists.
class Call {
 public:
  Call() noexcept;
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
};

}  // namespace gpuprobe::injector::guest
