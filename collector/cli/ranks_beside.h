// The other ranks of the job that a process belongs to, on this host: whether or not gpuprobe records it.
//
// Example: torchrun started python processes 4711 and 4712 with RANK=0 and RANK=1; each has data-loader
// workers with the same variable. The ranks beside 4711 are the processes below torchrun that are as far
// below it and run the same program: 4711 and 4712, and none of the workers.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"

namespace gpuprobe::cli {

struct RankBeside {
  int32_t rank = 0;
  pid_t pid = 0;
};

// By rank, `pid` among them. FailedPrecondition if no launcher named its rank, NotFound if it does not exist;
// processes that may not be read are left out.
absl::StatusOr<std::vector<RankBeside>> RanksBeside(pid_t pid);

// As its launcher's variables say; nullopt: it is none, or may not be read.
std::optional<int32_t> RankOfProcess(pid_t pid);

}  // namespace gpuprobe::cli
