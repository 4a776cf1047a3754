// Issues NCCL calls for the ranks of one thread: alone or in groups, on communicators that block or do not,
// and calls that NCCL refuses.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <vector>

#include "tests/e2e/programs/random_plan.h"
#include "tests/e2e/programs/random_rank.h"

namespace random_collectives {

class CallIssuer {
 public:
  explicit CallIssuer(const Crew& crew) : crew_(crew) {}

  void Do(const Call& call);
  // What NCCL refuses at once. In a group the others do the same.
  void DoBad(const Item& item);
  void StartGroup();
  void EndGroup(bool simulate);
  // Waits until calls on communicators that do not block have been launched.
  void Settle();

 private:
  struct Pending {
    ncclComm_t comm;
    RankState* rank;
    size_t stream;
  };

  // NCCL may still be launching a call: nothing may be issued to its stream, or by its communicator, before.
  bool MayOverlap(const RankState& rank, ncclComm_t comm, size_t stream) const;
  void Note(ncclResult_t result, RankState& rank, ncclComm_t comm, size_t stream);
  void Issue(const Call& call, RankState& rank);
  ncclResult_t Start(const Call& call, const RankState& rank, size_t stream, ncclRedOp_t reduction) const;
  ncclResult_t StartBad(const Item& item, const RankState& rank) const;

  const Crew& crew_;
  std::vector<Pending> pending_;
  int depth_ = 0;
  bool group_refused_ = false;
};

}  // namespace random_collectives
