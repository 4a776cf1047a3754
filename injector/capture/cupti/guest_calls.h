// Counts calls of a guest's functions that are in progress, so that none is left when the guest may be
// unloaded.
//
// A tool may be closed (dlclose) as soon as its cuptiFinalize has returned. Another thread may have read the
// address of one of its functions just before, and not have called it yet. So whoever calls such a function
// counts itself first and reads the address then; whoever takes the function away does that first and then
// waits for the count:
//
//   calls a callback                        inside cuptiFinalize
//   1  Enter                                1  function = null
//   2  function is not null: call it        2  AwaitOthers: until nobody who may have read it is inside
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
  // `own` of those in progress are this thread's.
  void AwaitOthers(uint32_t own) noexcept;

 private:
  // A line for each processor or so, as all threads of the program pass here.
  struct alignas(64) Shard {
    std::atomic<uint32_t> inside{0};
  };
  static constexpr size_t kShards = 16;

  Shard& Mine() noexcept;
  uint32_t Inside() const noexcept;

  Shard shards_[kShards];
  std::atomic<uint32_t> waiting_{0};
  std::atomic<uint32_t> left_{0};  // while somebody waits
};

// Of the guest's clock, and of its other functions.
extern Calls clock_calls;
extern Calls calls;

// How deep this thread is in calls of `calls`.
uint32_t OwnCalls() noexcept;

// A call of `calls`, while this is there.
class Call {
 public:
  Call() noexcept;
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
};

}  // namespace gpuprobe::injector::guest
