"""Detail on demand: a job at level idle records nothing, `gpuprobe capture` records the same steps on all ranks, and the job never notices, whoever dies meanwhile."""
import glob
import os
import re
import signal
import time
import unittest

import harness
import truth
from harness import DDP_TRAIN, GPUPROBE, LAUNCH_RANKS, PATIENT, VECTOR_ADD, wait_until
from hazards import hazard
from test_recorded_steps import WORK, steps_of

BUCKETS = 4
TRAINING = ["--layers", "4", "--width", "64", "--batch", "16", "--bucket-mib", "0.01"]
# A step takes 10 ms, so that a job lives for some captures, each of which takes about 5 s.
SLOWLY = {**PATIENT, "GPUSIM_KERNELS": ".*=500us"}
AT_REST = {"alloc", "free", "communicator"}


class CaptureTest(harness.EndToEndTest):

    def start_job(self, steps, *options, ranks=4, training=(), env=None, under=None):
        """A training job that is being recorded, once all of its ranks train. `under`: a collector; else gpuprobe run."""
        self.out = under.out if under else self.path("out")
        command = [LAUNCH_RANKS, str(ranks), DDP_TRAIN, "--steps", str(steps), *TRAINING, *training]
        if under:
            env = {**(env or {}), **under.env(), "LD_PRELOAD": harness.LIBRARY}
        else:
            command = [GPUPROBE, "run", "--out", self.out, "--level", "idle", *options, "--", *command]
        job = self.start(command, devices=ranks, env={**SLOWLY, **(env or {})})
        wait_until(lambda: self.ranks_seen() == ranks or not job.alive(), "ranks that are recorded")
        self.assertTrue(job.alive(), job.finished())
        return job

    def ranks_seen(self):
        path = os.path.join(self.out, "live.json")
        try:
            with open(path, encoding="utf-8") as file:
                return len(harness.json.load(file)["ranks"])
        except (OSError, ValueError):
            return 0

    def capture(self, *options, limit=harness.LIMIT_S):
        return self.run_program([GPUPROBE, "capture", self.out, *map(str, options)], limit=limit)

    def captured_steps(self, *options):
        """The numbers of the steps that were captured, as the command says them."""
        finished = self.capture(*options)
        self.assertEqual(finished.returncode, 0, str(finished))
        found = re.match(r"captured steps? (\d+)(?: to (\d+))?\b", finished.stdout.decode())
        self.assertTrue(found, str(finished))
        self.said = finished
        return list(range(int(found[1]), int(found[2] or found[1]) + 1))

    def start_capture(self, *options):
        """Once every rank has the order."""
        program = self.start([GPUPROBE, "capture", self.out, *map(str, options)])
        wait_until(lambda: b"armed on" in program.so_far() or not program.alive(), "armed capture")
        self.assertTrue(program.alive(), program.finished())
        return program

    def end(self, job, collector=None):
        finished = job.wait()
        self.assertEqual(finished.returncode, 0, str(finished))
        if collector:
            collector.signal(signal.SIGTERM)
            collector.wait()
        self.assert_nothing_runs()
        happened = self.truth()
        self.by_rank = {}
        for record in happened:
            self.by_rank.setdefault(record["rank"], []).append(record)
        return finished

    def assert_only_steps(self, wanted, ranks):
        """What was launched in these steps was recorded on these ranks as it happened, and nothing else, on no rank."""
        captured = self.export(self.out)
        for rank, happened in self.by_rank.items():
            steps = steps_of(happened)
            found = [r for r in captured if r["rank"] == rank]
            for kind in (*WORK, "collective"):
                expected = [r for number in (wanted if rank in ranks else ()) for r in steps[number]["records"] if r["kind"] == kind]
                lines = truth.multiset_difference(kind, truth.COMPARED[kind], expected, [r for r in found if r["kind"] == kind])
                self.assertEqual(lines, [], f"rank {rank}")
            allocations = [r for r in happened if r["kind"] in ("alloc", "free")]
            self.assertEqual(truth.allocation_differences(allocations, [r for r in found if r["kind"] in ("alloc", "free")]), [])

    def indices(self):
        """Of the steps in the report, by rank."""
        finished = self.run_well([GPUPROBE, "report", self.out, "--json", "--steps"])
        report = harness.json.loads(finished.stdout)
        self.assert_no_loss(report)
        return report, {r["rank"]: [s["index"] for s in r["steps"]["records"]] if r["steps"] else [] for r in report["ranks"]}


class Captured(CaptureTest):

    @hazard("steps are captured, twice, in a job at level idle", sees="same output and status", counted="these steps and nothing else, the same on all ranks; nothing lost")
    def test_the_same_steps_on_all_ranks_and_nothing_else(self):
        steps = 1500
        bare = self.run_well([LAUNCH_RANKS, "4", DDP_TRAIN, "--steps", str(steps), *TRAINING], devices=4, env=SLOWLY)
        self.forget_truth()
        job = self.start_job(steps, "--step-marker", "nvtx:step")
        time.sleep(1)
        self.assertLessEqual({r["kind"] for r in self.export(self.out)}, AT_REST)
        first = self.captured_steps("--steps", 5)
        self.assertEqual(len(first), 5)
        self.assertIn(f"gpuprobe report {self.out}", self.said.stdout.decode())
        second = self.captured_steps("--steps", 3)
        self.assertEqual(len(second), 3)
        self.assertGreater(second[0], first[-1])
        self.assertEqual(self.end(job).stdout, bare.stdout)
        self.assert_only_steps(first + second, ranks=range(4))
        report, indices = self.indices()
        self.assertEqual(indices, {rank: first + second for rank in range(4)})
        windows = report["conditions"]["on_demand"]["windows"]
        self.assertEqual([(w["first_step"], w["last_step"], w["ranks"]) for w in windows], [(s[0], s[-1], [0, 1, 2, 3]) for s in (first, second)])
        self.assertEqual(report["conditions"]["on_demand"]["steps_by"], "marker")
        for rank, happened in self.by_rank.items():
            happened_steps = steps_of(happened)
            own = next(r for r in report["ranks"] if r["rank"] == rank)["steps"]["records"]
            for record in own:
                self.assertEqual((record["start_ns"], record["end_ns"]), (happened_steps[record["index"]]["start_ns"], happened_steps[record["index"]]["end_ns"]), (rank, record["index"]))

    def test_without_a_marker_collectives_are_counted(self):
        job = self.start_job(900)
        steps = self.captured_steps("--steps", 4)
        self.end(job)
        first, last, per_step = map(int, re.search(r"collectives (\d+) to (\d+) on communicator \w+, (\d+) a step", self.said.stdout.decode()).groups())
        self.assertEqual((last + 1 - first, per_step), (4 * BUCKETS, BUCKETS))
        captured = self.export(self.out)
        for rank, happened in self.by_rank.items():
            calls = sorted((r for r in happened if r["kind"] == "collective"), key=lambda r: r["seq"])
            found = [r for r in captured if r["kind"] == "collective" and r["rank"] == rank]
            self.assertEqual(sorted(r["seq"] for r in found), list(range(first, last + 1)))
            before, until = (next(c["correlation"] for c in calls if c["seq"] == number) for number in (first - 1, last))
            between = [r for r in happened if r["kind"] in WORK and before < r["correlation"] <= until]
            for kind in WORK:
                self.assertEqual(truth.multiset_difference(kind, truth.COMPARED[kind], [r for r in between if r["kind"] == kind],
                                                           [r for r in captured if r["kind"] == kind and r["rank"] == rank]), [])
        report, indices = self.indices()
        self.assertEqual(indices, {rank: steps for rank in range(4)})
        self.assertEqual(report["conditions"]["on_demand"]["steps_by"], "calls")

    def test_some_ranks_only(self):
        job = self.start_job(900, "--step-marker", "nvtx:step")
        steps = self.captured_steps("--steps", 4, "--ranks", "1,3")
        self.end(job)
        self.assert_only_steps(steps, ranks=(1, 3))
        self.assertEqual(self.indices()[1], {0: [], 1: steps, 2: [], 3: steps})

    def test_a_window_of_time_where_steps_are_not_known(self):
        job = self.start_job(2200, ranks=1)
        finished = self.capture("--steps", 3)
        self.assertEqual(finished.returncode, 1)
        self.assertIn(b"--seconds", finished.stderr)
        for _ in range(2):
            finished = self.capture("--seconds", 0.5)
            self.assertEqual(finished.returncode, 0, str(finished))
            self.assertTrue(finished.stdout.startswith(b"captured 0.5 s on 1 process"), str(finished))
        time.sleep(6)
        self.assertNotIn(b"no GPU work", self.run_well([GPUPROBE, "top", self.out, "--once"]).stdout)
        self.end(job)
        kernels = sorted(r["start_ns"] for r in self.export(self.out) if r["kind"] == "kernel")
        self.assertGreater(len(kernels), 500)
        report, _ = self.indices()
        windows = report["conditions"]["on_demand"]["windows"]
        self.assertEqual(len(windows), 2)
        for window in windows:
            self.assertLess(window["end_ns"] - window["start_ns"], 0.6e9)
        # No step reaches from one window to the other, and nobody says in between that it stands still.
        self.assertGreater(report["steps"]["count"], 20)
        self.assertLess(report["steps"]["time_ns"]["max"], 1e9)

    def test_a_straggler_is_named(self):
        job = self.start_job(900, "--step-marker", "nvtx:step", env={"GPUSIM_SLOW": "rank=2,factor=1.6"})
        self.captured_steps("--steps", 10)
        self.assertRegex(self.said.stdout.decode(), r"(?i)\brank 2\b")
        so_far = self.report(self.out)
        self.assertEqual([straggler["rank"] for straggler in so_far["stragglers"]], [2])
        self.assertNotIn("rank-cut-off", [f["id"] for f in so_far["findings"]], "it goes on")
        self.end(job)
        report, _ = self.indices()
        self.assertEqual([straggler["rank"] for straggler in report["stragglers"]], [2])

    def test_steps_to_wait_for(self):
        job = self.start_job(2800, "--step-marker", "nvtx:step")
        soon = self.captured_steps("--steps", 1)
        later = self.captured_steps("--steps", 1, "--wait", 300, "--warmup", 3)
        self.assertGreater(later[0], soon[0] + 300)
        finished = self.capture("--steps", 1, "--repeat", 2)
        self.assertEqual(finished.returncode, 0, str(finished))
        repeated = [int(step) for step in re.findall(r"^captured step (\d+)", finished.stdout.decode(), re.MULTILINE)]
        self.assertEqual(len(repeated), 2, str(finished))
        self.end(job)
        self.assert_only_steps(soon + later + repeated, ranks=range(4))


class AtRest(CaptureTest):

    def test_a_run_that_nobody_captured_says_so(self):
        self.out = self.path("out")
        self.run_well([GPUPROBE, "run", "--out", self.out, "--level", "idle", "--step-marker", "nvtx:step", "--", LAUNCH_RANKS, "2", DDP_TRAIN, "--steps", "20", *TRAINING], devices=2)
        report = self.report(self.out)
        self.assert_no_loss(report)
        self.assertLessEqual({r["kind"] for r in self.export(self.out)}, AT_REST)
        self.assertEqual([f["id"] for f in report["findings"]], ["no-step-recorded"])
        self.assertIn("gpuprobe capture", report["findings"][0]["advice"])
        self.assertEqual(report["conditions"]["on_demand"], {"level": "idle", "steps_by": None, "windows": []})

    def test_after_a_capture_it_costs_what_it_cost_before(self):
        """In counts: nothing of the device's work is delivered any more, which the decoder would have to leave out."""
        job = self.start_job(1500, "--step-marker", "nvtx:step")
        self.captured_steps("--steps", 2)
        time.sleep(1)
        left_out = self.report(self.out)["trust"]["outside_window"]
        self.end(job)
        report = self.report(self.out)
        # Calls and ranges that mark steps are left out one by one at any time; kernels would be four times as many.
        calls = sum(1 for happened in self.by_rank.values() for r in happened if r["kind"] == "collective")
        ranges = sum(len(steps_of(happened)) for happened in self.by_rank.values())
        kernels = sum(1 for happened in self.by_rank.values() for r in happened if r["kind"] == "kernel")
        self.assertLessEqual(report["trust"]["outside_window"] - left_out, calls + ranges)
        self.assertGreater(kernels, 3 * (calls + ranges))


class OnANode(CaptureTest):

    @unittest.skipUnless(os.geteuid() == 0, "needs root: it serves all users")
    def test_a_user_captures_a_job_that_the_collector_of_the_node_records(self):
        socket, user = self.path("node.sock"), 54321
        os.chmod(self.folder, 0o755)
        for name in ("cwd", "tmp", "home", "run"):
            os.chmod(self.path(name), 0o777)
        os.mkdir(self.path("truth"))
        os.chmod(self.path("truth"), 0o777)
        collector = self.start([GPUPROBE, "collect", "--node", "--socket", socket, "--out", self.path("runs")])
        wait_until(lambda: harness.answers(socket) or not collector.alive(), "collector for the node")
        as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        env = {**SLOWLY, "GPUPROBE_SOCKET": socket, "GPUPROBE_AUTOSTART": "0", "GPUPROBE_LEVEL": "idle", "GPUPROBE_STEP_MARKER": "nvtx:step"}
        job = self.start([*as_user, "env", f"LD_PRELOAD={harness.LIBRARY}", DDP_TRAIN, "--steps", "900", *TRAINING], env=env)
        found = wait_until(lambda: glob.glob(self.path("runs", str(user), "*", "live.json")) or (not job.alive() and [None]), "run of the user")
        self.assertTrue(job.alive(), job.finished())
        self.out = os.path.dirname(found[0])
        wait_until(lambda: self.ranks_seen() == 1, "process that is recorded")
        finished = self.run_program([*as_user, GPUPROBE, "capture", self.out, "--steps", "4"], env={"GPUPROBE_SOCKET": socket})
        self.assertEqual(finished.returncode, 0, str(finished))
        self.assertRegex(finished.stdout.decode(), r"^captured steps \d+ to \d+")
        self.end(job, collector)
        self.assertEqual([len(numbers) for numbers in self.indices()[1].values()], [4])


class WhoDies(CaptureTest):

    @hazard("gpuprobe capture is killed", sees="same status", counted="what it asked for, and nothing after it")
    def test_the_command(self):
        job = self.start_job(1500, "--step-marker", "nvtx:step")
        program = self.start_capture("--steps", 4)
        program.signal(signal.SIGKILL)
        program.wait()
        finished = self.capture("--steps", 2)
        if finished.returncode != 0:
            self.assertIn(b"another capture of this run is under way", finished.stderr)
        wait_until(lambda: self.windows() >= 1, "steps of the command that was killed")
        self.end(job)
        report, indices = self.indices()
        self.assertEqual(len({tuple(numbers) for numbers in indices.values()}), 1, indices)
        self.assertEqual(len(indices[0]) % 2, 0)
        self.assertGreaterEqual(len(indices[0]), 4)
        self.assert_only_steps(indices[0], ranks=range(4))

    def windows(self):
        return len(self.report(self.out)["conditions"]["on_demand"]["windows"])

    @hazard("the collector is killed while a capture is armed", sees="same status", counted="the processes end the capture themselves; its steps reach the next collector")
    def test_the_collector(self):
        collector = harness.Collector(self)
        job = self.start_job(1500, under=collector, env={"GPUPROBE_LEVEL": "idle", "GPUPROBE_STEP_MARKER": "nvtx:step"})
        program = self.start_capture("--steps", 4)
        collector.program.kill()
        finished = program.wait()
        self.assertEqual(finished.returncode, 1)
        self.assertIn(b"collector has ended", finished.stderr)
        second = harness.Collector(self, out=collector.out, socket=collector.socket)
        self.end(job, second.program)
        _, indices = self.indices()
        self.assertEqual({len(numbers) for numbers in indices.values()}, {4})
        self.assertEqual(len({tuple(numbers) for numbers in indices.values()}), 1, indices)
        self.assert_only_steps(indices[0], ranks=range(4))

    def test_a_rank(self):
        job = self.start_job(100_000, "--step-marker", "nvtx:step")
        program = self.start_capture("--steps", 3000)
        with open(os.path.join(self.out, "live.json"), encoding="utf-8") as file:
            pid = next(r["pid"] for r in harness.json.load(file)["ranks"] if r["rank"] == 2)
        os.kill(pid, signal.SIGKILL)
        finished = program.wait()
        self.assertEqual(finished.returncode, 1, str(finished))
        self.assertRegex(finished.stderr.decode(), r"(?m)^gpuprobe: capture: rank 2 has left during the capture$")
        job.wait()

    def test_nothing_goes_on_beyond_its_limit(self):
        job = self.start_job(2500, "--step-marker", "nvtx:step")
        finished = self.capture("--steps", 90_000, "--limit", 4)
        self.assertEqual(finished.returncode, 1)
        self.assertRegex(finished.stderr.decode().splitlines()[-1], r"^gpuprobe: capture: captured .* on 4 processes; cut off after 4 s on rank 0, rank 1, rank 2, rank 3$")
        again = self.captured_steps("--steps", 2)
        self.end(job)
        report, indices = self.indices()
        self.assertEqual(report["conditions"]["on_demand"]["windows"][-1]["first_step"], again[0])
        for numbers in indices.values():
            self.assertEqual(numbers[-2:], again)
            self.assertLess(numbers[-3], again[0] - 20, "recorded in between")


class Refused(CaptureTest):

    def refuse(self, expected, *options, status=1):
        finished = self.capture(*options)
        self.assertEqual(finished.returncode, status, str(finished))
        self.assertEqual(finished.stdout, b"")
        self.assertRegex(finished.stderr.decode().splitlines()[-1], rf"^gpuprobe: capture: .*{expected}")

    def test_what_is_no_running_run(self):
        self.out = self.path("nowhere")
        self.refuse("is neither a process nor a run directory")
        self.out = self.path("over")
        self.run_well([GPUPROBE, "run", "--out", self.out, "--level", "idle", "--", VECTOR_ADD])
        self.refuse("is not being recorded")
        self.out = str(os.getpid())
        self.refuse("is not recorded by a collector of this user")
        finished = self.run_program([GPUPROBE, "capture", "--steps", "0"])
        self.assertEqual(finished.returncode, 2)
        finished = self.run_program([GPUPROBE, "capture", "--steps", "2", "--seconds", "1"])
        self.assertEqual(finished.returncode, 2)

    def test_a_run_that_records_everything(self):
        self.out = self.path("out")
        job = self.start([GPUPROBE, "run", "--out", self.out, "--", DDP_TRAIN, "--steps", "500", *TRAINING], env=SLOWLY)
        wait_until(lambda: self.ranks_seen() == 1, "rank that is recorded")
        self.refuse("level full, so everything is recorded anyway")
        self.assertEqual(job.wait().returncode, 0)

    def test_ranks_and_times(self):
        job = self.start_job(2000, "--step-marker", "nvtx:step")
        self.refuse("rank 9 is not connected to this collector; it has 0, 1, 2, 3", "--ranks", "1,9")
        program = self.start_capture("--steps", 400)
        self.refuse("another capture of this run is under way")
        self.assertEqual(program.wait().returncode, 0)
        with open(os.path.join(self.out, "live.json"), encoding="utf-8") as file:
            pid = next(r["pid"] for r in harness.json.load(file)["ranks"] if r["rank"] == 3)
        os.kill(pid, signal.SIGSTOP)
        try:
            self.refuse("rank 3 did not answer within 15 s")
        finally:
            os.kill(pid, signal.SIGCONT)
        self.end(job)

    def test_steps_that_are_chosen_at_the_start(self):
        finished = self.run_program([GPUPROBE, "run", "--level", "idle", "--step-marker", "nvtx:step", "--start-step", "3", "--", DDP_TRAIN])
        self.assertEqual(finished.returncode, 2)
        self.assertIn(b"level idle", finished.stderr)


if __name__ == "__main__":
    harness.main()
