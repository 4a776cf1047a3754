"""Steps and phases of tests/e2e/programs/torch/phases.py, computed from its marks and the records, by the definition in docs/report-json.md.

The program surrounds each turn of its loop, and the parts of a turn, with ranges whose names say nothing. From them and the kernels' times follows what a report must say
that is inferred from threads and kernel names.
"""
import bisect
import json
import os
import statistics
import sys
from collections import defaultdict

import harness
from harness import GPUPROBE

PROGRAM = os.path.join(harness.SOURCE, "tests", "e2e", "programs", "torch", "phases.py")
# Where gradients are set to zero in place, the first turn has none, and begins unlike the others.
UNLIKE_OTHERS = {"zeroed": 1}
LOOPS = ("plain", "clipped", "zeroed", "accumulated", "checkpointed", "mixed", "sgd", "fused", "alone", "squares", "zero1", "sharded",
         *(f"{loop} --single" for loop in ("plain", "clipped", "accumulated", "checkpointed", "mixed", "sgd", "fused", "alone", "squares", "zero1", "sharded")))
ALONE = ("alone", "resident", "squares")
PARTS = {"a": "forward", "b": "backward", "c": "optimizer"}
KINDS = ("kernel", "memcpy", "memset")


class Rank:
    """What one rank's records say. `turns` and `parts`: when turns of the loop began, and their parts (begin, end, phase)."""

    def __init__(self, records, turns, parts):
        self.turns, self.parts = turns, parts
        launches = {r["correlation"]: r["time_ns"] for r in records if r["kind"] == "launch"}
        self.operations = sorted(((launches[r["correlation"]], r) for r in records if r["kind"] in KINDS), key=lambda pair: pair[0])
        self.launches = sorted(time for time, _ in self.operations)

    @staticmethod
    def by_ranges(records):
        ranges = [r for r in records if r["kind"] == "range"]
        return Rank(records, sorted(r["start_ns"] for r in ranges if r["name"] == "turn"),
                    sorted((r["start_ns"], r["end_ns"], PARTS[r["name"]]) for r in ranges if r["name"] in PARTS))

    def part_of(self, launch):
        """That in which the launch was; else the next one, which it prepares; after the last, none."""
        turn = bisect.bisect_right(self.turns, launch)
        end = self.turns[turn] if turn < len(self.turns) else sys.maxsize
        for start, stop, name in self.parts:
            if start >= end:
                break
            if launch < stop:
                return name
        return "optimizer"

    def first_launches(self):
        return [self.launches[bisect.bisect_left(self.launches, turn)] for turn in self.turns]

    def phases(self, start, end):
        """Lengths by phase within [start, end): by the compute that runs, else communication, else a copy, else by what the device waits for."""
        changes = {start, end}
        inside = []
        for launch, record in self.operations:
            if record["start_ns"] < end and record["end_ns"] > start:
                inside.append((record["start_ns"], record["end_ns"], record, self.part_of(launch)))
                changes |= {max(record["start_ns"], start), min(record["end_ns"], end)}
        inside.sort(key=lambda entry: entry[0])
        lengths = defaultdict(int)
        times = sorted(changes)
        begun, active = 0, []
        for begin, stop in zip(times, times[1:]):
            while begun < len(inside) and inside[begun][0] <= begin:
                active.append(inside[begun])
                begun += 1
            active = [entry for entry in active if entry[1] >= stop]
            running = [(record, part) for _, _, record, part in active]
            compute = [part for record, part in running if record["kind"] != "memcpy" and "nccl" not in record.get("name", "")]
            if compute:
                phase = min(compute, key=list(PARTS.values()).index)
            elif running:
                phase = "communication" if any("nccl" in record.get("name", "") for record, _ in running) else "copy"
            else:
                phase = inside[begun][3]
            lengths[phase] += stop - begin
        return lengths


def differences(rank, step):
    """By phase, what the report says of a step less what is true, as a share of the step."""
    true = rank.phases(step["start_ns"], step["end_ns"])
    total = step["end_ns"] - step["start_ns"]
    # Waiting for input and copying it, before forward's first kernel, are phases of their own.
    return {phase: (step["phases"][phase] + (step["phases"]["input"] if phase == "forward" else 0) - true[phase]) / total for phase in PARTS.values()}


def check_run(test, out, turns, unlike_others=0):
    """Each turn of the loop is a step, which begins with the turn's first launch, and its phases are as long as the marks say, within 2 % of the step.

    `unlike_others`: the first turns, that begin otherwise than the later ones.
    """
    records = test.export(out)
    report = json.loads(test.run_well([GPUPROBE, "report", out, "--json", "--steps"]).stdout)
    test.assert_no_loss(report)
    test.assertEqual({phase["source"] for phase in report["steps"]["phases"]}, {"inferred"})
    for process in report["ranks"]:
        rank = Rank.by_ranges([r for r in records if r["pid"] == process["pid"]])
        first = rank.first_launches()
        steps = process["steps"]["records"]
        test.assertEqual(len(first), turns)
        test.assertEqual(len(steps), turns)
        begins = [first.index(step["first_launch_ns"]) if step["first_launch_ns"] in first else step["first_launch_ns"] for step in steps]
        test.assertEqual(begins[unlike_others:], list(range(unlike_others, turns)))
        # A host that is silent during the warm-up compiles, and does not wait for input: that is "other".
        for step in (step for step in steps[1:] if not step["warmup"]):
            for phase, difference in differences(rank, step).items():
                test.assertAlmostEqual(difference, 0, delta=0.02, msg=f"{phase} of rank {process['rank']}, step {step['index']}: {step['phases']}")
    return report


def profiled_phases(path):
    """From torch.profiler's trace of the program's loop without DDP: by phase, the median over the turns of the time that its kernels took.

    The trace has no launches; it has where on the GPU a record_function's kernels lie, of those that its own thread launched. There is one stream, so that it ran
    them in order: autograd's thread launches what is between backward's first kernel and the optimizer's."""
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    marks = sorted((e["ts"], e["ts"] + e["dur"], e["name"].partition("#")[0]) for e in events if e.get("cat") == "gpu_user_annotation")
    kernels = [(e["ts"] + e["dur"] / 2, e["dur"]) for e in events if e.get("cat") == "kernel"]  # the middle: times are rounded
    lengths = defaultdict(list)
    for forward, backward, optimizer in zip(marks, marks[1:], marks[2:]):
        if [name for _, _, name in (forward, backward, optimizer)] != ["forward", "backward", "Optimizer.step"]:
            continue
        for phase, start, end in (("forward", *forward[:2]), ("backward", backward[0], optimizer[0]), ("optimizer", *optimizer[:2])):
            lengths[phase].append(sum(length for middle, length in kernels if start <= middle < end))
    return {phase: 1000 * statistics.median(values) for phase, values in lengths.items()}, min(map(len, lengths.values()), default=0)
