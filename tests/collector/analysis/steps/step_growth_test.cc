#include "collector/analysis/steps/step_growth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/collector/analysis/findings_fixture.h"

namespace gpuprobe::analysis {
namespace {

using model::StepPart;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr double kStepOf = 10e6;  // ns

std::vector<double> SeriesOf(size_t steps, const std::function<double(size_t)>& at) {
  std::vector<double> series;
  for (size_t i = 0; i < steps; ++i) series.push_back(at(i));
  return series;
}

double& At(StepPartSeries& rank, StepPart part, size_t step) {
  return rank.parts[static_cast<size_t>(part)][step];
}

// Ranks whose steps of 10 ms are compute, and another part that grows by 100 us a step on rank `grows`, or on
// all (-1): the others then wait for it.
std::vector<StepPartSeries> Ranks(int ranks, StepPart part, int grows = -1, size_t steps = 100) {
  std::vector<StepPartSeries> all;
  for (int r = 0; r < ranks; ++r) {
    StepPartSeries& rank = all.emplace_back();
    rank.rank = r;
    for (std::vector<double>& series : rank.parts) series.assign(steps, 0);
    for (size_t i = 0; i < steps; ++i) {
      const double grown_ns = 1e5 * static_cast<double>(i);
      At(rank, StepPart::kTotal, i) = kStepOf + grown_ns;
      At(rank, StepPart::kCompute, i) = kStepOf;
      At(rank, grows == -1 || grows == r ? part : StepPart::kExposedComm, i) += grown_ns;
    }
  }
  return all;
}

TEST(GrowthIn, IsATrendUpToTheEndAndNoJump) {
  std::mt19937 random(7);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same in each run
  std::normal_distribution<double> noise(0, 0.03 * kStepOf);
  const struct {
    const char* what;
    std::function<double(size_t)> at;
    bool grows;
  } cases[] = {
      {"a little in each step", [](size_t i) { return kStepOf + 1e5 * static_cast<double>(i); }, true},
      {"the same with noise",
       [&](size_t i) { return kStepOf + 1e5 * static_cast<double>(i) + noise(random); }, true},
      {"the same with a long step now and then",
       [](size_t i) { return kStepOf + 1e5 * static_cast<double>(i) + (i % 20 == 19 ? 5 * kStepOf : 0); },
       true},
      {"in stairs, as lengths of sequences do",
       [](size_t i) {
         const size_t stair = i / 20;
         return kStepOf + 2e6 * static_cast<double>(stair);
       },
       true},
      {"after a while, hidden until then",
       [](size_t i) { return kStepOf + 1e5 * static_cast<double>(i < 50 ? 0 : i - 50); }, true},
      {"the same with noise",
       [&](size_t i) { return kStepOf + 1e5 * static_cast<double>(i < 42 ? 0 : i - 42) + noise(random) / 3; },
       true},
      {"by 12 %", [](size_t i) { return kStepOf * (1 + 0.0013 * static_cast<double>(i)); }, true},
      {"by 8 %", [](size_t i) { return kStepOf * (1 + 0.0008 * static_cast<double>(i)); }, false},
      {"by less than steps differ anyway",
       [](size_t i) { return i % 4 == 3 ? 5 * kStepOf : kStepOf * (1 + 0.002 * static_cast<double>(i)); },
       false},
      {"not at all", [](size_t) { return kStepOf; }, false},
      {"noise alone", [&](size_t) { return kStepOf + 5 * noise(random); }, false},
      {"one jump in the middle", [](size_t i) { return i < 50 ? kStepOf : 2 * kStepOf; }, false},
      {"one jump with noise",
       [&](size_t i) { return (i < 40 ? kStepOf : 1.5 * kStepOf) + noise(random) / 3; }, false},
      {"two jumps", [](size_t i) { return kStepOf * (i < 40   ? 1
                                                     : i < 80 ? 1.5
                                                              : 2); }, false},
      {"only at the end", [](size_t i) { return kStepOf + 1e6 * static_cast<double>(i < 85 ? 0 : i - 85); },
       false},
      {"a warm-up", [](size_t i) { return kStepOf * (1 + 3.0 / static_cast<double>(1 + i)); }, false},
      {"up to a level, as GPUs that heat up",
       [](size_t i) { return kStepOf * (1.3 - 0.3 / (1 + 0.2 * static_cast<double>(i))); }, false},
      {"shorter and shorter", [](size_t i) { return 3 * kStepOf - 1e5 * static_cast<double>(i); }, false},
      {"anew in each epoch", [](size_t i) { return kStepOf + 5e5 * static_cast<double>(i % 25); }, false},
  };
  for (const auto& c : cases) EXPECT_EQ(GrowthIn(SeriesOf(100, c.at)).has_value(), c.grows) << c.what;
  const auto line = GrowthIn(SeriesOf(100, cases[0].at));
  EXPECT_NEAR(line->first, kStepOf, 1e6) << "of the first window";
  EXPECT_NEAR(line->last, kStepOf + 99e5, 1e6);
  EXPECT_TRUE(GrowthIn(SeriesOf(48, cases[0].at)).has_value());
  EXPECT_FALSE(GrowthIn(SeriesOf(47, cases[0].at)).has_value()) << "too few steps";
}

TEST(GrowthIn, BeginsAtTheLevelFromWhichStepsRise) {
  const auto line = GrowthIn(
      SeriesOf(96, [](size_t i) { return kStepOf + 1e5 * static_cast<double>(i < 45 ? 0 : i - 45); }));
  ASSERT_TRUE(line.has_value());
  EXPECT_NEAR(line->first, kStepOf, 1e5);
  EXPECT_NEAR(line->last, kStepOf + 5e6, 5e5);
}

TEST(GrowthIn, OfNoiseIsNotFoundInThousandRuns) {
  std::mt19937 random(11);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same in each run
  std::normal_distribution<double> noise(0, 0.2 * kStepOf);
  size_t found = 0;
  for (int run = 0; run < 1000; ++run) {
    double level = 0;  // load that comes and goes
    found += GrowthIn(SeriesOf(100, [&](size_t) {
               level = 0.9 * level + noise(random);
               return 3 * kStepOf + level;
             })).has_value();
  }
  EXPECT_LE(found, 2u);
}

TEST(GrowthOfSteps, NamesThePartsThatGrow) {
  for (const StepPart part : {StepPart::kHostBound, StepPart::kInput, StepPart::kPause, StepPart::kCopy,
                              StepPart::kCompute, StepPart::kExposedComm}) {
    const auto found = GrowthOfSteps(Ranks(2, part));
    ASSERT_TRUE(found.has_value());
    ASSERT_EQ(found->growth.parts.size(), 1u);
    EXPECT_EQ(found->growth.parts[0].part, part);
    EXPECT_NEAR(found->growth.parts[0].growth_ns, found->growth.total_ns.growth(), 1e5);
    EXPECT_EQ(found->growth.rank, std::nullopt) << "they grow alike";
  }
}

TEST(GrowthOfSteps, IsOfTheRankThatTheOthersWaitFor) {
  const auto found = GrowthOfSteps(Ranks(4, StepPart::kHostBound, 2));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->series, 2u);
  EXPECT_EQ(found->growth.rank, 2);
  EXPECT_EQ(found->growth.parts[0].part, StepPart::kHostBound);
}

TEST(GrowthOfSteps, OfFewIndependentProcessesIsNotTheJobs) {
  std::vector<StepPartSeries> ranks = Ranks(4, StepPart::kHostBound);
  for (size_t r = 1; r < ranks.size(); ++r)
    ranks[r].parts[static_cast<size_t>(StepPart::kTotal)].assign(100, kStepOf);
  EXPECT_FALSE(GrowthOfSteps(ranks).has_value());
  EXPECT_FALSE(GrowthOfSteps({}).has_value());
}

// Steps grow from 10 ms to 20 ms, by this part.
Report Growing(StepPart part) {
  Report r = Steady();
  r.step_growth = StepGrowth{.steps = 100,
                             .mean_ns = 15e6,
                             .total_ns = {.first = 10e6, .last = 20e6},
                             .parts = {{part, 9e6}},
                             .rank = {},
                             .kernel = {},
                             .kernel_ns = {}};
  return r;
}

TEST(GrowingStepsFinding, SaysFromWhatToWhatAndWhatGrows) {
  Report r = Growing(StepPart::kHostBound);
  Finding f = Of("growing-steps", r)[0];
  EXPECT_EQ(
      f.statement,
      "Steps take longer and longer: 10.0 ms at the beginning, 20.0 ms at the end of 100 steps; were all "
      "as short as the first, the average step would be shorter by 5.00 ms (33.3 %).");
  EXPECT_EQ(f.evidence, "What grows: late launches, which leave the GPU idle (9.00 ms).");
  EXPECT_THAT(f.advice, StartsWith("The host does more in each step"));
  EXPECT_EQ(f.cost_ns_per_step, 5e6);
  r.step_growth->mean_ns = 12e6;
  EXPECT_EQ(Of("growing-steps", r)[0].cost_ns_per_step, 2e6) << "they rise late";
  r.step_growth->rank = 3;
  r.ranks[3].device_memory.emplace_back().trend.emplace().growth_bytes_per_step = 1e6;
  f = Of("growing-steps", r)[0];
  EXPECT_THAT(f.evidence, HasSubstr("It grows on rank 3, and the others wait for it"));
  EXPECT_THAT(f.evidence, HasSubstr("Memory grows, too"));
  EXPECT_EQ(f.about.ranks, std::vector<int>{3});
  r.step_growth.reset();
  EXPECT_TRUE(Of("growing-steps", r).empty());
}

TEST(GrowingStepsFinding, NamesTheLineThatTheHostIsInMostOfThatTime) {
  Report r = Growing(StepPart::kPause);
  HostPlaceReport place;
  place.python = {{.function = "total", .file = "train.py", .line = 71}};
  place.ns_per_step = 4e6;
  place.share = 0.8;
  place.samples = place.of_samples = 9;
  HostTimeReport time{.cause = model::IdleCause::kPause, .ns_per_step = 5e6};
  time.samples = 9;
  time.places = {place};
  r.host_time = {time};
  const Finding f = Of("growing-steps", r)[0];
  EXPECT_EQ(f.evidence,
            "What grows: pauses of the host (9.00 ms). Over the run, in most of that time it is in total "
            "(train.py:71) (in 9 of 9 samples).");
  EXPECT_THAT(f.advice, StartsWith("See what this goes through"));
  r.host_time[0].cause = model::IdleCause::kInput;
  EXPECT_THAT(Of("growing-steps", r)[0].advice, StartsWith("The host does more in each step"))
      << "of another cause";
}

TEST(GrowingStepsFinding, TellsMoreWorkFromTheSameLaunchesThatTakeLonger) {
  Report r = Growing(StepPart::kCompute);
  r.step_growth->kernel = "Attention";
  r.step_growth->kernel_ns = {.first = 2e6, .last = 9e6};
  KernelReport& kernel = r.top_kernels.emplace_back();
  kernel.name = "Attention";
  kernel.steady = SteadyKernel{.steps = 100, .calls = 12};
  kernel.geometries = 60;
  Finding f = Of("growing-steps", r)[0];
  EXPECT_EQ(
      f.evidence,
      "What grows: compute (9.00 ms). Attention takes 9.00 ms per step in the last quarter of the steps, "
      "2.00 ms in the first, in 60 sizes: the work grows.");
  EXPECT_THAT(f.advice, HasSubstr("if that is meant, nothing is wrong"));
  kernel.geometries = 12;
  f = Of("growing-steps", r)[0];
  EXPECT_THAT(f.evidence, HasSubstr("do not change in size")) << "a size for each layer";
  EXPECT_THAT(f.advice, StartsWith("Check clocks"));
}

TEST(GrowingStepsFinding, IsNotSaidOfHostsThatHadNoCpuForLonger) {
  Report r = Growing(StepPart::kHostBound);
  const auto with_wait = [&](double share) {
    for (RankReport& rank : r.ranks) rank.host_load = {.observed_s = 5, .waits_for_cpu = share};
    return Of("growing-steps", r).size();
  };
  EXPECT_EQ(with_wait(0.6), 1u) << "9 ms of each step of 15 ms; they grow by 10 ms";
  EXPECT_EQ(with_wait(0.7), 0u);
  r.step_growth->parts[0].part = StepPart::kCompute;
  EXPECT_EQ(with_wait(0.7), 1u) << "kernels need no CPU";
}

TEST(GrowingStepsFinding, NamesNoCauseWhereNoPartIsMostOfIt) {
  Report r = Growing(StepPart::kHostBound);
  r.step_growth->parts = {{StepPart::kHostBound, 4e6}, {StepPart::kCompute, 3e6}};
  const Finding f = Of("growing-steps", r)[0];
  EXPECT_EQ(f.evidence, "What grows: late launches, which leave the GPU idle (4.00 ms), compute (3.00 ms).");
  EXPECT_THAT(f.advice, Not(HasSubstr("hooks")));
}

}  // namespace
}  // namespace gpuprobe::analysis
