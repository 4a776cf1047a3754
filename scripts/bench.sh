#!/usr/bin/env bash
# Builds the `bench` preset, runs every benchmark program and prints the README's table, with the machine's name.
#
# `bench.sh [REGEX]` runs the benchmarks whose name matches. Times are CPU times, the median of 5 runs.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

build_preset bench >&2
cd "$ROOT/build/bench"
mapfile -t programs < <(find . -type f -perm -u+x -name '*_benchmark' | sort)
[ ${#programs[@]} -gt 0 ] || die "the build made no *_benchmark program"
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
for program in "${programs[@]}"; do
  echo "running $program" >&2
  "$program" --benchmark_filter="${1:-.}" --benchmark_repetitions=5 --benchmark_report_aggregates_only=true \
    --benchmark_out="$results/$(basename "$program").json" --benchmark_out_format=json >/dev/null
done

python3 - "$results" <<'PY'
import glob, json, os, platform, sys

def scaled(value, units):
    for factor, unit in units:
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.3g} {units[-1][1]}"

cpu = platform.processor() or platform.machine()
with open("/proc/cpuinfo") as lines:
    for line in lines:
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
rows = []
for path in sorted(glob.glob(os.path.join(sys.argv[1], "*.json"))):
    if os.path.getsize(path) == 0:
        continue
    for run in json.load(open(path))["benchmarks"]:
        if run.get("aggregate_name") != "median":
            continue
        nanos = run["cpu_time"] * {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}[run["time_unit"]]
        rate = run.get("items_per_second")
        known = {"name", "run_name", "run_type", "repetitions", "threads", "iterations", "real_time", "cpu_time", "time_unit", "family_index",
                 "per_family_instance_index", "aggregate_name", "aggregate_unit", "items_per_second", "bytes_per_second", "label"}
        extra = ", ".join(f"{value:.3g} {key.replace('_', ' ')}" for key, value in run.items() if key not in known)
        rows.append((run["run_name"],
                     f"{1e9 / rate:.3g} ns" if rate else scaled(nanos, [(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1, "ns")]),
                     scaled(rate, [(1e9, "G/s"), (1e6, "M/s"), (1e3, "k/s"), (1, "/s")]) if rate else "",
                     extra))
print(f"Measured on {cpu}, {os.cpu_count()} cores, {platform.system()} {platform.release()}; CPU time, median of 5.\n")
print("| benchmark | time an item | rate | |\n|---|---|---|---|")
for row in rows:
    print("| " + " | ".join(row) + " |")
PY
