// Ranks of one communicator, whose batches a test of hangs writes: hangs_test.cc, hang_transfers_test.cc,
// hang_replays_test.cc.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "collector/analysis/hangs.h"
#include "tests/collector/testing/batch_builder.h"

namespace gpuprobe::analysis {

class HangsFixture : public ::testing::Test {
 protected:
  static constexpr uint64_t kLimit = 60 * testing::kSecond;

  explicit HangsFixture(int ranks) : ranks_(ranks) {
    for (int rank = 0; rank < ranks; ++rank)
      processes_.push_back(&job_.Join(testing::MakeHello(rank, ranks)));
  }
  // Names that a rank's first batch defines.
  virtual void Define(testing::BatchBuilder& b) = 0;

  testing::BatchBuilder Begin(int rank) {
    testing::BatchBuilder b(++sequence_[rank], testing::kStart);
    if (sequence_[rank] == 1) {
      Define(b);
      b.Comm(1, 0x9c1e, rank, ranks_);
    }
    return b;
  }
  // Sent at `at_ns` after the start.
  void Send(int rank, testing::BatchBuilder& b, uint64_t at_ns) {
    b.Clock(testing::kStart + at_ns, testing::kSecond + at_ns);
    ASSERT_TRUE(processes_[static_cast<size_t>(rank)]->Apply(b.batch()).ok());
  }
  void Heartbeat(uint64_t at_ns) {
    for (int rank = 0; rank < ranks_; ++rank) {
      testing::BatchBuilder b = Begin(rank);
      Send(rank, b, at_ns);
    }
  }
  std::vector<Hang> At(uint64_t at_ns) { return HangsOf(job_, testing::kStart + at_ns, kLimit); }

  const int ranks_;
  model::JobModel job_;
  std::vector<model::ProcessModel*> processes_;
  std::map<int, uint64_t> sequence_;
  std::map<int, uint64_t> correlation_;
};

}  // namespace gpuprobe::analysis
