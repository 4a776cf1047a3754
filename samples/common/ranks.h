// Which rank this process is, and how it meets the others: without MPI, through a file in which rank 0 leaves
// NCCL's unique id.
#pragma once

#include <nccl.h>

#include <string>

namespace gpuprobe::samples {

struct RankIdentity {
  int rank = 0;
  int local_rank = 0;
  int world_size = 1;
};

// From RANK, LOCAL_RANK, WORLD_SIZE (torchrun, launch_ranks.sh), else Open MPI's variables, else a world of
// one.
RankIdentity FindRankIdentity();

// Picks this rank's device. With fewer devices than ranks and DDP_SHARE_DEVICE=1, ranks share them: NCCL is
// told that each rank is a host of its own, because it refuses two ranks of one host on one device.
void ChooseDevice(const RankIdentity& identity);

// Makes the world communicator. The file is `id_file`, else $DDP_ID_FILE, else one in a temporary folder that
// is named after the launcher. Rank 0 removes it once everybody has joined. Ends the program when rank 0's id
// does not come within 60 s.
ncclComm_t JoinWorld(const RankIdentity& identity, std::string id_file);

}  // namespace gpuprobe::samples
