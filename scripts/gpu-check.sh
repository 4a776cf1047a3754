#!/usr/bin/env bash
# What needs a GPU, on a bare machine: driver, CUDA and python3, PyTorch, JAX and CuPy if their parts are wanted, and the tree that
# `cmake --install` made.
#
# usage: gpu-check.sh [--tree DIR] [--out DIR] [--limit SECONDS] [--quick] [--only STEP,...] [--stand-in PROGRAM]
# --only: steps whose names begin so. --stand-in: measures PROGRAM where PyTorch's workloads would be; how its own tests run it on the
# simulated node.
# Writes DIR/results.json after every step, DIR/runs/ (small run directories), a table on stdout, and DIR.tar.gz; at most 9 minutes.
# Ends with 1 if something failed or differed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# Installed in TREE/share/gpuprobe; in the source tree beside build/dist.
tree=$here/../..
[ -x "$tree/bin/gpuprobe" ] || tree=$here/../build/dist
arguments=()
while [ $# -gt 0 ]; do
  if [ "$1" = --tree ]; then
    [ $# -ge 2 ] || { echo "gpu-check.sh: --tree needs a value" >&2; exit 2; }
    tree=$2
    shift 2
  else
    arguments+=("$1")
    shift
  fi
done
[ -x "$tree/bin/gpuprobe" ] || { echo "gpu-check.sh: no bin/gpuprobe in $tree; make it with cmake --install build/release" >&2; exit 2; }
exec python3 -B "$tree/samples/gpu_check/check.py" --tree "$tree" ${arguments[@]+"${arguments[@]}"}
