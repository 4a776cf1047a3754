// Tracks what the program's main thread waits in, and how much the process has read and written, so that the
// collector can distinguish a hang from work.
//
// It is a state, not a record: every batch carries the latest. Thread: main_thread_waits.h writes on the
// application's threads; IoBytes on the probe's own. Allocation: none. Failure: 0, not known.
#pragma once

#include <atomic>
#include <cstdint>

namespace gpuprobe::injector {

// The function that the main thread is in; nullptr: none. The name is CUPTI's own, and stays.
extern std::atomic<const char*> main_thread_waits_in;
extern std::atomic<uint64_t> main_thread_waits_since_ns;
extern std::atomic<uint64_t> main_thread_waited_until_ns;  // return from the last one; 0: never

// A call of the program's that creates a communicator: NCCL waits in it for all ranks, or goes on in the
// background after it (`blocking` 0 in its configuration).
struct CommunicatorCreation {
  uint64_t since_ns;  // of one that failed: when it returned
  uint64_t hash;      // 0: not known
  uint64_t parent;    // hash, 0: none
  int32_t rank;       // -1: not known
  int32_t ranks;      // 0: not known
  int32_t result;     // ncclResult_t: of one that failed; of one in the background ncclInProgress, else 0
  uint16_t made_by;   // as CommunicatorEvent has it
};

// The latest creation, written by one thread at a time and read by the probe's own thread. Never waits: while
// one creation is noted, others are ignored. An owner is a thread, or the handle of a communicator that is
// created in the background.
class CreationSlot {
 public:
  // Does nothing if another creation is noted.
  void Begin(const void* owner, const CommunicatorCreation& creation) noexcept;
  // The call has returned `result`, and NCCL continues in the background: `heir` owns the creation from now
  // on. Does nothing if the owner's was not noted.
  void GoesOn(const void* owner, const void* heir, int32_t result) noexcept;
  // False if the owner's was not noted. `ended` receives it as it was noted. Of several threads, one gets
  // true.
  bool End(const void* owner, CommunicatorCreation* ended) noexcept;
  // Overwrites the noted creation.
  void Replace(const CommunicatorCreation& creation) noexcept;
  // False: none is noted, or it changed meanwhile.
  bool Read(CommunicatorCreation* creation) const noexcept;

 private:
  // In place of that owner.
  bool Claim(const void* owner, const void* before = nullptr) noexcept;
  void Write(const CommunicatorCreation& creation) noexcept;

  std::atomic<const void*> owner_{nullptr};
  std::atomic<uint64_t> since_ns_{0};  // last to be written, first to be erased
  std::atomic<uint64_t> hash_{0};
  std::atomic<uint64_t> parent_{0};
  std::atomic<uint64_t> place_{0};  // rank << 32 | ranks
  std::atomic<uint64_t> how_{0};    // result << 32 | made_by
};
extern CreationSlot creating_communicator;
extern CreationSlot refused_communicator;  // the last one that failed

// Bytes read and written by the process so far, as /proc/self/io counts them; 0: not known.
uint64_t IoBytes() noexcept;

}  // namespace gpuprobe::injector
