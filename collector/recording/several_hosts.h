// Whether a job spans hosts, by its launcher: then each host records into a folder of its own below --out,
// and what is there is reported as one run. Nobody waits for anybody: hosts may start and end at any time.
//
//   gpuprobe run --out /shared/run-7 -- torchrun --nnodes 2 ...      on n1 and on n2
//     /shared/run-7/n1/rank-0.gpr ...   /shared/run-7/n2/rank-8.gpr ...
#pragma once

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"

namespace gpuprobe::recording {

// From the variables of a launcher that started us (srun, mpirun, a script), or from the options of one that
// we start (torchrun, accelerate, deepspeed); of ranks that are started by hand, GPUPROBE_HUB says so.
bool SpansHosts(const std::vector<std::string>& command,
                absl::FunctionRef<const char*(const char* name)> variable);

// The host whose folder below `out` has rank 0, if its collector records or has ended well; empty: none has.
std::string HostOfRankZero(const std::string& out);

// As it calls itself, fit for a folder.
std::string NameOfThisHost();
// This host's folder below `out`.
std::string FolderOfThisHost(const std::string& out);

}  // namespace gpuprobe::recording
