"""The table of docs/performance.md from Google Benchmark's JSON files: bench_table.py FOLDER."""
import glob
import json
import os
import platform
import sys

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
