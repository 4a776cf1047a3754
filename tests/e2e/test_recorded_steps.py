"""Recording by step: what was launched in the steps that were asked for is there, and nothing else; steps keep their numbers, and ranks their places."""

import harness
import truth
from harness import DDP_TRAIN, GPUPROBE, LAUNCH_RANKS, PATIENT

STEPS = 12
BUCKETS = 4
TRAINING = ["--steps", str(STEPS), "--layers", "4", "--width", "64", "--batch", "16", "--bucket-mib", "0.01", "--epoch", "5", "--log-every", "3"]
WORK = ("kernel", "memcpy", "memset")


def steps_of(records):
    """What the node ran for one rank in each training step, in launch order. A step begins with its input's copies and ends with the loss's copy back;
    so does an evaluation, which has no optimizer."""
    work = sorted((r for r in records if r["kind"] in WORK or r["kind"] == "collective"), key=lambda r: (r["correlation"], r["kind"]))
    steps, begun = [], None
    ended = before = None  # the last end of all work so far, and of that before the step
    for at, record in enumerate(work):
        if begun is None and record["kind"] == "memcpy" and record["direction"] == "h2d":
            begun, before = at, ended
        if record["kind"] in WORK:
            ended = max(ended or 0, record["end_ns"])
        if begun is not None and record["kind"] == "memcpy" and record["direction"] == "d2h":
            own = work[begun:at + 1]
            if any("Adam" in r.get("name", "") for r in own):
                steps.append({"records": own, "start_ns": before, "end_ns": max(r["end_ns"] for r in own)})
            begun = None
    return steps


class RecordedSteps(harness.EndToEndTest):

    def train(self, env, ranks=2, options=(), run_options=()):
        out = self.path("run-directory")
        command = [LAUNCH_RANKS, str(ranks), DDP_TRAIN, *TRAINING, *options]
        self.run_well([GPUPROBE, "run", "--out", out, *run_options, "--", *command], devices=ranks,
                      env={**PATIENT, "GPUSIM_KERNELS": "Adam=300us;.*=100us", **env})
        self.assert_nothing_runs()
        happened = self.truth()
        self.by_rank = {rank: [r for r in happened if r["rank"] == rank] for rank in range(ranks)}
        finished = self.run_well([GPUPROBE, "report", out, "--json", "--steps"])
        report = harness.json.loads(finished.stdout)
        self.assert_no_loss(report)
        return self.export(out), report

    def assert_steps(self, captured, report, wanted):
        """Records, times on the device and numbers of the wanted steps are those of the node, on every rank."""
        for rank, happened in self.by_rank.items():
            steps = steps_of(happened)
            self.assertEqual(len(steps), STEPS)
            found = [r for r in captured if r["rank"] == rank]
            for kind in (*WORK, "collective"):
                expected = [r for number in wanted for r in steps[number]["records"] if r["kind"] == kind]
                self.assertTrue(expected)
                lines = truth.multiset_difference(kind, truth.COMPARED[kind], expected, [r for r in found if r["kind"] == kind])
                self.assertEqual(lines, [], f"rank {rank}")
            own = [r for r in report["ranks"] if r["rank"] == rank][0]["steps"]
            self.assertEqual([r["index"] for r in own["records"]], list(wanted))
            for record in own["records"]:
                happened_step = steps[record["index"]]
                self.assertEqual((record["start_ns"], record["end_ns"]), (happened_step["start_ns"], happened_step["end_ns"]), record["index"])
            allocations = [r for r in happened if r["kind"] in ("alloc", "free")]
            self.assertEqual(truth.allocation_differences(allocations, [r for r in found if r["kind"] in ("alloc", "free")]), [])
        self.assertEqual(report["steps"]["count"], len(wanted))
        self.assertEqual(report["steps"]["source"], "marker")
        self.assertEqual(report["trust"]["device_records_unattributed"], 0)

    def assert_untroubled(self, report):
        ids = [f["id"] for f in report["findings"]]
        self.assertEqual([f for f in ids if f.startswith(("hang", "capture", "records", "ranks", "no-step", "warmup"))], [])
        self.assertEqual(report["hangs"], [])

    def assert_all_compared(self, captured, report):
        """Each call that was recorded is compared with the other ranks': who waited for how long is what the node's own times say."""
        recorded = {(r["comm"], r["seq"]) for r in captured if r["kind"] == "collective"}
        durations = {}
        for rank, happened in self.by_rank.items():
            for r in happened:
                if r["kind"] == "collective" and (r["comm"], r["seq"]) in recorded:
                    durations.setdefault((r["comm"], r["seq"]), {})[rank] = r["end_ns"] - r["start_ns"]
        for rank in report["ranks"]:
            waited = sum(each[rank["rank"]] - min(each.values()) for each in durations.values())
            self.assertEqual(sum(c["wait_ns"] for c in rank["collectives"]), waited)

    def test_a_window_of_steps(self):
        captured, report = self.train({"GPUPROBE_STEP_MARKER": "nvtx:step", "GPUPROBE_START_STEP": "3", "GPUPROBE_STOP_STEP": "8"})
        self.assert_steps(captured, report, range(3, 8))
        self.assert_untroubled(report)
        self.assert_all_compared(captured, report)
        self.assertEqual(report["conditions"]["steps_recorded"],
                         {"marker": "nvtx:step", "start": 3, "stop": 8, "every": 1, "begun": STEPS, "recorded": 5})
        self.assertEqual(len({r["name"] for r in captured if r["kind"] == "range" and r["name"] in ("step", "forward", "backward", "optimizer", "input")}), 5)
        self.assertGreater(report["trust"]["outside_window"], 0)

    def test_one_step_of_several(self):
        captured, report = self.train({"GPUPROBE_STEP_MARKER": "nvtx:ste*", "GPUPROBE_START_STEP": "1", "GPUPROBE_EVERY_STEPS": "3"})
        self.assert_steps(captured, report, range(1, STEPS, 3))
        self.assert_untroubled(report)
        self.assert_all_compared(captured, report)

    def test_parts_of_a_step_are_those_of_a_run_that_was_recorded_whole(self):
        """The time of the steps between is no idle time: of what a step is made of, nothing is longer than where nothing was left out."""
        _, whole = self.train({}, ranks=1, run_options=["--step-marker", "nvtx:step"])
        self.forget_truth()
        harness.shutil.rmtree(self.path("run-directory"))
        _, some = self.train({"GPUPROBE_STEP_MARKER": "nvtx:step", "GPUPROBE_START_STEP": "2", "GPUPROBE_EVERY_STEPS": "4"}, ranks=1)
        usual = {r["index"]: r for r in whole["ranks"][0]["steps"]["records"]}
        for record in some["ranks"][0]["steps"]["records"]:
            other = usual[record["index"]]
            self.assertEqual(record["operations"], other["operations"])
            self.assertEqual(record["compute_ns"], other["compute_ns"])
            parts = record["compute_ns"] + record["exposed_comm_ns"] + record["copy_ns"] + record["idle_ns"]
            self.assertEqual(parts, record["end_ns"] - record["start_ns"])

    def test_the_marker_of_the_command_line(self):
        captured, report = self.train({}, run_options=["--step-marker", "nvtx:step", "--start-step", "4", "--stop-step", "6"])
        self.assert_steps(captured, report, range(4, 6))
        self.assertEqual(report["conditions"]["steps_recorded"]["marker"], "nvtx:step")

    def test_without_annotations_calls_are_counted(self):
        """Every call of the steps that were asked for, once, with what was launched between."""
        captured, report = self.train({"GPUPROBE_STEP_MARKER": f"collective:AllReduce/{BUCKETS}", "GPUPROBE_START_STEP": "2", "GPUPROBE_STOP_STEP": "5"},
                                      options=["--nvtx", "0"])
        self.assert_untroubled(report)
        self.assertEqual(report["steps"]["count"], 3)
        for rank, happened in self.by_rank.items():
            calls = sorted((r for r in happened if r["kind"] == "collective" and r["op"] == "AllReduce"), key=lambda r: r["correlation"])
            wanted = calls[2 * BUCKETS:5 * BUCKETS]
            found = [r for r in captured if r["kind"] == "collective" and r["rank"] == rank]
            self.assertEqual(truth.multiset_difference("collective", truth.COMPARED["collective"], wanted, found), [])
            first, last = calls[2 * BUCKETS - 1]["correlation"], calls[5 * BUCKETS - 1]["correlation"]
            between = [r for r in happened if r["kind"] in WORK and first < r["correlation"] <= last]
            for kind in WORK:
                lines = truth.multiset_difference(kind, truth.COMPARED[kind], [r for r in between if r["kind"] == kind],
                                                  [r for r in captured if r["kind"] == kind and r["rank"] == rank])
                self.assertEqual(lines, [])

    def test_a_slow_rank_is_found_in_the_steps_that_were_recorded(self):
        _, report = self.train({"GPUPROBE_STEP_MARKER": "nvtx:step", "GPUPROBE_EVERY_STEPS": "2", "GPUSIM_SLOW": "rank=1,factor=1.5"}, ranks=3)
        self.assertEqual([straggler["rank"] for straggler in report["stragglers"]], [1])

    def test_a_marker_that_never_comes(self):
        captured, report = self.train({"GPUPROBE_STEP_MARKER": "nvtx:iteration", "GPUPROBE_EVERY_STEPS": "2"})
        self.assertEqual({r["kind"] for r in captured}, {"alloc", "free", "communicator"})
        self.assertIn("no-step-recorded", [f["id"] for f in report["findings"]])
        self.assertEqual(report["conditions"]["steps_recorded"]["begun"], 0)

    def test_steps_without_a_marker_are_said_to_be_unusable(self):
        out = self.path("run-directory")
        finished = self.run_program([GPUPROBE, "run", "--out", out, "--start-step", "3", "--", DDP_TRAIN], devices=1)
        self.assertEqual(finished.returncode, 2)
        self.assertIn(b"--step-marker", finished.stderr)
        finished = self.run_program([GPUPROBE, "run", "--out", out, "--start-step", "3", "--step-marker", "kernel:*Adam*", "--", DDP_TRAIN], devices=1)
        self.assertEqual(finished.returncode, 2)
        self.assertIn(b"kernel:*Adam*", finished.stderr)


if __name__ == "__main__":
    harness.main()
