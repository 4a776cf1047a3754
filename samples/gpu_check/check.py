#!/usr/bin/env python3
"""What scripts/gpu-check.sh runs: the probe against programs on this machine's GPU, its counts against what is known from elsewhere.

Standard library only. The steps run in order of value, each with a time limit, and one that fails does not stop the others. Writes
results.json (again after every step), a table on stdout, small run directories under runs/, and all of it packed beside the folder.
"""
import argparse
import os
import shutil
import sys
import time

import cuda_steps
import python_steps
from checker import LOADINGS, Checker

WHOLE_LIMIT_S = 540
SMALL_TRAINING = ["--steps", "6", "--layers", "4", "--width", "64", "--batch", "16", "--bucket-mib", "0.03"]


class Counts:
    """How much each step does; quick: enough to try the step itself."""

    def __init__(self, quick):
        self.torch_steps = 20 if quick else 50
        self.timed_steps = 20 if quick else 300
        self.graph_nodes = 100 if quick else 4000
        self.replays = 70 if quick else 7000
        self.few_replays = 14 if quick else 700
        self.launches = 3000 if quick else 200_000
        self.health_repetitions = 160 if quick else 5  # of these launches: some seconds
        self.timed_launches = 500 if quick else 20_000  # of a repetition
        self.repetitions = 2 if quick else 5


def run_steps(checker, counts):
    step = checker.step
    torch = python_steps.Torch(checker, counts.torch_steps)
    step("conditions", 30, cuda_steps.conditions, checker)
    for loading in LOADINGS:
        step(f"vector_add {loading}", 30, cuda_steps.vector_add, checker, loading)
    for mode in ("eager", "graphs"):
        step(f"torch.profiler inside, {mode}", 90, torch.profiler_inside, mode)
    step("large graph", 150, cuda_steps.large_graph, checker, counts.graph_nodes, counts.replays, counts.few_replays)
    for style in ("old", "new"):
        step(f"second tool, {style} style", 30, cuda_steps.second_tool, checker, style)
    step("CUPTI trace", 30, cuda_steps.cupti_trace, checker)
    step("many launches", 40, cuda_steps.many_launches, checker, counts.launches, False)
    step("many launches, exit without waiting", 40, cuda_steps.many_launches, checker, counts.launches, True)
    step("GPU health", 60, cuda_steps.gpu_health, checker, counts.launches, counts.health_repetitions)
    for program in ("one_of_each", "one_of_each_static"):
        step(program, 30, cuda_steps.one_of_each, checker, program)
    step("JAX", 90, python_steps.jax, checker)
    step("CuPy", 60, python_steps.cupy, checker)
    step("launch cost", 80, cuda_steps.launch_cost, checker, counts.timed_launches, counts.repetitions)
    step("torch adds", 200, torch.adds, counts.timed_launches, counts.repetitions)
    step("torch step cost", 200, torch.step_cost, counts.timed_steps)
    step("c10 symbols", 30, torch.c10_symbols)
    for mode in ("eager", "graphs"):
        step(f"torch {mode}", 100, torch.measure, mode)
    for program, arguments in (("ddp_train", SMALL_TRAINING), ("nccl_calls", ["--rounds=2", "--count=4096"])):
        for loading in LOADINGS:
            step(f"{program} {loading}", 60, cuda_steps.two_ranks, checker, program, arguments, loading)
    step("assumed", 10, cuda_steps.assumed, checker)
    step("child graphs", 60, cuda_steps.child_graphs, checker)
    step("torch compiled", 240, torch.measure, "compiled")  # the first compilation alone may take 120 s


def print_table(results):
    conditions = results["conditions"]
    print(f"{conditions.get('device', 'no device')}, driver {conditions.get('driver_version', '-')}, torch {conditions.get('torch', '-')}"
          + (" (simulated)" if conditions.get("simulated") else ""))
    for check in results["checks"]:
        expected = "" if check["expected"] is None else f" (expected {check['expected']})"
        print(f"{check['status']:8} {check['step']:30} {check['what']}: {check['found']}{expected}")
    for of, variants in results["cost"].items():
        print(f"cost     {of:30} " + ", ".join(f"{name} {c['median_s'] * 1e6:,.2f} us" + (f" ({c['over_bare']:+.1%})" if "over_bare" in c else "")
                                             for name, c in variants.items()))
    for name, answer in results["facts"].items():
        print(f"fact     {name}: {answer}")
    assumed = results.get("assumed", [])
    settled = sum(assumption["settled_by"] is not None for assumption in assumed)
    if assumed:
        print(f"assumed  {len(assumed)} behaviours of CUPTI by the simulated node; {settled} are settled by what the named step found above")
    for assumption in assumed:
        print(f"assumed  {assumption['behaviour']} [{assumption['settled_by'] or 'not settled here'}; otherwise: {assumption['fallback']}]")


def parse_options():
    parser = argparse.ArgumentParser(prog="gpu-check.sh", description=__doc__)
    parser.add_argument("--tree", required=True, help="the installed tree")
    parser.add_argument("--out", default=time.strftime("gpu-check-%Y%m%dT%H%M%SZ", time.gmtime()), help="where results.json and runs/ go")
    parser.add_argument("--limit", type=int, default=WHOLE_LIMIT_S, help="seconds for all steps together")
    parser.add_argument("--quick", action="store_true", help="small counts: a try of the steps themselves")
    parser.add_argument("--only", default="", metavar="STEP,...", help="only the steps whose names begin so, and conditions")
    parser.add_argument("--stand-in", default="", help="a program to measure in PyTorch's place, with the options and the last line of "
                        "torch_workload.py and torch_adds.py")
    return parser.parse_args()


def main():
    options = parse_options()
    out = os.path.abspath(options.out)
    os.makedirs(out, exist_ok=True)
    only = ["conditions", *options.only.split(",")] if options.only else []
    checker = Checker(os.path.abspath(options.tree), out, options.limit, options.stand_in, only)
    run_steps(checker, Counts(options.quick))
    checker.close()
    print_table(checker.results)
    print(f"packed: {shutil.make_archive(out, 'gztar', os.path.dirname(out), os.path.basename(out))}")
    return 1 if any(check["status"] in ("failed", "differs") for check in checker.results["checks"]) else 0


if __name__ == "__main__":
    sys.exit(main())
