// Recognises that a launcher (mpirun, srun, torchrun --no-python, a script) started this process once for
// each rank of this host, and names the job.
//
// Example: with `mpirun -np 4 gpuprobe run -- prog`, each of four processes finds its rank in
// OMPI_COMM_WORLD_RANK, which its parent, mpirun, does not have: mpirun is the launcher. Wrapper scripts in
// between have the same rank as we do, and are skipped. A job is named after the launcher's process on this
// host, not after ids in the environment: those may be equal in two jobs ("none" of torchrun), in the steps
// of a Slurm job, or in whatever a shell with such variables starts.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"

namespace gpuprobe::cli {

struct LaunchedRank {
  int32_t rank = 0;
  int32_t ranks_here = 0;     // of this host; 0: not known
  const char* variable = "";  // where the rank stands
  std::string job;            // equal for the ranks of this job on this host, and for no others
};

// From a process's variables, without the job. If several launchers have left their variables, the first that
// says it started several ranks on this host counts. nullopt: no launcher can have started this process.
std::optional<LaunchedRank> RankOfVariables(absl::FunctionRef<const char*(const char* name)> variable);
// Tasks on the node with this index, from Slurm's "2(x3),1"; 0: not there.
int32_t TasksOnNode(const std::string& tasks_per_node, int32_t node);

// False for a process that may not be read.
bool HasVariable(pid_t pid, const std::string& name, const std::string& value);

// This process.
std::optional<LaunchedRank> FindLaunchedRank();

}  // namespace gpuprobe::cli
