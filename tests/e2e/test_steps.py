"""The steps of a real training program are those that it made, and where their time went is what the node scheduled."""
import json
from collections import defaultdict

import harness
from harness import DDP_TRAIN, GPUPROBE, LAUNCH_RANKS, PATIENT

STEPS = 24
# Evaluations after every 8 steps, the loss read after every 5.
TRAINING = ["--steps", str(STEPS), "--layers", "4", "--width", "64", "--batch", "16", "--bucket-mib", "0.03", "--epoch", "8", "--log-every", "5"]
KERNELS = {"GPUSIM_KERNELS": "Linear=200us;AdamStep=50us;TanhBackward=30us", "GPUSIM_LINK": "alpha=100us,beta=1GB/s"}


class Steps(harness.EndToEndTest):

    def train(self, *options):
        out = self.path("run-directory")
        self.run_well([GPUPROBE, "run", "--out", out, "--", LAUNCH_RANKS, "2", DDP_TRAIN, *TRAINING, *options], devices=2, env={**PATIENT, **KERNELS})
        self.assert_nothing_runs()
        finished = self.run_well([GPUPROBE, "report", out, "--json", "--steps"])
        report = json.loads(finished.stdout)
        self.assert_no_loss(report)
        return report

    def check(self, report, source):
        """Every step of every rank, to the nanosecond."""
        self.assertEqual((report["steps"]["count"], report["steps"]["source"]), (STEPS, source))
        work = device_work(self.truth())
        for rank in report["ranks"]:
            records = rank["steps"]["records"]
            expected = true_steps(work[rank["rank"]])
            self.assertEqual(len(expected), STEPS)
            self.assertEqual([(r["start_ns"], r["end_ns"]) for r in records], expected)
            for record in records:
                with self.subTest(rank=rank["rank"], step=record["index"]):
                    self.check_parts(record, work[rank["rank"]])

    def check_parts(self, record, work):
        window = (record["start_ns"], record["end_ns"])
        compute = union(work, window, lambda w: w["kind"] == "memset" or (w["kind"] == "kernel" and "nccl" not in w["name"]))
        comm = union(work, window, lambda w: w["kind"] == "kernel" and "nccl" in w["name"])
        copies = union(work, window, lambda w: w["kind"] == "memcpy")
        exposed = length(comm + compute) - length(compute)
        copied = length(copies + comm + compute) - length(comm + compute)
        total = window[1] - window[0]
        self.assertEqual((record["compute_ns"], record["comm_ns"], record["exposed_comm_ns"], record["copy_ns"]), (length(compute), length(comm), exposed, copied))
        self.assertEqual(record["idle_ns"], total - length(copies + comm + compute))
        self.assertEqual(sum(record["idle"].values()), record["idle_ns"])
        self.assertEqual(sum(record["phases"].values()), total)

    def test_without_annotations(self):
        report = self.train("--nvtx", "0")
        self.check(report, "collectives")
        self.assertEqual({phase["source"] for phase in report["steps"]["phases"]}, {"inferred"})
        means = {phase["name"]: phase["time_ns"]["mean"] - phase["idle_ns"]["mean"] for phase in report["steps"]["phases"]}
        # 4 layers: a kernel of 200 us forward, two backward (the last layer needs one), 50 us of optimizer.
        self.assertAlmostEqual(means["forward"], 800e3, delta=8e3)
        self.assertGreater(means["backward"], 1400e3)
        self.assertAlmostEqual(means["optimizer"], 200e3, delta=2e3)

    def test_with_annotations(self):
        report = self.train("--nvtx", "1")
        self.check(report, "nvtx")
        self.assertEqual({phase["source"] for phase in report["steps"]["phases"]}, {"nvtx"})

    def test_marked_by_the_user(self):
        for number, marker in enumerate(("nvtx:forward", "kernel:*AdamStep*", "collective:allreduce")):
            with self.subTest(marker):
                out = self.path(f"run-directory-{number}")
                self.run_well([GPUPROBE, "run", "--step-marker", marker, "--out", out, "--", LAUNCH_RANKS, "2", DDP_TRAIN, *TRAINING], devices=2,
                              env={**PATIENT, **KERNELS})
                with open(out + "/report.json", encoding="utf-8") as file:
                    live = json.load(file)
                self.assertEqual((live["steps"]["source"], live["steps"]["count"]), ("marker", STEPS))
                # The run keeps its marker; another one may be asked for.
                self.assertEqual(self.report(out)["steps"], live["steps"])
                other = self.run_well([GPUPROBE, "report", out, "--json", "--step-marker", "nvtx:backward"])
                self.assertEqual(json.loads(other.stdout)["steps"]["source"], "marker")
                self.assertNotEqual(json.loads(other.stdout)["steps"], live["steps"])

    def test_a_marker_that_is_none_is_refused(self):
        finished = self.run_program([GPUPROBE, "run", "--step-marker", "range:x", "--", "true"])
        self.assertEqual(finished.returncode, 2)
        self.assertIn(b"nvtx:NAME", finished.stderr)


def device_work(happened):
    """For each rank, in the order of launches."""
    work = defaultdict(list)
    for record in happened:
        if record["kind"] in ("kernel", "memcpy", "memset"):
            work[record["rank"]].append(record)
    for records in work.values():
        records.sort(key=lambda r: (r["correlation"], r["start_ns"]))
    return work


def true_steps(work):
    """A step begins with the two copies of its input and ends with the copy of its loss that follows the optimizer. Its time begins when everything that was
    launched before has ended."""
    steps, begin, updated = [], 0, False
    for i, record in enumerate(work):
        copied_in = record["kind"] == "memcpy" and record["direction"] == "h2d"
        if copied_in and not (i > 0 and work[i - 1]["kind"] == "memcpy" and work[i - 1]["direction"] == "h2d"):
            begin = i
        if record["kind"] == "kernel" and "AdamStep" in record["name"]:
            updated = True
        elif updated:
            updated = False
            steps.append((max(r["end_ns"] for r in work[:begin]), max(r["end_ns"] for r in work[:i + 1])))
    return steps


def union(work, window, wanted):
    return [(max(w["start_ns"], window[0]), min(w["end_ns"], window[1])) for w in work if wanted(w) and w["start_ns"] < window[1] and w["end_ns"] > window[0]]


def length(intervals):
    total, until = 0, 0
    for start, end in sorted(intervals):
        total += max(0, end - max(start, until))
        until = max(until, end)
    return total


if __name__ == "__main__":
    harness.main()
