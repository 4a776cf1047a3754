// Where the time of steps went, for one process or all ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collector/model/statistics/distribution.h"
#include "collector/model/steps/step_record.h"
#include "collector/report/words.h"

namespace gpuprobe::report {

template <typename T>
struct Declaration;

template <>
struct Declaration<model::Summary> {
  static void Of(auto& fields) {
    using S = model::Summary;
    fields.Named("Statistics");
    fields("count", &S::count, "samples");
    fields("total", &S::total, "their sum");
    fields("mean", &S::mean, "their mean").InSummary();
    fields("std", &S::std, "sample standard deviation (n - 1)");
    fields("min", &S::min, "the smallest");
    fields("p50", &S::p50, "median");
    fields("p95", &S::p95, "95 % are at most this");
    fields("p99", &S::p99, "99 % are at most this");
    fields("max", &S::max, "the largest");
    fields("quantiles_exact", &S::quantiles_exact,
           "if false, there were more samples than are kept, and the quantiles come from a histogram");
  }
};

template <>
struct Declaration<model::StepRecord> {
  static void Of(auto& fields) {
    using R = model::StepRecord;
    fields("index", &R::index, "its number as all ranks count, from 0");
    fields("start_ns", &R::start_ns, "end of the last operation launched before it");
    fields("end_ns", &R::end_ns, "end of the last operation launched in it");
    fields("first_launch_ns", &R::first_launch_ns, "host time of its first launch");
    fields("operations", &R::operations, "kernels, copies and memsets");
    fields("compute_ns", &R::compute_ns, "its parts, as in `steps`");
    fields("comm_ns", &R::comm_ns, "the same");
    fields("exposed_comm_ns", &R::exposed_comm_ns, "the same");
    fields("copy_ns", &R::copy_ns, "the same");
    fields("idle_ns", &R::idle_ns, "the same");
    fields.Group("idle", "why nothing ran, as in `steps`", [](auto& group) {
      group("host_bound_ns", &R::host_bound_ns, "the same");
      group("input_ns", &R::input_ns, "the same");
      group("sync_ns", &R::sync_ns, "the same");
      group("memory_ns", &R::memory_ns, "the same");
      group("pause_ns", &R::pause_ns, "the same");
      group("launch_gap_ns", &R::launch_gap_ns, "the same");
      group("unknown_ns", &R::unknown_ns, "the same");
    });
    fields.Group("phases", "nanoseconds by phase, as in `steps`", [](auto& group) {
      for (const auto& [phase, word] : WordsOf<model::StepPhase>())
        group.Element(word.c_str(), &R::phase_ns, static_cast<size_t>(phase), "in this phase");
    });
    fields("warmup", &R::warmup, "much longer than later ones: in no statistics");
    fields("incomplete", &R::incomplete, "records were lost in it");
    fields("lost_operations", &R::lost, "how many of its operations have no record");
    fields("clock_step_ns", &R::clock_step_ns,
           "by how much the clock was set forward (below 0: back) within the step; `end_ns - start_ns` "
           "contains it, parts and statistics do not");
    fields("error_ns", &R::error_ns,
           "by how much the start or the end may be off because records were lost there; 0: both were seen");
  }
};

}  // namespace gpuprobe::report

namespace gpuprobe::analysis {

// Where records were lost, statistics are over the complete steps. These are half the widths of the 95 %
// intervals for the mean over all steps, provided that losses hit steps at random.
struct StepErrors {
  double total_ns = 0;
  double compute_ns = 0;
  double comm_ns = 0;
  double exposed_comm_ns = 0;
  double copy_ns = 0;
  double idle_ns = 0;
  std::optional<double> overlap_efficiency;

  static constexpr void Declare(auto& fields) {
    using E = StepErrors;
    fields("total_ns", &E::total_ns, "half the width of the 95 % interval of the mean step");
    fields("compute_ns", &E::compute_ns, "of the mean of that part");
    fields("comm_ns", &E::comm_ns, "the same");
    fields("exposed_comm_ns", &E::exposed_comm_ns, "the same");
    fields("copy_ns", &E::copy_ns, "the same");
    fields("idle_ns", &E::idle_ns, "the same");
    fields("overlap_efficiency", &E::overlap_efficiency, "of that ratio; `null` where it is");
  }
};

// The standard deviation of the ranks' mean steps, by part; absent with fewer than two ranks that have steps.
struct BetweenRanks {
  std::optional<double> total_ns;
  std::optional<double> compute_ns;
  std::optional<double> exposed_comm_ns;
  std::optional<double> copy_ns;
  std::optional<double> idle_ns;

  static constexpr void Declare(auto& fields) {
    using B = BetweenRanks;
    fields("total_ns", &B::total_ns,
           "standard deviation of the ranks' mean steps; `null` with fewer than two ranks");
    fields("compute_ns", &B::compute_ns, "the same, of their compute");
    fields("exposed_comm_ns", &B::exposed_comm_ns, "of their exposed communication");
    fields("copy_ns", &B::copy_ns, "of their copies");
    fields("idle_ns", &B::idle_ns, "of the time in which nothing ran");
  }
};

// Statistics are over steps after the warm-up; for the job: over the steps of all ranks.
struct StepsReport {
  uint64_t count = 0;  // for the job: of the rank with most
  uint64_t warmup_count = 0;
  uint64_t incomplete_count = 0;
  bool estimated = false;
  std::optional<StepErrors> errors;
  model::StepSource source = model::StepSource::kNone;
  double confidence = 0;  // StepTracker::confidence
  model::Summary time_ns;
  model::Summary compute_ns;
  model::Summary comm_ns;
  model::Summary exposed_comm_ns;
  model::Summary overlapped_comm_ns;
  model::Summary copy_ns;
  model::Summary idle_ns;
  model::Summary host_bound_ns;
  model::Summary input_ns;
  model::Summary sync_ns;
  model::Summary memory_ns;
  model::Summary pause_ns;
  model::Summary pause_after_copy_ns;  // part of pause_ns
  model::Summary launch_gap_ns;
  model::Summary unknown_ns;
  model::Summary blocked_ns;     // the host was blocked in a synchronising call; in no sum,
  model::Summary blocked_calls;  // and in how many
  model::Summary memory_calls;   // that allocated or released memory
  std::optional<double> overlap_efficiency;
  std::optional<double> hidden_comm_share;
  struct Phase {
    enum class Source { kInferred, kNvtx, kMixed };
    model::StepPhase name = model::StepPhase::kOther;
    Source source = Source::kInferred;
    model::Summary time_ns;
    model::Summary idle_ns;

    static constexpr void Declare(auto& fields) {
      fields("name", &Phase::name,
             "`input h2d forward backward optimizer communication other`, which add up to the step. Each "
             "instant belongs to the phase in which the compute that runs was launched; else to "
             "communication; else to the copy that runs; idle time is input, or belongs to the phase of the "
             "work that the device waits for. Where nothing says within 1 % of the compute where one phase "
             "ends and the next begins, both are `other`: not known");
      fields("source", &Phase::source,
             "`nvtx`, `inferred` (from launching threads and kernel names), `mixed`");
      fields("time_ns", &Phase::time_ns, "of a step");
      fields("idle_ns", &Phase::idle_ns, "the part of it in which nothing ran");
    }
  };
  std::vector<Phase> phases;
  // For one process: see step_alignment.h; already added in `records`.
  int64_t behind = 0;
  std::vector<model::StepRecord> records;  // of one process, on request

  static constexpr void Declare(auto& fields) {
    using S = StepsReport;
    fields("count", &S::count, "steps found, with the warm-up").InSummary();
    fields("warmup_count", &S::warmup_count, "steps left out as warm-up");
    fields("behind", &S::behind,
           "for a rank: what was added to the index of its last step so that a step has the same number on "
           "all ranks (`records[].index`, `first_blamed_step`, `last_blamed_step`). A rank that was heard "
           "late, or missed steps, is behind");
    fields("incomplete_count", &S::incomplete_count,
           "steps in which records were lost, over all ranks. What they were and when they ran is estimated "
           "from the usual step; they are in no statistics");
    fields("estimated", &S::estimated,
           "fewer than three steps were seen whole, so the others are in the statistics, too");
    fields("errors", &S::errors,
           "if records were lost: half the width of the 95 % interval of the mean over all steps, given "
           "those that were seen whole, if chance chose them; `null`: nothing was lost");
    fields("source", &S::source,
           "where the boundaries come from: `marker` (`--step-marker`), `nvtx` (ranges that look like "
           "steps), `collectives` (the period of the collective sequence), `kernels` (that of the kernels' "
           "names and geometry), `optimizer` (optimizer kernels only)");
    fields("confidence", &S::confidence,
           "0 to 1: the share of steps with as many operations as the usual one within 10 % (1 if the "
           "program or the user marks steps), times n/(n+1) for n steps, times the share of their operations "
           "whose records came; for the job, the least of its ranks");
    fields("time_ns", &S::time_ns, "length of a step").InSummary();
    fields("compute_ns", &S::compute_ns, "kernels without NCCL's, and memsets").InSummary();
    fields("comm_ns", &S::comm_ns,
           "NCCL's kernels, by what launched them, and exchanges without NCCL that are known by name (vLLM's "
           "and SGLang's `cross_device_reduce`, PyTorch's symmetric memory), which have no entry in "
           "`collectives[]`");
    fields("exposed_comm_ns", &S::exposed_comm_ns, "the part of them without compute at the same time")
        .InSummary();
    fields("overlapped_comm_ns", &S::overlapped_comm_ns, "the part with compute at the same time");
    fields("copy_ns", &S::copy_ns, "copies that neither covers").InSummary();
    fields("idle_ns", &S::idle_ns, "nothing runs").InSummary();
    fields.Group("idle", "why nothing runs, which adds up to `idle_ns`", [](auto& group) {
      group("host_bound_ns", &S::host_bound_ns,
            "the operation that ended the idle time was launched only after the device had run dry: until "
            "that launch, while the host was launching at its usual pace");
      group(
          "input_ns", &S::input_ns,
          "the same, and the host was silent, until a copy to the device began the step, if samples of the "
          "host "
          "do not contradict, or for half of that time or more in an NVTX range that is named after loading "
          "(`dataloader`, `next_batch`) or, as samples show, in code that loads. A "
          "synchronising call is over first. In steps of the warm-up it is a pause: a program compiles then");
      group("sync_ns", &S::sync_ns,
            "the same, and the host was blocked in a synchronising call, or a copy to the host that blocks, "
            "when the device ran dry");
      group("memory_ns", &S::memory_ns,
            "the same, and calls that allocate or release memory take half of that time or more");
      group("pause_ns", &S::pause_ns,
            "the same, and the host was silent, and none of the above says why; or copies to the host of 40 "
            "us or more came right before, or samples show what the host did after a synchronising call. "
            "Silent: it launched nothing for 50 us at least and four times the "
            "step's usual distance between launches");
      group(
          "launch_gap_ns", &S::launch_gap_ns,
          "from the launch on, or all of it if the operation had been launched in time: it waited for other "
          "work, or for the launch to take effect");
      group("unknown_ns", &S::unknown_ns, "the launch was not recorded");
    });
    fields("overlap_efficiency", &S::overlap_efficiency,
           "(compute + comm - total) / (compute + comm - max(compute, comm)) over the sums of all steps, "
           "total being the joint union; 1 is ideal; `null` without compute or communication");
    fields("hidden_comm_share", &S::hidden_comm_share, "overlapped / comm");
    fields("phases", &S::phases, "the phases of a step");
    fields("records", &S::records, "of a rank, with `--steps`: the last 512 steps one by one")
        .AbsentIfEmpty();
    fields.Unwritten(&S::pause_after_copy_ns, &S::blocked_ns, &S::blocked_calls, &S::memory_calls);
  }
};

// Means over a rank's steps, warm-up left out.
struct StepMeans {
  uint64_t steps = 0;
  double total_ns = 0;
  double compute_ns = 0;
  double comm_ns = 0;
  double exposed_comm_ns = 0;
  double copy_ns = 0;
  double idle_ns = 0;
  double host_bound_ns = 0;
  double input_ns = 0;
  double sync_ns = 0;
  double memory_ns = 0;
  double pause_ns = 0;
  double pause_after_copy_ns = 0;  // part of pause_ns
  double launch_gap_ns = 0;
  double h2d_ns = 0;

  // Idle because of what the host did, or did not do.
  double host_ns() const { return host_bound_ns + sync_ns + memory_ns + pause_ns; }
};

}  // namespace gpuprobe::analysis
