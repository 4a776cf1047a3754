"""Faults of real processes are named first, with their culprit: 4 to 8 ranks that no range and no name explains, each kind at random ranks, times and sizes.

Some seeds of each kind in the test suite; `REAL_FAULT_SEEDS=100-119` runs others, and `REAL_FAULTS=kernels,input` some kinds. The sizes are drawn so that
a fault costs the job an eighth of a step or more: the machine's own noise must not decide. With `REAL_FAULT_LEVEL=calls`, the jobs run at that level, and long
enough for the late rank to be recorded in full.
"""
import contextlib
import os
import random

import harness
from harness import BUILD, GPUPROBE, LAUNCH_RANKS

JOB = os.path.join(BUILD, "tests", "e2e", "faulty_job")
LEVEL = os.environ.get("REAL_FAULT_LEVEL", "full")
CALLS_JOB_S = 30  # two looks and a capture
PATIENCE_S = 20 if harness.REAL_NCCL or LEVEL == "calls" else 8  # a real one takes seconds to start on two processors


def seeds():
    first, _, last = os.environ.get("REAL_FAULT_SEEDS", "1-2").partition("-")
    return range(int(first), int(last or first) + 1)


def is_chosen(kind):
    return kind in os.environ.get("REAL_FAULTS", kind).split(",")


class Job:
    """A random job, with room for a fault: its arguments, its environment, and how long a step of it takes."""

    def __init__(self, rng):
        self.rng = rng
        self.ranks = rng.randint(4, 8)
        self.layers = rng.randint(4, 8)
        self.steps = rng.randint(45, 60)
        # Steps of tens of milliseconds: less is lost in the noise of hosts that share two processors.
        self.kernel_us = rng.randint(1000, 2000)
        self.copy_us = rng.randint(800, 2000)
        self.transfer_us = rng.randint(500, 1200)
        bucket_layers = rng.randint(1, 3)
        self.buckets = -(-self.layers // bucket_layers)
        bucket_kib = rng.choice([256, 512, 1024])
        batch_kib = rng.choice([256, 512])
        factor = 2 * (self.ranks - 1) / self.ranks
        self.arguments = {"steps": self.steps, "layers": self.layers, "bucket_layers": bucket_layers, "bucket_kib": bucket_kib, "batch_kib": batch_kib,
                          "read_every": rng.choice([1, 1, 2, 5])}
        self.env = {"GPUSIM_KERNELS": f"LayerForward={self.kernel_us}us;LayerBackward={self.kernel_us}us;WeightGradient={self.kernel_us}us;FusedAdam=100us",
                    "GPUSIM_PCIE": f"{batch_kib * 1.024 / self.copy_us:.4f}GB/s",
                    "GPUSIM_LINK": f"alpha=10us,beta={factor * bucket_kib * 1.024 / self.transfer_us:.4f}GB/s"}
        self.step_us = self.copy_us + self.layers * (3 * self.kernel_us + 100) + self.transfer_us
        if LEVEL == "calls":
            self.steps = self.arguments["steps"] = round(CALLS_JOB_S * 1e6 / self.step_us)
        self.culprit = None

    def pick(self):
        self.culprit = self.arguments["rank"] = self.rng.randrange(self.ranks)

    def start(self, earliest=0.0, latest=0.6):
        latest = min(latest, 0.3) if LEVEL == "calls" else latest
        self.arguments["from"] = round(self.rng.choice([earliest, self.rng.uniform(max(earliest, 0.1), latest)]) * self.steps)

    def command(self):
        return [LAUNCH_RANKS, str(self.ranks), JOB, *(f"{name}={value}" for name, value in self.arguments.items())]


def slower(kind):
    def draw(job):
        if kind == "input":  # a host that runs ahead of its device for steps makes up for it
            job.arguments["read_every"] = min(job.arguments["read_every"], 2)
        job.pick()
        job.start()
        kernels_us = job.layers * 3 * job.kernel_us
        share = job.rng.uniform(0.15, 0.7)
        job.arguments.update(fault=kind, size=round({
            "kernels": 1 + share * job.step_us / kernels_us,
            "work": 1 + share * job.step_us / kernels_us,
            "copies": 1 + share * job.step_us / job.copy_us,
            "input": share * job.step_us / 1000,
            # What the host takes for a step beyond what the device takes.
            "launches": (1 + share) * job.step_us / (job.layers * 4)}[kind], 3))
    return draw


def now_and_then(job):
    slower("kernels")(job)
    every = job.rng.randint(6, 12)
    job.arguments.update(every=every, **{"for": job.rng.randint(2, every // 3)})


def slow_link(job):
    job.arguments.update(fault="link", **{"from": 0}, size=round(job.rng.uniform(0.5, 1.5) * job.step_us / job.transfer_us / job.buckets + 2, 2))


def slowed_link(job):
    slow_link(job)
    job.arguments["from"] = round(job.rng.uniform(0.25, 0.6) * job.steps)


def leak(job):
    job.pick()
    job.start(latest=0.3)
    job.arguments.update(fault="leak", size=job.rng.choice([256, 1024, 4096]))


def hang(way):
    def draw(job):
        job.pick()
        begins = job.rng.uniform(0.3, 0.9) if LEVEL == "full" else job.rng.uniform(0.05, 0.2)
        job.arguments.update(fault=way, patience=PATIENCE_S, **{"from": round(begins * job.steps)})
        if way.startswith("other"):
            job.arguments["for"], job.arguments["every"] = 1, 1000
    return draw


class RealFaults(harness.EndToEndTest):

    def record(self, kind, seed, draw, arguments=(), ends_well=True):
        job = Job(random.Random(f"{kind} {seed}"))
        draw(job)
        out = self.path(f"{kind}-{seed}")
        finished = self.run_program([GPUPROBE, "run", "--level", LEVEL, "--out", out, *arguments, "--", *job.command()], devices=job.ranks,
                                    env={**job.env, "GPUSIM_TRUTH": None}, limit=240)
        self.assertEqual(finished.returncode == 0, ends_well, str(finished))
        return job, harness.read_report(out)

    def each(self, kind, draw, judge, on_any_machine=False, **options):
        if not is_chosen(kind):
            self.skipTest("not chosen")
        for seed in seeds():
            with self.subTest(kind=kind, seed=seed):
                job, report = self.record(kind, seed, draw, **options)
                # What the machine took from all ranks is said besides.
                found = [f for f in report["findings"] if f["severity"] != "info" and f["id"] != "cpu-starved"]
                told = "\n".join([" ".join(job.command()), *(f"{f['id']}: {f['statement']} {f['evidence']}" for f in found)])
                with contextlib.nullcontext() if on_any_machine else self.undisturbed(report):
                    self.assertTrue(found, f"no finding\n{told}")
                    judge(job, report, found[0], told)

    def straggler(self, kind, draw, finding, cause):
        def judge(job, report, first, told):
            # A host that is late for its device only where the loss is read is late now and then.
            now_and_then = kind in ("input", "launches") and job.arguments["read_every"] > 1
            self.assertIn(first["id"], (finding, "straggler-intermittent") if now_and_then else (finding,), told)
            self.assertRegex(first["statement"], rf"^The other .* for rank {job.culprit}\b", told)
            self.assertEqual(report["stragglers"][0]["cause"], cause, told)
            since = report["stragglers"][0]["since_step"] if LEVEL == "full" else None  # of captured steps
            if since is not None:
                self.assertAlmostEqual(since, job.arguments["from"], delta=2, msg=told)
        self.each(kind, draw, judge)

    def test_a_rank_with_slow_kernels(self):
        self.straggler("kernels", slower("kernels"), "straggler-slow-gpu", "slow_kernels")

    def test_a_rank_that_is_slow_now_and_then(self):
        self.straggler("intermittent", now_and_then, "straggler-intermittent", "slow_kernels")

    def test_a_rank_that_launches_late(self):
        self.straggler("launches", slower("launches"), "straggler-late-launch", "late_launch")

    def test_a_rank_whose_input_is_late(self):
        self.straggler("input", slower("input"), "straggler-late-input", "late_input")

    def test_a_rank_with_more_work(self):
        self.straggler("work", slower("work"), "straggler-more-work", "more_work")

    def test_a_rank_with_slow_copies(self):
        self.straggler("copies", slower("copies"), "straggler-slow-copies", "slow_copies")

    def test_a_slow_link(self):
        def judge(_, report, first, told):
            self.assertIn(first["id"], ("slow-network", "communication-bound", "poor-overlap"), told)
        self.each("link", slow_link, judge)

    def test_a_link_that_becomes_slow(self):
        def judge(job, report, first, told):
            self.assertEqual(first["id"], "slow-network", told)
            self.assertAlmostEqual(report["communication"]["network"]["slow"]["since_step"], job.arguments["from"], delta=2, msg=told)
        self.each("slowed-link", slowed_link, judge)

    def test_a_rank_that_leaks(self):
        def judge(job, _, first, told):
            self.assertEqual(first["id"], "memory-leak", told)
            self.assertIn(f"ank {job.culprit} ", first["statement"], told)
        self.each("leak", leak, judge)

    def hang(self, way, finding):
        def judge(job, report, first, told):
            self.assertEqual(first["id"], finding, told)
            self.assertEqual([rank["rank"] for rank in report["hangs"][0]["ranks"]], [job.culprit], told)
        self.each(way, hang(way), judge, on_any_machine=True, arguments=("--hang-after", "3"), ends_well=way.startswith("other"))

    def test_a_rank_that_sleeps_for_good(self):
        self.hang("absent", "hang-missing-rank")

    def test_a_rank_that_reads_a_pipe_for_good(self):
        self.hang("endless_read", "hang-missing-rank")

    def test_a_rank_that_computes_on_the_host_for_good(self):
        self.hang("endless_loop", "hang-missing-rank")

    def test_a_rank_that_reduces_another_size(self):
        self.hang("other_size", "hang-mismatch")

    def test_a_rank_that_issues_another_operation(self):
        self.hang("other_order", "hang-mismatch")

    def test_nothing_is_wrong(self):
        def draw(job):
            job.arguments["fault"] = "none"
        if not is_chosen("none"):
            self.skipTest("not chosen")
        for seed in seeds():
            with self.subTest(seed=seed):
                job, report = self.record("none", seed, draw)
                # The last bucket has nothing to hide behind, and the job waits for its device to read the loss.
                found = [f for f in report["findings"] if f["severity"] != "info" and f["id"] not in ("poor-overlap", "sync-in-loop", "cpu-starved")]
                with self.undisturbed(report):
                    self.assertEqual([], [f"{f['id']}: {f['statement']} {f['evidence']}" for f in found], " ".join(job.command()))


if __name__ == "__main__":
    harness.main()
