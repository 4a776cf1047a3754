// What processes report at level calls, and who is late by it: no kernel is known there.
//
// Example: an all-reduce of four ranks takes 9, 2, 9 and 9 ms on their GPUs. They end together, so rank 1
// began last: it is late by 7 ms, which is what the call would gain if that rank alone had come with the
// next. The times are each by its own GPU's clock, so no clocks need to agree. Where NCCL gives no such times
// (GPUPROBE_NCCL_TIMES), the hosts' times of issue are compared instead, of each host's ranks among
// themselves: they show a late process, but neither a slow GPU that its process runs ahead of, nor a host
// whose ranks are late together.
//
// Memory: kMostOpen calls of each communicator that not all of its ranks have reported yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "collector/model/calls/issued_calls.h"
#include "collector/model/state/members.h"
#include "collector/records/rows.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::model {

class CallTrace {
 public:
  static constexpr size_t kMostOpen = 4096;
  static constexpr size_t kMostRaises = 64;
  // The first calls of a communicator are not compared: ranks start apart, and compile.
  static constexpr uint64_t kFirstCalls = 32;

  // What was compared of one process, over all of its communicators.
  struct Sums {
    uint64_t compared = 0;  // calls
    uint64_t last = 0;      // of these, it was the last to come
    uint64_t late_ns = 0;   // of these, so much after the one before
    uint64_t early_ns = 0;  // of the others, so much before the last

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, compared, last, late_ns, early_ns);
    }
  };
  struct Process {
    uint64_t calls = 0;
    uint64_t timed = 0;   // calls whose time on the GPU is known
    uint64_t gpu_ns = 0;  // of these
    uint64_t steps = 0;   // that have ended
    uint64_t steps_ns = 0;
    uint64_t longest_step_ns = 0;
    uint64_t step = 0;           // the last that began
    uint64_t step_begin_ns = 0;  // 0: none has begun
    uint64_t first_ns = 0;       // of its calls; 0: there was none
    uint64_t last_ns = 0;
    uint64_t pauses_us2 = 0;     // sum of the squares of the times from one call to the next, us squared
    uint64_t late_until_ns = 0;  // its host was late until then: a wait that several calls share counts once
    uint64_t host = 0;           // as Place::host
    Sums by_gpu;
    Sums by_host;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, calls, timed, gpu_ns, steps, steps_ns, longest_step_ns, step, step_begin_ns,
                      first_ns, last_ns, pauses_us2, late_until_ns, host, by_gpu, by_host);
    }
  };
  // A communicator as the process knows it. `host`: equal for processes of one host.
  struct Place {
    uint32_t process = 0;  // index into JobModel::processes
    uint64_t hash = 0;
    int32_t rank = -1;
    int32_t ranks = 0;
    uint64_t host = 0;
  };

  void On(uint32_t process, const TracedStepRecord& step);
  // `op`: its JobModel::Name.
  void On(const Place& place, const TracedCallRecord& call, uint32_t op);
  void On(const Place& place, const CallTimeRecord& time);
  // The collector had ranks record in full. False: that is known, as other logs say it, too; or it is too
  // large.
  bool On(const v1::DetailRaise& raise);

  // The process is in the communicator, whatever it calls.
  void Join(const Place& place);

  // What hosts have issued and not all ranks of its communicator have, and the last call that all have: when
  // a call ends is not known, and those before it are taken for over.
  const IssuedCalls& calls() const { return calls_; }
  // Whether processes are compared by times on the GPU, which are known of some; else by their hosts'.
  bool compares_gpus() const { return compares_gpus_; }
  const Sums& SumsOf(const Process& process) const {
    return compares_gpus_ ? process.by_gpu : process.by_host;
  }
  // By process; shorter than the job's processes if later ones reported nothing.
  const std::vector<Process>& processes() const { return processes_; }
  const std::deque<v1::DetailRaise>& raises() const { return raises_; }
  // Whether all that it knows is of the first `processes`; calls() aside.
  bool IsOf(size_t processes) const;

 private:
  struct Arrival {
    uint32_t process = 0;
    uint64_t host = 0;
    uint64_t ns = 0;  // when it was issued, or how long it was on the GPU

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, process, host, ns);
    }
  };

  Process& Of(uint32_t process);
  // The arrivals of all ranks at the call, once the last is here; else none.
  std::vector<Arrival> Timed(const Place& place, uint64_t number, uint64_t ns);
  std::vector<Arrival> Issued(const Place& place, const TracedCallRecord& call, uint32_t op);
  // Of each host among themselves: clocks of hosts differ by more than a rank is late.
  void CompareIssues(std::vector<Arrival> all);

  std::vector<Process> processes_;
  bool compares_gpus_ = false;
  std::map<std::pair<uint64_t, uint64_t>, std::vector<Arrival>> timed_;  // by hash and number
  IssuedCalls calls_;
  std::deque<v1::DetailRaise> raises_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, processes_, compares_gpus_, timed_, calls_, raises_);
  }
};

}  // namespace gpuprobe::model
