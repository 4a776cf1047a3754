// What the host did while GPUs were idle for it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collector/model/steps/host_places.h"
#include "collector/report/python_stack.h"

namespace gpuprobe::analysis {

// One line of the program, with the whereabouts of most of its time. A detail (`call`, `at` ...) is what half
// of that time or more has in common.
struct HostPlaceReport {
  bool no_cpu = false;
  bool lock_held = false;
  model::HostTask task = model::HostTask::kUnknown;
  std::string call = {};  // "cuMemFree"
  bool memory_call = false;
  std::string system_call = {};  // "write"
  std::string file = {};
  std::vector<PythonFrame> python = {};  // the innermost function, and the program's own that called it
  uint32_t other_lines = 0;              // of the last of these functions, which are counted here, too
  double ns_per_step = 0;
  double share = 0;  // of what is known
  uint64_t samples = 0;
  uint64_t of_samples = 0;
  bool measured = false;  // half of it or more is in calls that are recorded from entry to exit

  static constexpr void Declare(auto& fields) {
    using P = HostPlaceReport;
    fields("no_cpu", &P::no_cpu, "the thread could run, and had no processor");
    fields("lock_held", &P::lock_held,
           "this is another thread, which had Python's lock (GIL), for which the launching thread waited");
    fields("task", &P::task,
           "what the functions' names show: `unknown loads saves compiles logs empties_cache optimizes`");
    fields("call", &P::call, "the CUDA or NCCL function that it was in; `null`: in none").NullIfZero();
    fields("memory_call", &P::memory_call, "it was in a call that allocates or releases memory");
    fields("system_call", &P::system_call, "the system call that it was in; `null`: in none, or not known")
        .NullIfZero();
    fields("file", &P::file, "the file, socket or device that this is about").NullIfZero();
    fields(
        "python", &P::python,
        "the innermost function, and the innermost one of the program's own if that is another; empty: not "
        "known");
    fields(
        "other_lines", &P::other_lines,
        "of the last of these functions, whose time is in this place, too: no line has half of it, and the "
        "function has");
    fields("ns_per_step", &P::ns_per_step,
           "the part of the idle time, over all steps, or over those that are spoken of. Over all steps, "
           "what is "
           "in no recorded call is estimated from samples, if there are three or more");
    fields("share", &P::share, "of the part that is known");
    fields("samples", &P::samples,
           "how many samples say so; 0: calls that are recorded from entry to exit do");
    fields("of_samples", &P::of_samples, "of how many");
    fields.Unwritten(&P::measured);
  }
};

struct HostTimeReport {
  model::IdleCause cause = model::IdleCause::kHostBound;
  double ns_per_step = 0;
  double not_sampled_ns_per_step = 0;
  double other_ns_per_step = 0;
  uint64_t samples = 0;
  std::vector<HostPlaceReport> places = {};  // most time first

  // REQUIRES: there are places.
  const HostPlaceReport& most() const { return places.front(); }

  static constexpr void Declare(auto& fields) {
    using H = HostTimeReport;
    fields("cause", &H::cause,
           "`host_bound input sync memory pause`, as in `steps.idle`; `blocked`: the host is in a "
           "synchronising call, "
           "while the GPU works or not");
    fields("ns_per_step", &H::ns_per_step, "that time: what follows adds up to it");
    fields("not_sampled_ns_per_step", &H::not_sampled_ns_per_step, "nothing says what the host did");
    fields("other_ns_per_step", &H::other_ns_per_step, "in places of which too little is kept to list them");
    fields("samples", &H::samples, "how many samples fell into it");
    fields("places", &H::places, "by line of the program, most time first");
  }
};

// "cuMemFree, called from empty_cache (torch/cuda/memory.py:162), called from train (train.py:14)", "waiting
// for a CPU", "write checkpoint.pt, in save (torch/serialization.py:3), ..."
std::string HostPlaceText(const HostPlaceReport& place);
// "93 % of 412 samples", "7 of 9 samples"; if calls say so, "measured".
std::string HowSure(const HostPlaceReport& place);

}  // namespace gpuprobe::analysis
