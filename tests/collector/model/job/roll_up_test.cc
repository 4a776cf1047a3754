// A job read from roll-ups, against the same job read from its records.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "collector/analysis/build_report.h"
#include "collector/framing/frame_decoder.h"
#include "collector/model/job/job_model.h"
#include "collector/records/rows.h"
#include "collector/render/json_report.h"
#include "collector/simulate/scenarios.h"
#include "collector/simulate/simulation.h"
#include "tests/collector/testing/batch_builder.h"

namespace gpuprobe::model {
namespace {

std::string ReportOf(const JobModel& job) { return render::JsonReport(analysis::BuildReport(job, {})); }

// The findings alone, in their order.
std::vector<std::string> FindingsOf(const JobModel& job) {
  std::vector<std::string> statements;
  for (const analysis::Finding& finding : analysis::BuildReport(job, {}).findings)
    statements.push_back(finding.statement);
  return statements;
}

// Reads what a job's collector hears, and passes on roll-ups to another reader as bytes.
class Rolled {
 public:
  Rolled() { from_records.KeepRollUps(); }

  void Hear(int rank, const v1::Frame& frame) {
    if (frame.has_hello()) {
      v1::Frame hello = frame;
      if (world > 0) hello.mutable_hello()->mutable_identity()->set_world_size(world);
      processes_[rank] = &from_records.Join(hello.hello());
      hello.mutable_hello()->set_rolled_up(true);
      rolled_[rank] = &from_roll_ups.Join(hello.hello());
    } else if (frame.has_batch()) {
      ASSERT_TRUE(processes_[rank]->Apply(frame.batch()).ok());
      if (frame.batch().sequence() % batches != 0) return;
      Pass(rank, from_records.RollUp(*processes_[rank]));
      if (every > 0 && frame.batch().sequence() % every == 0)
        Pass(rank, from_records.WholeState(*processes_[rank]));
    } else if (frame.has_bye()) {
      processes_[rank]->ApplyBye(frame.bye());
      rolled_[rank]->ApplyBye(frame.bye());
    }
  }
  // `whole`: with the states at the end.
  void Finish(bool whole) {
    from_records.Finish();
    for (const auto& [rank, process] : processes_) {
      Pass(rank, from_records.RollUp(*process));
      if (whole) Pass(rank, from_records.WholeState(*process));
    }
    from_roll_ups.Finish();
  }

  JobModel from_records;
  JobModel from_roll_ups;
  uint64_t batches = 2;  // that make a roll-up
  uint64_t every = 0;    // of so many batches one has a whole state; 0: none
  int world = 0;         // ranks that the processes say their job has; 0: as many as it has
  std::string some;      // bytes of a roll-up with a whole state, of rank 1
  uint64_t wholes = 0;   // states

 private:
  void Pass(int rank, const v1::Batch& roll_up) {
    const std::string bytes = roll_up.SerializeAsString();
    wholes += roll_up.process_state().whole().empty() ? 0 : 1;
    if (rank == 1 && !roll_up.process_state().whole().empty()) some = bytes;
    v1::Batch read;
    ASSERT_TRUE(read.ParseFromString(bytes));
    const absl::Status applied = rolled_[rank]->Apply(read);
    ASSERT_TRUE(applied.ok()) << applied;
  }

  std::map<int, ProcessModel*> processes_;
  std::map<int, ProcessModel*> rolled_;
};

void Play(const simulate::TrainingJob& job, Rolled& rolled) {
  simulate::Simulation simulation(job, {}, nullptr);
  std::map<int, framing::FrameDecoder> decoders;
  const absl::Status status = simulation.Run([&](int rank, int64_t, std::string_view bytes, bool) {
    framing::FrameDecoder& decoder = decoders[rank];
    decoder.Append(bytes);
    while (true) {
      const auto next = decoder.Take();
      if (!next.ok()) return next.status();
      if (!next->has_frame) return absl::OkStatus();
      v1::Frame frame;
      if (!frame.ParseFromArray(next->frame.data(), static_cast<int>(next->frame.size())))
        return absl::InternalError("frame");
      rolled.Hear(rank, frame);
      if (::testing::Test::HasFatalFailure()) return absl::InternalError("refused");
    }
  });
  ASSERT_TRUE(status.ok()) << status;
}

// Rounded times sum up to the same waits.
TEST(RollUps, OfVeryManyRanksAreRounded) {
  Rolled rolled;
  rolled.world = RollUp::kMostExact + 1;
  ASSERT_NO_FATAL_FAILURE(Play(simulate::FindScenario("straggler-late")->job, rolled));
  ASSERT_NO_FATAL_FAILURE(rolled.Finish(false));
  const auto& exact = rolled.from_records.comparison().blame();
  const auto& rounded = rolled.from_roll_ups.comparison().blame();
  ASSERT_EQ(rounded.size(), exact.size());
  uint64_t most_ns = 0;
  for (size_t rank = 0; rank < exact.size(); ++rank) most_ns = std::max(most_ns, exact[rank].caused_ns);
  EXPECT_GT(most_ns, 1'000'000u);
  bool differs = false;
  for (size_t rank = 0; rank < exact.size(); ++rank) {
    EXPECT_NEAR(static_cast<double>(rounded[rank].caused_ns), static_cast<double>(exact[rank].caused_ns),
                static_cast<double>(most_ns) / 100);
    differs = differs || rounded[rank].caused_ns != exact[rank].caused_ns;
  }
  EXPECT_TRUE(differs);
}

// Since when the calls of a job of so many ranks wait, in ms, as its roll-ups have it.
std::vector<uint64_t> IssuedOf(int ranks, const std::vector<uint64_t>& issued_ms, uint64_t last_wait_ms) {
  JobModel job;
  job.KeepRollUps();
  ProcessModel& process = job.Join(testing::MakeHello(0, ranks));
  testing::BatchBuilder b(1);
  b.String(1, "AllReduce").Thread(1, true).Comm(1, 0xabc, 0, ranks);
  for (uint64_t i = 0; i < issued_ms.size(); ++i)
    b.Collective(1, 1, i, 1 << 18, 4, i + 1, testing::kStart + issued_ms[i] * testing::kMs);
  v1::Batch batch = b.batch();
  batch.mutable_host_state()->set_last_wait_end_ns(testing::kStart + last_wait_ms * testing::kMs);
  EXPECT_TRUE(process.Apply(batch).ok());
  std::vector<uint64_t> ms;
  EXPECT_TRUE(ForEachRow<CollectiveRecord>(job.RollUp(process), [&](const CollectiveRecord& r) {
                ms.push_back((r.issue_ns - testing::kStart) / testing::kMs);
              }).ok());
  return ms;
}

TEST(RollUps, CallsThatWaitHaveTimesNearTheirOwn) {
  const std::vector<uint64_t> issued = {1000, 1010, 1090, 1105, 1140, 1700};
  EXPECT_EQ(IssuedOf(RollUp::kMostExact, issued, 0), issued);
  EXPECT_THAT(IssuedOf(RollUp::kMostExact + 1, issued, 0),
              ::testing::ElementsAre(1000, 1000, 1000, 1105, 1105, 1700));
  EXPECT_THAT(IssuedOf(RollUp::kMostExact + 1, issued, 1050),
              ::testing::ElementsAre(1000, 1000, 1090, 1090, 1090, 1700))
      << "what was issued after the host's last wait is not put before it";
}

class RollUpsOf : public ::testing::TestWithParam<std::string> {};

TEST_P(RollUpsOf, SayTheSameAsTheRecords) {
  Rolled rolled;
  ASSERT_NO_FATAL_FAILURE(Play(simulate::FindScenario(GetParam())->job, rolled));
  ASSERT_NO_FATAL_FAILURE(rolled.Finish(true));
  EXPECT_TRUE(rolled.from_roll_ups.unread_hosts().empty());
  EXPECT_EQ(FindingsOf(rolled.from_roll_ups), FindingsOf(rolled.from_records));
  EXPECT_EQ(ReportOf(rolled.from_roll_ups), ReportOf(rolled.from_records));
}

// With everything that is known in between, after which rows go on.
class StatesOf : public ::testing::TestWithParam<std::string> {};

TEST_P(StatesOf, ComeAtAnyTime) {
  Rolled rolled;
  rolled.batches = 1;
  rolled.every = 2;
  ASSERT_NO_FATAL_FAILURE(Play(simulate::FindScenario(GetParam())->job, rolled));
  ASSERT_NO_FATAL_FAILURE(rolled.Finish(true));
  EXPECT_GE(rolled.wholes, 2 * rolled.from_records.processes().size());
  EXPECT_TRUE(rolled.from_roll_ups.unread_hosts().empty());
  EXPECT_EQ(ReportOf(rolled.from_roll_ups), ReportOf(rolled.from_records));
}
INSTANTIATE_TEST_SUITE_P(Scenarios, StatesOf,
                         ::testing::Values("straggler-kernels", "pipeline", "grid", "graph-replay",
                                           "hang-pipeline", "clock-set-back", "records-lost"),
                         [](const auto& test) {
                           return absl::StrReplaceAll(test.param, {{"-", "_"}});
                         });

// What compares ranks needs nothing but rows.
TEST(RollUps, SayWhoIsLateWithoutStates) {
  Rolled rolled;
  ASSERT_NO_FATAL_FAILURE(Play(simulate::FindScenario("straggler-kernels")->job, rolled));
  ASSERT_NO_FATAL_FAILURE(rolled.Finish(false));
  EXPECT_EQ(rolled.wholes, 0u);
  const RankComparison& expected = rolled.from_records.comparison();
  const RankComparison& found = rolled.from_roll_ups.comparison();
  ASSERT_EQ(found.blame().size(), expected.blame().size());
  ASSERT_EQ(found.blame().size(), 8u);
  for (size_t rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(found.blame()[rank].caused_ns, expected.blame()[rank].caused_ns);
    EXPECT_EQ(found.blame()[rank].waited_ns, expected.blame()[rank].waited_ns);
    EXPECT_EQ(found.blame()[rank].step_ns.total(), expected.blame()[rank].step_ns.total());
    const StepTracker& steps = rolled.from_roll_ups.processes()[rank]->steps();
    EXPECT_EQ(steps.count(), 40u);
    EXPECT_EQ(steps.statistics().total_ns.total(),
              rolled.from_records.processes()[rank]->steps().statistics().total_ns.total());
  }
  const analysis::Report report = analysis::BuildReport(rolled.from_roll_ups, {});
  ASSERT_FALSE(report.findings.empty());
  EXPECT_THAT(report.findings.front().statement, ::testing::HasSubstr("wait for rank 5"));
}

TEST(RollUps, OfLevelCallsSayWhoIsLate) {
  constexpr int kRanks = 3;
  constexpr int64_t kCalls = 100;
  Rolled rolled;
  for (int rank = 0; rank < kRanks; ++rank) {
    v1::Frame frame;
    v1::Hello& hello = *frame.mutable_hello();
    hello.set_protocol_major(1);
    hello.set_level(v1::RECORDING_LEVEL_CALLS);
    hello.mutable_identity()->set_rank(rank);
    hello.mutable_identity()->set_world_size(kRanks);
    hello.mutable_identity()->set_rank_source(v1::RANK_SOURCE_TORCHRUN);
    hello.mutable_identity()->set_host("n1");
    hello.mutable_identity()->set_pid(static_cast<uint32_t>(100 + rank));
    ASSERT_NO_FATAL_FAILURE(rolled.Hear(rank, frame));
  }
  for (uint64_t sequence = 1; sequence <= 4; ++sequence) {
    for (int rank = 0; rank < kRanks; ++rank) {
      testing::BatchBuilder b(sequence, testing::kStart + sequence * testing::kSecond);
      if (sequence == 1) b.Comm(1, 0xc0de, rank, kRanks).String(9, "AllReduce");
      v1::Frame frame;
      *frame.mutable_batch() = b.batch();
      for (int64_t i = 0; i < kCalls; ++i) {
        const int64_t begins = i > 0 ? 1 : (static_cast<int64_t>(sequence) - 1) * kCalls;
        v1::TracedCalls& calls = *frame.mutable_batch()->mutable_traced_calls();
        calls.add_issue_delta(testing::kMs * 10);
        calls.add_host_duration(1000);
        calls.add_op(9);
        calls.add_comm(1);
        calls.add_seq_delta(begins);
        calls.add_bytes(4096);
        v1::CallTimes& times = *frame.mutable_batch()->mutable_call_times();
        times.add_seen_delta(testing::kMs * 10);
        times.add_op(9);
        times.add_comm(1);
        times.add_number_delta(begins);
        times.add_gpu_ns(rank == 1 ? testing::kMs : 3 * testing::kMs);
        v1::TracedSteps& steps = *frame.mutable_batch()->mutable_traced_steps();
        steps.add_begin_delta(testing::kMs * 10);
        steps.add_index_delta(begins);
      }
      ASSERT_NO_FATAL_FAILURE(rolled.Hear(rank, frame));
    }
  }
  ASSERT_NO_FATAL_FAILURE(rolled.Finish(/*whole=*/true));
  const auto& found = rolled.from_roll_ups.trace().processes();
  ASSERT_EQ(found.size(), size_t{kRanks});
  EXPECT_EQ(found[1].by_gpu.late_ns, (4 * kCalls - CallTrace::kFirstCalls) * 2 * testing::kMs);
  EXPECT_EQ(found[0].steps, 4 * kCalls - 1);
  EXPECT_EQ(ReportOf(rolled.from_roll_ups), ReportOf(rolled.from_records));
}

// A host may send anything.
TEST(RollUps, DamagedOnesAreRefusedOrHarmless) {
  Rolled rolled;
  rolled.every = 4;
  ASSERT_NO_FATAL_FAILURE(Play(simulate::FindScenario("straggler-kernels")->job, rolled));
  ASSERT_NO_FATAL_FAILURE(rolled.Finish(true));
  v1::Hello hello = rolled.from_roll_ups.processes()[1]->hello();
  ASSERT_TRUE(hello.rolled_up());
  std::mt19937_64 random(5);
  int read = 0;
  uint64_t refused = 0;
  for (int i = 0; i < 300; ++i) {
    std::string damaged = rolled.some;
    for (int k = 0; k < 3; ++k) damaged[random() % damaged.size()] = static_cast<char>(random());
    v1::Batch batch;
    if (!batch.ParseFromString(damaged)) continue;
    ++read;
    JobModel job;
    ProcessModel& process = job.Join(hello);
    refused += process.Apply(batch).ok() ? 0 : 1;
    process.Apply(batch).IgnoreError();
    refused += job.unread_hosts().size();
    job.Finish();
    EXPECT_FALSE(ReportOf(job).empty());
  }
  EXPECT_GT(read, 50);
  EXPECT_GT(refused, 0u);
}

TEST(RollUps, AStateOfAnotherReleaseIsLeftOut) {
  Rolled rolled;
  ASSERT_NO_FATAL_FAILURE(Play(simulate::FindScenario("healthy")->job, rolled));
  ASSERT_NO_FATAL_FAILURE(rolled.Finish(true));
  v1::Batch batch;
  ASSERT_TRUE(batch.ParseFromString(rolled.some));
  batch.mutable_process_state()->set_version(batch.process_state().version() + 1);
  JobModel job;
  ASSERT_TRUE(job.Join(rolled.from_roll_ups.processes()[1]->hello()).Apply(batch).ok());
  EXPECT_EQ(job.unread_hosts().size(), 1u);
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const simulate::Scenario& scenario : simulate::Scenarios()) names.emplace_back(scenario.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Scenarios, RollUpsOf, ::testing::ValuesIn(Names()), [](const auto& test) {
  return absl::StrReplaceAll(test.param, {{"-", "_"}});
});

}  // namespace
}  // namespace gpuprobe::model
