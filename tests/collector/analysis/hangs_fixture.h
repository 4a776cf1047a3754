// Ranks of one communicator, whose batches a test of hangs writes: what they launch and call, and what the
// kernel says of them.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "collector/analysis/hangs/hangs.h"
#include "tests/collector/testing/batch_builder.h"

namespace gpuprobe::analysis {

class HangsFixture : public ::testing::Test {
 protected:
  static constexpr uint64_t kLimit = 60 * testing::kSecond;
  // Names, and sites of kernels, that a rank's first batch defines.
  enum : uint32_t { kAllReduce = 1, kAllGather, kBroadcast, kSend, kRecv, kFloat, kNccl, kGemm };
  enum : uint32_t { kNcclSite = 1, kGemmSite };
  enum : uint32_t { kWorld = 1 };  // communicator

  explicit HangsFixture(int ranks) : ranks_(ranks) {
    for (int rank = 0; rank < ranks; ++rank)
      processes_.push_back(&job_.Join(testing::MakeHello(rank, ranks)));
  }

  testing::BatchBuilder Begin(int rank) {
    testing::BatchBuilder b(++sequence_[rank], testing::kStart);
    if (sequence_[rank] == 1) {
      b.String(kAllReduce, "AllReduce").String(kAllGather, "AllGather").String(kBroadcast, "Broadcast");
      b.String(kSend, "Send").String(kRecv, "Recv").String(kFloat, "float32").String(kGemm, "gemm");
      b.String(kNccl, "ncclDevKernel_AllReduce_Sum_f32_RING_LL")
          .Site(kNcclSite, kNccl)
          .Site(kGemmSite, kGemm);
      b.Comm(kWorld, 0x9c1e, rank, ranks_);
    }
    return b;
  }
  // A launch of NCCL's; if it ends, its kernel runs for a millisecond, one later.
  uint64_t Launched(int rank, testing::BatchBuilder& b, uint64_t at_ns, bool ends) {
    const uint64_t correlation = ++correlation_[rank];
    b.Launch(1, testing::kStart + at_ns, correlation);
    if (ends)
      b.Kernel(testing::kStart + at_ns + testing::kMs, testing::kStart + at_ns + 2 * testing::kMs, kNcclSite,
               correlation);
    return correlation;
  }
  // A kernel of the program's that ends.
  void Work(int rank, testing::BatchBuilder& b, uint64_t at_ns) {
    b.Launch(1, testing::kStart + at_ns, ++correlation_[rank]);
    b.Kernel(testing::kStart + at_ns, testing::kStart + at_ns + testing::kMs, kGemmSite, correlation_[rank]);
  }
  void Call(int rank, testing::BatchBuilder& b, uint64_t seq, uint64_t at_ns, bool ends,
            uint32_t op = kAllReduce, uint64_t count = 1000, uint32_t comm = kWorld) {
    const uint64_t plan = Launched(rank, b, at_ns, ends);
    b.Collective(op, comm, seq, count, 4, plan, testing::kStart + at_ns);
    b.Plan(plan, plan);
  }
  // The rank's next call on that communicator.
  void Reduce(int rank, testing::BatchBuilder& b, uint32_t comm, uint64_t at_ns, bool ends,
              uint64_t count = 1000) {
    Call(rank, b, seq_[{rank, comm}]++, at_ns, ends, kAllReduce, count, comm);
  }
  // Two hundred steps that update weights.
  void Train() {
    constexpr uint32_t kAdam = 102;
    constexpr uint32_t kAdamSite = 9;
    for (int rank = 0; rank < ranks_; ++rank) {
      testing::BatchBuilder b = Begin(rank);
      b.String(kAdam, "AdamUpdate").Site(kAdamSite, kAdam);
      for (uint64_t step = 1; step <= 200; ++step) {
        const uint64_t at_ns = step * 8 * testing::kMs;
        Work(rank, b, at_ns);
        Reduce(rank, b, kWorld, at_ns + testing::kMs, true);
        b.Launch(1, testing::kStart + at_ns + 2 * testing::kMs, ++correlation_[rank]);
        b.Kernel(testing::kStart + at_ns + 4 * testing::kMs, testing::kStart + at_ns + 5 * testing::kMs,
                 kAdamSite, correlation_[rank]);
      }
      Send(rank, b, 2 * testing::kSecond);
    }
  }
  // What the kernel said of the rank's host at 3 s and says now.
  void Observe(int rank, uint64_t at_ns, double cpus, const std::string& waits_for = "") {
    for (const uint64_t ns : {3 * testing::kSecond, at_ns}) {
      v1::ProcessObservation seen;
      seen.mutable_clock()->set_realtime_ns(testing::kStart + ns);
      seen.set_interval_ns(testing::kSecond);
      seen.set_state(static_cast<uint32_t>(waits_for.empty() ? 'R' : 'S'));
      seen.set_cpu_ns(static_cast<uint64_t>(cpus * 1e9));
      seen.set_waits_for(waits_for);
      processes_[static_cast<size_t>(rank)]->ApplyObservation(seen);
    }
  }
  void Transfer(int rank, testing::BatchBuilder& b, uint32_t op, int peer, uint64_t at_ns,
                bool ends = false) {
    const uint64_t plan = Launched(rank, b, at_ns, ends);
    b.Transfer(op, kWorld, seq_[{rank, kWorld}]++, peer, plan, testing::kStart + at_ns);
    b.Plan(plan, plan);
  }
  // Sent at `at_ns` after the start.
  void Send(int rank, testing::BatchBuilder& b, uint64_t at_ns) {
    b.Clock(testing::kStart + at_ns, testing::kSecond + at_ns);
    ASSERT_TRUE(processes_[static_cast<size_t>(rank)]->Apply(b.batch()).ok());
  }
  // Shortly before the limit CUPTI was asked for what it holds back.
  void Heartbeat(uint64_t at_ns) {
    for (int rank = 0; rank < ranks_; ++rank) {
      testing::BatchBuilder b = Begin(rank);
      if (answers_ && at_ns > kLimit - 5 * testing::kSecond) b.Loss(v1::LOSS_UNFINISHED_AT_FLUSH, 1);
      Send(rank, b, at_ns);
    }
  }
  void BeatOf(const std::vector<int>& ranks, uint64_t at_ns) {
    for (const int rank : ranks) {
      testing::BatchBuilder b = Begin(rank);
      Send(rank, b, at_ns);
    }
  }
  std::vector<Hang> At(uint64_t at_ns) { return HangsOf(job_, testing::kStart + at_ns, kLimit); }

  bool answers_ = true;
  const int ranks_;
  model::JobModel job_;
  std::vector<model::ProcessModel*> processes_;
  std::map<int, uint64_t> sequence_;
  std::map<int, uint64_t> correlation_;
  std::map<std::pair<int, uint32_t>, uint64_t> seq_;  // by rank and communicator
};

}  // namespace gpuprobe::analysis
