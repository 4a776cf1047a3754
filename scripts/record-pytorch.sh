#!/usr/bin/env bash
# Records tests/e2e/programs/torch/phases.py on the simulated node, each of its loops, as tests/data/pytorch has them.
#
#   scripts/record-pytorch.sh [LOOP...]
#
# Needs a release build and the environment of scripts/pytorch-env.sh.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

BUILD=$ROOT/build/release
DATA=$ROOT/tests/data/pytorch
FOLDER=${GPUPROBE_TEST_PYTORCH:-${XDG_CACHE_HOME:-$HOME/.cache}/gpuprobe/pytorch}
PYTHON=$(find -L "$FOLDER" -maxdepth 2 -name complete -printf '%h/bin/python\n' | sort -V | tail -1)
[ -x "$PYTHON" ] || die "no PyTorch in $FOLDER. Remedy: scripts/pytorch-env.sh"
[ $# -gt 0 ] || set -- plain clipped zeroed accumulated checkpointed mixed sgd fused alone
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

# Paths of libraries and the command line are in the recording; they name no folder of this machine.
ln -s "$BUILD/tests/sim/lib" "$WORK/node"
ln -s "$(dirname "$(dirname "$PYTHON")")" "$WORK/torch"
PYTHON=$WORK/torch/bin/python
export LD_LIBRARY_PATH=$WORK/node GPUSIM_DEVICES=2 OMP_NUM_THREADS=1 GPUPROBE_COMPARE_LAUNCHES=0 GPUPROBE_EXIT_WAIT_MS=60000
for loop in "$@"; do
  launcher=("$PYTHON" -m torch.distributed.run --nproc-per-node 2)
  [ "$loop" != alone ] || launcher=("$PYTHON")
  (cd "$ROOT" && "$BUILD/collector/gpuprobe" run --out "$WORK/$loop" -- "${launcher[@]}" tests/e2e/programs/torch/phases.py --loop "$loop" --steps 10 --marks >/dev/null)
  rm -rf "${DATA:?}/$loop"
  mkdir -p "$DATA/$loop"
  cp "$WORK/$loop"/*.gpr "$DATA/$loop/"
done
du -sh "$DATA"/*
