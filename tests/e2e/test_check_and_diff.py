"""`gpuprobe run --check` and `gpuprobe diff` on programs whose trouble is known."""
import json

import harness
from harness import DDP_TRAIN, GPUPROBE, LAUNCH_RANKS, PATIENT

TRAINING = ["--steps", "120", "--layers", "4", "--width", "64", "--batch", "16", "--bucket-mib", "0.03"]
STEADY = {"GPUSIM_KERNELS": "LinearBackward.*=400us;LinearForward=300us;.*=20us", **PATIENT}


class CheckAndDiff(harness.EndToEndTest):

    def train(self, name, options=(), env=None):
        out = self.path(name)
        finished = self.run_well([GPUPROBE, "run", "--out", out, *options, "--", LAUNCH_RANKS, "4", DDP_TRAIN, *TRAINING], devices=4,
                                 env={**STEADY, **(env or {})})
        return out, finished.stderr.decode()

    def test_check_names_the_slow_rank_while_the_program_goes_on(self):
        out, said = self.train("checked", ["--check", "5"], {"GPUSIM_SLOW": "rank=2,factor=1.5"})
        lines = [line for line in said.splitlines() if line.startswith("gpuprobe: check")]
        self.assertTrue(lines and lines[0].startswith("gpuprobe: check after "), said)
        with self.undisturbed(self.report(out)):
            self.assertTrue(any("straggler-slow-gpu: The other 3 ranks wait for rank 2" in line for line in lines), lines)
        self.assertEqual(said.count("gpuprobe: check after "), 1)

    def test_check_says_when_there_were_too_few_steps(self):
        out = self.path("few")
        finished = self.run_well([GPUPROBE, "run", "--out", out, "--check", "1000", "--", harness.VECTOR_ADD])
        self.assertIn("gpuprobe: check: only 0 of 1000 steps", finished.stderr.decode())

    def test_diff_finds_what_became_slower_and_nothing_in_a_run_against_itself(self):
        before, _ = self.train("before")
        after, _ = self.train("after", env={"GPUSIM_KERNELS": "LinearBackward.*=1200us;LinearForward=300us;.*=20us"})
        compared = json.loads(self.run_well([GPUPROBE, "diff", before, after, "--json"]).stdout)
        total = compared["steps"][0]
        with self.undisturbed(self.report(before), self.report(after)):
            self.assertTrue(total["significant"] and total["test"]["difference_ns"] > 0, compared["verdict"])
            self.assertIn("B is slower", compared["verdict"])
        names = ("LinearBackwardWeight", "LinearBackwardInput", "LinearForward")
        by_name = {name: k for k in compared["kernels"] for name in names if name in k["name"]}
        for kernel in ("LinearBackwardWeight", "LinearBackwardInput"):
            for run, mean_ns in (("a", 400_000), ("b", 1_200_000)):
                self.assertAlmostEqual(by_name[kernel][run]["mean_ns"], mean_ns, delta=1)
        self.assertNotIn("LinearForward", by_name)
        self.assertEqual(compared["conditions"], [])
        changed = [c for c in compared["changes"] if c["part"] == "compute"]
        self.assertEqual([c["subject"] for c in changed], ["all ranks"], compared["changes"])
        self.assertIn("LinearBackward", changed[0]["evidence"])
        for limit, judged in (("3", 3), ("900", 0)):
            gate = self.run_program([GPUPROBE, "diff", before, after, "--fail-above", limit])
            self.assertEqual(gate.returncode, judged, str(gate))
        self.assertEqual(self.run_program([GPUPROBE, "diff", after, before, "--fail-above", "0"]).returncode, 0, "faster is not longer")
        self.assertEqual(self.run_program([GPUPROBE, "diff", before, before, "--fail-above", "0"]).returncode, 0)
        itself = self.run_well([GPUPROBE, "diff", before, before]).stdout.decode()
        self.assertIn("No significant difference in step time", itself)

    def test_diff_says_when_a_run_has_two_levels(self):
        """Then its mean is neither, and what chance does to it is hardly known."""
        runs = []
        for scenario, options in (("straggler-late", ("--slow-from", "0.3")), ("healthy", ())):
            runs.append(self.path(scenario))
            self.run_well([GPUPROBE, "simulate", "--scenario", scenario, "--ranks", "8", "--steps", "120", "--out", runs[-1], *options])
        for order, name in ((runs, "A"), (runs[::-1], "B")):
            limits = json.loads(self.run_well([GPUPROBE, "diff", *order, "--json"]).stdout)["limits"]
            told, = [limit for limit in limits if "two" in limit or "up to step" in limit]
            self.assertRegex(told, rf"^Steps of {name} take 17\.0 ms up to step 35, and 2[12]\.\d ms from step 36 on\.")

    def test_diff_names_the_rank_that_became_slower_although_it_was_slow_already(self):
        before, _ = self.train("slow", env={"GPUSIM_SLOW": "rank=2,factor=1.3"})
        after, _ = self.train("slower", env={"GPUSIM_SLOW": "rank=2,factor=1.4"})
        compared = json.loads(self.run_well([GPUPROBE, "diff", before, after, "--json"]).stdout)
        compute = [(c["subject"], c["ranks"]) for c in compared["changes"] if c["part"] == "compute"]
        self.assertEqual(compute, [("rank", [2])], compared["changes"])
        parts = {p["name"]: p for p in compared["steps"]}
        # A constant difference between ranks is not noise: kernels on this node take exactly as long as configured.
        compute = parts["compute"]["test"]
        self.assertLess(compute["high_ns"] - compute["low_ns"], 0.005 * parts["compute"]["a"]["mean_ns"])
        screen = self.run_well([GPUPROBE, "diff", before, after]).stdout.decode()
        self.assertRegex(screen, r"Compute time on rank 2 is \d+\.\d % longer: [\d.]+ ms -> [\d.]+ ms per step, \+[\d.]+ us")

    def test_a_run_that_is_none_is_refused_in_one_line(self):
        refused = self.run_program([GPUPROBE, "diff", self.path("home"), self.path("tmp")])
        self.assertEqual(refused.returncode, 1)
        self.assertRegex(refused.stderr.decode(), r"^gpuprobe: diff: .*\n$")


if __name__ == "__main__":
    harness.main()
