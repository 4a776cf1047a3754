// Steps of ranks that missed some, in simulated jobs: the same step has the same number on all ranks, and
// blame is what it is when nothing is missed.
#include "collector/model/job/step_alignment.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "collector/framing/frame_decoder.h"
#include "collector/model/job/job_model.h"
#include "collector/simulate/scenarios.h"
#include "collector/simulate/simulation.h"

namespace gpuprobe::model {
namespace {

struct Silence {
  int rank = 0;
  uint64_t from = 0;  // batches, from 1
  uint64_t to = 0;
};

void Simulate(JobModel& job, const std::vector<Silence>& silences) {
  simulate::TrainingJob training = simulate::FindScenario("straggler-kernels")->job;
  training.steps = 60;
  // A batch each step.
  training.work = 30;
  training.host.read_loss_every = 1;
  simulate::Simulation simulation(training, {}, nullptr);
  std::map<int, framing::FrameDecoder> decoders;
  std::map<int, ProcessModel*> processes;
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
      if (frame.has_hello()) processes[rank] = &job.Join(frame.hello());
      if (!frame.has_batch()) continue;
      v1::Batch& batch = *frame.mutable_batch();
      for (const Silence& silence : silences) {
        if (silence.rank != rank || batch.sequence() < silence.from || batch.sequence() > silence.to)
          continue;
        // Only what defines names stays: no later batch says it again.
        for (const auto clear :
             {&v1::Batch::clear_kernels, &v1::Batch::clear_copies, &v1::Batch::clear_memsets,
              &v1::Batch::clear_launches, &v1::Batch::clear_syncs, &v1::Batch::clear_collectives,
              &v1::Batch::clear_plans, &v1::Batch::clear_ranges})
          (batch.*clear)();
      }
      if (absl::Status s = processes[rank]->Apply(batch); !s.ok()) return s;
    }
  });
  ASSERT_TRUE(status.ok()) << status;
  job.Finish();
}

// Every step of the rank has the number that the first rank's step has that ends at about the same time.
void ExpectAligned(const JobModel& job, uint32_t rank, size_t least, size_t unsure) {
  const auto& reference = job.processes()[0]->steps().steps();
  size_t aligned = 0;
  size_t wrong = 0;
  for (const StepRecord& step : job.processes()[rank]->steps().steps()) {
    for (const StepRecord& other : reference) {
      const uint64_t apart = std::max(step.end_ns, other.end_ns) - std::min(step.end_ns, other.end_ns);
      if (apart * 10 > std::min(step.total_ns(), other.total_ns())) continue;
      const int64_t number =
          static_cast<int64_t>(step.index) + job.comparison().alignment().Behind(rank, step.index);
      const int64_t expected =
          static_cast<int64_t>(other.index) + job.comparison().alignment().Behind(0, other.index);
      ++(number == expected ? aligned : wrong);
    }
  }
  EXPECT_GE(aligned, least);
  EXPECT_LE(wrong, unsure);
}

double BlamePerCall(const JobModel& job, size_t rank) {
  const RankComparison::Blame& blame = job.comparison().blame()[rank];
  return static_cast<double>(blame.caused_mean_ns) / static_cast<double>(blame.compared + blame.estimated);
}

TEST(StepAlignment, RanksThatMissedNothingCountAlike) {
  JobModel job;
  Simulate(job, {});
  for (uint32_t rank = 1; rank < 8; ++rank) ExpectAligned(job, rank, 58, 0);
  EXPECT_EQ(job.comparison().alignment().Behind(3, 59), 0);
}

TEST(StepAlignment, ARankThatJoinsLateIsBehindFromItsFirstStepOn) {
  JobModel job;
  Simulate(job, {{.rank = 3, .from = 1, .to = 12}});
  const uint64_t steps = job.processes()[3]->steps().count();
  ASSERT_LT(steps, 58u);
  EXPECT_GT(job.comparison().alignment().Behind(3, steps - 1), 1);
  ExpectAligned(job, 3, steps - 2, 0);
}

TEST(StepAlignment, ARankWhoseRecordsAreMissingIsBehindFromThereOn) {
  JobModel all;
  Simulate(all, {});
  JobModel job;
  Simulate(job, {{.rank = 2, .from = 20, .to = 30}});
  const uint64_t steps = job.processes()[2]->steps().count();
  ASSERT_LT(steps, 60u);
  EXPECT_EQ(job.comparison().alignment().Behind(2, 0), 0);
  EXPECT_EQ(job.comparison().alignment().Behind(2, steps - 1), static_cast<int64_t>(60 - steps));
  ExpectAligned(job, 2, steps - 4, 2);
  // Rank 5 is the one that is slow.
  EXPECT_NEAR(BlamePerCall(job, 5) / BlamePerCall(all, 5), 1, 0.05);
  for (size_t rank : {0, 1, 2, 3, 4, 6, 7})
    EXPECT_LT(BlamePerCall(job, rank), 0.05 * BlamePerCall(job, 5)) << rank;
}

TEST(StepAlignment, BlameIsRightWhenTheSlowRankIsTheOneThatIsMissing) {
  JobModel all;
  Simulate(all, {});
  JobModel job;
  Simulate(job, {{.rank = 5, .from = 20, .to = 30}});
  EXPECT_NEAR(BlamePerCall(job, 5) / BlamePerCall(all, 5), 1, 0.05);
  for (size_t rank : {0, 1, 2, 3, 4, 6, 7})
    EXPECT_LT(BlamePerCall(job, rank), 0.05 * BlamePerCall(job, 5)) << rank;
}

}  // namespace
}  // namespace gpuprobe::model
