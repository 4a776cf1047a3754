// Watches one process of this host from outside, through /proc, its control groups, and a descriptor that
// signals its end.
//
// Example: a connection comes from pid 4711, and its Hello says "pid 12". /proc/4711/status has "NSpid: 4711
// 12", so 4711 is that process, in a container; it is watched under our number. A program that only forwards
// for others (a relay, a simulator) has another pid than its Hello and is not watched: better no report than
// a wrong one. /proc/4711 is opened once, so that a later process of the same number is never mistaken for
// it.
//
// A look costs about a dozen small files. Used from the collector's thread only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collector/observe/cgroups.h"
#include "collector/observe/main_stack.h"
#include "collector/observe/proc_text.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::observe {

class ProcessObserver {
 public:
  // The busiest threads, whose waiting for a CPU is measured; chosen again every kChooseEvery looks, from at
  // most kMostTasks.
  static constexpr size_t kThreads = 8;
  static constexpr size_t kMostTasks = 1024;
  static constexpr uint64_t kChooseEvery = 5;
  // Looks after the end within which its status may still come: from the kernel once the parent has asked
  // for it.
  static constexpr int kEndLooks = 5;

  // The process at the other end of `socket`, which reported its own pid as `own_pid`; nullptr when it is not
  // visible from here.
  static std::unique_ptr<ProcessObserver> OfPeer(int socket, uint32_t own_pid);
  // Process `pid` of our namespace.
  static std::unique_ptr<ProcessObserver> Open(pid_t pid, uint32_t own_pid);
  ~ProcessObserver();
  ProcessObserver(const ProcessObserver&) = delete;
  ProcessObserver& operator=(const ProcessObserver&) = delete;

  pid_t pid() const { return pid_; }
  // True once the end was reported; later looks report nothing.
  bool said_end() const { return said_end_; }
  // Whether it has ended; one system call.
  bool HasEnded() const;
  // Waits for the end, which is near (its connection is closed), and takes its status before its parent does.
  void AwaitEnd(int milliseconds);
  // Its status as returned by waitpid(), for our own child.
  void NoteStatus(int wait_status);
  // What the process uses counts from now on, as if it had been looked at; otherwise from the first look on.
  void Begin(uint64_t monotonic_ns);
  // What it used since the look before, and nothing else: neither its state nor what it waits for.
  std::optional<v1::ProcessObservation> Count(uint64_t realtime_ns, uint64_t monotonic_ns);
  // nullopt: the process has ended and its status may still come; never with `last`.
  std::optional<v1::ProcessObservation> Look(uint64_t realtime_ns, uint64_t monotonic_ns, bool last = false);

 private:
  ProcessObserver(pid_t pid, int folder, int pidfd)
      : pid_(pid), folder_(folder), pidfd_(pidfd), main_stack_(pid) {}
  static std::unique_ptr<ProcessObserver> Open(pid_t pid, int pidfd, uint32_t own_pid);
  std::optional<v1::ProcessObservation> LookAtEnd(v1::ProcessObservation observation, bool last);
  void FindStatus(const std::optional<ProcStat>& stat);
  void ChooseThreads();
  void LookAtCounters(const ProcStat& stat, uint64_t monotonic_ns, v1::ProcessObservation& observation);
  void LookAtThreads(v1::ProcessObservation& observation);
  void LookAtGroups(v1::ProcessObservation& observation);
  void LookAtWait(v1::ProcessObservation& observation) const;

  pid_t pid_;
  int folder_;  // /proc/PID
  int pidfd_;   // -1: the kernel has none
  uint64_t looks_ = 0;
  uint64_t last_ns_ = 0;  // CLOCK_MONOTONIC
  uint64_t cpu_ticks_ = 0;
  uint64_t major_faults_ = 0;
  uint64_t main_run_ns_ = 0;  // of the main thread since the look before
  std::map<pid_t, SchedStat> threads_;
  Cgroups groups_;
  CgroupReading reading_;
  MainStack main_stack_;
  int end_looks_ = 0;
  bool said_end_ = false;
  std::optional<int> wait_status_;
};

}  // namespace gpuprobe::observe
