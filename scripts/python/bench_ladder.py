"""What recording costs an eager program, rung by rung, as a table: bench_ladder.py BUILD ROUNDS STEPS [PYTHON].

On the simulated node: PyTorch's training loop if PYTHON has PyTorch, else tests/e2e/programs/eager_steps.cu. Each round climbs every rung once, in an order that
differs from round to round, so that a busy machine slows all of them alike; ratios are of one round. System calls are counted in a round of their own, which perf slows.
"""
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

BUILD, ROUNDS, STEPS = os.path.abspath(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
PYTHON = sys.argv[4] if len(sys.argv) > 4 else None
LOOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bench_pytorch_loop.py")
GPUPROBE = os.path.join(BUILD, "collector", "gpuprobe")
PROGRAM = [PYTHON, LOOP, str(STEPS), "none"] if PYTHON else [os.path.join(BUILD, "tests", "e2e", "eager_steps"), str(STEPS)]
ALONE = {"CUDA_INJECTION64_PATH": os.path.join(BUILD, "samples", "libcupti_alone.so")}
BARE, CONSUMER = "bare", "a tool that throws kernels away"


def probe(kinds, **more):
    return {"GPUPROBE_HOST_SAMPLES": "0", **({"GPUPROBE_KINDS": kinds} if kinds else {}), **more}


# What each rung adds to the environment; the probe's begin with a setting of it.
RUNGS = {
    BARE: {},
    CONSUMER: ALONE,
    "the same, every kind": {**ALONE, "CUPTI_ALONE": "kinds"},
    "the same, and flushes": {**ALONE, "CUPTI_ALONE": "kinds,flush"},
    "gpuprobe, level idle": probe(None, GPUPROBE_LEVEL="idle"),
    "kernels": probe("kernels"),
    "and copies, memsets": probe("kernels,copies,memsets"),
    "and waits": probe("kernels,copies,memsets,syncs"),
    "and NCCL, ranges, driver calls": probe("kernels,copies,memsets,syncs,nccl,nvtx,driver"),
    "and memory": probe(None),
    "and samples: everything": {"GPUPROBE_HOST_SAMPLES": "1"},
}


def environment(rung):
    node = os.path.join(BUILD, "tests", "sim", "lib")
    return {**os.environ, "LD_LIBRARY_PATH": node, "OMP_NUM_THREADS": "1", "GPUSIM_KERNELS": ".*=100ns", **RUNGS[rung]}


def climb(rung, tracer=()):
    """What the program prints of itself, and what the collector took and kept."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        recorded = any(name.startswith("GPUPROBE_") for name in RUNGS[rung])
        command = [*tracer, *([GPUPROBE, "run", "--out", out, "--"] if recorded else []), *PROGRAM]
        finished = subprocess.run(command, env=environment(rung), cwd=folder, check=True, capture_output=True, text=True)
        taken = json.loads(finished.stdout[finished.stdout.index('{"wall"'):].splitlines()[0])
        if recorded:
            with open(os.path.join(out, "report.json"), encoding="utf-8") as file:
                trust = json.load(file)["trust"]
            if any(trust["lost"].values()):
                sys.exit(f"records were lost, so that this is no measure: {trust['lost']}")
            taken["records"] = trust["records"]
            taken["flushes"] = sum(part["count"] for part in trust["cost"]["overheads"] if part["what"] == "buffer_flush")
            taken["kept"] = sum(entry.stat().st_size for entry in os.scandir(out) if entry.name.endswith(".gpr"))
            shutil.rmtree(out)
        return taken


def system_calls(rung):
    """Of the program with all its threads, and of the collector; None if perf cannot count them. Not by thread: perf may know a thread by its earlier name."""
    if shutil.which("perf") is None:
        return None
    with tempfile.NamedTemporaryFile("r") as summary:
        try:
            climb(rung, ("perf", "trace", "--summary", "--output", summary.name))
        except subprocess.CalledProcessError:
            return None
        return sum(int(events) for events in re.findall(r"^ \S+ \(\d+\), (\d+) events", summary.read(), re.M)) // 2  # entry and return


def cpu(taken):
    """Of the process's threads, in seconds."""
    return sum(taken[owner]["cpu"] for owner in ("program", "node", "probe"))


def middle(values, digits):
    return f"{statistics.median(values):.{digits}f}"


def spread(values):
    return f"{middle(values, 2)} ({min(values):.2f} to {max(values):.2f})"


def row(rung, climbs, tools):
    cells = [rung, middle([taken["wall"] for taken in climbs], 2)]
    for time in (lambda taken: taken["wall"], cpu):
        cells.append(spread([time(taken) / time(tool) for taken, tool in zip(climbs, tools)]))
    for owner in ("program", "node", "probe"):
        cells += [middle([taken[owner]["cpu"] for taken in climbs], 2)]
        cells += [" + ".join(middle([taken[owner][what] for taken in climbs], 0) for what in ("waits", "preempted"))]
    first = climbs[0]
    cells += [f"{first['records']:,}", str(first["flushes"]), f"{first['kept'] / 2**20:.1f} MiB"] if "records" in first else ["", "", ""]
    return "| " + " | ".join(cells) + " |"


def main():
    climbs = {rung: [] for rung in RUNGS}
    for number in range(ROUNDS):
        for rung in random.Random(number).sample(list(RUNGS), len(RUNGS)):
            climbs[rung].append(climb(rung))
            print(f"round {number + 1} of {ROUNDS}, {rung}: {climbs[rung][-1]}", file=sys.stderr)
    print(f"Medians of {ROUNDS} rounds of {STEPS} steps (least to most). Ratios are to the tool that throws kernels away, in the same round. CPU is in seconds; "
          "context switches are waits + preemptions.\n")
    print("| rung | wall, s | wall, ratio | CPU, ratio | program: CPU | switches | node: CPU | switches | probe: CPU | switches | records | flushes | log |\n" + "|---" * 13 + "|")
    for rung in RUNGS:
        print(row(rung, climbs[rung], climbs[CONSUMER]))
    print("\nSystem calls, in a round of their own:\n\n| rung | of the program and the collector, from start to end |\n|---|---|")
    for rung in RUNGS:
        calls = system_calls(rung)
        if calls is not None:
            print(f"| {rung} | {calls:,} |")


if __name__ == "__main__":
    main()
