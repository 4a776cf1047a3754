// Each judge on plain numbers: what just suffices for a verdict, and what just does not.
#include "collector/analysis/stragglers/straggler_verdict.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "collector/report/communication.h"
#include "collector/report/stragglers.h"

namespace gpuprobe::analysis {
namespace {

constexpr double kNsPerMs = 1e6;
using Cause = Straggler::Cause;

// Eight ranks with steps of 100 ms, of which 60 ms compute.
std::vector<RankEvidence> EvenRanks(size_t count = 8) {
  std::vector<RankEvidence> ranks(count);
  for (RankEvidence& rank : ranks) {
    rank.means = {.steps = 100,
                  .total_ns = 100 * kNsPerMs,
                  .compute_ns = 60 * kNsPerMs,
                  .comm_ns = 20 * kNsPerMs,
                  .exposed_comm_ns = 10 * kNsPerMs};
    rank.caused.steps = 100;
    rank.lateness.steps = 100;
  }
  return ranks;
}

// Late in 90 of 100 steps, by 12 ms, which are 10 ms longer; its kernels take 11 ms longer than elsewhere.
void MakeLateByStep(RankEvidence& rank) {
  rank.lateness.late = 90;
  rank.lateness.by_chance = false;
  rank.lateness.late_by_ns = 12 * kNsPerMs;
  rank.lateness.longer_by_ns = 10 * kNsPerMs;
  rank.means.compute_ns += 11 * kNsPerMs;
  rank.caused.per_step_ns = 11 * kNsPerMs;
  rank.caused.steps_blamed = 90;
}

struct Case {
  std::string what;
  std::function<void(std::vector<RankEvidence>&)> change;
  bool verdict;
};

using Judged = std::function<std::optional<StragglerVerdict>(const RankField&, const RankEvidence&)>;

void Check(const std::vector<Case>& cases, const std::vector<RankEvidence>& start, const Judged& judge) {
  for (const Case& each : cases) {
    std::vector<RankEvidence> ranks = start;
    each.change(ranks);
    const RankField field(ranks);
    EXPECT_EQ(judge(field, field.ranks[3]).has_value(), each.verdict) << each.what;
  }
}

TEST(JudgeByStep, NeedsLatenessThatIsNotChanceAndCosts) {
  std::vector<RankEvidence> ranks = EvenRanks();
  MakeLateByStep(ranks[3]);
  const auto lateness = [](auto change) {
    return [change](std::vector<RankEvidence>& all) { change(all[3].lateness); };
  };
  Check(
      {
          {"as it is", [](auto&) {}, true},
          {"by chance", lateness([](Lateness& l) { l.by_chance = true; }), false},
          {"steps 2.6 % longer", lateness([](Lateness& l) { l.longer_by_ns = 2.6 * kNsPerMs; }), true},
          {"steps 2.4 % longer", lateness([](Lateness& l) { l.longer_by_ns = 2.4 * kNsPerMs; }), false},
          {"6 of 100 steps cost 0.6 %", lateness([](Lateness& l) { l.late = 6; }), true},
          {"4 of 100 steps cost 0.4 %", lateness([](Lateness& l) { l.late = 4; }), false},
          {"the others wait 0.4 % for it",
           [](std::vector<RankEvidence>& all) { all[3].caused.per_step_ns = 0.4 * kNsPerMs; }, false},
          {"the others wait 0.6 % for it",
           [](std::vector<RankEvidence>& all) { all[3].caused.per_step_ns = 0.6 * kNsPerMs; }, true},
      },
      ranks, [](const auto& field, const auto& rank) { return JudgeByStep(field, rank, false); });
}

TEST(JudgeByStep, TakesChanceForCertainWhereKernelsAreSlowerInMostSteps) {
  std::vector<RankEvidence> ranks = EvenRanks();
  MakeLateByStep(ranks[3]);
  ranks[3].lateness.by_chance = true;
  ranks[3].lateness.steps = 10;
  for (const auto& [late, verdict] : {std::pair{6, true}, std::pair{5, false}}) {
    ranks[3].lateness.late = static_cast<uint64_t>(late);
    const RankField field(ranks);
    EXPECT_EQ(JudgeByStep(field, field.ranks[3], true).has_value(), verdict) << late << " of 10 steps";
    EXPECT_FALSE(JudgeByStep(field, field.ranks[3], false).has_value()) << late << " of 10 steps";
  }
}

TEST(JudgeByStep, NamesThePartThatExplainsTheDelay) {
  const struct {
    std::string what;
    std::function<void(RankEvidence&)> change;
    Cause cause;
  } cases[] = {
      {"slower kernels", [](RankEvidence& r) { r.means.compute_ns += 11 * kNsPerMs; }, Cause::kSlowKernels},
      {"mostly more work",
       [](RankEvidence& r) {
         r.means.compute_ns += 11 * kNsPerMs;
         r.work = {.known = true, .more_ns = 6 * kNsPerMs, .slower_ns = 5 * kNsPerMs};
       },
       Cause::kMoreWork},
      {"mostly the same work, but slower",
       [](RankEvidence& r) {
         r.means.compute_ns += 11 * kNsPerMs;
         r.work = {.known = true, .more_ns = 5 * kNsPerMs, .slower_ns = 6 * kNsPerMs};
       },
       Cause::kSlowKernels},
      {"less work, and slower",
       [](RankEvidence& r) {
         r.means.compute_ns += 11 * kNsPerMs;
         r.work = {.known = true, .more_ns = -5 * kNsPerMs, .slower_ns = 16 * kNsPerMs};
       },
       Cause::kSlowKernels},
      {"its host", [](RankEvidence& r) { r.means.host_bound_ns += 11 * kNsPerMs; }, Cause::kLateLaunch},
      {"its host waits", [](RankEvidence& r) { r.means.sync_ns += 11 * kNsPerMs; }, Cause::kLateLaunch},
      {"input", [](RankEvidence& r) { r.means.input_ns += 11 * kNsPerMs; }, Cause::kLateInput},
      {"copies", [](RankEvidence& r) { r.means.copy_ns += 11 * kNsPerMs; }, Cause::kSlowCopies},
      {"a third of the delay", [](RankEvidence& r) { r.means.copy_ns += 3.6 * kNsPerMs; },
       Cause::kSlowCopies},
      {"a quarter of the delay", [](RankEvidence& r) { r.means.copy_ns += 2.7 * kNsPerMs; }, Cause::kUnknown},
      {"nothing", [](RankEvidence&) {}, Cause::kUnknown},
  };
  for (const auto& each : cases) {
    std::vector<RankEvidence> ranks = EvenRanks();
    MakeLateByStep(ranks[3]);
    ranks[3].means.compute_ns = 60 * kNsPerMs;
    each.change(ranks[3]);
    const RankField field(ranks);
    const auto verdict = JudgeByStep(field, field.ranks[3], false);
    ASSERT_TRUE(verdict.has_value()) << each.what;
    EXPECT_EQ(verdict->cause, each.cause) << each.what;
  }
}

TEST(JudgeByStep, LosesWhatStepsAreLongerAndAtMostWhatTheOthersWait) {
  std::vector<RankEvidence> ranks = EvenRanks();
  MakeLateByStep(ranks[3]);
  const RankField longer(ranks);
  EXPECT_DOUBLE_EQ(JudgeByStep(longer, longer.ranks[3], false)->lost_ns_per_step, 9 * kNsPerMs);
  ranks[3].caused.per_step_ns = 7 * kNsPerMs;
  const RankField waited(ranks);
  EXPECT_DOUBLE_EQ(JudgeByStep(waited, waited.ranks[3], false)->lost_ns_per_step, 7 * kNsPerMs);
}

TEST(JudgeByStep, JudgesARankThatIsLateNowAndThenByThoseSteps) {
  std::vector<RankEvidence> ranks = EvenRanks();
  MakeLateByStep(ranks[3]);
  ranks[3].means.compute_ns = 60 * kNsPerMs;
  ranks[3].lateness.late = 20;
  ranks[3].lateness.late_by_ns = 40 * kNsPerMs;
  ranks[3].lateness.longer_by_ns = 38 * kNsPerMs;
  ranks[3].lateness.stretch = {40, 59};
  ranks[3].caused.steps_blamed = 20;
  ranks[3].when_late = {.late_ns = 40 * kNsPerMs, .input_ns = 39 * kNsPerMs};
  const RankField field(ranks);
  const auto verdict = JudgeByStep(field, field.ranks[3], false);
  ASSERT_TRUE(verdict.has_value());
  EXPECT_FALSE(verdict->persistent);
  EXPECT_EQ(verdict->stretch, std::pair(uint64_t{40}, uint64_t{59}));
  EXPECT_EQ(verdict->cause, Cause::kLateInput);
  EXPECT_DOUBLE_EQ(verdict->cause_ns_per_step, 39 * kNsPerMs * 0.2) << "over all steps";

  // It is late since step 80, and so all along from there.
  ranks[3].lateness.since_step = 80;
  const RankField since(ranks);
  const auto persistent = JudgeByStep(since, since.ranks[3], false);
  EXPECT_TRUE(persistent->persistent);
  EXPECT_EQ(persistent->since_step, 80u);
  EXPECT_FALSE(persistent->stretch.has_value());
}

// What the others wait for rank 3, without steps to compare.
std::vector<RankEvidence> Uncompared() {
  std::vector<RankEvidence> ranks = EvenRanks();
  for (RankEvidence& rank : ranks) {
    rank.lateness = {};
    rank.caused.per_step_ns = 0.5 * kNsPerMs;
  }
  ranks[3].caused.per_step_ns = 10 * kNsPerMs;
  ranks[3].caused.steps_blamed = 90;
  ranks[3].means.compute_ns += 10 * kNsPerMs;
  ranks[3].means.exposed_comm_ns = 2 * kNsPerMs;
  return ranks;
}

TEST(JudgeInTotal, NeedsARankThatStandsOutFromTheOthers) {
  Check(
      {
          {"as it is", [](auto&) {}, true},
          {"3.6 % of the step, the others nothing",
           [](auto& all) {
             for (RankEvidence& each : all) each.caused.per_step_ns = 0;
             all[3].caused.per_step_ns = 3.6 * kNsPerMs;
           },
           true},
          {"3.4 % of the step",
           [](auto& all) {
             for (RankEvidence& each : all) each.caused.per_step_ns = 0;
             all[3].caused.per_step_ns = 3.4 * kNsPerMs;
           },
           false},
          {"in half of the steps", [](auto& all) { all[3].caused.steps_blamed = 50; }, true},
          {"in fewer", [](auto& all) { all[3].caused.steps_blamed = 49; }, false},
          {"the others cause as much",
           [](auto& all) {
             for (RankEvidence& each : all) each.caused.per_step_ns = 9 * kNsPerMs;
           },
           false},
          {"above the others by 3.6 % of the step, alike as they are",
           [](auto& all) {
             for (RankEvidence& each : all) each.caused.per_step_ns = 6.4 * kNsPerMs;
             all[3].caused.per_step_ns = 10 * kNsPerMs;
           },
           true},
          {"by 3.4 %",
           [](auto& all) {
             for (RankEvidence& each : all) each.caused.per_step_ns = 6.6 * kNsPerMs;
             all[3].caused.per_step_ns = 10 * kNsPerMs;
           },
           false},
      },
      Uncompared(), [](const auto& field, const auto& rank) { return JudgeInTotal(field, rank); });
}

TEST(JudgeInTotal, OfTwoRanksTheOneThatCausesThreeTimesTheOthersWaiting) {
  for (const auto& [other_ms, verdict] : {std::pair{3.3, true}, std::pair{3.4, false}}) {
    std::vector<RankEvidence> ranks = Uncompared();
    ranks = {ranks[3], ranks[0]};
    ranks[1].caused.per_step_ns = other_ms * kNsPerMs;
    const RankField field(ranks);
    EXPECT_EQ(JudgeInTotal(field, field.ranks[0]).has_value(), verdict) << other_ms;
  }
}

TEST(JudgeInTotal, LosesWhatTheOthersWaitExposed) {
  const RankField field(Uncompared());
  const auto verdict = JudgeInTotal(field, field.ranks[3]);
  EXPECT_DOUBLE_EQ(verdict->lost_ns_per_step, 8 * kNsPerMs);
  EXPECT_EQ(verdict->cause, Cause::kSlowKernels);
  EXPECT_TRUE(verdict->persistent);
}

// Stage 3 of eight takes 12 ms longer, and the others wait for it in sends and receives.
std::vector<RankEvidence> Stages() {
  std::vector<RankEvidence> ranks = EvenRanks();
  for (RankEvidence& rank : ranks) {
    rank.lateness = {};
    rank.caused.pairs = 800;
    rank.caused.pair_total_ns = 500 * kNsPerMs;
    rank.caused.pair_waited_ns = 600 * kNsPerMs;
    rank.caused.pair_per_step_ns = 5 * kNsPerMs;
  }
  ranks[3].means.compute_ns += 12 * kNsPerMs;
  ranks[3].caused.pair_total_ns = 1200 * kNsPerMs;
  ranks[3].caused.pair_waited_ns = 100 * kNsPerMs;
  ranks[3].caused.pair_per_step_ns = 12 * kNsPerMs;
  return ranks;
}

TEST(JudgeInPipeline, TakesTheStageThatCausesMostBeyondItsOwnWaitingAndTakesLonger) {
  Check(
      {
          {"as it is", [](auto&) {}, true},
          {"no sends and receives", [](auto& all) { all[3].caused.pairs = 0; }, false},
          {"takes 5.1 % longer", [](auto& all) { all[3].means.compute_ns = 65.1 * kNsPerMs; }, true},
          {"takes 4.9 % longer", [](auto& all) { all[3].means.compute_ns = 64.9 * kNsPerMs; }, false},
          {"its neighbour causes more", [](auto& all) { all[4].caused.pair_total_ns = 1800 * kNsPerMs; },
           false},
          {"its neighbour causes more, and waits more",
           [](auto& all) {
             all[4].caused.pair_total_ns = 1800 * kNsPerMs;
             all[4].caused.pair_waited_ns = 1700 * kNsPerMs;
           },
           true},
          {"it waits as long as it makes others wait",
           [](auto& all) { all[3].caused.pair_waited_ns = 1200 * kNsPerMs; }, false},
          {"they wait 3.4 % of the step", [](auto& all) { all[3].caused.pair_per_step_ns = 3.4 * kNsPerMs; },
           false},
          {"they wait in collectives, and in sends and receives before the first step alone",
           [](auto& all) {
             all[3].caused.per_step_ns = 12 * kNsPerMs;
             all[3].caused.steps = all[3].caused.steps_blamed = 100;
             all[3].caused.pair_per_step_ns = 0;
           },
           false},
      },
      Stages(),
      [](const auto& field, const auto& rank) { return JudgeInPipeline(field, rank, std::nullopt); });
}

TEST(JudgeInPipeline, LosesNoMoreThanABalancedPipelineWouldSave) {
  const RankField field(Stages());
  EXPECT_DOUBLE_EQ(JudgeInPipeline(field, field.ranks[3], std::nullopt)->lost_ns_per_step, 12 * kNsPerMs);
  // Balanced, a step would take 60 ms for the microbatches and 3 / 8 of that for the stages before: 82.5 ms.
  Pipeline pipeline;
  pipeline.stages = 4;
  pipeline.microbatches = 8;
  std::vector<RankEvidence> ranks = Stages();
  ranks[3].means.total_ns = 90 * kNsPerMs;
  const RankField balanced(ranks);
  EXPECT_DOUBLE_EQ(JudgeInPipeline(balanced, balanced.ranks[3], pipeline)->lost_ns_per_step, 7.5 * kNsPerMs);
}

TEST(Judge, PicksTheJudgeForTheEvidence) {
  std::vector<RankEvidence> ranks = EvenRanks();
  MakeLateByStep(ranks[3]);
  const RankField by_step(ranks);
  EXPECT_EQ(Judge(by_step, by_step.ranks[3], false, std::nullopt)->late_steps, 90u);
  EXPECT_FALSE(Judge(by_step, by_step.ranks[2], false, std::nullopt).has_value());

  const RankField stages(Stages());
  EXPECT_TRUE(Judge(stages, stages.ranks[3], false, std::nullopt)->slow_stage);
  EXPECT_FALSE(Judge(stages, stages.ranks[4], false, std::nullopt).has_value());

  const RankField total(Uncompared());
  EXPECT_EQ(Judge(total, total.ranks[3], false, std::nullopt)->compared_steps, 0u);

  const RankField alone(std::vector<RankEvidence>{ranks[3]});
  EXPECT_FALSE(Judge(alone, alone.ranks[0], true, std::nullopt).has_value()) << "nobody to compare with";
  const RankField none(EvenRanks());
  for (const RankEvidence& rank : none.ranks)
    EXPECT_FALSE(Judge(none, rank, false, std::nullopt).has_value());
}

// Rank 1 is late in some of its steps of 10 ms, for 0.4 ms of each on average, and hosts have no CPU for a
// tenth of the time.
Straggler LateOnABusyMachine() {
  Straggler s;
  s.rank = 1;
  s.cause = Straggler::Cause::kLateInput;
  s.persistent = false;
  s.late_steps = 65;
  s.compared_steps = 240;
  s.cause_ns_per_step = s.lost_ns_per_step = 0.4e6;
  s.load = {.observed_s = 5, .waits_for_cpu = 0.12};
  s.usual_load = {.observed_s = 5, .waits_for_cpu = 0.14};
  return s;
}

TEST(MachineExplains, ARankThatIsLateNoLongerThanHostsHadNoCpu) {
  constexpr double kStep = 10e6;
  EXPECT_TRUE(MachineExplains(LateOnABusyMachine(), kStep));
  const auto after = [](auto change) {
    Straggler s = LateOnABusyMachine();
    change(s);
    return MachineExplains(s, kStep);
  };
  EXPECT_TRUE(after([](Straggler& s) { s.cause = Cause::kLateLaunch; }));
  EXPECT_TRUE(after([](Straggler& s) { s.cause = Cause::kUnknown; }));
  EXPECT_TRUE(after([](Straggler& s) { s.load.waits_for_cpu = 0.26; })) << "one of them waits longest";
  EXPECT_TRUE(after([](Straggler& s) {
    s.cause = Cause::kLateLaunch;
    s.persistent = true;
  })) << "while hosts spin for a CPU, one of them may be behind throughout";
  EXPECT_TRUE(after([](Straggler& s) {
    s.cause = Cause::kLateLaunch;
    s.host_does = Straggler::HostDoes::kSynchronises;
  }));
  // Near misses: evidence of the rank's own trouble.
  EXPECT_FALSE(after([](Straggler& s) { s.cause_ns_per_step = 1.3e6; })) << "late for longer than that";
  EXPECT_FALSE(after([](Straggler& s) { s.lost_ns_per_step = 1.3e6; }));
  EXPECT_FALSE(after([](Straggler& s) { s.load.waits_for_cpu = 0.3; })) << "its own host has less CPU";
  EXPECT_FALSE(after([](Straggler& s) { s.load.major_faults_per_s = 500; }));
  EXPECT_FALSE(after([](Straggler& s) { s.load.waits_for_cpu = 0.049; })) << "a quiet machine";
  EXPECT_FALSE(after([](Straggler& s) { s.load = {}; })) << "nothing is known of the machine";
  EXPECT_FALSE(after([](Straggler& s) { s.pattern = {.every = 30, .length = 1}; })) << "it comes back";
  EXPECT_TRUE(after([](Straggler& s) {
    s.pattern = {.every = 4, .length = 1};
    s.late_steps = 4;
  })) << "it came back three times, and no more";
  EXPECT_TRUE(after([](Straggler& s) {
    s.pattern = {.every = 30, .length = 1};
    s.long_for_all = true;
  })) << "what comes back is all ranks'";
  EXPECT_FALSE(after([](Straggler& s) { s.since_step = 100; })) << "it began";
  EXPECT_FALSE(after([](Straggler& s) { s.cause = Cause::kSlowKernels; })) << "GPUs need no CPU";
  EXPECT_FALSE(after([](Straggler& s) { s.cause = Cause::kSlowCopies; }));
  EXPECT_FALSE(after([](Straggler& s) { s.persistent = true; })) << "a batch that is late in most steps";
  EXPECT_FALSE(after([](Straggler& s) {
    s.cause = Cause::kLateLaunch;
    s.host_does = Straggler::HostDoes::kCopiesOut;
  })) << "what its host does is seen";
}

}  // namespace
}  // namespace gpuprobe::analysis
