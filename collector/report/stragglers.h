// Ranks that the others wait for: how much, how often, and why.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collector/report/gpu_health.h"
#include "collector/report/host_time.h"
#include "collector/report/long_steps.h"
#include "collector/report/processes.h"
#include "collector/report/waiting.h"

namespace gpuprobe::analysis {

struct RankReport;

// A rank's compute per step beside the other ranks' median (rank_work.h).
struct WorkDifference {
  bool known = false;    // the kernels of its steps, and of the others', were recorded
  double more_ns = 0;    // per step, by more work
  double slower_ns = 0;  // per step, by the same launches taking longer
  double slowdown = 1;   // of the kernels that it launches as the others do
  double ratio = 1;      // its work, over the others', at their pace
  bool either =
      false;  // slower or more work: the kernels that take longer are of kinds that `as_fast` is not
  std::string as_fast = {};  // not empty: the longest of its kernels that are not slower, while others are
  enum class Change { kCalls, kThreads, kTime };
  struct Kernel {
    std::string name = {};  // demangled; empty: none
    double extra_ns = 0;    // per step
    Change change = Change::kTime;
    double calls = 0;  // per step
    double usual_calls = 0;
    bool only_here = false;  // no other rank has a call of it
    double thread_ratio = 1;
    double mean_ns = 0;
    double usual_mean_ns = 0;  // 0: it does not run elsewhere
  };
  Kernel kernel = {};  // that adds most to the larger one of more_ns and slower_ns

  bool IsMore() const;
};

// Of the run.
struct Stretch {
  uint64_t first_step = 0;
  uint64_t last_step = 0;

  static constexpr void Declare(auto& fields) {
    fields("first_step", &Stretch::first_step, "where it begins");
    fields("last_step", &Stretch::last_step, "where it ends");
  }
};

// A rank that others wait for because its kernels run slower than the same kernels elsewhere (slow_ranks.h).
struct Straggler {
  std::optional<int> rank;
  std::string gpu;  // empty unless its process drives several
  std::string host;
  std::optional<uint32_t> device;
  double slowdown = 0;
  double extra_ns = 0;
  std::string kernel;
  double kernel_mean_ns = 0;
  double kernel_elsewhere_ns = 0;
  double wait_ns = 0;
  double others_wait_mean_ns = 0;
  enum class Cause { kSlowKernels, kMoreWork, kLateLaunch, kLateInput, kSlowCopies, kUnknown };
  Cause cause = Cause::kSlowKernels;
  // What its host does most of that time, if the cause is kLateLaunch.
  enum class HostDoes { kLaunches, kSynchronises, kAllocates, kPauses, kCopiesOut };
  HostDoes host_does = HostDoes::kLaunches;
  std::vector<HostPlaceReport> host_places = {};
  double cause_ns_per_step = 0;
  WorkDifference work;
  CausedWait caused;
  double lost_ns_per_step = 0;
  double throughput_loss = 0;
  bool persistent = true;
  uint64_t late_steps = 0;
  uint64_t compared_steps = 0;
  std::optional<Stretch> stretch = std::nullopt;
  std::vector<uint64_t> step_numbers = {};  // the first of these steps
  std::optional<StepPattern> pattern = std::nullopt;
  bool long_for_all = false;      // these steps are longer by far more than it is late
  double slowdown_when_late = 0;  // of its compute, in these steps; 0: not known
  std::optional<uint64_t> since_step = std::nullopt;
  HostLoad load;
  HostLoad usual_load;
  GpuHealth gpu_health;
  GpuHealth usual_gpu_health;
  bool slow_stage = false;  // a pipeline's: its neighbours wait for it in sends and receives

  std::string Name() const;  // "rank 3", "GPU 2"
  // What it is compared with, one and several.
  const char* Peer() const { return gpu.empty() ? "rank" : "GPU"; }
  const char* Peers() const { return gpu.empty() ? "ranks" : "GPUs"; }
  bool Is(const RankReport& rank) const;
  void IdentifyAs(const RankReport& rank);

  static constexpr void Declare(auto& fields) {
    using S = Straggler;
    fields("rank", &S::rank, "who; `null` if the process has none");
    fields("gpu", &S::gpu, "`GPU 2`, `GPU 2 of rank 0`: if its process drives several; else `null`")
        .NullIfZero();
    fields("host", &S::host, "its host");
    fields("device", &S::device, "ordinal of its device");
    fields("cause", &S::cause,
           "the part of its step that exceeds the other ranks' median most: `slow_kernels more_work "
           "late_launch late_input slow_copies unknown`");
    fields("slowdown", &S::slowdown,
           "time of its kernels over that of the same launches at the others' pace (median over ranks of "
           "each kernel's mean; only kernels launched equally often everywhere, without NCCL's), in steps "
           "after the warm-up where steps are known");
    fields("extra_ns", &S::extra_ns, "over the whole run: what its kernels took longer");
    fields("kernel", &S::kernel, "the kernel that loses most");
    fields("kernel_mean_ns", &S::kernel_mean_ns, "its mean on this rank, in the same steps");
    fields("kernel_elsewhere_ns", &S::kernel_elsewhere_ns, "and elsewhere");
    fields.Computed(
        "wait_ns", [](const S& s) { return s.extra_ns > 0 ? s.wait_ns : s.caused.waited_ns; },
        [](S& s, double ns) { s.wait_ns = ns; }, "over the whole run: what it waited");
    fields.Computed(
        "others_wait_mean_ns",
        [](const S& s) { return s.extra_ns > 0 ? s.others_wait_mean_ns : s.caused.mean_ns; },
        [](S& s, double ns) { s.others_wait_mean_ns = ns; },
        "over the whole run: what the others waited on average");
    fields("cause_ns_per_step", &S::cause_ns_per_step, "by how much that part exceeds the median");
    fields(
        "work_ratio", [](auto& s) -> auto& { return s.work.ratio; },
        "its work over the others', at their pace: calls, threads, and time that only some of its kernels "
        "take longer");
    fields(
        "kernel_calls_per_step", [](auto& s) -> auto& { return s.work.kernel.calls; },
        "calls of the kernel that adds most to its steps");
    fields(
        "kernel_calls_elsewhere", [](auto& s) -> auto& { return s.work.kernel.usual_calls; },
        "the others' median");
    fields("wait", &S::caused, "as `ranks[].wait`");
    fields("lost_ns_per_step", &S::lost_ns_per_step,
           "by how much a step is longer for it: the exposed part of the waiting that it causes (median over "
           "the others of their exposed communication, minus its own), at most by how much the steps in "
           "which it is late exceed the others");
    fields("throughput_loss", &S::throughput_loss, "1 - step without it / step with it");
    fields("persistent", &S::persistent, "in 60 % of its steps or more, or since `since_step`");
    fields("host_load", &S::load, "as `ranks[].host_load`");
    fields("usual_host_load", &S::usual_load, "each value the median of the other ranks'");
    fields("gpu_health", &S::gpu_health, "as `ranks[].gpu_health`").AbsentIfEmpty();
    fields("usual_gpu_health", &S::usual_gpu_health, "each value the median of the other ranks'")
        .AbsentIfEmpty();
    fields("late_steps", &S::late_steps,
           "steps in which that waiting is 5 % of the step or more; `null` if steps cannot be compared")
        .NullUnless([](const S& s) { return s.compared_steps > 0; });
    fields("compared_steps", &S::compared_steps, "steps that were compared; 0 if they cannot be");
    fields(
        "host_places", &S::host_places,
        "what its host does meanwhile, as `host_time[].places`, per step in which it is late, more than the "
        "others' hosts do; absent: not known")
        .AbsentIfEmpty();
    fields("since_step", &S::since_step,
           "the step from which on it was late to the end, and not before; `null`: from the beginning, or "
           "now and then");
    fields("stretch", &S::stretch,
           "if it is not persistent and most late steps are in one stretch of the run, else `null`");
    fields.Unwritten(&S::wait_ns, &S::others_wait_mean_ns, &S::host_does, &S::work, &S::step_numbers,
                     &S::pattern, &S::long_for_all, &S::slowdown_when_late, &S::slow_stage);
  }
};

}  // namespace gpuprobe::analysis
