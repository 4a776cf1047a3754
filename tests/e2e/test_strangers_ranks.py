"""Situations in which ranks differ, each a small program: the first finding is the cause, and near misses give none."""
import os

import figures
import harness
from harness import BUILD, GPUPROBE, LAUNCH_RANKS

PROGRAM = os.path.join(BUILD, "tests", "e2e", "strangers_ranks")
# Steps of 15 ms: less is lost in the noise of hosts that share two processors.
ENV = {"GPUSIM_KERNELS": "GemmForward=800us;GemmBackward=1500us;GemmExpert=1ms;GemmHead=1500us;FusedAdam=2ms", "GPUSIM_LINK": "alpha=10us,beta=100GB/s",
       "GPUSIM_TRUTH": None}
JOB_WIDE = {"input-bound", "sync-in-loop", "launch-bound"}


def words(finding):
    return f"{finding['id']}: {finding['statement']} {finding['evidence']} > {finding['advice']}"


class StrangersRanks(harness.EndToEndTest):

    def findings(self, ranks, *arguments):
        """The report, and its warnings and errors, the worst first."""
        out = self.path("-".join(map(str, arguments)))
        finished = self.run_program([GPUPROBE, "run", "--out", out, "--", LAUNCH_RANKS, str(ranks), PROGRAM, *map(str, arguments)], devices=ranks, env=ENV)
        self.assertEqual(finished.returncode, 0, str(finished))
        report = harness.read_report(out)
        self.assertEqual(figures.impossible(report), [])
        found = [f for f in report["findings"] if f["severity"] != "info" or f["id"] == "long-steps"]
        self.told = "\n".join(map(words, found))
        return report, found

    def first(self, finding, pattern, ranks, *arguments):
        report, found = self.findings(ranks, *arguments)
        with self.undisturbed(report):
            self.assertTrue(found, "no finding")
            self.assertEqual(found[0]["id"], finding, self.told)
            self.assertRegex(words(found[0]), pattern, self.told)
        return report, found

    def none_of(self, prefixes, ranks, *arguments):
        report, found = self.findings(ranks, *arguments)
        with self.undisturbed(report):
            self.assertFalse([f for f in found if f["id"].startswith(tuple(prefixes))], self.told)

    def test_a_head_on_the_last_stage_is_more_work(self):
        self.first("straggler-more-work", r"GemmHead\(float\*\): 16 calls, 24\.\d ms per step that no other rank has", 4, "stage", 2)
        self.none_of(["straggler-"], 4, "stage", 0)

    def test_a_kernel_that_grows_alone_is_more_work(self):
        self.first("straggler-more-work", r"rank 1\b.*GemmExpert\S* takes 2\.\d+ ms, elsewhere 1\.00 ms, with as many threads, and \S*.*GemmBackward\S* is as fast",
                   4, "grows", 2.5)

    def test_all_kernels_that_are_slower_alike_are_a_slow_gpu(self):
        self.first("straggler-slow-gpu", r"rank 1\b.*run 1\.50x slower", 4, "slow", 1.5)

    def test_a_checkpoint_of_one_rank_has_its_period(self):
        # Four late steps are hardly more than chance on a busy machine; they are then long steps, with the same facts.
        report, found = self.findings(4, "checkpoint", 15)
        with self.undisturbed(report):
            self.assertTrue(found, "no finding")
            self.assertIn(found[0]["id"], ("straggler-intermittent", "long-steps"), self.told)
            self.assertRegex(words(found[0]), r"every 15 steps", self.told)
            self.assertRegex(words(found[0]), r"for rank 0\b", self.told)
            self.assertNotIn("throttling", found[0]["advice"], self.told)

    def test_late_stretches_that_recur_have_their_period(self):
        self.first("straggler-intermittent", r"rank 0 for \d+ of every 10 steps", 4, "bursts", 10)

    def test_late_steps_at_uneven_distances_have_none(self):
        report, found = self.findings(4, "irregular")
        with self.undisturbed(report):
            self.assertNotIn("every", "".join(f["statement"] for f in found if f["id"] != "long-steps"), self.told)

    def test_of_two_ranks_the_slow_one_is_the_only_finding(self):
        for situation, finding in (("input", "straggler-late-input"), ("host", "straggler-late-launch")):
            with self.subTest(situation):
                report, found = self.first(finding, r"rank 1\b", 2, situation, 8)
                with self.undisturbed(report):
                    self.assertFalse(JOB_WIDE & {f["id"] for f in found}, self.told)

    def test_memory_on_another_ranks_gpu(self):
        self.first("memory-elsewhere", r"Ranks 1-2 hold memory on GPU 0 .* rank 0 computes: 300 MiB each at most, 600 MiB together", 3, "elsewhere", 300)
        self.none_of(["memory-elsewhere"], 3, "elsewhere", 16)


if __name__ == "__main__":
    harness.main()
