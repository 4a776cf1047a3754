// All processes that a collector has heard, and what can only be known by comparing them: who waited for whom
// in a collective.
//
// Separate from ProcessModel because it is the only place where two processes meet. The ranks of one call are
// matched by (communicator hash, sequence number, number of the replay). The shortest kernel among them is
// about the transfer alone, since that rank came last; what the others took longer is waiting.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "collector/model/process_model.h"

namespace gpuprobe::model {

class JobModel {
 public:
  static constexpr size_t kMaxWaitingCalls = 65536;

  // A process said hello. Returns the one that it is: the same pid and start time on the same host is the
  // same process.
  ProcessModel& Join(const v1::Hello& hello);
  // Settles everything, marks who never said goodbye, and compares what is left.
  void Finish();

  const std::vector<std::unique_ptr<ProcessModel>>& processes() const { return processes_; }

 private:
  struct Participant {
    int32_t comm_rank;
    uint64_t duration_ns;
    uint64_t bytes;
    CollectiveSeries* series;
  };
  struct Call {
    int32_t comm_ranks = 0;
    std::vector<Participant> participants;
  };
  using Key = std::tuple<uint64_t, uint64_t, uint64_t>;  // communicator hash, sequence, replay

  void OnPlan(const ProcessModel& process, const SettledPlan& plan);
  static void Compare(const Call& call);

  std::vector<std::unique_ptr<ProcessModel>> processes_;
  absl::flat_hash_map<Key, Call> calls_;
  std::deque<Key> order_;
};

}  // namespace gpuprobe::model
