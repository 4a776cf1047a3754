// Sends and receives: who waits for whom in them, and what they are for.
#include "collector/analysis/communication/exchanges.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collector/analysis/communication/collective_report.h"
#include "collector/model/job/job_model.h"
#include "tests/collector/testing/batch_builder.h"

namespace gpuprobe::analysis {
namespace {

using gpuprobe::testing::BatchBuilder;
using gpuprobe::testing::kStart;
using gpuprobe::testing::MakeHello;

constexpr uint32_t kKernelOfTransfers = 1;
constexpr uint32_t kSendName = 2;
constexpr uint32_t kRecvName = 3;

BatchBuilder BeginTransfers(int rank, int ranks) {
  BatchBuilder b;
  b.String(kKernelOfTransfers, "ncclDevKernel").String(kSendName, "Send").String(kRecvName, "Recv");
  b.Site(1, kKernelOfTransfers).Thread(1, true).Comm(1, 0x9c1e, rank, ranks);
  return b;
}

// Groups of sends and receives, as each of `ranks` ranks makes them, and how long its kernel takes.
struct TransferGroup {
  std::vector<std::pair<uint32_t, int>> calls;  // kSendName or kRecvName, peer
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
};

std::unique_ptr<model::JobModel> JobOfGroups(const std::vector<std::vector<TransferGroup>>& groups) {
  auto job = std::make_unique<model::JobModel>();
  const int ranks = static_cast<int>(groups.size());
  for (int rank = 0; rank < ranks; ++rank) {
    BatchBuilder b = BeginTransfers(rank, ranks);
    uint64_t seq = 0;
    uint64_t plan = 0;
    for (const TransferGroup& group : groups[static_cast<size_t>(rank)]) {
      ++plan;
      for (const auto& [op, peer] : group.calls) b.Transfer(op, 1, seq++, peer, plan, kStart + plan);
      b.Plan(plan, 100 + plan).Launch(1, kStart + plan, 100 + plan);
      b.Kernel(kStart + group.start_ns, kStart + group.end_ns, 1, 100 + plan);
    }
    EXPECT_TRUE(job->Join(MakeHello(rank, ranks)).Apply(b.batch()).ok());
  }
  job->Finish();
  return job;
}

uint64_t WaitOf(const model::JobModel& job, size_t rank) {
  uint64_t wait = 0;
  for (const CollectiveReport& report : CollectivesOf(job.members()[rank]))
    wait += report.wait_ns.value_or(0);
  return wait;
}

// Rank 2 comes last, and moves more.
TEST(Exchanges, RanksWaitForTheOneThatStartedLast) {
  const auto all = [](uint64_t start_ns, uint64_t end_ns) {
    return std::vector<TransferGroup>{
        {.calls =
             {{kSendName, 0}, {kRecvName, 0}, {kSendName, 1}, {kRecvName, 1}, {kSendName, 2}, {kRecvName, 2}},
         .start_ns = start_ns,
         .end_ns = end_ns}};
  };
  const auto job = JobOfGroups({all(0, 500), all(100, 500), all(400, 600)});
  EXPECT_EQ(WaitOf(*job, 0), 400u);
  EXPECT_EQ(WaitOf(*job, 1), 300u);
  EXPECT_EQ(WaitOf(*job, 2), 0u);
  const auto& blame = job->comparison().blame();
  EXPECT_EQ(blame[2].caused_mean_ns, 350u);
  EXPECT_EQ(blame[0].pairs, 0u) << "it is no pipeline";
  EXPECT_EQ(CollectivesOf(*job)[0].transfers, TransferPattern::kExchange);
}

TEST(Exchanges, ARingIsOneCallOfAllItsRanks) {
  std::vector<std::vector<TransferGroup>> ring;
  for (int rank = 0; rank < 5; ++rank)
    ring.push_back({{.calls = {{kSendName, (rank + 1) % 5}, {kRecvName, (rank + 4) % 5}},
                     .start_ns = rank == 3 ? 90u : 0u,
                     // Ranks 0 and 1 have other neighbours.
                     .end_ns = rank < 2 ? 50u : 140u}});
  const auto job = JobOfGroups(ring);
  EXPECT_EQ(WaitOf(*job, 0), 0u);
  EXPECT_EQ(WaitOf(*job, 2), 90u);
  EXPECT_EQ(WaitOf(*job, 4), 90u);
  EXPECT_EQ(job->comparison().blame()[3].last_arrivals, 1u);
  EXPECT_EQ(CollectivesOf(*job)[0].transfers, TransferPattern::kRing);
}

// One forward, one backward: the group of the steady state meets the same group of the neighbour.
TEST(Exchanges, GroupsAfterCallsAloneAreStagesOfAPipeline) {
  const auto stage = [](uint32_t first, uint32_t last, int peer, uint64_t late) {
    return std::vector<TransferGroup>{
        {.calls = {{first, peer}}, .start_ns = 0, .end_ns = 10},
        {.calls = {{kSendName, peer}, {kRecvName, peer}}, .start_ns = 20 + late, .end_ns = 60},
        {.calls = {{last, peer}}, .start_ns = 70, .end_ns = 80}};
  };
  const auto job = JobOfGroups({stage(kSendName, kRecvName, 1, 0), stage(kRecvName, kSendName, 0, 15)});
  const auto& blame = job->comparison().blame();
  EXPECT_EQ(blame[1].pairs, 3u);
  EXPECT_EQ(blame[1].pair_caused_ns, 15u);
  EXPECT_EQ(blame[1].caused_mean_ns, 0u) << "that is for collectives and exchanges";
  for (const CollectiveReport& report : CollectivesOf(*job))
    EXPECT_EQ(report.transfers, TransferPattern::kPipeline) << report.op;
}

// Each sends and receives alone, and no rank is first or last.
TEST(Exchanges, CallsAloneThatGoRoundAreARing) {
  const auto job_of = [](int without_previous) {
    std::vector<std::vector<TransferGroup>> ranks;
    for (int rank = 0; rank < 4; ++rank) {
      std::vector<TransferGroup>& groups = ranks.emplace_back();
      if ((rank + 1) % 4 != without_previous)
        groups.push_back({.calls = {{kSendName, (rank + 1) % 4}}, .start_ns = 0, .end_ns = 10});
      if (rank != without_previous)
        groups.push_back({.calls = {{kRecvName, (rank + 3) % 4}}, .start_ns = 0, .end_ns = 10});
    }
    return CollectivesOf(*JobOfGroups(ranks))[0].transfers;
  };
  EXPECT_EQ(job_of(-1), TransferPattern::kRing);
  EXPECT_EQ(job_of(0), TransferPattern::kPipeline) << "rank 0 is the first stage";
}

// As PyTorch makes them: each pair of ranks has a communicator of its own.
TEST(Exchanges, CommunicatorsOfPairsMayGoRound) {
  const auto job_of = [](int links) {
    model::JobModel job;
    constexpr int kRanksOfRing = 4;
    for (int rank = 0; rank < kRanksOfRing; ++rank) {
      BatchBuilder b = BeginTransfers(rank, kRanksOfRing);
      const int previous = (rank + kRanksOfRing - 1) % kRanksOfRing;
      uint64_t plan = 0;
      for (const bool sends : {true, false}) {
        const int link = sends ? rank : previous;
        if (link >= links) continue;
        const auto comm = static_cast<uint32_t>(2 + link);
        b.Comm(comm, 0x100 + static_cast<uint64_t>(link), sends ? 0 : 1, 2);
        ++plan;
        b.Transfer(sends ? kSendName : kRecvName, comm, 0, sends ? 1 : 0, plan, kStart + plan);
        b.Plan(plan, 100 + plan).Launch(1, kStart + plan, 100 + plan);
        b.Kernel(kStart, kStart + 10, 1, 100 + plan);
      }
      EXPECT_TRUE(job.Join(MakeHello(rank, kRanksOfRing)).Apply(b.batch()).ok());
    }
    job.Finish();
    return CollectivesOf(job)[0].transfers;
  };
  EXPECT_EQ(job_of(4), TransferPattern::kRing);
  EXPECT_EQ(job_of(3), TransferPattern::kPipeline) << "nothing goes from the last to the first";
}

TEST(Exchanges, SendsFromOneToManyAreNoPipeline) {
  std::vector<std::vector<TransferGroup>> ranks(4);
  for (int rank = 1; rank < 4; ++rank) {
    ranks[0].push_back({.calls = {{kSendName, rank}}, .start_ns = 0, .end_ns = 10});
    ranks[static_cast<size_t>(rank)].push_back({.calls = {{kRecvName, 0}}, .start_ns = 0, .end_ns = 10});
  }
  EXPECT_EQ(CollectivesOf(*JobOfGroups(ranks))[0].transfers, TransferPattern::kStar);
}

// What rank 1 sends in a group, rank 0 receives in its next one, so that all groups of the run meet.
TEST(Exchanges, GroupsThatMeetWithoutEndNeedNoMoreMemory) {
  const auto state_with = [](bool endless) {
    constexpr uint64_t kGroups = 8000;
    model::JobModel job;
    for (int rank = 0; rank < 2; ++rank) {
      BatchBuilder b = BeginTransfers(rank, 2);
      uint64_t seq = 0;
      for (uint64_t plan = 1; plan <= kGroups; ++plan) {
        b.Transfer(kSendName, 1, seq++, 1 - rank, plan, kStart + plan);
        if (rank == 1 || plan > 1 || !endless) b.Transfer(kRecvName, 1, seq++, 1 - rank, plan, kStart + plan);
        b.Plan(plan, 100 + plan).Launch(1, kStart + plan, 100 + plan);
        b.Kernel(kStart + plan * 100, kStart + plan * 100 + 50, 1, 100 + plan);
      }
      model::ProcessModel& process = job.Join(MakeHello(rank, 2));
      EXPECT_TRUE(process.Apply(b.batch()).ok());
      // A plan is settled some batches later.
      for (uint64_t sequence = 2; sequence < 6; ++sequence)
        EXPECT_TRUE(process.Apply(BatchBuilder(sequence).batch()).ok());
    }
    const std::string state = job.SaveState();
    model::JobModel loaded;
    EXPECT_TRUE(loaded.LoadState(state).ok());
    job.Finish();
    const uint64_t compared = job.comparison().blame().empty() ? 0 : job.comparison().blame()[0].compared;
    EXPECT_EQ(compared, endless ? 0 : kGroups);
    return state.size();
  };
  EXPECT_LT(state_with(true), state_with(false) + (size_t{64} << 10));
}

}  // namespace
}  // namespace gpuprobe::analysis
