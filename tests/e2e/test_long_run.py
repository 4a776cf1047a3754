"""A device that never runs dry: CUPTI keeps a buffer as long as one of its kernels has not finished, so that records come long after their launches."""
import json
import re
import statistics

import harness
import test_steps
from harness import DDP_TRAIN, GPUPROBE, LAUNCH_RANKS, LONG_JOB, PATIENT

STEPS = 120
# 18 ms of kernels a step, launched ahead of the device; batches often, so that a buffer is back after many of them.
TRAINING = ["--steps", str(STEPS), "--layers", "4", "--width", "64", "--batch", "16", "--bucket-mib", "0.03", "--epoch", str(STEPS), "--log-every", str(STEPS)]
KERNELS = {"GPUSIM_KERNELS": "LinearBackward.*=2ms;LinearForward=1ms;.*=20us", "GPUSIM_LINK": "alpha=10us,beta=10GB/s"}


class LongRun(harness.EndToEndTest):

    def train(self, settings, *options):
        out = self.path("run-directory")
        self.run_well([GPUPROBE, "run", "--out", out, "--", LAUNCH_RANKS, "2", DDP_TRAIN, *TRAINING, *options], devices=2,
                      env={**PATIENT, **KERNELS, "GPUPROBE_FLUSH_MS": "50", **settings})
        report = json.loads(self.run_well([GPUPROBE, "report", out, "--json", "--steps"]).stdout)
        self.assert_no_loss(report)
        return report

    def check(self, report):
        self.assertEqual(report["trust"]["device_records_unattributed"], 0)
        work = test_steps.device_work(self.truth())
        for rank in report["ranks"]:
            expected = test_steps.true_steps(work[rank["rank"]])
            self.assertEqual([(r["start_ns"], r["end_ns"]) for r in rank["steps"]["records"]], expected[-len(rank["steps"]["records"]):])
            for record in rank["steps"]["records"]:
                self.check_parts(record, work[rank["rank"]])

    check_parts = test_steps.Steps.check_parts

    def test_steps_are_right_though_records_come_late(self):
        self.check(self.train({"GPUPROBE_BUFFER_KIB": "4096"}))

    def test_without_annotations(self):
        self.check(self.train({}, "--nvtx", "0"))

    def test_as_many_kernels_as_a_device_can_run(self):
        """A CUDA graph of ten kernels of a microsecond, launched without a pause: every record finds its launch."""
        replays, out = 60_000, self.path("run-directory")
        self.run_well([GPUPROBE, "run", "--out", out, "--", LONG_JOB, str(replays)], env={**PATIENT, "GPUSIM_KERNELS": ".*=1us", "GPUSIM_TRUTH": None})
        report = json.loads(self.run_well([GPUPROBE, "report", out, "--json"]).stdout)
        self.assert_no_loss(report)
        rank, = report["ranks"]
        self.assertEqual(rank["kernels"]["count"], 10 * replays)
        self.assertEqual((report["trust"]["device_records_unattributed"], report["trust"]["device_records_late"]), (0, 0))

    def test_what_is_said_while_it_runs_is_about_what_has_ended(self):
        """The host is far ahead of the device, and the slow rank's records come last: neither may show as idle time."""
        finished = self.run_well([GPUPROBE, "run", "--check", "5", "--out", self.path("run-directory"), "--", LAUNCH_RANKS, "4", DDP_TRAIN, *TRAINING], devices=4,
                                 env={**PATIENT, **KERNELS, "GPUPROBE_BUFFER_KIB": "64", "GPUSIM_SLOW": "rank=2,factor=1.5"})
        said = finished.stderr.decode()
        after, step_ms, compute, idle = map(float, re.search(r"check after (\d+) steps.*?: a step takes ([\d.]+) ms: compute ([\d.]+) %.*, idle ([\d.]+) %", said).groups())
        self.assertLess(after, STEPS, "while it runs")
        lengths = [(end - start) / 1e6 for work in test_steps.device_work(self.truth()).values() for start, end in test_steps.true_steps(work)]
        usual_ms = statistics.median(lengths)  # 27.3
        # Three ranks compute for 18.2 of 27.3 ms, one all the time.
        self.assertAlmostEqual(compute / 100 * step_ms, usual_ms * (3 * 2 / 3 + 1) / 4, delta=0.02 * usual_ms, msg=said)
        # On a busy machine the host itself may be late.
        self.assertLessEqual(idle / 100 * step_ms * after, sum(lengths) / 4 - usual_ms * STEPS + 0.02 * usual_ms * after, said)
        self.assertRegex(said, r"check: warning straggler-slow-gpu: The other .* for rank 2\b")
        self.assertNotIn("check: warning capture-incomplete", said)


if __name__ == "__main__":
    harness.main()
