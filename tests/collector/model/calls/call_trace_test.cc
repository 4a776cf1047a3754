// Who is late at collectives, where nothing is known of kernels.
#include "collector/model/calls/call_trace.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/collector/testing/batch_builder.h"

namespace gpuprobe::model {
namespace {

using testing::kMs;
using testing::kSecond;
using testing::kStart;

constexpr uint64_t kComm = 0xabc;

CallTrace::Place PlaceOf(uint32_t process, int32_t ranks = 3, uint64_t host = 1) {
  return {
      .process = process, .hash = kComm, .rank = static_cast<int32_t>(process), .ranks = ranks, .host = host};
}

void Issue(CallTrace& trace, const CallTrace::Place& place, const TracedCallRecord& call) {
  trace.Join(place);
  trace.On(place, call, /*op=*/1);
}

std::vector<uint64_t> Open(const CallTrace& trace) {
  std::vector<uint64_t> numbers;
  for (const IssuedCalls::Call& call : trace.calls().communicators().at(kComm).calls)
    numbers.push_back(call.seq);
  return numbers;
}

TracedCallRecord IssuedAt(uint64_t number, uint64_t at_ns) {
  TracedCallRecord call{};
  call.seq = number;
  call.issue_ns = kStart + at_ns;
  call.return_ns = call.issue_ns;
  return call;
}

CallTimeRecord TookOnGpu(uint64_t number, uint64_t gpu_ns) {
  CallTimeRecord time{};
  time.number = number;
  time.gpu_ns = gpu_ns;
  return time;
}

TEST(CallTrace, TheRankWhoseGpuIsInTheCallForTheShortestTimeCameLast) {
  CallTrace trace;
  trace.On(PlaceOf(0), TookOnGpu(70, 9 * kMs));
  trace.On(PlaceOf(1), TookOnGpu(70, 2 * kMs));
  EXPECT_EQ(trace.processes()[1].by_gpu.compared, 0U) << "the third is not here";
  trace.On(PlaceOf(2), TookOnGpu(70, 8 * kMs));
  EXPECT_EQ(trace.processes()[1].by_gpu.last, 1U);
  EXPECT_EQ(trace.processes()[1].by_gpu.late_ns, 6 * kMs);
  EXPECT_EQ(trace.processes()[0].by_gpu.early_ns, 7 * kMs);
  EXPECT_EQ(trace.processes()[0].by_gpu.late_ns, 0U);
  EXPECT_EQ(trace.processes()[2].by_gpu.compared, 1U);
}

TEST(CallTrace, HostsAreComparedByWhenTheyIssue) {
  CallTrace trace;
  for (uint32_t process = 0; process < 3; ++process)
    Issue(trace, PlaceOf(process), IssuedAt(50, process == 2 ? 5 * kMs : process * kMs));
  EXPECT_EQ(trace.processes()[2].by_host.last, 1U);
  EXPECT_EQ(trace.processes()[2].by_host.late_ns, 4 * kMs);
  EXPECT_EQ(trace.processes()[0].by_host.early_ns, 5 * kMs);
}

TEST(CallTrace, ALateHostIsLateOnceForCallsThatItIssuesTogether) {
  CallTrace trace;
  for (uint64_t number = 50; number < 54; ++number) {
    for (uint32_t process = 0; process < 3; ++process)
      Issue(trace, PlaceOf(process),
            IssuedAt(number, (process == 2 ? 5 * kMs : 0) + (number - 50) * kMs / 10));
  }
  EXPECT_EQ(trace.processes()[2].by_host.last, 4U);
  EXPECT_EQ(trace.processes()[2].by_host.late_ns, 5 * kMs + 3 * kMs / 10);
}

TEST(CallTrace, TheFirstCallsOfACommunicatorAreNotCompared) {
  CallTrace trace;
  for (uint32_t process = 0; process < 3; ++process) trace.On(PlaceOf(process), TookOnGpu(3, process * kMs));
  EXPECT_EQ(trace.processes()[0].by_gpu.compared, 0U);
  EXPECT_EQ(trace.processes()[0].timed, 1U);
}

TEST(CallTrace, TimesOfIssueOfTwoHostsAreNotCompared) {
  CallTrace trace;
  for (uint32_t process = 0; process < 2; ++process)
    Issue(trace, PlaceOf(process, 2, /*host=*/1 + process), IssuedAt(50, process * kMs));
  for (const CallTrace::Process& process : trace.processes()) EXPECT_EQ(process.by_host.compared, 0U);
}

TEST(CallTrace, RanksOfEachHostAreComparedAmongThemselves) {
  CallTrace trace;
  // The clock of host 2 is a second ahead; there, process 3 comes 7 ms after the one before it.
  const std::vector<uint64_t> issued_ns = {0, kMs, kSecond + 2 * kMs, kSecond + 9 * kMs, kSecond};
  for (uint32_t process = 0; process < 5; ++process)
    Issue(trace, PlaceOf(process, 5, /*host=*/process < 2 ? 1 : 2), IssuedAt(50, issued_ns[process]));
  for (uint32_t process = 0; process < 5; ++process) {
    const CallTrace::Sums& sums = trace.processes()[process].by_host;
    EXPECT_EQ(sums.compared, 1U);
    EXPECT_EQ(sums.last, process == 3 ? 1U : 0U) << "process " << process;
    EXPECT_EQ(sums.late_ns, process == 3 ? 7 * kMs : 0U) << "process " << process;
  }
  EXPECT_EQ(trace.processes()[0].by_host.early_ns, kMs);
  EXPECT_EQ(trace.processes()[4].by_host.early_ns, 9 * kMs);
}

TEST(CallTrace, ARaiseThatIsReadAgainIsOne) {
  CallTrace trace;
  v1::DetailRaise raise;
  raise.set_decided_ns(5);
  raise.set_rank(1);
  EXPECT_TRUE(trace.On(raise));
  raise.set_decided_ns(6);
  EXPECT_TRUE(trace.On(raise));
  EXPECT_FALSE(trace.On(raise));
  EXPECT_EQ(trace.raises().size(), 2U);
}

TEST(CallTrace, ARankThatReportsNothingCostsNoMemoryForever) {
  CallTrace trace;
  for (uint64_t number = 0; number < 3 * CallTrace::kMostOpen; ++number) {
    trace.On(PlaceOf(0, 2), TookOnGpu(number, kMs));
    trace.On(PlaceOf(0, 2), TookOnGpu(number, kMs));  // twice is once
  }
  // The second rank reports all of them now: those that were kept are compared.
  for (uint64_t number = 0; number < 3 * CallTrace::kMostOpen; ++number)
    trace.On(PlaceOf(1, 2), TookOnGpu(number, kMs));
  EXPECT_LE(trace.processes()[0].by_gpu.compared, CallTrace::kMostOpen + 1);
  EXPECT_GT(trace.processes()[0].by_gpu.compared, CallTrace::kMostOpen / 2);
}

TEST(CallTrace, CallsThatNotAllRanksHaveIssuedAreOpen) {
  CallTrace trace;
  for (uint64_t number = 0; number < 3; ++number) {
    for (uint32_t process = 0; process < 3; ++process) {
      if (number < 2 || process != 1) Issue(trace, PlaceOf(process), IssuedAt(number, number * kMs));
    }
  }
  EXPECT_EQ(Open(trace), (std::vector<uint64_t>{1, 2})) << "the last that all have, too";
  Issue(trace, PlaceOf(1), IssuedAt(2, 9 * kMs));
  EXPECT_EQ(Open(trace), std::vector<uint64_t>{2});
  for (uint64_t number = 3; number < 3 * CallTrace::kMostOpen; ++number)
    Issue(trace, PlaceOf(0), IssuedAt(number, number * kMs));
  EXPECT_LE(Open(trace).size(), CallTrace::kMostOpen + 1) << "the others report nothing";
}

TEST(CallTrace, AStepLastsUntilTheNextBegins) {
  CallTrace trace;
  for (const auto& [index, at_ms] :
       {std::pair(4, 10), std::pair(5, 25), std::pair(7, 100), std::pair(8, 110)})
    trace.On(0, TracedStepRecord{.begin_ns = kStart + static_cast<uint64_t>(at_ms) * kMs,
                                 .index = static_cast<uint64_t>(index)});
  EXPECT_EQ(trace.processes()[0].steps, 2U) << "that of step 6 was lost";
  EXPECT_EQ(trace.processes()[0].steps_ns, 25 * kMs);
  EXPECT_EQ(trace.processes()[0].longest_step_ns, 15 * kMs);
}

}  // namespace
}  // namespace gpuprobe::model
