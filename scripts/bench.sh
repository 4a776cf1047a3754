#!/usr/bin/env bash
# Builds the `bench` preset, runs every benchmark program and prints the table of docs/performance.md, with the machine's name.
#
# `bench.sh [REGEX]` runs the benchmarks whose name matches. Times are CPU times, the median of 5 runs.
# `bench.sh --scale [STEPS]` feeds simulated jobs of 64, 256 and 1,024 ranks (100 steps each) to a collector and prints what each took, and
# whether that grows with the number of ranks: the last two columns are the same in every row if it is linear.
# `bench.sh --pytorch [ROUNDS [STEPS]]` trains with PyTorch (scripts/pytorch-env.sh) on the simulated node: bare, under the probe, and in
# torch.profiler, in turn.
# `bench.sh --ladder [ROUNDS [STEPS]]` runs an eager program on the simulated node bare, beside a tool that throws CUPTI's records away, and
# under the probe with one kind of record more at a time, and counts context switches, flushes and system calls; `--pytorch-ladder` does the
# same with the program of `--pytorch`.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

if [ "${1:-}" = --scale ]; then
  build_preset release gpuprobe_program >&2
  program=$ROOT/build/release/collector/gpuprobe
  out=$(mktemp -d)
  trap 'rm -rf "$out"' EXIT
  echo "| ranks | records | live: CPU | live: memory | offline report: CPU | offline: memory | live: memory a rank | live: CPU a million records |"
  echo "|---|---|---|---|---|---|---|---|"
  for ranks in 64 256 1024; do
    "$program" simulate --scenario straggler-at-scale --ranks "$ranks" --steps "${2:-100}" --out "$out/run" >/dev/null 2>"$out/live"
    python3 "$ROOT/scripts/python/bench_scale_row.py" "$ranks" "$out" "$program"
    rm -rf "$out/run"
  done
  exit
fi

if [[ ${1:-} = --pytorch* ]]; then
  folder=${GPUPROBE_TEST_PYTORCH:-${XDG_CACHE_HOME:-$HOME/.cache}/gpuprobe/pytorch}
  python=$(find -L "$folder" -maxdepth 2 -name complete -printf '%h/bin/python\n' | sort -V | tail -1)
  [ -x "$python" ] || die "no PyTorch in $folder. Remedy: scripts/pytorch-env.sh"
fi

if [ "${1:-}" = --ladder ]; then
  build_preset release gpuprobe gpuprobe_program gpusim cupti_alone eager_steps >&2
  exec python3 "$ROOT/scripts/python/bench_ladder.py" "$ROOT/build/release" "${2:-7}" "${3:-2000}"
fi

if [ "${1:-}" = --pytorch-ladder ]; then
  build_preset release gpuprobe gpuprobe_program cupti_alone gpusim_pytorch gpusim_nccl_2_29 >&2
  exec python3 "$ROOT/scripts/python/bench_ladder.py" "$ROOT/build/release" "${2:-5}" "${3:-300}" "$python"
fi

if [ "${1:-}" = --pytorch ]; then
  build_preset release gpuprobe gpuprobe_program gpusim_pytorch gpusim_nccl_2_29 >&2
  exec python3 "$ROOT/scripts/python/bench_pytorch.py" "$ROOT/build/release" "$python" "${2:-7}" "${3:-200}"
fi

build_preset bench benchmarks >&2
cd "$ROOT/build/bench"
mapfile -t programs < <(find . -type f -perm -u+x -name '*_bench' | sort)
[ ${#programs[@]} -gt 0 ] || die "the build made no *_bench program"
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
for program in "${programs[@]}"; do
  echo "running $program" >&2
  "$program" --benchmark_filter="${1:-.}" --benchmark_repetitions=5 --benchmark_report_aggregates_only=true \
    --benchmark_out="$results/$(basename "$program").json" --benchmark_out_format=json >/dev/null
done

python3 "$ROOT/scripts/python/bench_table.py" "$results"
