"""gpu-check.sh from the installed tree on the simulated node: its plumbing, and its CUDA steps with small counts. What needs PyTorch, JAX or CuPy
is skipped, and says so, or measures a stand-in."""
import json
import os
import shutil
import subprocess
import sys
import types

import harness
from harness import BUILD, SOURCE

STAND_IN = os.path.join(BUILD, "tests", "e2e", "torch_stand_in")
PACKAGES = os.path.join(SOURCE, "tests", "e2e", "programs", "torch_stand_in")
STEPS = 20  # of the stand-in, with --quick
LOADINGS = ("injected", "preloaded")
MODES = ("eager", "graphs", "compiled")
CUDA_STEPS = ("large graph", "second tool, old style", "second tool, new style", "CUPTI trace", "GPU health", "many launches",
              "many launches, exit without waiting", "one_of_each", "launch cost", "child graphs",
              *(f"{program} {loading}" for program in ("vector_add", "ddp_train", "nccl_calls") for loading in LOADINGS))
TORCH_STEPS = ("torch.profiler inside, eager", "torch.profiler inside, graphs", "torch adds", "torch step cost", "c10 symbols", *(f"torch {mode}" for mode in MODES))
RUNGS = {"bare", "CUPTI alone", "CUPTI alone, every kind", "CUPTI alone, flushed", "nvtx only", "kernels only", "+ copies", "+ memsets", "+ syncs", "+ memory", "+ nccl", "+ nvtx", "+ driver", "everything"}
SKIPPED_STEPS = ("JAX", "CuPy", "one_of_each_static")


class GpuCheck(harness.EndToEndTest):

    def setUp(self):
        super().setUp()
        self.tree = self.path("tree")
        subprocess.run(["cmake", "--install", BUILD, "--prefix", self.tree], check=True, stdout=subprocess.DEVNULL)
        self.out = self.path("check")
        self.command = [os.path.join(self.tree, "share", "gpuprobe", "gpu-check.sh"), "--quick", "--out", self.out]

    def results(self, path=None):
        with open(path or os.path.join(self.out, "results.json"), encoding="utf-8") as file:
            return json.load(file)

    def statuses(self):
        """By step, the kinds of answers that it gave."""
        results = self.results()
        status = {step: set() for step in results["step_seconds"]}
        for check in results["checks"]:
            status[check["step"]].add(check["status"])
        return status

    def found(self):
        return {(check["step"], check["what"]): check for check in self.results()["checks"]}

    def test_runs_every_cuda_step_and_skips_the_others_aloud(self):
        finished = self.run_well(self.command, devices=2)
        self.assert_nothing_runs()
        results, status = self.results(), self.statuses()
        for step in CUDA_STEPS:
            self.assertEqual(status[step], {"ok"}, f"{step}\n{finished}")
        for step in (*TORCH_STEPS, *SKIPPED_STEPS):
            self.assertEqual(status[step], {"skipped"}, f"{step}\n{finished}")
        self.assertEqual(set(status), {"conditions", "assumed", *CUDA_STEPS, *TORCH_STEPS, *SKIPPED_STEPS})
        self.assertGreater(len(results["assumed"]), 5)
        for assumption in results["assumed"]:
            self.assertIn(f"assumed  {assumption['behaviour']} [".encode(), finished.stdout)
        self.assertEqual(finished.stderr.count(b"SKIPPED"), len(TORCH_STEPS) + len(SKIPPED_STEPS))
        self.assertTrue(results["conditions"]["simulated"])
        self.assertTrue(results["facts"]["kernels_have_correlation_ids_with_callbacks_only"])
        self.assertFalse(results["facts"]["calls_in_child_graphs_are_followed"])
        self.assertEqual(set(results["cost"]), {"replay of 100 nodes", "launch of an empty kernel"})
        self.assertEqual(set(results["cost"]["launch of an empty kernel"]), RUNGS)
        self.assertIn("01-vector_add-injected", os.listdir(os.path.join(self.out, "runs")))
        self.assertTrue(os.path.getsize(self.out + ".tar.gz"))

    def test_reads_what_cupti_tells(self):
        self.run_well([*self.command, "--only", "CUPTI trace"])
        facts = self.results()["facts"]
        self.assertTrue(facts["runtime_and_driver_calls_share_correlation_ids"])
        self.assertEqual(facts["driver_calls_of_waits"]["cudaDeviceSynchronize"], ["cuCtxSynchronize_v2"])
        self.assertTrue(facts["ids_of_new_streams_can_be_asked"])
        self.assertEqual(facts["graph_node_types_by_event"]["GRAPHNODE_CREATED"], [0])
        self.assertEqual(facts["recorded_graph_nodes_that_were_never_told"], 2, "those of the child graph that is held twice")
        self.assertTrue(os.path.getsize(os.path.join(self.out, "cupti_trace.log")))

    def test_holds_counts_against_what_the_workload_says(self):
        """A program in PyTorch's place: everything of the check but PyTorch itself."""
        packages = self.path("packages")
        shutil.copytree(PACKAGES, packages)
        os.mkdir(os.path.join(packages, "torch", "lib"))
        symbols = (b"_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE", b"_ZN3c1028reportOutOfMemoryToProfilerElmmNS_6DeviceE")
        with open(os.path.join(packages, "torch", "lib", "libc10.so"), "wb") as file:
            file.write(b"\0".join((*symbols, b"_ZN3c1027reportSomethingElseEv", b"")))
        finished = self.run_well([*self.command, "--only", "torch,c10", "--stand-in", STAND_IN], env={"PYTHONPATH": packages})
        self.assert_nothing_runs()
        results, status, found = self.results(), self.statuses(), self.found()
        self.assertEqual(set(status), {"conditions", *TORCH_STEPS})
        for step in TORCH_STEPS:
            self.assertEqual(status[step], {"ok"}, f"{step}\n{finished}")
        for step, of in [*(("torch.profiler inside, " + mode, "") for mode in ("eager", "graphs")),
                         *((f"torch {mode}", f", {loading}") for mode in MODES for loading in LOADINGS)]:
            kinds = (("kernels and copies", 4 * STEPS),) if "graphs" in step else (("kernels", 3 * STEPS), ("copies", STEPS))
            for what, number in kinds:
                self.assertEqual(found[(step, f"{what} of the measured steps against torch.profiler's{of}")]["found"], number)
        for mode in MODES:
            cost = results["cost"][f"torch {mode} step"]
            self.assertEqual([len(cost[name]["runs_s"]) for name in ("bare", "probe", "profiler")], [2, 2, 1])
            self.assertAlmostEqual(cost["probe"]["over_bare"], cost["probe"]["median_s"] / cost["bare"]["median_s"] - 1)
        for of in ("torch x.add_(1)", "eager PyTorch step"):
            self.assertEqual(set(results["cost"][of]), RUNGS)
        self.assertEqual(results["facts"]["c10_reporting_symbols"], sorted(symbol.decode() for symbol in symbols))
        self.assertTrue(results["facts"]["kernels_of_graphs_have_node_ids"])
        self.assertEqual(results["conditions"]["torch"], "stand-in")

    def test_steps_without_nvtx_ranges_are_a_failure(self):
        finished = self.run_program([*self.command, "--only", "torch eager", "--stand-in", STAND_IN],
                                    env={"PYTHONPATH": PACKAGES, "GPUPROBE_KINDS": "kernels,copies,memory"})
        self.assertEqual(finished.returncode, 1, str(finished))
        marks = self.found()[("torch eager", "NVTX ranges of the measured steps, injected")]
        self.assertEqual((marks["status"], marks["found"], marks["expected"]), ("differs", 0, STEPS))

    def test_a_run_that_is_cut_off_has_left_the_steps_before(self):
        seen, watcher = self.path("seen.json"), self.path("watcher.sh")
        with open(watcher, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\ncp {self.out}/results.json {seen}\nexec {STAND_IN} \"$@\"\n")
        os.chmod(watcher, 0o755)
        self.run_well([*self.command, "--only", "vector_add,torch eager", "--stand-in", watcher], env={"PYTHONPATH": PACKAGES})
        self.assertEqual(set(self.results(seen)["step_seconds"]), {"conditions", "vector_add injected", "vector_add preloaded"})

    def test_a_step_that_fails_is_told_and_the_others_go_on(self):
        os.remove(os.path.join(self.tree, "samples", "vector_add"))
        finished = self.run_program([*self.command, "--only", "vector_add,ddp_train"], devices=2)
        self.assertEqual(finished.returncode, 1, str(finished))
        self.assertEqual(self.statuses(), {"conditions": set(), "vector_add injected": {"failed"}, "vector_add preloaded": {"failed"},
                                           "ddp_train injected": {"ok"}, "ddp_train preloaded": {"ok"}})

    def test_a_tree_without_nccl_and_cupti_skips_what_needs_them(self):
        for name in ("ddp_train", "nccl_calls", "gpu_check/guest_tool", "gpu_check/libcupti_trace.so", "gpu_check/libcupti_alone.so"):
            os.remove(os.path.join(self.tree, "samples", name))
        self.run_well([*self.command, "--only", "ddp_train,nccl_calls,child graphs,second tool,CUPTI trace"])
        self.assertEqual({step for step, status in self.statuses().items() if status != {"skipped"}}, {"conditions"})

    def test_a_time_limit_is_kept(self):
        finished = self.run_program([*self.command, "--limit", "0"], devices=2)
        self.assertEqual(finished.returncode, 1, str(finished))
        self.assertEqual({check["status"] for check in self.results()["checks"]} - {"failed", "skipped"}, set())

    def test_annotations_of_the_host_are_no_kernels(self):
        sys.path[:0] = [PACKAGES, os.path.join(SOURCE, "samples", "gpu_check")]
        import torch_workload
        names = {"CUDA": ["Memcpy HtoD (Pinned -> Device)", "Memset (Device)", "ampere_sgemm_128x64_nn", "triton_poi_fused_gelu_0"],
                 "CPU": ["Optimizer.step#AdamW.step", "aten::mm", "cudaLaunchKernel", "triton_poi_fused_gelu_0"]}
        events = [types.SimpleNamespace(name=name, device_type=f"DeviceType.{device}", is_user_annotation=False) for device, some in names.items()
                  for name in some]
        events.append(types.SimpleNamespace(name="Optimizer.step#AdamW.step", device_type="DeviceType.CUDA", is_user_annotation=True))
        counts = {"kernels": 0, "copies": 0}
        torch_workload.count_work(events, counts)
        self.assertEqual(counts, {"kernels": 2, "copies": 1})


if __name__ == "__main__":
    harness.main()
