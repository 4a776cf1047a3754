#!/usr/bin/env bash
# What needs a GPU, on a bare machine: driver, CUDA and python3, PyTorch if its parts are wanted, and the tree that `cmake --install` made.
#
# usage: gpu-check.sh [--tree DIR] [--out DIR] [--limit SECONDS] [--stand-in PROGRAM]
# --stand-in: measures PROGRAM where PyTorch's workload would be; how its own tests run it on the simulated node.
# Writes DIR/results.json, DIR/runs/ (small run directories) and a table on stdout; at most 8 minutes. Ends with 1 if something failed or differed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# Installed in TREE/share/gpuprobe; in the source tree beside build/dist.
tree=$here/../..
[ -x "$tree/bin/gpuprobe" ] || tree=$here/../build/dist
out=gpu-check-$(date -u +%Y%m%dT%H%M%SZ)
limit=480
stand_in=
while [ $# -gt 0 ]; do
  case "$1" in
    --tree | --out | --limit | --stand-in)
      [ $# -ge 2 ] || { echo "gpu-check.sh: $1 needs a value" >&2; exit 2; }
      case "$1" in --tree) tree=$2 ;; --out) out=$2 ;; --limit) limit=$2 ;; --stand-in) stand_in=$2 ;; esac
      shift 2
      ;;
    *) echo "usage: gpu-check.sh [--tree DIR] [--out DIR] [--limit SECONDS] [--stand-in PROGRAM]" >&2; exit 2 ;;
  esac
done
[ -x "$tree/bin/gpuprobe" ] || { echo "gpu-check.sh: no bin/gpuprobe in $tree; make it with cmake --install build/release" >&2; exit 2; }
exec python3 -B "$tree/samples/gpu_check/check.py" --tree "$tree" --out "$out" --limit "$limit" --stand-in "$stand_in"
