// The variables in which launchers pass each process its rank. The probe names ranks by them, and `gpuprobe
// run` finds the other ranks of its host. Plain constexpr data: no allocation, usable inside the profiled
// process.
#pragma once

namespace gpuprobe::launchers {

// Null: the launcher has no variable for this.
struct Launcher {
  const char* rank;
  const char* local_rank;
  const char* world_size;
  const char* local_size;  // ranks on this host
  const char* job;
};

inline constexpr Launcher kTorchrun = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
                                       "TORCHELASTIC_RUN_ID"};
inline constexpr Launcher kOpenMpi = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
                                      "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                      "OMPI_MCA_ess_base_jobid"};
inline constexpr Launcher kPmix = {"PMIX_RANK", nullptr, nullptr, nullptr, "PMIX_NAMESPACE"};
inline constexpr Launcher kPmi = {"PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", "MPI_LOCALNRANKS", "PMI_JOBID"};
// The tasks of a step on each of its nodes: "4", "2(x3),1". A batch script, which has a rank, too, has none.
inline constexpr Launcher kSlurm = {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS",
                                    "SLURM_STEP_TASKS_PER_NODE", "SLURM_JOB_ID"};

}  // namespace gpuprobe::launchers
