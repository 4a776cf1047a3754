"""Random but valid programs of NCCL calls, graphs, copies, threads and communicators that come and go: each call once, as it was, and the program as it is alone.

A seed that differs is tried alone with `random_collectives SEED MODE RANKS STEPS`; fewer STEPS of one seed are the beginning of more.
"""
import os

import harness
import truth
from harness import BUILD, GPUPROBE, LIBRARY, PATIENT

PROGRAM = os.path.join(BUILD, "tests", "e2e", "random_collectives")
WAYS = ("LD_PRELOAD", "CUDA_INJECTION64_PATH", "run")
# Who drives the ranks, and a seed by each way of loading; chosen for what they contain.
MODES = {"one": (5, 25, 31), "threads": (8, 22, 42), "pairs": (2, 19, 53), "processes": (4, 17, 52)}
RANKS, STEPS = 4, 40


class RandomCollectives(harness.EndToEndTest):
    maxDiff = None

    @staticmethod
    def said(finished):
        """Its ranks speak as they end; `run` adds its own lines."""
        return finished.returncode, sorted(line for line in finished.stdout.splitlines() if line.startswith(b"rank ") and b" refused, sum " in line)

    def record(self, command, way, env):
        if way == "run":
            out = self.path("out")
            return self.run_well([GPUPROBE, "run", "--out", out, "--", *command], env={**PATIENT, **env}, devices=RANKS), out
        collector = harness.Collector(self)
        finished = self.run_well(command, env={**collector.env(), way: LIBRARY, **env}, devices=RANKS)
        self.assertEqual(collector.stop().returncode, 0)
        return finished, collector.out

    def check(self, mode, seed, way, env):
        env = {"GPUSIM_CUPTI_VERSION": "13.4.1", **env}  # before, nodes of child graphs cannot be distinguished
        command = [PROGRAM, str(seed), mode, str(RANKS), str(STEPS)]
        alone = self.said(self.run_well(command, env=env, devices=RANKS))
        self.assertEqual(len(alone[1]), RANKS)
        self.forget_truth()
        finished, out = self.record(command, way, env)
        self.assertEqual(self.said(finished), alone)
        self.assert_nothing_runs()
        happened, captured = map(truth.without_names_of_one_rank, (self.truth(), self.export(out)))
        self.assertEqual(self.differences(happened, captured), [])
        self.assertEqual(truth.communicator_differences(happened, captured), [])
        report = self.report(out)
        self.assert_no_loss(report)
        self.assert_complete(report)
        calls = sum(record["kind"] == "collective" for record in happened)
        self.assertEqual(sum(entry["calls"] for rank in report["ranks"] for entry in rank["collectives"]), calls)
        self.assertGreater(calls, 100)


def add_tests():
    for mode, seeds in MODES.items():
        def test(self, mode=mode, seeds=seeds):
            for i, (seed, way) in enumerate(zip(seeds, WAYS)):
                with self.subTest(seed=seed, way=way):
                    # In the last one a kernel carries all calls of a communicator in a group.
                    self.check(mode, seed, way, {"GPUSIM_NCCL_PLANS": "one"} if i == 2 else {})
                    self.forget_truth()
        setattr(RandomCollectives, f"test_{mode}", test)


add_tests()

if __name__ == "__main__":
    harness.main()
