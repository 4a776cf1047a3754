// What the kernel reports about a process, once a second or so: whether it can run, how long it waited for a
// CPU, how it ended.
//
// Example: rank 3 gets SIGSTOP at 18:02:10.6. The observation of 18:02:11 has the state T and begins a halt,
// those that follow extend it, and the one after SIGCONT, which has S, does not. When the job is killed at
// 18:05 the last halt shows why it hung: rank 3 was stopped until 18:04:59. Totals go on throughout.
//
// Fed by the collector (observe/process_observer.h) or by the log that it wrote; what both say is the same.
// Times are on the process's line. Memory: the last kMaxRecent observations, and kMaxHalts halts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "collector/model/state/members.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::model {

class ProcessCondition {
 public:
  // Two minutes of one a second: twice the default limit of a hang.
  static constexpr size_t kMaxRecent = 128;
  static constexpr size_t kMaxHalts = 8;
  static constexpr int kMaxFrames = 48;
  static constexpr size_t kMaxText = 256;  // of a name; a log may hold anything

  // Why no thread of the process can run.
  enum class Reason : uint8_t { kNone, kStopped, kTraced, kFrozen, kEnded };
  struct Halt {
    Reason reason = Reason::kNone;
    uint64_t since_ns = 0;  // the first observation that has it, and the last
    uint64_t until_ns = 0;
    uint32_t stop_signal = 0;  // kStopped; 0: not known
    std::string tracer;        // kTraced; empty: not known

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, reason, since_ns, until_ns, stop_signal, tracer);
    }
  };

  struct Sums {
    uint64_t observed_ns = 0;
    uint64_t cpu_ns = 0;        // of all threads
    uint64_t run_delay_ns = 0;  // of the thread that waited longest for a CPU
    uint64_t major_faults = 0;
    uint64_t quota_periods = 0;
    uint64_t throttled_periods = 0;
    uint64_t memory_stall_ns = 0;
    void Add(const Sums& other);

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, observed_ns, cpu_ns, run_delay_ns, major_faults, quota_periods, throttled_periods,
                      memory_stall_ns);
    }
  };
  struct Recent {
    uint64_t time_ns = 0;
    char state = 0;
    Sums sums;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, time_ns, state, sums);
    }
  };

  void Apply(const v1::ProcessObservation& observation, uint64_t time_ns);
  // The process reports again.
  void Rejoin();

  // When it was observed last; 0: never.
  uint64_t last_ns() const { return last_ns_; }
  const std::deque<Halt>& halts() const { return halts_; }  // the latest last
  const v1::ProcessEnd& end() const { return end_; }        // of a halt that is kEnded
  // The main thread at the last observation.
  char state() const { return state_; }
  const std::string& wait_channel() const { return wait_channel_; }
  const std::string& waits_for() const { return waits_for_; }
  // Where the main thread is in its Python code, if it was there at the observation before, too.
  const v1::PythonStack& python() const { return python_; }
  uint32_t quota_millicpus() const { return quota_millicpus_; }
  uint64_t swapped_bytes() const { return swapped_bytes_; }
  // Over the whole run, and over the remembered part of the time since then.
  const Sums& totals() const { return totals_; }
  Sums Since(uint64_t time_ns) const;
  // Share of the observations since then in which the main thread was in this state.
  double ShareOfState(char state, uint64_t time_ns) const;

 private:
  Sums totals_;
  std::deque<Recent> recent_;
  uint64_t last_ns_ = 0;
  std::deque<Halt> halts_;
  bool halted_ = false;  // in the last of them
  char state_ = 0;
  std::string wait_channel_;
  std::string waits_for_;
  v1::PythonStack python_;
  uint32_t quota_millicpus_ = 0;
  uint64_t swapped_bytes_ = 0;
  v1::ProcessEnd end_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, totals_, recent_, last_ns_, halts_, halted_, state_, wait_channel_, waits_for_,
                    python_, quota_millicpus_, swapped_bytes_, end_);
    archive.Require(!halted_ || !halts_.empty());
  }
};

}  // namespace gpuprobe::model
