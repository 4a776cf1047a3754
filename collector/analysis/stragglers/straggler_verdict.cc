#include "collector/analysis/stragglers/straggler_verdict.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "collector/analysis/hangs/process_state.h"
#include "collector/analysis/median.h"
#include "collector/analysis/thresholds.h"
#include "collector/model/job/late_steps.h"

namespace gpuprobe::analysis {
namespace {

template <typename Get>
double MedianOfOthers(const RankField& field, const RankEvidence& but, Get get) {
  std::vector<double> values;
  for (const RankEvidence& each : field.ranks) {
    if (&each != &but) values.push_back(get(each));
  }
  return Median(std::move(values));
}

bool ComparedByStep(const RankEvidence& rank) {
  return rank.caused.pairs == 0 && rank.lateness.steps * 2 >= rank.caused.steps && rank.lateness.steps > 0;
}

bool BlamedInMost(const RankEvidence& rank) {
  return static_cast<double>(rank.caused.steps_blamed) >=
         thresholds::kPersistentStepsShare * static_cast<double>(std::max<uint64_t>(rank.caused.steps, 1));
}

// By what it caused in all.
bool StandsOutInTotal(const RankField& field, const RankEvidence& rank) {
  const auto per_step = [](const RankEvidence& each) { return each.caused.per_step_ns; };
  if (per_step(rank) < thresholds::kWaitedStepShare * field.step_ns) return false;
  if (field.ranks.size() == 2)
    return per_step(rank) >= thresholds::kWaitedOfTwoRatio * MedianOfOthers(field, rank, per_step);
  if (static_cast<double>(rank.caused.steps_blamed) <
      thresholds::kBlamedStepsShare * static_cast<double>(rank.caused.steps))
    return false;
  std::vector<double> values;
  values.reserve(field.ranks.size());
  for (const RankEvidence& each : field.ranks) values.push_back(per_step(each));
  const double middle = Median(values);
  for (double& v : values) v = std::abs(v - middle);
  const double spread = std::max(kMadToSigma * Median(values), thresholds::kNoiseFloorShare * field.step_ns);
  return (per_step(rank) - middle) / spread >= thresholds::kRobustZScore;
}

// Over all its steps.
Excess ExcessOf(const RankField& field, const RankEvidence& rank) {
  const auto extra = [&](auto get) { return get(rank) - MedianOfOthers(field, rank, get); };
  // When calls overlap compute, the others wait for it in several calls at once; by step it is late once.
  const double late_ns = ComparedByStep(rank) && rank.lateness.late > 0
                             ? rank.lateness.late_by_ns * rank.lateness.share()
                             : rank.caused.per_step_ns;
  return {.late_ns = late_ns,
          .compute_ns = extra([](const RankEvidence& each) { return each.means.compute_ns; }),
          .host_ns = extra([](const RankEvidence& each) { return each.means.host_ns(); }),
          .input_ns = extra([](const RankEvidence& each) { return each.means.input_ns; }),
          .copy_ns = extra([](const RankEvidence& each) { return each.means.copy_ns; })};
}

// Which part of its step makes it late, and by how much.
std::pair<Straggler::Cause, double> CauseOf(const RankEvidence& rank, const Excess& excess) {
  const std::array<std::pair<Straggler::Cause, double>, 4> parts{{
      {Straggler::Cause::kSlowKernels, excess.compute_ns},
      {Straggler::Cause::kLateLaunch, excess.host_ns},
      {Straggler::Cause::kLateInput, excess.input_ns},
      {Straggler::Cause::kSlowCopies, excess.copy_ns},
  }};
  auto [cause, most] = *std::max_element(parts.begin(), parts.end(),
                                         [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most < thresholds::kExplainedDelayShare * excess.late_ns) return {Straggler::Cause::kUnknown, 0};
  if (cause == Straggler::Cause::kSlowKernels && rank.work.IsMore()) cause = Straggler::Cause::kMoreWork;
  return {cause, most};
}

// A rank that launches late hides less of its own communication, too. If it launched in time, it would hide
// what the others hide, except for the call that nothing follows.
double ExposedByLateness(const RankField& field, const RankEvidence& rank) {
  if (rank.last_call_ns <= 0) return 0;
  const double hidden_ns = MedianOfOthers(
      field, rank, [](const RankEvidence& each) { return each.means.comm_ns - each.means.exposed_comm_ns; });
  const double in_time_ns = std::max(rank.means.comm_ns - hidden_ns, rank.last_call_ns);
  return std::max(rank.means.exposed_comm_ns - in_time_ns, 0.0);
}

// A step of a pipeline whose stages all compute for as long as the others do: one microbatch after the other,
// plus one for each further stage, plus the time in which this rank's device computes nothing anyway.
double BalancedPipelineNs(const RankField& field, const RankEvidence& rank, const Pipeline& pipeline) {
  const double others_ns =
      MedianOfOthers(field, rank, [](const RankEvidence& each) { return each.means.compute_ns; });
  const double stages_before = std::max(pipeline.stages - 1, 0);
  return others_ns * (1 + stages_before / std::max(pipeline.microbatches, 1)) + rank.means.idle_ns +
         rank.means.copy_ns;
}

// Stages wait for their neighbours by design, and one that waits for a slow stage makes the next one wait:
// the slow one is the one that causes most waiting beyond its own.
bool CausesMostInPipeline(const RankField& field, const RankEvidence& rank) {
  const auto net = [](const RankEvidence& each) {
    return each.caused.pair_total_ns - each.caused.pair_waited_ns;
  };
  return net(rank) > 0 && rank.caused.pair_per_step_ns >= thresholds::kWaitedStepShare * field.step_ns &&
         std::none_of(field.ranks.begin(), field.ranks.end(),
                      [&](const RankEvidence& each) { return net(each) > net(rank); });
}

double MedianStepNs(const std::vector<RankEvidence>& ranks) {
  std::vector<double> totals;
  totals.reserve(ranks.size());
  for (const RankEvidence& each : ranks) totals.push_back(each.means.total_ns);
  return Median(std::move(totals));
}

}  // namespace

bool WorkDifference::IsMore() const {
  return more_ns > 0 && more_ns > thresholds::kMoreWorkShare * (more_ns + slower_ns);
}

RankField::RankField(std::vector<RankEvidence> all) : ranks(std::move(all)), step_ns(MedianStepNs(ranks)) {}

std::optional<StragglerVerdict> JudgeByStep(const RankField& field, const RankEvidence& rank,
                                            bool slow_kernels) {
  const Lateness& lateness = rank.lateness;
  const bool in_most = lateness.share() >= thresholds::kPersistentStepsShare;
  // A few steps exclude chance only where many ranks are on time in them.
  if (lateness.by_chance && !((slow_kernels || rank.late_at_calls) && in_most)) return std::nullopt;
  if (lateness.longer_by_ns < thresholds::kLateLongerStepShare * field.step_ns) return std::nullopt;
  if (lateness.lost_ns_per_step() < thresholds::kLateCostStepShare * field.step_ns) return std::nullopt;

  StragglerVerdict verdict{.late_steps = lateness.late, .compared_steps = lateness.steps};
  // A step counts as late from a share of its length on. A rank whose lateness is about that share crosses it
  // by chance: if the others wait for it in most steps, it is late in most, though few of them count. A rank
  // that is late by far more is late only in the steps that count.
  constexpr double kAboutThat = 2;
  const bool about_that = lateness.late_by_ns < kAboutThat * model::LateSteps::kLateShares[0] * field.step_ns;
  verdict.since_step = lateness.since_step;
  verdict.persistent = in_most || (about_that && BlamedInMost(rank)) || lateness.since_step.has_value();
  if (!verdict.persistent) {
    verdict.pattern = lateness.pattern;
    if (!verdict.pattern.has_value()) verdict.stretch = lateness.stretch;
    verdict.step_numbers = lateness.late_steps;
    verdict.long_for_all =
        lateness.these_steps_longer_ns >= thresholds::kLongForAllRatio * lateness.late_by_ns;
  }
  if (!verdict.persistent || verdict.since_step.has_value()) {
    const double usual_ns =
        MedianOfOthers(field, rank, [](const RankEvidence& each) { return each.means.compute_ns; });
    if (usual_ns > 0) verdict.slowdown_when_late = 1 + rank.when_late.compute_ns / usual_ns;
  }

  // Before a rank became late, it exceeded the others by what all do now and then.
  if (in_most && !verdict.since_step.has_value()) {
    std::tie(verdict.cause, verdict.cause_ns_per_step) = CauseOf(rank, ExcessOf(field, rank));
  } else {
    std::tie(verdict.cause, verdict.cause_ns_per_step) = CauseOf(rank, rank.when_late);
    verdict.cause_ns_per_step *= lateness.share();
  }

  verdict.lost_ns_per_step = lateness.lost_ns_per_step();
  if (verdict.persistent && verdict.cause == Straggler::Cause::kLateLaunch)
    verdict.lost_ns_per_step += ExposedByLateness(field, rank);
  verdict.lost_ns_per_step = std::min(verdict.lost_ns_per_step, rank.caused.per_step_ns);
  // It is late, and yet the others wait for another one.
  if (verdict.lost_ns_per_step < thresholds::kLateCostStepShare * field.step_ns) return std::nullopt;
  return verdict;
}

std::optional<StragglerVerdict> JudgeInPipeline(const RankField& field, const RankEvidence& rank,
                                                const std::optional<Pipeline>& pipeline) {
  // Weights that are sent around before the first step make no pipeline.
  if (rank.caused.pairs == 0 || rank.caused.pair_per_step_ns <= 0) return std::nullopt;
  // One of several ranks of a stage makes the others of that stage wait, too.
  if (!StandsOutInTotal(field, rank) && !CausesMostInPipeline(field, rank)) return std::nullopt;
  StragglerVerdict verdict{.slow_stage = true};
  std::tie(verdict.cause, verdict.cause_ns_per_step) = CauseOf(rank, ExcessOf(field, rank));
  if (verdict.cause_ns_per_step < thresholds::kSlowStageStepShare * field.step_ns) return std::nullopt;
  // A pipeline's step is longer by what its slowest stage takes longer for all microbatches, less what that
  // takes from the time in which it stands still itself.
  verdict.lost_ns_per_step = verdict.cause_ns_per_step;
  if (pipeline.has_value()) {
    verdict.lost_ns_per_step = std::clamp(rank.means.total_ns - BalancedPipelineNs(field, rank, *pipeline),
                                          0.0, verdict.cause_ns_per_step);
  }
  return verdict;
}

std::optional<StragglerVerdict> JudgeInTotal(const RankField& field, const RankEvidence& rank) {
  if (!StandsOutInTotal(field, rank)) return std::nullopt;
  StragglerVerdict verdict{.persistent = BlamedInMost(rank)};
  std::tie(verdict.cause, verdict.cause_ns_per_step) = CauseOf(rank, ExcessOf(field, rank));
  // Steps are equally long everywhere: what exceeds in the straggler is exposed waiting in the others.
  const double exposed_elsewhere_ns =
      MedianOfOthers(field, rank, [](const RankEvidence& each) { return each.means.exposed_comm_ns; });
  verdict.lost_ns_per_step =
      std::clamp(exposed_elsewhere_ns - rank.means.exposed_comm_ns, 0.0, rank.caused.per_step_ns);
  return verdict;
}

std::optional<StragglerVerdict> Judge(const RankField& field, const RankEvidence& rank, bool slow_kernels,
                                      const std::optional<Pipeline>& pipeline) {
  if (field.ranks.size() < 2 || field.step_ns <= 0) return std::nullopt;
  if (ComparedByStep(rank)) return JudgeByStep(field, rank, slow_kernels);
  if (auto slow_stage = JudgeInPipeline(field, rank, pipeline)) return slow_stage;
  return JudgeInTotal(field, rank);
}

Straggler::HostDoes HostDoesOf(const RankField& field, const RankEvidence& rank) {
  using Does = Straggler::HostDoes;
  const auto extra = [&](auto get) {
    return get(rank.means) -
           MedianOfOthers(field, rank, [&](const RankEvidence& each) { return get(each.means); });
  };
  const std::array<std::pair<Does, double>, 5> parts{{
      {Does::kLaunches, extra([](const StepMeans& m) { return m.host_bound_ns; })},
      {Does::kSynchronises, extra([](const StepMeans& m) { return m.sync_ns; })},
      {Does::kAllocates, extra([](const StepMeans& m) { return m.memory_ns; })},
      {Does::kPauses, extra([](const StepMeans& m) { return m.pause_ns - m.pause_after_copy_ns; })},
      {Does::kCopiesOut, extra([](const StepMeans& m) { return m.pause_after_copy_ns; })},
  }};
  return std::max_element(parts.begin(), parts.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

// Three steps are equally far apart by chance, too; a period goes on for half of the run or longer.
bool RecursThroughout(const Straggler& s) {
  return s.pattern.has_value() && 2 * s.late_steps * s.pattern->every >= s.compared_steps * s.pattern->length;
}

bool MachineExplains(const Straggler& s, double step_ns) {
  using Cause = Straggler::Cause;
  using Does = Straggler::HostDoes;
  const bool unseen = s.host_does == Does::kLaunches || s.host_does == Does::kPauses ||
                      (s.host_does == Does::kSynchronises && !s.persistent);
  // A batch that comes late in most steps is not late for want of a CPU.
  const bool of_host = (s.cause == Cause::kLateLaunch && unseen) ||
                       (!s.persistent && (s.cause == Cause::kLateInput || s.cause == Cause::kUnknown));
  if (!of_host || (RecursThroughout(s) && !s.long_for_all) || s.since_step.has_value()) return false;
  if (s.load.observed_s <= 0 || !HostLoadClauses(s.load, &s.usual_load).empty()) return false;
  return s.load.waits_for_cpu >= kBusyMachineShare &&
         s.load.waits_for_cpu * step_ns >= std::max(s.cause_ns_per_step, s.lost_ns_per_step);
}

std::optional<double> ComputeRatio(const RankField& field, const RankEvidence& rank) {
  const double elsewhere_ns =
      MedianOfOthers(field, rank, [](const RankEvidence& each) { return each.means.compute_ns; });
  if (elsewhere_ns <= 0) return std::nullopt;
  return rank.means.compute_ns / elsewhere_ns;
}

}  // namespace gpuprobe::analysis
