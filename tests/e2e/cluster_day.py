"""A simulated day of a cluster, reported by a real hub and held against the truth of the simulated node.

cluster_day.py [--seeds 1,2,3] [--jobs 40]: how many faults the first finding names, and what is found in healthy jobs. GPUPROBE_BUILD_DIR says whose gpuprobe.
"""
import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

SECRET = "a-secret-of-hosts-and-their-hub"

# Findings that name the cause, by id or in what they say; of a fault of one rank, they must name that rank, too. docs/findings has what each says.
ANYTHING = ""
NAMES = {
    "slow-gpu": [("straggler-slow-gpu", ANYTHING)],
    "slow-network": [("slow-network", ANYTHING)],
    "slow-input": [("input-bound", ANYTHING), ("imbalance", "when their input comes"), ("straggler-intermittent", "other ranks wait for their input, too")],
    "late-input": [("straggler-late-input", ANYTHING), ("straggler-intermittent", "longer for its input")],
    "late-rank": [("straggler-late-launch", ANYTHING)],
    "more-work": [("straggler-more-work", ANYTHING)],
    "garbage": [("host-pause", ANYTHING), ("straggler-intermittent", ANYTHING), ("long-steps", "the host pauses .* longer than in the median step")],
    "tiny-kernels": [("launch-bound", ANYTHING)],
    "hang-missing": [("hang-missing-rank", ANYTHING)],
    "hang-mismatch": [("hang-mismatch", ANYTHING)],
    "hang-all-issued": [("hang-all-issued", ANYTHING)],
    "out-of-memory": [("out-of-memory", ANYTHING)],
    "rank-dies": [("rank-died", ANYTHING)],
}
# Of these a rank is part of the truth, but not of the finding.
WITHOUT_RANK = {"hang-mismatch"}


def simulate(gpuprobe, out, seed, jobs):
    subprocess.run([gpuprobe, "simulate", "--cluster", "--out", out, "--seed", str(seed), "--jobs", str(jobs)], check=True, capture_output=True, timeout=300)
    with open(os.path.join(out, "truth.json"), encoding="utf-8") as file:
        return json.load(file)


def report_all(gpuprobe, out, jobs, limit=300):
    """A hub goes on with the day, and reports each of its jobs."""
    hub = subprocess.Popen([gpuprobe, "hub", "--listen", "127.0.0.1:0", "--out", out], env={**os.environ, "GPUPROBE_HUB_TOKEN": SECRET}, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + limit
        while sum(os.path.exists(os.path.join(out, name, "listed.json")) for name in os.listdir(out)) < jobs:
            if hub.poll() is not None or time.monotonic() > until:
                raise SystemExit("the hub did not report all jobs")
            time.sleep(0.2)
    finally:
        hub.send_signal(signal.SIGTERM)
        hub.wait(30)


def report_of(out, row):
    with open(os.path.join(out, row["directory"], "report.json"), encoding="utf-8") as file:
        return json.load(file)


def names(row, finding):
    """Whether a finding names a job's fault."""
    text = finding["statement"] + " " + finding["evidence"]
    if not any(finding["id"] == known and re.search(words, text) for known, words in NAMES[row["fault"]]):
        return False
    return "rank" not in row or row["fault"] in WITHOUT_RANK or finding["about"]["ranks"] == [row["rank"]]


class Score:
    """Of one day: rows of the truth with what was found instead of it."""

    def __init__(self, truth, out):
        self.faulty, self.flagged, self.named, self.missed = 0, 0, 0, []
        self.healthy, self.false = 0, []
        self.costs = []  # the finding's cost per step by the true one, where both are known
        for row in truth["jobs"]:
            findings = report_of(out, row)["findings"]
            if row["fault"] == "none":
                self.healthy += 1
                self.false += [(row, finding) for finding in findings if finding["severity"] != "info"]
                continue
            self.faulty += 1
            self.flagged += any(finding["severity"] != "info" for finding in findings)
            first = findings[0]
            if not names(row, first):
                self.missed.append((row, findings))
                continue
            self.named += 1
            if row.get("cost_ns_per_step") and first.get("cost_ns_per_step"):
                self.costs.append((row["fault"], first["cost_ns_per_step"] / row["cost_ns_per_step"]))

    @property
    def alarmed(self):
        return len({row["directory"] for row, _ in self.false})

    def numbers(self):
        return self.named, self.faulty, self.flagged, len(self.false), self.alarmed, self.healthy

    def text(self):
        lines = [f"{self.named} of {self.faulty} faults named first, {len(self.false)} findings in {self.alarmed} of {self.healthy} healthy jobs"]
        for row, findings in self.missed:
            share = 100 * row["cost_ns_per_step"] / row["step_ns"] if "cost_ns_per_step" in row else 0
            lines.append(f"  missed: {row['directory']} {row['fault']} rank {row.get('rank', '-')} of {row['ranks']}, {share:.1f} % of a step, from {row.get('first_step', 0)} of {row['steps']}: "
                         + "; ".join(f"{each['id']} {each['about']['ranks']}" for each in findings[:4]))
        for row, finding in self.false:
            lines.append(f"  false:  {row['directory']} {row['ranks']} ranks: {finding['id']}: {finding['statement']}")
        return "\n".join(lines)


def attempts(truth, out):
    """(percent slower in truth, what the hub says: percent, its verdict; None: no more than chance) of each attempt that is compared with one before it."""
    compared = []
    for row in truth["jobs"]:
        if "percent_slower_than_last" not in row:
            continue
        with open(os.path.join(out, row["directory"], "listed.json"), encoding="utf-8") as file:
            job, = json.load(file)["jobs"]
        steps = job.get("steps") or {}
        compared.append((row, steps.get("compared")))
    return compared


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--keep", help="folder for the days")
    options = parser.parse_args()
    gpuprobe = os.path.join(os.environ["GPUPROBE_BUILD_DIR"], "collector", "gpuprobe")
    totals = [0] * 6
    for seed in options.seeds.split(","):
        with tempfile.TemporaryDirectory(prefix="gpuprobe-day-") as folder:
            out = os.path.join(options.keep or folder, f"day-{seed}")
            truth = simulate(gpuprobe, out, seed, options.jobs)
            report_all(gpuprobe, out, len(truth["jobs"]))
            score = Score(truth, out)
            print(f"seed {seed}: {score.text()}")
            ratios = sorted(ratio for _, ratio in score.costs)
            print(f"  cost by the true one: {ratios[0]:.2f} to {ratios[-1]:.2f}, median {ratios[len(ratios) // 2]:.2f}; " + ", ".join(f"{fault} {ratio:.2f}" for fault, ratio in score.costs if not 0.8 < ratio < 1.25))
            for row, said in attempts(truth, out):
                print(f"  attempt {row['attempt']} of {row['job']}: {row['percent_slower_than_last']:+.2f} %; " + (said["verdict"] if said else "not compared"))
            totals = [a + b for a, b in zip(totals, score.numbers())]
            sys.stdout.flush()
    named, faulty, flagged, false, alarmed, healthy = totals
    days = len(options.seeds.split(","))
    print(f"{days} days: recall at the first finding {named}/{faulty} = {named / faulty:.3f}; precision {flagged}/{flagged + alarmed} = {flagged / (flagged + alarmed):.3f} of jobs with a finding; "
          f"false alarms a day {false / days:.1f}, in {alarmed} of {healthy} healthy jobs")


if __name__ == "__main__":
    main()
