#!/usr/bin/env bash
# The main job on one screen: builds the project if needed, runs a data-parallel training loop with 4 ranks under `gpuprobe run`, ends with the report.
#
# With an NVIDIA driver and a device it runs there; else on the simulated GPU node, as four L40S that one slow rank holds up.
# `demo.sh --sim` forces the simulated node, `demo.sh --gpu` forbids it. Options after `--` go to ddp_train.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

RANKS=${RANKS:-4}
where=auto
while [ $# -gt 0 ]; do
  case "$1" in
    --sim) where=sim ;;
    --gpu) where=gpu ;;
    --) shift && break ;;
    *) die "unknown option $1 (there are --sim, --gpu, and -- before options of ddp_train)" ;;
  esac
  shift
done

if [ "$where" = auto ]; then
  devices=$(python3 "$ROOT/scripts/python/count_gpus.py" 2>/dev/null || echo 0)
  if [ "$devices" -gt 0 ]; then where=gpu; else where=sim; fi
fi

BUILD=$ROOT/build/release
DDP_TRAIN=$BUILD/samples/ddp_train
if ! "$ROOT/scripts/install-deps.sh" --check >/dev/null 2>&1; then
  "$ROOT/scripts/install-deps.sh"
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
say "Building gpuprobe (preset release, in build/release)"
targets=(gpuprobe gpuprobe_program ddp_train)
[ "$where" = gpu ] || targets+=(gpusim)
if ! build_preset release "${targets[@]}" >"$log" 2>&1; then
  cat "$log" >&2
  die "the build failed"
fi
tail -n 1 "$log"
[ -x "$DDP_TRAIN" ] || die "no $DDP_TRAIN: the samples need nvcc; see scripts/install-deps.sh"

out=gpuprobe-runs/$(date -u +%Y%m%dT%H%M%SZ)-demo
options=(--steps 60 --layers 12 --width 512 --batch 64 --bucket-mib 4)
if [ "$where" = gpu ]; then
  say "A real NVIDIA device is here: $RANKS ranks of ddp_train on it, under gpuprobe run"
  devices=$(python3 "$ROOT/scripts/python/count_gpus.py")
  if [ "$devices" -lt "$RANKS" ]; then
    echo "$RANKS ranks share $devices device(s): NCCL takes its socket transport, bandwidths are not representative."
    export DDP_SHARE_DEVICE=1
  fi
else
  say "No NVIDIA device here: $RANKS ranks of ddp_train run on the simulated node, under gpuprobe run"
  export GPUSIM_DEVICES=$RANKS
  export GPUSIM_DEVICE_NAME=${GPUSIM_DEVICE_NAME:-"NVIDIA L40S"}
  export GPUSIM_MEMORY_GIB=${GPUSIM_MEMORY_GIB:-48}
  export GPUSIM_KERNELS=${GPUSIM_KERNELS:-"LinearForward=300us;LinearBackwardInput=320us;LinearBackwardWeight=340us;AdamStep=40us;MseLoss=25us"}
  export GPUSIM_LINK=${GPUSIM_LINK:-"alpha=25us,beta=12GB/s"}
  export GPUSIM_PCIE=${GPUSIM_PCIE:-"25GB/s"}
  export GPUSIM_SLOW=${GPUSIM_SLOW:-"rank=$((RANKS - 1)),factor=1.3"}
  # The simulated driver, runtime, CUPTI and NCCL stand in for the real ones, for this command only.
  export LD_LIBRARY_PATH=$BUILD/tests/sim/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  echo "It claims to be $RANKS x $GPUSIM_DEVICE_NAME; kernels take 25 to 340 us, links give 12 GB/s, rank $((RANKS - 1)) runs 1.3x slower than the rest."
fi
command=("$BUILD/collector/gpuprobe" run --out "$out" -- "$ROOT/samples/launch_ranks.sh" "$RANKS" "$DDP_TRAIN" "${options[@]}" "$@")
printf '$ %s\n\n' "${command[*]//$ROOT\//}"
cd "$ROOT"
"${command[@]}"
