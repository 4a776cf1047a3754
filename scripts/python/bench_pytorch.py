"""What the probe costs a PyTorch program on its host, as a table: bench_pytorch.py BUILD PYTHON ROUNDS STEPS.

On the simulated node, whose kernels take no host time, so that every step is bound by launches: the worst case. Each round runs every way once, in an order that
differs from round to round, so that a busy machine slows all of them alike.
"""
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

BUILD, PYTHON, ROUNDS, STEPS = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
LOOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bench_pytorch_loop.py")
GPUPROBE = os.path.join(BUILD, "collector", "gpuprobe")
WAYS = {"bare": "none", "under gpuprobe": "none", "in torch.profiler, CUDA activities": "cuda", "in torch.profiler, its defaults": "all"}
OUTSIDE = 40  # steps of the program before those that it times
TIMES = {"wall": "wall time", "program": "CPU, the program's threads", "node": "CPU, the node's threads", "probe": "CPU, the probe's threads"}


def node_env():
    """The environment of a user on the node."""
    node = os.path.join(BUILD, "tests", "sim", "lib")
    newest = tuple(int(part) for part in os.path.basename(os.path.dirname(os.path.dirname(PYTHON))).removeprefix("torch-").split(".")) >= (2, 15)
    return {**os.environ, "LD_LIBRARY_PATH": f"{node}_nccl_2_29:{node}" if newest else node, "OMP_NUM_THREADS": "1", "GPUSIM_KERNELS": ".*=100ns"}


def run(way, steps, folder):
    """What the loop took, and the number of kernels that were recorded."""
    out = os.path.join(folder, "out")
    command = [PYTHON, LOOP, str(steps), WAYS[way]]
    if way == "under gpuprobe":
        command = [GPUPROBE, "run", "--out", out, "--", *command]
    finished = subprocess.run(command, env=node_env(), cwd=folder, check=True, capture_output=True)
    report = None
    if way == "under gpuprobe":
        with open(os.path.join(out, "report.json"), encoding="utf-8") as file:
            report = json.load(file)
        shutil.rmtree(out)
    return json.loads(finished.stdout.splitlines()[-1]), report


def main():
    taken, own, kernels = {way: [] for way in WAYS}, [], 0
    for number in range(ROUNDS):
        for way in random.Random(number).sample(list(WAYS), len(WAYS)):
            with tempfile.TemporaryDirectory() as folder:
                times, report = run(way, STEPS, folder)
            taken[way].append(times)
            if report:
                lost = {reason: count for reason, count in report["trust"]["lost"].items() if count}
                if lost:
                    sys.exit(f"records were lost, so that this is no measure: {lost}")
                kernels = sum(rank["kernels"]["count"] for rank in report["ranks"]) / (STEPS + OUTSIDE)
                own.append(report["trust"]["cost"]["own_fraction"] * report["conditions"]["duration_ns"] / 1e6 / (STEPS + OUTSIDE))
            print(f"round {number + 1} of {ROUNDS}, {way}: {times}", file=sys.stderr)
    print(f"{kernels:.0f} kernels a step; medians of {ROUNDS} rounds of {STEPS} steps (least to most), in seconds for 1,000 steps:\n")
    print("| the program | " + " | ".join(TIMES.values()) + " |\n" + "|---" * (1 + len(TIMES)) + "|")
    for way in WAYS:
        cells = []
        for time in TIMES:
            values = sorted(1000 * (times[time] if time == "wall" else times[time]["cpu"]) / STEPS for times in taken[way])
            cells.append(f"{statistics.median(values):.2f} ({values[0]:.2f} to {values[-1]:.2f})")
        print(f"| {way} | " + " | ".join(cells) + " |")
    print(f"\nThe probe's own code on the program's threads, by its report: {statistics.median(own):.3f} s ({min(own):.3f} to {max(own):.3f}).")


if __name__ == "__main__":
    main()
