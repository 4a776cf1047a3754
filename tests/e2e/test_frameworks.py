"""Programs in the style of Hugging Face's Trainer and accelerate, PEFT, Lightning, DeepSpeed, nanoGPT and generate() (programs/frameworks), under the probe on the simulated node: what the report says,
against what each program notes about itself.

scripts/frameworks-env.sh makes the environment; without it everything here is skipped. `FRAMEWORKS=all` before this file runs all of them, not only one of each kind, and prints a line for each.
"""
import bisect
import json
import os
import statistics
import sys
import unittest

import harness
import pytorch
import pytorch_phases
from harness import GPUPROBE

ENVIRONMENT = os.path.join(pytorch.FOLDER, "frameworks-2.11.0")
PROGRAMS = os.path.join(harness.SOURCE, "tests", "e2e", "programs", "frameworks")
DDP, FSDP = "data parallel (DDP)", "fully sharded data parallel (FSDP, ZeRO stage 3)"
SHARED_STATE = "data parallel with sharded optimizer state (ZeRO stage 1 or 2)"
# What truly takes these programs' time. Their kernels take microseconds, which each test checks; between them is Python.
HOST = {"host-pause": "Python between the launches", "launch-bound": "many short kernels", "cpu-starved": "more threads than CPUs"}
INPUT = {"input-bound": "batches are made on the calling thread"}
SYNC = {"sync-in-loop": "values are read in each step"}
# What is wrong with a program that has such a finding is wrong with none of these. How well a loaded machine keeps up with them is another matter.
NOT_THERE = ("hang", "capture", "records", "rank-", "no-step", "out-of-memory", "leak", "memory", "straggler-slow", "collective-mismatch")

rest = unittest.skipUnless(os.environ.get("FRAMEWORKS") == "all", "takes minutes: FRAMEWORKS=all")


def marks_of(folder):
    """By rank."""
    marks = {}
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            marks[int(name.partition(".")[0])] = json.load(file)
    return marks


def f1(launches, found, marks):
    """Of the steps that a rank has. A true one is found if one begins behind what came before it, an optimizer or an evaluation, and before more than a twentieth of its own launches: what is done
    once, such as DDP's new buckets in the second forward pass, may be left out."""
    right = 0
    for number, (begin, end) in enumerate(zip(marks["begins"], marks["steps"])):
        before = max([*marks["steps"][:number], *(end for _, end in marks["evaluations"] if end < begin)], default=0)
        first, last = bisect.bisect_left(launches, begin), bisect.bisect_left(launches, end)
        latest = launches[min(first + (last - first) // 20, len(launches) - 1)]
        right += sum(before <= step <= latest for step in found) == 1
    total = len(found) + len(marks["steps"])
    return 2 * right / total if total else 1.0


def last_backward(marks):
    """When the last backward pass of each step ended: it is then that what it reduces is launched."""
    return [begin for begin, _, phase in marks["parts"] if phase == "optimizer"]


def is_marked(finding, marks):
    """Of what a busy machine does to some runs: whether the program's own times show it, too."""
    if finding["id"] == "healthy":
        return "have no CPU" in finding["evidence"]
    if finding["id"] == "long-steps":
        lengths = [[end - begin for begin, end in zip(own["steps"], own["steps"][1:])] for own in marks.values()]
        return any(max(own) > 1.5 * statistics.median(own) for own in lengths)
    if finding["id"] in ("straggler-late-launch", "straggler-intermittent"):
        first, last = finding["about"]["first_step"] or 0, finding["about"]["last_step"]
        backward = {rank: last_backward(own)[first:last and last + 1] for rank, own in marks.items()}
        late = backward.pop(finding["about"]["ranks"][0])
        return all(statistics.mean(late) > statistics.mean(other) for other in backward.values())
    return False


def busy_share(report):
    """Of the steps' time, that in which something computes."""
    return report["steps"]["compute_ns"]["mean"] / report["steps"]["time_ns"]["mean"]


def worst_differences(rank, steps, evaluations):
    """By phase: the largest share of a step by which the report's length is not the true one; and in how many steps it says that backward and the optimizer are not known apart."""
    worst, unknown = dict.fromkeys(pytorch_phases.PARTS.values(), 0.0), 0
    for step in (step for step in steps[1:] if not step["warmup"]):
        if any(begin < step["end_ns"] and end > step["first_launch_ns"] for begin, end in evaluations):
            continue
        differences = pytorch_phases.differences(rank, step)
        if step["phases"]["backward"] == step["phases"]["optimizer"] == 0 < step["phases"]["other"]:
            unknown += 1
            differences = {"forward": differences["forward"]}
        for phase, difference in differences.items():
            worst[phase] = max(worst[phase], abs(difference))
    return worst, unknown


class FrameworkTest(pytorch.PyTorchTest):

    def setUp(self):
        super().setUp()
        self.environment = ENVIRONMENT

    @property
    def node(self):
        return harness.SIM_LIB

    def run_marked(self, program, ranks, own_launcher=False):
        """Its report, and its marks by rank."""
        name, *arguments = program.split()
        command = [os.path.join(PROGRAMS, f"{name}.py"), *arguments]
        command = [self.python, *command] if own_launcher or ranks == 1 else self.torchrun(ranks, *command)
        folder, out = self.path("marks"), self.path("out")
        os.mkdir(folder)
        finished = self.run_program([GPUPROBE, "run", "--out", out, "--", *command], devices=ranks, limit=300, env={
            "MARKS": folder, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "MASTER_PORT": str(pytorch.free_port())})
        self.assertEqual(finished.returncode, 0, str(finished))
        self.assert_nothing_runs()
        report = json.loads(self.run_well([GPUPROBE, "report", out, "--json", "--steps"]).stdout)
        self.assert_no_loss(report)
        return report, marks_of(folder)

    def check(self, program, pattern, first, ranks=2, own_launcher=False):
        """Steps, phases and peaks of memory of each rank are what the program noted; how the work is shared out is `pattern`; the first finding is one of `first`, or in the program's own times, and none blames what the
        program does not have."""
        report, marks = self.run_marked(program, ranks, own_launcher)
        records = {}
        for record in self.export(self.path("out")):
            records.setdefault(record["pid"], []).append(record)
        steps, peaks, phases = {}, {}, {}
        for process in report["ranks"]:
            number, own, own_steps = process["rank"] or 0, records[process["pid"]], process["steps"]["records"]
            noted = marks[number]
            found = [step["first_launch_ns"] for step in own_steps]
            steps[number] = len(found), round(f1(sorted(record["time_ns"] for record in own if record["kind"] == "launch"), found, noted), 3)
            peaks[number] = [(memory["peak_allocated_bytes"], memory["peak_reserved_bytes"]) for memory in process["memory"]["pytorch"]]
            if noted["parts"]:
                # What comes after the optimizer, such as a loss that is read, is of the step before.
                turns = [min(times) for times in zip(found, noted["begins"])]
                phases[number] = worst_differences(pytorch_phases.Rank(own, turns, noted["parts"]), own_steps, noted["evaluations"])
        ids = self.finding_ids(report)
        if os.environ.get("FRAMEWORKS") == "all":
            told = "; ".join(f"{', '.join(f'{phase} {difference:.1%}' for phase, difference in worst.items())}, {unknown} not known" for worst, unknown in phases.values())
            print(f"{program} ({ranks}): steps {steps}, {report['communication']['pattern']}, phases off by at most {told or '-'}; compute {busy_share(report):.1%}; "
                  f"{ids}, first: {first.get(ids[0], 'as noted' if is_marked(report['findings'][0], marks) else '?')}", file=sys.stderr, flush=True)
        self.assertEqual(steps, {rank: (len(own["steps"]), 1.0) for rank, own in marks.items()})
        self.assertEqual(peaks, {rank: [(own["allocated"], own["reserved"])] for rank, own in marks.items()})
        self.assertEqual(report["communication"]["pattern"], pattern)
        for worst, _ in phases.values():
            self.assertLessEqual(max(worst.values()), 0.02, phases)
        self.assertEqual([finding for finding in ids if finding.startswith(NOT_THERE)], [])
        self.assertLess(busy_share(report), 0.5, "what computes is not what takes the time")
        if not is_marked(report["findings"][0], marks):
            with self.undisturbed(report):
                self.assertIn(ids[0], first, report["findings"][0])


class Trainer(FrameworkTest):

    @rest
    def test_data_parallel(self):
        self.check("trainer", [DDP], HOST | INPUT | SYNC)

    def test_accumulation_and_an_evaluation_every_four_steps(self):
        self.check("trainer --accumulate 4 --eval-every 4", [DDP], HOST | INPUT | SYNC)


class Accelerate(FrameworkTest):

    def test_accumulation_without_synchronising(self):
        self.check("accelerated --accumulate 4", [DDP], HOST | INPUT | SYNC)

    @rest
    def test_an_evaluation_every_four_steps(self):
        self.check("accelerated --eval-every 4", [DDP], HOST | INPUT | SYNC)

    def test_low_rank_adapters(self):
        self.check("accelerated --lora", [DDP], HOST | INPUT | SYNC)


class Lightning(FrameworkTest):

    def test_data_parallel_with_validation(self):
        self.check("lit", [DDP], HOST | INPUT, own_launcher=True)

    @rest
    def test_sharded_with_validation(self):
        self.check("lit --strategy fsdp", [FSDP], HOST | INPUT, own_launcher=True)


class DeepSpeed(FrameworkTest):

    @rest
    def test_stage_1(self):
        self.check("zero --stage 1", [SHARED_STATE], HOST | INPUT | SYNC)

    def test_stage_2_with_accumulation(self):
        self.check("zero --stage 2 --accumulate 2", [SHARED_STATE], HOST | INPUT | SYNC)

    @rest
    def test_stage_3(self):
        self.check("zero --stage 3", [FSDP], HOST | INPUT | SYNC)


class NanoGpt(FrameworkTest):

    @rest
    def test_no_evaluation(self):
        self.check("nanogpt", [DDP], HOST | INPUT)

    @rest
    def test_an_evaluation_first(self):
        self.check("nanogpt --evals 5", [], HOST | INPUT, ranks=1)

    @rest
    def test_a_long_evaluation_first_on_one_rank(self):
        self.check("nanogpt --evals 40", [DDP], HOST | INPUT)

    def test_a_very_long_evaluation_first_on_one_rank(self):
        self.check("nanogpt --evals 200", [DDP], HOST | INPUT)

    @rest
    def test_evaluations_on_all_ranks(self):
        self.check("nanogpt --evals 5 --eval-every 6 --all-ranks", [DDP], HOST | INPUT)

    @rest
    def test_shared_state(self):
        self.check("nanogpt --shared-state", [SHARED_STATE], HOST | INPUT)

    def test_evaluations_and_accumulation(self):
        self.check("nanogpt --evals 5 --eval-every 6 --accumulate 2", [DDP], HOST | INPUT)


class Generation(FrameworkTest):

    def test_a_prompt_after_the_other(self):
        self.check("generate", [], HOST | SYNC, ranks=1)


def main():
    if not os.path.exists(os.path.join(ENVIRONMENT, "complete")):
        print(f"skipped: no frameworks in {ENVIRONMENT}; scripts/frameworks-env.sh makes it")
        sys.exit(pytorch.SKIPPED)
    harness.main()


if __name__ == "__main__":
    main()
