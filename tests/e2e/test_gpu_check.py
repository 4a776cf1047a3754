"""gpu-check.sh from the installed tree on the simulated node: its plumbing. What needs PyTorch is skipped, and says so."""
import json
import os
import subprocess

import harness
from harness import BUILD


class GpuCheck(harness.EndToEndTest):

    def setUp(self):
        super().setUp()
        self.tree = self.path("tree")
        subprocess.run(["cmake", "--install", BUILD, "--prefix", self.tree], check=True, stdout=subprocess.DEVNULL)
        self.script = os.path.join(self.tree, "share", "gpuprobe", "gpu-check.sh")

    def results(self, out):
        with open(os.path.join(out, "results.json"), encoding="utf-8") as file:
            return json.load(file)

    def test_compares_and_skips_aloud(self):
        out = self.path("check")
        finished = self.run_well([self.script, "--out", out], devices=2)
        self.assert_nothing_runs()
        results = self.results(out)
        status = {}
        for check in results["checks"]:
            status.setdefault(check["step"], set()).add(check["status"])
        for program in ("vector_add", "ddp_train", "nccl_calls"):
            for loading in ("injected", "preloaded"):
                self.assertEqual(status[f"{program} {loading}"], {"ok"}, str(finished))
                self.assertTrue(os.path.isdir(os.path.join(out, "runs", f"{program}-{loading}")))
        for mode in ("eager", "compiled", "graphs"):
            self.assertEqual(status[f"torch {mode}"], {"skipped"})
        self.assertIn(b"SKIPPED", finished.stderr)
        self.assertTrue(results["conditions"]["simulated"])
        self.assertTrue(results["facts"]["kernels_have_correlation_ids_with_callbacks_only"])

    def test_a_step_that_fails_is_told_and_the_others_go_on(self):
        out = self.path("check")
        os.remove(os.path.join(self.tree, "samples", "vector_add"))
        finished = self.run_program([self.script, "--out", out], devices=2)
        self.assertEqual(finished.returncode, 1, str(finished))
        status = {check["step"]: check["status"] for check in self.results(out)["checks"]}
        self.assertEqual(status["vector_add injected"], "failed")
        self.assertEqual(status["ddp_train injected"], "ok")

    def test_a_time_limit_is_kept(self):
        out = self.path("check")
        finished = self.run_program([self.script, "--out", out, "--limit", "0"], devices=2)
        self.assertEqual(finished.returncode, 1, str(finished))
        self.assertEqual({check["status"] for check in self.results(out)["checks"]} - {"failed", "skipped"}, set())


if __name__ == "__main__":
    harness.main()
