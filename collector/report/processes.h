// Why a process could not run, and what its host cost it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gpuprobe::analysis {

// "SIGKILL", "signal 40"
std::string SignalName(uint32_t signal);
// Absent: it is no such name.
std::optional<uint32_t> SignalOf(const std::string& name);

// A state in which no thread of the process can run.
struct Halt {
  enum class Kind { kStopped, kTraced, kFrozen, kEnded };
  Kind kind = Kind::kStopped;
  uint64_t since_ns = 0;                          // as the clock said
  std::optional<uint32_t> signal = std::nullopt;  // that stopped or ended it
  std::optional<uint32_t> exit_code = std::nullopt;
  bool out_of_memory = false;
  std::string tracer = {};

  static constexpr void Declare(auto& fields) {
    fields(
        "kind", &Halt::kind,
        "`stopped` (by `signal`), `traced` (by a debugger, `tracer`), `frozen` (by its cgroup) or `ended`");
    fields("since_ns", &Halt::since_ns, "since when (within 0.2 s)");
    fields.Computed(
        "signal",
        [](const Halt& h) {
          return h.signal.has_value() ? std::optional(SignalName(*h.signal)) : std::nullopt;
        },
        [](Halt& h, const auto& name) { h.signal = name.has_value() ? SignalOf(*name) : std::nullopt; },
        "name of the signal that stopped or ended it, if the kernel told");
    fields("exit_code", &Halt::exit_code, "of a process that exited, if the kernel told");
    fields("out_of_memory", &Halt::out_of_memory, "the kernel killed it, as its cgroup counts");
    fields("tracer", &Halt::tracer, "the debugger").NullIfZero();
    fields.Unwritten(&Halt::signal);
  }
};

// A time in which no thread of it could run, and after which it went on or the run ended.
struct Stop {
  Halt halt;
  uint64_t until_ns = 0;

  static constexpr void Declare(auto& fields) {
    fields.Inline(&Stop::halt);
    fields("until_ns", &Stop::until_ns, "the last observation that had it");
  }
};

// Costs of the host, relative to the time looked at.
struct HostLoad {
  double observed_s = 0;  // 0: nothing is known
  double cpus = 0;
  double waits_for_cpu = 0;
  double throttled = 0;
  double quota_cpus = 0;  // 0: none
  double major_faults_per_s = 0;
  double memory_stall = 0;
  uint64_t swapped_bytes = 0;
  std::string waits_for = {};  // "read /data/fifo"
  std::string wait_channel = {};
  double uninterruptible = 0;

  static constexpr void Declare(auto& fields) {
    using L = HostLoad;
    fields.NullUnless([](const L& load) { return load.observed_s > 0; });
    fields("observed_s", &L::observed_s, "how long it was observed");
    fields("cpus", &L::cpus, "CPUs used, on average");
    fields("waits_for_cpu", &L::waits_for_cpu,
           "share of the time in which a thread was ready to run and did not: in each second, the one of its "
           "busiest threads that waited longest");
    fields("throttled", &L::throttled, "share of the periods in which its cgroup's CPU quota ran out");
    fields("quota_cpus", &L::quota_cpus, "that quota; `null`: none").NullIfZero();
    fields("major_faults_per_s", &L::major_faults_per_s, "page faults that read from a disk");
    fields("memory_stall", &L::memory_stall,
           "share in which everything in its cgroup (or on the host) waited for memory");
    fields("swapped_bytes", &L::swapped_bytes, "its memory that is swapped out");
    fields("uninterruptible", &L::uninterruptible,
           "share of the last two minutes in which the main thread was in state D");
    fields("waits_for", &L::waits_for,
           "the system call with its file in which the main thread was last blocked")
        .NullIfZero();
    fields("wait_channel", &L::wait_channel, "the kernel function in which it was").NullIfZero();
  }
};

}  // namespace gpuprobe::analysis
