// Slow driver calls by function over the ranks, and the sentence that says what they cost.
#include "collector/analysis/work/driver_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collector/analysis/build_report.h"
#include "collector/model/job/job_model.h"
#include "tests/collector/testing/batch_builder.h"

namespace gpuprobe::analysis {
namespace {

using gpuprobe::testing::BatchBuilder;
using gpuprobe::testing::kMs;
using gpuprobe::testing::kStart;
using gpuprobe::testing::MakeHello;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(DriverCallsOf, AddsUpEachFunctionOverTheRanks) {
  model::JobModel job;
  for (int rank = 0; rank < 2; ++rank) {
    BatchBuilder batch;
    // Names have other numbers in each process.
    const uint32_t load = rank == 0 ? 1 : 2;
    batch.String(load, "cuModuleLoadData").String(3 - load, "cuMemAlloc_v2").Thread(1, true);
    const auto longer = static_cast<uint64_t>(rank);
    batch.DriverCall(kStart, kStart + 10 * kMs, load)
        .DriverCall(kStart + 10 * kMs, kStart + (30 + longer) * kMs, load, 1, 209)
        .DriverCall(kStart + 40 * kMs, kStart + 41 * kMs, 3 - load);
    ASSERT_TRUE(job.Join(MakeHello(rank, 2)).Apply(batch.batch()).ok());
  }
  job.Finish();
  const std::vector<DriverCallReport> calls = DriverCallsOf(job);
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].function, "cuModuleLoadData");
  EXPECT_EQ(calls[0].calls, 4u);
  EXPECT_EQ(calls[0].total_ns, 61 * kMs);
  EXPECT_EQ(calls[0].failed, 2u);
  EXPECT_EQ(calls[0].longest_ns, 21 * kMs);
  EXPECT_EQ(calls[0].longest_start_ns, kStart + 10 * kMs);
  EXPECT_FALSE(calls[0].startup.has_value()) << "no step was found";
  EXPECT_EQ(calls[1].function, "cuMemAlloc_v2");
  EXPECT_EQ(calls[1].total_ns, 2 * kMs);
}

// Two ranks, 100 steady steps of 10 ms.
Report WithSteps() {
  Report report;
  report.ranks.resize(2);
  StepsReport& steps = report.steps.emplace();
  steps.count = 102;
  steps.warmup_count = 2;
  steps.time_ns.mean = 10e6;
  return report;
}

DriverCallReport Function(const std::string& name, uint64_t calls, uint64_t total_ms, uint64_t startup_calls,
                          uint64_t startup_ms) {
  DriverCallReport function;
  function.function = name;
  function.calls = calls;
  function.total_ns = total_ms * kMs;
  function.startup = {.calls = startup_calls, .total_ns = startup_ms * kMs};
  return function;
}

TEST(DriverCallsSentence, SaysWhatARankSpentBeforeTrainingWasSteady) {
  Report report = WithSteps();
  report.driver_calls = {Function("cuModuleLoadData", 428, 4800, 428, 4800),
                         Function("cuDevicePrimaryCtxRetain", 2, 500, 2, 500),
                         Function("cuMemAlloc_v2", 40, 20, 36, 18), Function("cuEventCreate", 2, 1, 2, 1)};
  EXPECT_EQ(DriverCallsSentence(report),
            "Slow driver calls of a rank, on average: before the first step after the warm-up 2.66 s "
            "(cuModuleLoadData 214 x 2.40 s, cuDevicePrimaryCtxRetain 1 x 250 ms, cuMemAlloc_v2 18 x 9.00 ms "
            "and 1 more function).");
}

TEST(DriverCallsSentence, SaysWhatTheyTakeInSteadySteps) {
  Report report = WithSteps();
  report.driver_calls = {Function("cuModuleLoadData", 200, 800, 0, 0)};
  EXPECT_EQ(
      DriverCallsSentence(report),
      "Slow driver calls of a rank, on average: since the first step after the warm-up 400 ms, 40.0 % of the "
      "steps' time (cuModuleLoadData 100 x 400 ms).");
}

TEST(DriverCallsSentence, IsNotWorthItForLittle) {
  Report report = WithSteps();
  // 99 ms of a rank before, and 1.9 % of its steps since.
  report.driver_calls = {Function("cuMemAlloc_v2", 80, 198 + 38, 40, 198)};
  EXPECT_THAT(DriverCallsSentence(report), IsEmpty());
  report.driver_calls[0].startup->total_ns += 2 * kMs;
  report.driver_calls[0].total_ns += 2 * kMs;
  EXPECT_THAT(DriverCallsSentence(report), HasSubstr("before"));
  EXPECT_THAT(DriverCallsSentence(report), Not(HasSubstr("since")));
}

TEST(DriverCallsSentence, NeedsSteps) {
  Report report = WithSteps();
  report.driver_calls = {Function("cuMemAlloc_v2", 80, 5000, 40, 4000)};
  report.steps.reset();
  EXPECT_THAT(DriverCallsSentence(report), IsEmpty());
}

}  // namespace
}  // namespace gpuprobe::analysis
