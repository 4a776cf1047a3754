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
[ $# -gt 0 ] || set -- plain clipped zeroed accumulated checkpointed mixed sgd fused alone fsdp tensor_parallel pipeline compiled \
  graphed_training graphed_inference data_loader profiled out_of_memory slow_rank hang elastic
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
export LD_LIBRARY_PATH=$node GPUSIM_DEVICES=2 OMP_NUM_THREADS=1 GPUPROBE_EXIT_WAIT_MS=60000
# The rank with the highest number is killed when the collector has said that the job hangs; torchrun ends the others.
end_hang() {
  local run=$1 said=$2 launcher
  timeout 60 sh -c "until grep -q HANG '$said'; do sleep 0.2; done"
  launcher=$(pgrep -P "$run" -f torch.distributed.run)
  kill -KILL "$(pgrep -P "$launcher" -f hang.py | tail -n 1)"
}

for loop in "$@"; do
  ranks=("$PYTHON" -m torch.distributed.run --nproc-per-node 2)
  launcher=("${ranks[@]}")
  program=(tests/e2e/programs/torch/phases.py --loop "$loop" --steps 10 --marks)
  [ ! -e "$ROOT/samples/torch/$loop.py" ] || program=("samples/torch/$loop.py")
  knobs=() options=() fails=
  case $loop in
    alone | graphed_* | data_loader | profiled) launcher=("$PYTHON") ;;
    # As in e2e.pytorch_compiled.
    compiled) launcher=("$PYTHON") knobs=(GPUSIM_KERNELS='.*=100us' GPUSIM_CUPTI_VERSION=13.4.1) ;;
    # As in e2e.pytorch_failures.
    out_of_memory) launcher=("$PYTHON") knobs=(GPUSIM_MEMORY_GIB=1) fails=yes ;;
    elastic) launcher=("${ranks[@]}" --standalone --max-restarts 1) program+=("$WORK/checkpoint") knobs=(TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1) ;;
    hang) options=(--hang-after 3) fails=yes ;;
  esac
  said=$WORK/$loop.said
  (cd "$ROOT" && exec env "${knobs[@]}" "$BUILD/collector/gpuprobe" run --out "$WORK/$loop" "${options[@]}" -- "${launcher[@]}" "${program[@]}" >/dev/null 2>"$said") &
  run=$!
  [ "$loop" != hang ] || end_hang "$run" "$said"
  status=0
  wait "$run" || status=$?
  [ "$status" -eq 0 ] || [ -n "$fails" ] || { cat "$said" >&2; die "$loop ended with status $status"; }
  rm -rf "${DATA:?}/$loop"
  mkdir -p "$DATA/$loop"
  cp "$WORK/$loop"/*.gpr "$DATA/$loop/"
done
du -sh "$DATA"/*
