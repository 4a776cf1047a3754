#!/bin/sh
# Slurm's TaskProlog: the tasks of jobs that ask for it are recorded by the node's collector (docs/deploy.md).
#
#   GPUPROBE=1 srun ... | sbatch --export=ALL,GPUPROBE=1 ...     asks for it; GPUPROBE=0 refuses it where a partition has it on
#
# Slurm runs this for every task, as the task's user, takes "export NAME=VALUE" from its output, and cancels a task whose prolog fails. So it
# starts no program, and always ends with 0: without library or collector, the task runs as if this were not here. For tasks in containers, see enroot-hook.sh.

# For the site to set: where the library is, and partitions whose jobs need not ask (separated by spaces).
library=/usr/lib/gpuprobe/lib/libgpuprobe.so
partitions=""
socket=/run/gpuprobe/collector.sock

wanted=${GPUPROBE:-}
if [ -z "$wanted" ]; then
  case " $partitions " in
    *" ${SLURM_JOB_PARTITION:-?} "*) wanted=1 ;;
  esac
fi
# Somebody else's tool has CUDA's one place, the library is not on this node, or no collector runs.
[ "$wanted" = 1 ] && [ -z "${CUDA_INJECTION64_PATH:-}" ] && [ -r "$library" ] && [ -S "$socket" ] || exit 0

echo "export CUDA_INJECTION64_PATH=$library"
# If the collector ends in between, nothing is recorded: tasks do not start collectors of their own.
[ -n "${GPUPROBE_AUTOSTART:-}" ] || echo "export GPUPROBE_AUTOSTART=0"
exit 0
