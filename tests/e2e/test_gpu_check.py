"""gpu-check.sh from the installed tree on the simulated node: its plumbing. What needs PyTorch is skipped, and says so."""
import json
import os
import shutil
import subprocess

import harness
from harness import BUILD, SOURCE


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
        self.assertEqual(status["child graphs"], {"ok"}, str(finished))
        self.assertTrue(results["facts"]["nodes_of_child_graphs_are_told_as_clones"])

    def test_counts_and_costs_are_held_against_what_the_workload_says(self):
        """A program in PyTorch's place: everything of the check but PyTorch itself."""
        packages = self.path("packages")
        shutil.copytree(os.path.join(SOURCE, "tests", "e2e", "programs", "torch_stand_in"), packages)
        os.mkdir(os.path.join(packages, "torch", "lib"))
        symbols = (b"_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE", b"_ZN3c1028reportOutOfMemoryToProfilerElmmNS_6DeviceE")
        with open(os.path.join(packages, "torch", "lib", "libc10.so"), "wb") as file:
            file.write(b"\0".join((*symbols, b"_ZN3c1027reportSomethingElseEv", b"")))
        out = self.path("check")
        finished = self.run_well([self.script, "--out", out, "--stand-in", os.path.join(BUILD, "tests", "e2e", "torch_stand_in")], devices=2,
                                 env={"PYTHONPATH": packages})
        self.assert_nothing_runs()
        results = self.results(out)
        found = {(check["step"], check["what"]): check for check in results["checks"]}
        for mode in ("eager", "compiled", "graphs"):
            for loading in ("injected", "preloaded"):
                for what, number in (("kernels", 150), ("copies", 50)):
                    check = found[(f"torch {mode} {loading}", f"{what} of the measured steps against torch.profiler's")]
                    self.assertEqual((check["status"], check["found"], check["expected"]), ("ok", number, number), str(finished))
            cost = results["cost"][mode]
            self.assertEqual([len(cost[name]["runs_s"]) for name in ("bare", "probe", "profiler")], [3, 3, 3])
            self.assertAlmostEqual(cost["probe"]["over_bare"], cost["probe"]["median_s"] / cost["bare"]["median_s"] - 1)
        self.assertEqual(results["facts"]["c10_reporting_symbols"], sorted(symbol.decode() for symbol in symbols))
        self.assertTrue(results["facts"]["kernels_of_graphs_have_node_ids"])
        self.assertEqual(results["conditions"]["torch"], "stand-in")

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
