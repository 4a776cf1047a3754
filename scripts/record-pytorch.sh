#!/usr/bin/env bash
# Records PyTorch programs on the simulated node, as tests/data/pytorch has them: the loops of
# tests/e2e/programs/torch/phases.py, and programs of samples/torch.
#
#   scripts/record-pytorch.sh [LOOP|PROGRAM...]
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
[ $# -gt 0 ] || set -- plain clipped zeroed accumulated checkpointed mixed sgd fused alone fsdp tensor_parallel pipeline compiled
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

# Paths of libraries and the command line are in the recording; they name no folder of this machine.
ln -s "$BUILD/tests/sim/lib" "$WORK/node"
ln -s "$BUILD/tests/sim/lib_nccl_2_29" "$WORK/newer"  # PyTorch 2.15 asks for its functions
ln -s "$(dirname "$(dirname "$PYTHON")")" "$WORK/torch"
PYTHON=$WORK/torch/bin/python
node=$WORK/node
[[ "$(readlink "$WORK/torch")" != *torch-2.1[5-9]* ]] || node=$WORK/newer:$node
export TORCHINDUCTOR_CACHE_DIR=$WORK/inductor TRITON_CACHE_DIR=$WORK/triton
export LD_LIBRARY_PATH=$node GPUSIM_DEVICES=2 OMP_NUM_THREADS=1 GPUPROBE_COMPARE_LAUNCHES=0 GPUPROBE_EXIT_WAIT_MS=60000
for loop in "$@"; do
  launcher=("$PYTHON" -m torch.distributed.run --nproc-per-node 2)
  [[ "$loop" != alone && "$loop" != compiled ]] || launcher=("$PYTHON")
  # As in e2e.pytorch_compiled.
  knobs=()
  [ "$loop" != compiled ] || knobs=(GPUSIM_KERNELS='.*=100us' GPUSIM_CUPTI_VERSION=13.4.1)
  program=(tests/e2e/programs/torch/phases.py --loop "$loop" --steps 10 --marks)
  [ ! -e "$ROOT/samples/torch/$loop.py" ] || program=("samples/torch/$loop.py")
  (cd "$ROOT" && env "${knobs[@]}" "$BUILD/collector/gpuprobe" run --out "$WORK/$loop" -- "${launcher[@]}" "${program[@]}" >/dev/null)
  rm -rf "${DATA:?}/$loop"
  mkdir -p "$DATA/$loop"
  cp "$WORK/$loop"/*.gpr "$DATA/$loop/"
done
du -sh "$DATA"/*
