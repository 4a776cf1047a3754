"""Level calls: collectives and steps are recorded and no launch, until a rank is late; then some steps are recorded in full, and again no launch."""
import glob
import os
import time
import unittest
from collections import Counter

import harness
from harness import DDP_TRAIN, GPUPROBE, LAUNCH_RANKS, wait_until
from hazards import hazard
from test_capture import AT_REST, BUCKETS, SLOWLY, TRAINING, CaptureTest

TRACED = {"traced_call", "traced_step", "call_time"}
SLOW = {"GPUSIM_SLOW": "rank=1,factor=1.6"}
TIMED = {"GPUPROBE_NCCL_TIMES": "1"}


class CallsTest(CaptureTest):

    def run_job(self, steps, ranks=4, env=None, level="calls", marker=("--step-marker", "nvtx:step")):
        """A job from its start to its end. Its records by kind, as they happened and as they were recorded."""
        self.out = self.path(f"out-{level}-{steps}")
        self.forget_truth()
        job = [GPUPROBE, "run", "--out", self.out, "--level", level, *marker, "--", LAUNCH_RANKS, str(ranks), DDP_TRAIN, "--steps", str(steps), *TRAINING]
        self.finished = self.run_well(job, devices=ranks, env={**SLOWLY, **(env or {})}, limit=150)
        self.assert_nothing_runs()
        self.captured = self.export(self.out)
        return self.report(self.out)

    def launches_outside_of_steps(self):
        """Launches, as they were recorded, that no captured step holds."""
        steps = [(r["start_ns"], r["end_ns"]) for r in self.captured if r["kind"] == "range" and r["name"] == "step"]
        launches = [r["time_ns"] for r in self.captured if r["kind"] == "launch"]
        return [t for t in launches if not any(start <= t <= end for start, end in steps)]


class Calls(CallsTest):

    def test_what_is_recorded_of_a_healthy_job(self):
        steps = 200
        report = self.run_job(steps, env=TIMED)
        kinds = Counter(r["kind"] for r in self.captured)
        self.assertLessEqual(set(kinds), AT_REST | TRACED)
        happened = [r for r in self.truth() if r["kind"] == "collective"]
        seen = {(r["rank"], r["comm"], r["seq"]) for r in self.captured if r["kind"] == "traced_call"}
        self.assertEqual(len(seen), kinds["traced_call"])
        self.assertEqual(Counter(rank for rank, _, _ in seen), Counter(r["rank"] for r in happened))
        self.assertEqual({(r["rank"], r["seq"]) for r in happened}, {(rank, seq) for rank, _, seq in seen})
        self.assertEqual(kinds["traced_step"], 4 * steps)
        for rank in range(4):
            self.assertEqual([r["index"] for r in self.captured if r["kind"] == "traced_step" and r["rank"] == rank], list(range(steps)))
            of_gpu = sorted(r["end_ns"] - r["start_ns"] for r in happened if r["rank"] == rank)
            self.assertEqual(sorted(r["gpu_ns"] for r in self.captured if r["kind"] == "call_time" and r["rank"] == rank), of_gpu)
        self.assertEqual(report["call_trace"]["compared_by"], "gpu")
        self.assertEqual(report["call_trace"]["raises"], [])
        self.assertEqual(report["conditions"]["on_demand"]["level"], "calls")
        self.assertEqual(report["stragglers"], [])
        self.assertIn("not recorded at level calls", " ".join(f["statement"] for f in report["findings"]))
        self.assert_no_loss(report)

    def test_events_for_each_step_by_level(self):
        """Counts, not times: what is recorded of a step, and what is launched in one."""
        per_step = {}
        for level in ("idle", "calls", "full"):
            kinds = {}
            for steps in (50, 100):
                self.run_job(steps, ranks=2, level=level, env=TIMED)
                kinds[steps] = Counter(r["kind"] for r in self.captured if r["kind"] not in (*AT_REST, "host_sample", "driver_call", "overhead"))
            per_step[level] = {kind: (count - kinds[50][kind]) / 50 / 2 for kind, count in kinds[100].items()}
        self.assertEqual(sum(per_step["idle"].values()), 0)
        self.assertEqual(per_step["calls"], {"traced_call": BUCKETS, "call_time": BUCKETS, "traced_step": 1})
        self.assertGreater(sum(per_step["full"].values()), 4 * sum(per_step["calls"].values()))

    def assert_raised_for_rank_1(self, report, by):
        trace = report["call_trace"]
        self.assertEqual((trace["compared_by"], trace["late_rank"]), (by, 1), trace)
        self.assertEqual([(r["rank"], r["failed"]) for r in trace["raises"]], [(1, False)], trace["raises"])
        self.assertIn("captured steps", trace["raises"][0]["outcome"])
        self.assertEqual([s["rank"] for s in report["stragglers"]], [1])
        causes = [f for f in report["findings"] if f["severity"] != "info" and "rank 1" in f["statement"].lower()]
        self.assertIn("kernels run", causes[0]["evidence"], report["findings"])
        # What launched was recorded in these five steps, and no more afterwards.
        self.assertEqual(len({r["start_ns"] for r in self.captured if r["kind"] == "range" and r["name"] == "step" and r["rank"] == 1}), 5)
        self.assertEqual(self.launches_outside_of_steps(), [])

    @hazard("at level calls, a GPU is slow from the start", sees="same output and status", counted="named as late, captured once, found by its kernels; then no launch is recorded")
    def test_a_slow_gpu_is_late_and_its_cause_is_found_once(self):
        steps = 1500
        bare = self.run_well([LAUNCH_RANKS, "4", DDP_TRAIN, "--steps", str(steps), *TRAINING], devices=4, env={**SLOWLY, **SLOW}, limit=150)
        report = self.run_job(steps, env={**SLOW, **TIMED})
        self.assertEqual(self.finished.stdout, bare.stdout)
        self.assert_raised_for_rank_1(report, "gpu")
        self.assertGreater(report["call_trace"]["ranks"][0]["steps"], steps - 2, "the job went on")
        self.assert_no_loss(report)

    def test_without_nccls_times_hosts_show_it_where_they_wait_for_their_gpus(self):
        self.assert_raised_for_rank_1(self.run_job(1500, env=SLOW), "host")

    def test_of_eight_ranks_four_are_recorded_in_full(self):
        report = self.run_job(1500, ranks=8, env={**SLOW, **TIMED})
        self.assert_raised_for_rank_1(report, "gpu")
        ranks = report["call_trace"]["raises"][0]["ranks"]
        self.assertEqual(len(ranks), 4)
        self.assertLessEqual({0, 1, 2}, set(ranks))
        self.assertEqual({r["rank"] for r in self.captured if r["kind"] == "kernel"}, set(ranks))
        text = self.run_program([GPUPROBE, "report", self.out]).stdout.decode()
        self.assertNotIn("NO GPU records", text)
        self.assertNotIn(" GPUs of ", text, "four are not known to be used")
        # People see no zero where nothing was recorded.
        for rank in set(range(8)) - set(ranks):
            self.assertRegex(text, rf"(?m)^ {rank} +- +- +- +- ")

    def test_without_a_marker_collectives_are_counted(self):
        report = self.run_job(1500, env={**SLOW, **TIMED}, marker=())
        trace = report["call_trace"]
        self.assertEqual((trace["late_rank"], len(trace["raises"])), (1, 1), trace)
        self.assertRegex(trace["raises"][0]["outcome"], r"captured steps \d+ to \d+ \(collectives")
        self.assertEqual([s["rank"] for s in report["stragglers"]], [1])


class Deaths(CallsTest):

    def test_a_rank_that_is_captured_is_killed(self):
        self.out = self.path("out")
        job = self.start([GPUPROBE, "run", "--out", self.out, "--level", "calls", "--step-marker", "nvtx:step", "--", LAUNCH_RANKS, "4", DDP_TRAIN, "--steps", "3000", *TRAINING],
                         devices=4, env={**SLOWLY, **SLOW, **TIMED})
        # In full there are launches, which come while the capture goes on.
        wait_until(lambda: any(r["kind"] == "kernel" for r in self.export(self.out)) if glob.glob(os.path.join(self.out, "rank-3.gpr")) else False, "a capture", limit=60)
        victim = next(r["pid"] for r in self.live()["ranks"] if r["rank"] == 2)
        os.kill(victim, 9)
        finished = job.wait(90)
        self.assertNotEqual(finished.returncode, 0)
        self.assert_nothing_runs()
        report = self.report(self.out)
        self.assertEqual(len(report["call_trace"]["raises"]), 1)
        self.assertIn(2, [r["rank"] for r in report["ranks"] if r["cut_off"]])

    def live(self):
        with open(os.path.join(self.out, "live.json"), encoding="utf-8") as file:
            return harness.json.load(file)

    def test_a_hang_is_not_raised(self):
        self.out = self.path("out")
        job = self.start([GPUPROBE, "run", "--out", self.out, "--level", "calls", "--hang-after", "5", "--step-marker", "nvtx:step", "--", LAUNCH_RANKS, "2", DDP_TRAIN, "--steps", "300", *TRAINING],
                         devices=2, env={**SLOWLY, **TIMED, "GPUSIM_HANG": "rank=1,call=400"})
        time.sleep(20)
        self.assertTrue(job.alive())
        job.signal(15)
        job.wait(60)
        self.assert_nothing_runs()
        report = self.report(self.out)
        self.assertEqual(report["call_trace"]["raises"], [])
        self.assertFalse([r for r in self.export(self.out) if r["kind"] == "kernel"])


if __name__ == "__main__":
    harness.main()
