// What the comparison of ranks says of a series of one of them: how long it waited for others, and what the
// transfers took.
//
// The job's, not the process's (collective_tracker.h): it takes the other ranks to know it.
#pragma once

#include <cstdint>

#include "collector/model/calls/first_plan.h"
#include "collector/model/calls/steady_transfers.h"
#include "collector/model/calls/transfer_slices.h"
#include "collector/model/state/members.h"

namespace gpuprobe::model {

struct ComparedSeries {
  uint64_t plans = 0;
  uint64_t wait_ns = 0;         // sum of own duration minus the shortest one
  uint64_t transfer_ns = 0;     // sum of the shortest ones
  uint64_t transfer_bytes = 0;  // of these plans
  FirstPlan first;              // its time: the shortest one
  SteadyTransfers steady;       // those after the warm-up
  TransferSlices slices;        // over the run
  // Place among RankComparison::transfers, and one more; 0: not looked up yet.
  uint32_t transfers = 0;

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, plans, wait_ns, transfer_ns, transfer_bytes, first, steady, slices, transfers);
  }
};

}  // namespace gpuprobe::model
