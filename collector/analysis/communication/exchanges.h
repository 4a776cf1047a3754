// Distinguishes what the sends and receives of a job are for: stages of a pipeline hand on, ranks of an
// exchange give and take at once.
//
// Example: ring attention passes a block to the next rank and receives one from the previous in one group; a
// mixture of experts sends to every rank and receives from every rank. A pipeline has ends: the first stage
// must send before anything comes back, so each of its steps has sends and receives by themselves, even if
// the schedule groups those of the steady state. Evidence for a pipeline is therefore a rank that sends or
// receives alone in its steps, with no more than two neighbours. Sends and receives alone that go round (from
// one neighbour, to the other, equally often on every rank) are a ring as well. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "collector/model/job/job_model.h"
#include "collector/report/collectives.h"

namespace gpuprobe::analysis {

class Exchanges {
 public:
  explicit Exchanges(const model::JobModel& job);

  // What the plans of this series are; kNone unless they are sends and receives alone.
  TransferPattern Of(const model::ProcessModel& process, const model::CollectiveSeries& series) const;

 private:
  // What the ranks did on one communicator.
  struct Use {
    bool alone = false;      // sends and receives by themselves, in steps
    bool many = false;       // groups that no stage makes: with three others, or with itself
    bool goes_round = true;  // each rank receives from another than it sends to, all equally often
    uint64_t sends = 0;      // of the rank with most
    size_t neighbours = 0;   // the most of any rank
    size_t ranks = 0;
    std::optional<uint32_t> sender;    // a process that only sends
    std::optional<uint32_t> receiver;  // a process that only receives
  };
  // A communicator of two ranks, of which one only sends and the other only receives: PyTorch makes one for
  // each pair of ranks whose calls are not grouped.
  struct Link {
    uint64_t hash = 0;
    uint32_t to = 0;  // process, as is the key of `links`
    uint64_t sends = 0;
  };
  void Count(uint32_t index, const model::ProcessModel& process);
  // Marks the communicators whose links go round.
  void FindRings();
  static TransferPattern Of(const Use& use);

  std::map<uint64_t, Use> by_hash_;
};

}  // namespace gpuprobe::analysis
