// Decides whether a rank is the reason that the others wait, why it is late, and what a step loses to it.
//
// Three judges, each for one kind of evidence; Judge picks the one that applies:
//
//   JudgeByStep      Steps can be compared: the rank is late in more of them than chance explains (or its
//                    kernels are slower, which is not chance), and those steps are longer.
//   JudgeInPipeline  Ranks send to and receive from each other: a stage takes longer than the others and, of
//                    all, makes its neighbours wait most for what it waits itself.
//   JudgeInTotal     Neither, as where records were lost: what the rank cost the others over the whole run,
//                    against what the other ranks cost (a robust z-score; with two ranks, a ratio).
//
// Example: eight ranks, steps of 100 ms. Rank 3 is late in 90 of 100 steps, by 12 ms, and these are 10 ms
// longer. Its compute takes 11 ms more than the other ranks' median, which is more than 30 % of the delay, so
// the cause is slow kernels; a step loses 9 ms to it.
//
// Everything here is a function of plain numbers. straggler_report.h collects them.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "collector/analysis/stragglers/lateness.h"
#include "collector/report/communication.h"
#include "collector/report/steps.h"
#include "collector/report/stragglers.h"
#include "collector/report/waiting.h"

namespace gpuprobe::analysis {

// By how much the parts of a rank's steps exceed the other ranks'.
struct Excess {
  double late_ns = 0;  // to be explained
  double compute_ns = 0;
  double host_ns = 0;
  double input_ns = 0;
  double copy_ns = 0;
};

// What is known of one rank.
struct RankEvidence {
  StepMeans means;
  CausedWait caused;
  Lateness lateness;
  Excess when_late;  // mean over the steps in which it was late
  WorkDifference work;
  double last_call_ns = 0;  // duration of the last call to start in a step
  // At level calls: late at the collectives of the whole run, of which the steps are a few.
  bool late_at_calls = false;
};

struct StragglerVerdict {
  Straggler::Cause cause = Straggler::Cause::kUnknown;
  double cause_ns_per_step = 0;
  double lost_ns_per_step = 0;
  bool persistent = true;
  bool slow_stage = false;
  // Where steps were compared.
  uint64_t late_steps = 0;
  uint64_t compared_steps = 0;
  std::optional<std::pair<uint64_t, uint64_t>> stretch = std::nullopt;
  std::optional<uint64_t> since_step = std::nullopt;
  // Where it is not persistent: when, and how much slower its compute is in these steps.
  std::vector<uint64_t> step_numbers = {};
  std::optional<StepPattern> pattern = std::nullopt;
  double slowdown_when_late = 0;
  bool long_for_all = false;  // these steps are longer by far more than it is late
};

// The ranks of a job side by side.
struct RankField {
  std::vector<RankEvidence> ranks;
  double step_ns = 0;  // median over the ranks of their mean step

  explicit RankField(std::vector<RankEvidence> all);
};

// `rank` is one of the field's. No verdict: it does not stand out.
std::optional<StragglerVerdict> JudgeByStep(const RankField& field, const RankEvidence& rank,
                                            bool slow_kernels);
std::optional<StragglerVerdict> JudgeInPipeline(const RankField& field, const RankEvidence& rank,
                                                const std::optional<Pipeline>& pipeline);
std::optional<StragglerVerdict> JudgeInTotal(const RankField& field, const RankEvidence& rank);

// `slow_kernels`: its kernels are slower than the other ranks'. That holds for each of them, so lateness is
// not chance, however few steps there are.
std::optional<StragglerVerdict> Judge(const RankField& field, const RankEvidence& rank, bool slow_kernels,
                                      const std::optional<Pipeline>& pipeline);

// What the rank's host does for most of the time by which its GPU is idle longer than the other ranks' GPUs.
Straggler::HostDoes HostDoesOf(const RankField& field, const RankEvidence& rank);
// Whether a busy machine explains it: its host makes it late for no longer than hosts were ready to run and
// had no CPU, this one no more than the others, and neither a period nor an onset says otherwise. By chance
// one rank may be late far more often than another: a host that once fell behind stays behind.
bool MachineExplains(const Straggler& straggler, double step_ns);
// Its compute time over the other ranks' median; nothing if theirs is 0.
std::optional<double> ComputeRatio(const RankField& field, const RankEvidence& rank);

}  // namespace gpuprobe::analysis
