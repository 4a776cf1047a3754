// The schedule: when each piece of work starts and ends, and the thread that makes it so.
//
// An operation starts when it was enqueued and everything it depends on has ended, whichever is later, and
// ends a known time after. So its times are arithmetic on its dependencies' times, known at once for ordinary
// work and as soon as the last rank arrives, or the host function returns, for the rest; thread scheduling
// never enters them. One thread performs what has ended (the copy's bytes, the truth's line, CUPTI's
// activity) once the wall clock has passed the end, in order of end times.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <queue>
#include <set>
#include <vector>

#include "tests/sim/core/cupti_seam.h"
#include "tests/sim/core/nccl_seam.h"

namespace gpusim {

enum class WorkKind { kTimed, kHost, kRendezvous };

// What is to be done, without when: issued to a stream now, or kept in a graph node and issued at every
// launch.
struct Work {
  WorkKind kind = WorkKind::kTimed;
  uint64_t duration_ns = 0;
  bool reported = false;         // has an activity and a line in the truth
  Activity activity;             // all but times and identities
  std::function<void()> effect;  // bytes moved; the scheduler's thread, when the work has ended
  std::function<void()> host;    // kHost: the function, on the thread for host functions
  std::shared_ptr<const RendezvousLaunch> rendezvous;
};

struct Op;
using OpPtr = std::shared_ptr<Op>;

// One instance of a Work. All fields belong to the schedule's mutex.
struct Op {
  Work work;
  uint64_t sequence = 0;
  uint64_t ready_ns = 0;  // enqueue time, then the latest end of what it waits for
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  size_t blockers = 0;  // dependencies without an end yet
  std::vector<OpPtr> dependents;
  bool resolved = false;  // start and end are known
  bool done = false;      // ended on the wall clock, effects visible
  int waiters = 0;
  std::shared_ptr<size_t> in_flight;  // its stream's count
  std::shared_ptr<Rendezvous> meeting;
  bool arrived = false;
  uint64_t poll_ns = 0;  // when to ask the meeting again
  uint64_t poll_step_ns = 0;
};

class Schedule {
 public:
  static Schedule& Get();

  // Guards the schedule and every object of the node (streams, events, contexts, graphs).
  std::mutex& Mutex() { return mutex_; }

  // With the mutex held. `op->ready_ns` is the enqueue time. Null dependencies are skipped.
  void Submit(const OpPtr& op, const std::vector<OpPtr>& dependencies);
  // Sleeps until the op has ended and its effects are visible. Null returns at once.
  void Wait(std::unique_lock<std::mutex>& lock, const OpPtr& op);
  // True if the op has ended by now; then its effects are visible.
  bool Finished(std::unique_lock<std::mutex>& lock, const OpPtr& op);
  // Sleeps until a stream's count of operations in flight is at most `limit`.
  void WaitUntilBelow(std::unique_lock<std::mutex>& lock, const std::shared_ptr<size_t>& in_flight,
                      size_t limit);

  // Without the mutex. An activity that has no operation (sync, memory), delivered by the scheduler's thread.
  void Post(const Activity& activity);
  // Performs everything that has ended, and waits for it.
  void Settle();

 private:
  struct EndsLater {
    bool operator()(const OpPtr& a, const OpPtr& b) const {
      return a->end_ns != b->end_ns ? a->end_ns > b->end_ns : a->sequence > b->sequence;
    }
  };

  void EnsureThread();
  void MakeReady(const OpPtr& op, std::vector<OpPtr>* resolved);
  void Resolve(const OpPtr& op, uint64_t start_ns, uint64_t end_ns);
  void Nudge(uint64_t wake_ns);
  uint64_t NextWake() const;
  bool HasPerformedUntil(uint64_t ns) const;
  void PollMeetings(uint64_t now_ns);
  bool Perform(std::unique_lock<std::mutex>& lock, uint64_t now_ns);
  void Run();
  void RunHostFunctions();

  std::mutex mutex_;
  std::condition_variable wake_;       // the scheduler's thread
  std::condition_variable done_;       // those who wait for an end
  std::condition_variable host_wake_;  // the thread for host functions
  bool thread_started_ = false;
  bool host_thread_started_ = false;
  uint64_t next_sequence_ = 0;
  uint64_t sleeping_until_ns_ = 0;
  int waiting_for_room_ = 0;  // threads in WaitUntilBelow
  uint64_t settles_wanted_ = 0;
  uint64_t settles_done_ = 0;
  std::priority_queue<OpPtr, std::vector<OpPtr>, EndsLater> ending_;
  std::multiset<uint64_t> awaited_;  // ends that somebody sleeps for
  std::vector<OpPtr> meetings_;
  std::deque<OpPtr> host_queue_;
  std::vector<Activity> posted_;
};

// True in a child that was forked when the driver was up: its threads are gone, and a driver refuses there,
// too.
bool LostToFork();
// From now on: the driver is up.
void LoseToForks();

}  // namespace gpusim
