#!/usr/bin/env bash
# Builds the `bench` preset, runs every benchmark program and prints the README's table, with the machine's name.
#
# `bench.sh [REGEX]` runs the benchmarks whose name matches. Times are CPU times, the median of 5 runs.
# `bench.sh --scale [STEPS]` feeds simulated jobs of 64, 256 and 1,024 ranks (100 steps each) to a collector and prints what each took, and
# whether that grows with the number of ranks: the last two columns are the same in every row if it is linear.
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
    python3 - "$ranks" "$out" "$program" <<'PY'
import re, resource, subprocess, sys
ranks, out, program = int(sys.argv[1]), sys.argv[2], sys.argv[3]
line = open(f"{out}/live").read().splitlines()[-1]
records, cpu_s, mib = re.search(r": (\d+) records in .* used ([\d.]+) s of CPU and ([\d.]+) MiB", line).groups()
subprocess.run([program, "report", f"{out}/run"], check=True, stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(f"| {ranks:,} | {int(records):,} | {cpu_s} s | {mib} MiB | {used.ru_utime + used.ru_stime:.2f} s | {used.ru_maxrss / 1024:.0f} MiB | "
      f"{float(mib) / ranks:.2f} MiB | {float(cpu_s) / int(records) * 1e6:.2f} s |")
PY
    rm -rf "$out/run"
  done
  exit
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

python3 - "$results" <<'PY'
import glob, json, os, platform, sys

KNOWN = {"name", "run_name", "run_type", "repetitions", "repetition_index", "threads", "iterations", "real_time", "cpu_time", "time_unit", "family_index",
         "per_family_instance_index", "aggregate_name", "aggregate_unit", "label"}


def scaled(value, steps):
    for factor, unit in steps:
        if abs(value) >= factor:
            break
    return f"{value / factor:.3g} {unit}"


def shown_time(seconds):
    return scaled(seconds, [(1, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")])


def shown_counter(name, value):
    """A counter's name says its unit: time/x, bytes/x, x/s."""
    if name.startswith("time/"):
        return f"{shown_time(value)} a {name[5:]}"
    if name.startswith("bytes/"):
        return f"{value:.3g} bytes a {name[6:]}"
    what = {"items_per_second": "items", "bytes_per_second": "bytes"}.get(name, name.removesuffix("/s"))
    return scaled(value, [(1e9, "G"), (1e6, "M"), (1e3, "k"), (1, "")]) + f" {what}/s"


cpu = platform.machine()
with open("/proc/cpuinfo") as lines:
    for line in lines:
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
print(f"Measured on {cpu}, {os.cpu_count()} cores, {platform.system()} {platform.release()}, GCC -O3: CPU time, median of 5 runs.\n")
print("| benchmark | time an iteration | |\n|---|---|---|")
for path in sorted(glob.glob(os.path.join(sys.argv[1], "*.json"))):
    if os.path.getsize(path) == 0:
        continue  # no benchmark of this program matched
    for run in json.load(open(path))["benchmarks"]:
        if run.get("aggregate_name") != "median":
            continue
        seconds = run["cpu_time"] * {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}[run["time_unit"]]
        counters = [shown_counter(name, value) for name, value in run.items() if name not in KNOWN]
        print(f"| {run['run_name']} | {shown_time(seconds)} | {', '.join(counters)} |")
PY
