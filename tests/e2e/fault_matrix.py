"""Random faults must be named first, with their culprit, and healthy jobs of random shapes must raise no warning.

    GPUPROBE_BUILD_DIR=$PWD/build/release python3 -B tests/e2e/fault_matrix.py [--seed N] [--faults N] [--healthy N] [--ranks N] [--only KIND]

Each run is a job of `gpuprobe simulate` that goes through a real collector. A seed decides everything about it, and the table prints the arguments that
repeat a run. Culprit, beginning and size of a fault are drawn at random; a draw whose fault does not matter in the simulation's own schedule (simulated.py)
is drawn again, and such draws are counted. A healthy job may have findings that its schedule proves, such as the bubble of a short pipeline, and no others.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

import simulated
from simulated import GPUPROBE

# Share of a step that a slow rank must cost while it is late: twice what the analysis asks of such steps (2.5 %).
LEAST_COST = 0.05
# Late steps that a slow rank must have: fewer are a hiccup, and the finding asks for more than chance.
LEAST_LATE_STEPS = 4
# Exposed communication, as a share of the step, that a slow network must cause: what the finding asks for, with a margin.
LEAST_EXPOSED = 0.12
# A rank that is slow in fewer than 60 % of the steps is called intermittent. Near that share either name is right.
INTERMITTENT_BELOW, PERSISTENT_ABOVE = 0.55, 0.65
MOST_DRAWS = 20


class Run:
    """The report and the truth of one simulated job."""

    def __init__(self, arguments):
        folder = tempfile.mkdtemp(prefix="gpuprobe-matrix-")
        try:
            command = [GPUPROBE, "simulate", *arguments, "--out", os.path.join(folder, "run")]
            finished = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=300)
            if finished.returncode != 0:
                raise RuntimeError(f"{' '.join(command)}: {finished.stderr}")
            with open(os.path.join(folder, "run", "report.json"), encoding="utf-8") as file:
                self.report = json.load(file)
            self.truth = simulated.truth(*arguments)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def problems(self):
        return [f for f in self.report["findings"] if f["severity"] != "info"]

    def true_share(self, *parts, since=0):
        """For the ranks' steps after the warm-up, and from step `since` on."""
        first = max(self.truth["warmup_steps"], since)
        steps = [s for rank in self.truth["by_rank"] for s in rank["steps"] if s["step"] >= first]
        return sum(s[part] for s in steps for part in parts) / max(1, sum(s["total_ns"] for s in steps))

    def late_steps(self):
        """Steps of the schedule in which the others wait for the slow rank. A host that runs ahead of its device may hide its lateness in the rest."""
        rank = self.truth["by_rank"][self.truth["slow"]["rank"]]
        length_ns = {s["step"]: s["total_ns"] for s in rank["steps"] if s["step"] >= self.truth["warmup_steps"]}
        others = self.truth["ranks"] - 1
        return [step for step, ns in rank["blame_by_step_ns"] if step in length_ns and ns / others >= LEAST_COST * length_ns[step]]

    def late_share(self):
        """For the steps after the warm-up."""
        steps = sum(s["step"] >= self.truth["warmup_steps"] for s in self.truth["by_rank"][0]["steps"])
        return len(self.late_steps()) / max(1, steps)

    def late_since(self):
        """Whether it became late, and stayed so: in nine of ten steps from the first of ten or more to the last."""
        late, last = self.late_steps(), max(s["step"] for s in self.truth["by_rank"][0]["steps"])
        return len(late) >= 10 and len(late) >= 0.9 * (last + 1 - late[0])

    def straggler_cost(self):
        """Share by which the schedule's steps are longer than those of equal ranks."""
        steps = [s["total_ns"] for rank in self.truth["by_rank"] for s in rank["steps"] if s["step"] >= self.truth["warmup_steps"]]
        return 1 - self.truth["step_of_equal_ranks_ns"] * len(steps) / sum(steps)


def options(**values):
    return [word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", str(value))]


class Fault:
    """A kind of fault: `draw` makes its arguments, `matters` says from the truth whether it has an effect, `judge` what the report got wrong."""

    def __init__(self, name, draw, matters, judge):
        self.name, self.draw, self.matters, self.judge = name, draw, matters, judge


def ordinary_job(rng, ranks, steps):
    return options(ranks=ranks, ranks_per_host=8, layers=rng.randint(3, 6), work=round(rng.uniform(0.8, 2), 2), network=round(rng.uniform(100, 350)),
                   noise=round(rng.uniform(0.5, 1.5), 2), steps=rng.randint(*steps), seed=rng.getrandbits(31))


def value_of(arguments, name):
    return arguments[arguments.index(name) + 1]


def first_is(run, *ids):
    found = run.problems()
    if not found or found[0]["id"] not in ids:
        return f"first finding {found[0]['id'] if found else 'none'}, not {' or '.join(ids)}"
    return ""


def straggler(name, scenario, cause, finding, sizes, repeats=None):
    def draw(rng, ranks):
        arguments = ["--scenario", scenario, *ordinary_job(rng, ranks, (60, 80) if repeats else (40, 60))]
        arguments += options(slow_rank=rng.randrange(ranks), slow_factor=round(rng.uniform(*sizes), 2))
        if not repeats:
            return arguments + options(slow_from=round(rng.choice([0, rng.uniform(0.05, 0.7)]), 2))
        every = rng.randint(*repeats)
        return arguments + options(slow_every=every, slow_for=rng.randint(2, max(2, every * 2 // 5)))

    def judge(run, arguments):
        share = run.late_share()
        since = not repeats and run.late_since()
        ids = ([finding] if share >= INTERMITTENT_BELOW or since else []) + (["straggler-intermittent"] if share <= PERSISTENT_ABOVE and not since else [])
        wrong = first_is(run, *ids)
        culprit = re.match(r"The other .*? for rank (\d+)\b", run.problems()[0]["statement"]) if not wrong else None
        if wrong:
            return wrong
        if culprit is None or culprit.group(1) != value_of(arguments, "--slow-rank"):
            return f"blames {run.problems()[0]['statement'][:40]}"
        said = run.report["stragglers"][0]["cause"]
        return "" if said == cause else f"cause {said}, not {cause}"

    def matters(run, _):
        return len(run.late_steps()) >= LEAST_LATE_STEPS and run.straggler_cost() >= LEAST_COST * run.late_share()

    return Fault(name, draw, matters, judge)


def slow_network(rng, ranks):
    arguments = ["--scenario", "healthy", *ordinary_job(rng, ranks, (40, 60))]
    arguments[arguments.index("--network") + 1] = str(round(rng.uniform(4, 30), 1))
    return arguments


def slowed_network(rng, ranks):
    return ["--scenario", "healthy", *ordinary_job(rng, ranks, (40, 60)),
            *options(network_slowdown=round(rng.uniform(4, 15), 1), network_from=round(rng.uniform(0.2, 0.7), 2))]


def first_slow_step(arguments):
    share = float(value_of(arguments, "--network-from")) if "--network-from" in arguments else 0
    return round(share * int(value_of(arguments, "--steps")))


def network_matters(run, arguments):
    return run.true_share("exposed_comm_ns", since=first_slow_step(arguments)) >= LEAST_EXPOSED


def judge_network(run, arguments):
    wrong = first_is(run, "slow-network")
    slow = run.report["communication"]["network"]["slow"]
    if wrong or "--network-from" not in arguments:
        return wrong
    since = (slow or {}).get("since_step")
    return "" if since is not None and abs(since - first_slow_step(arguments)) <= 2 else f"slow since {since}, not {first_slow_step(arguments)}"


def leak(rng, ranks):
    return ["--scenario", "memory-leak", *ordinary_job(rng, ranks, (40, 60)), *options(leak=rng.choice([8, 16, 32, 64, 128, 200]))]


def judge_leak(run, _):
    wrong = first_is(run, "memory-leak")
    if wrong or f"Each of the {run.truth['ranks']} ranks" in run.problems()[0]["statement"]:
        return wrong
    return f"said of {run.problems()[0]['statement'][:40]}"


def hang(rng, ranks):
    return ["--scenario", rng.choice(["hang-missing-rank", "hang-graph", "hang-mismatch"]), *ordinary_job(rng, ranks, (20, 40)),
            *options(slow_rank=rng.randrange(ranks), slow_from=round(rng.uniform(0.1, 0.9), 2))]


def judge_hang(run, arguments):
    wrong = first_is(run, "hang-mismatch" if run.truth["hang"]["kind"] == "mismatch" else "hang-missing-rank")
    blamed = [rank["rank"] for rank in run.report["hangs"][0]["ranks"]] if run.report["hangs"] else []
    return wrong or ("" if blamed == [run.truth["hang"]["rank"]] else f"blames {blamed}")


def always(run, arguments):
    return True


FAULTS = [
    straggler("slow-kernels", "straggler-kernels", "slow_kernels", "straggler-slow-gpu", (1.15, 2)),
    straggler("late-launches", "straggler-launches", "late_launch", "straggler-late-launch", (20, 90)),
    straggler("late-input", "straggler-input", "late_input", "straggler-late-input", (50, 600)),
    straggler("more-work", "straggler-work", "more_work", "straggler-more-work", (1.15, 2)),
    straggler("slow-copies", "straggler-copies", "slow_copies", "straggler-slow-copies", (4, 16)),
    straggler("intermittent", "straggler-intermittent", "slow_kernels", "straggler-slow-gpu", (1.3, 2), repeats=(10, 25)),
    Fault("slow-network", slow_network, network_matters, judge_network),
    Fault("network-slowed", slowed_network, network_matters, judge_network),
    Fault("memory-leak", leak, always, judge_leak),
    Fault("hang", hang, always, judge_hang),
]


def healthy_job(rng):
    """Arguments of a job with nothing wrong."""
    scenario = rng.choice(["healthy", "healthy", "healthy", "sequence-lengths", "evaluation", "accumulation", "zero-1", "zero-2"])
    pipeline = rng.choice([1, 1, 1, 2, 4]) if scenario == "healthy" else 1
    tensor = rng.choice([1, 1, 2, 4])
    data = rng.choice([2, 4, 8] if scenario.startswith("zero") else [1, 2, 4, 8])
    arguments = ["--scenario", scenario] + options(
        ranks=pipeline * tensor * data, ranks_per_host=rng.choice([2, 4, 8]), layers=pipeline * rng.randint(1, 6),
        work=round(rng.uniform(0.5, 6), 2), network=round(rng.uniform(60, 350)), noise=round(rng.uniform(0.3, 1.5), 2), steps=rng.randint(25, 80),
        pipeline=pipeline, tensor=tensor, seed=rng.getrandbits(31))
    if pipeline > 1:
        arguments += options(microbatches=rng.choice([4, 8, 16]))
    elif scenario == "healthy":
        arguments += rng.choice([["--sharded"] if data > 1 else [], ["--graph"], ["--graph"], options(microbatches=rng.choice([2, 4])), []])
    return arguments + rng.choice([[], ["--nvtx"]])


def proven(run, finding):
    """Whether the schedule itself shows what the finding says."""
    exposed = run.true_share("exposed_comm_ns")
    shares = {"poor-overlap": (exposed, 0.03), "bucket-too-small": (exposed, 0.03), "bucket-too-large": (exposed, 0.10),
              "communication-bound": (exposed, 0.20), "input-bound": (run.true_share("input_ns"), 0.10),
              "launch-bound": (run.true_share("host_bound_ns", "launch_gap_ns"), 0.10), "sync-in-loop": (run.true_share("sync_ns"), 0.05),
              "pipeline-bubble": (run.truth.get("pipeline", {}).get("ideal_bubble", 0), 0.08)}
    share, least = shares.get(finding["id"], (0, 1))
    # A tenth for what a report's means and the schedule's differ by.
    return share >= 0.9 * least


def try_fault(fault, seed, ranks):
    """A row (name, what is wrong, arguments, draws)."""
    rng = random.Random(f"{fault.name} {seed}")
    for draws in range(1, MOST_DRAWS + 1):
        arguments = fault.draw(rng, ranks)
        run = Run(arguments)
        if fault.matters(run, arguments):
            wrong = fault.judge(run, arguments)
            return fault.name, wrong, arguments, draws, run.problems()
    return fault.name, f"no draw of {MOST_DRAWS} had an effect", arguments, draws, []


def try_healthy(seed):
    arguments = healthy_job(random.Random(f"healthy {seed}"))
    run = Run(arguments)
    false = [f for f in run.problems() if not proven(run, f)]
    return "healthy", ", ".join(f["id"] for f in false), arguments, 1, false or run.problems()


def show(row):
    name, wrong, arguments, draws, findings = row
    print(f"{name:15} {'WRONG' if wrong else 'right':5}  {' '.join(arguments)}", flush=True)
    if wrong:
        print(f"    {wrong}", *(f"    {f['id']}: {f['statement']} {f['evidence']}" for f in findings[:3]), sep="\n", flush=True)


def main():
    parser = argparse.ArgumentParser(description="random faults and random healthy jobs through gpuprobe simulate")
    parser.add_argument("--seed", type=int, default=1, help="of all draws [1]")
    parser.add_argument("--faults", type=int, default=5, help="of each of the ten kinds [5]")
    parser.add_argument("--healthy", type=int, default=100, help="healthy jobs [100]")
    parser.add_argument("--ranks", type=int, default=128, help="of a job with a fault [128]")
    parser.add_argument("--only", action="append", help="this kind of fault [all]")
    parser.add_argument("--at-once", type=int, default=2, help="jobs that run at the same time [2]")
    chosen = parser.parse_args()
    faults = [f for f in FAULTS if not chosen.only or f.name in chosen.only]
    rows = []
    with concurrent.futures.ThreadPoolExecutor(chosen.at_once) as pool:
        tries = [pool.submit(try_fault, fault, f"{chosen.seed} {i}", chosen.ranks) for fault in faults for i in range(chosen.faults)]
        tries += [pool.submit(try_healthy, f"{chosen.seed} {i}") for i in range(chosen.healthy)]
        for each in tries:
            rows.append(each.result())
            show(rows[-1])
    right, all_of = collections.Counter(row[0] for row in rows if not row[1]), collections.Counter(row[0] for row in rows)
    print(*(f"{name:15} {right[name]:3} of {count:3}" for name, count in all_of.items()), sep="\n")
    print(f"{sum(right.values())} of {len(rows)} right; {sum(row[3] - 1 for row in rows)} draws had no effect and were drawn again")
    return 0 if sum(right.values()) == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
