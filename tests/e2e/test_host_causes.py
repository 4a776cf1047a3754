"""PyTorch programs whose host keeps the GPU waiting: the first finding names the cause and the program's own line."""
import json
import os
import re

import harness
from harness import GPUPROBE
from pytorch import PyTorchTest, main

TIMED = os.path.join(harness.SOURCE, "tests", "e2e", "programs", "torch", "timed_loop.py")
PROGRAM = os.path.join(harness.SOURCE, "tests", "e2e", "programs", "torch", "host_causes.py")


def line_of(kind):
    """The one that is to blame."""
    with open(PROGRAM, encoding="utf-8") as file:
        line, = (number for number, text in enumerate(file, 1) if re.search(rf"  # [a-z_ ]*\b{kind}\b", text))
    return line


class HostCauses(PyTorchTest):

    def first_of(self, kind, ranks, *arguments, **env):
        """What the first finding says, and all of them."""
        out = self.path(f"out-{kind}-{len(arguments)}")
        command = self.torchrun(ranks, PROGRAM, kind, *arguments) if ranks > 1 else [self.python, PROGRAM, kind, *arguments]
        self.run_well([GPUPROBE, "run", "--out", out, "--", *command], devices=ranks, env=env)
        self.assert_nothing_runs()
        report = self.report(out)
        return report, "\n".join(f"[{f['id']}] {f['statement']} {f['evidence']} > {f['advice']}" for f in report["findings"])

    def check(self, kind, finding, *words, ranks=1, **env):
        """Without NVTX ranges, and with ranges around the parts of a step."""
        for arguments in ((), ("--annotate",)):
            with self.subTest(kind=kind, arguments=arguments):
                report, told = self.first_of(kind, ranks, *arguments, **env)
                with self.undisturbed(report):
                    first = report["findings"][0]
                    self.assertIn(first["id"], finding.split(), told)
                    said = " ".join((first["statement"], first["evidence"], first["advice"]))
                    for word in (f"host_causes.py:{line_of(kind)})", *words):
                        self.assertIn(word, said, told)

    def test_the_cache_emptied_in_each_step(self):
        # A release takes longer than an allocation: a driver waits for the device and takes mappings back.
        self.check("empty_cache", "memory-calls", "empty_cache (torch/cuda/memory.py", GPUSIM_DRIVER_CALLS="cuMemFree=20us")

    def test_garbage_that_is_collected(self):
        self.check("garbage", "long-steps host-pause", "<garbage collection>")

    def test_a_checkpoint_of_one_rank(self):
        self.check("checkpoint", "long-steps straggler-late-launch straggler-intermittent", "writes a checkpoint", "rank 0", ranks=2)

    def test_an_evaluation_on_one_rank(self):
        self.check("evaluation", "long-steps straggler-late-launch straggler-intermittent straggler-unexplained", "in evaluate", "rank 0", ranks=2)

    def test_values_that_are_read(self):
        self.check("item", "sync-in-loop", "cuStreamSynchronize")

    def test_an_optimizer_on_the_host(self):
        self.check("offload", "host-pause", "The optimizer computes on the host", "DeepSpeedCPUAdam")

    def test_a_tensor_in_pageable_memory(self):
        self.check("pageable", "host-pause input-bound", "it copies pageable memory to the GPU: cuMemcpyHtoDAsync", "pin_memory=True")

    def test_a_slow_dataset_in_the_main_process(self):
        self.check("dataset", "input-bound", "it loads data")

    def test_a_slow_dataset_in_workers(self):
        self.check("workers", "input-bound", "it loads data")

    def test_a_lock_that_another_thread_holds(self):
        self.check("lock", "host-pause", "it waits for another thread: main")

    def test_pythons_lock_that_another_thread_holds(self):
        self.check("gil", "host-pause launch-bound input-bound long-steps", "waiting for Python's lock (GIL), which another thread holds in crunch")

    def test_a_loop_that_times_its_own_parts(self):
        """It waits for the GPU in each step, and loads and logs afterwards: the GPU is idle for as long as these two take."""
        out = self.path("out-timed")
        ran = self.run_well([GPUPROBE, "run", "--out", out, "--", self.python, TIMED, "waits", "100"])
        took_ms = json.loads(ran.stdout.splitlines()[-1])
        report = self.report(out)
        with self.undisturbed(report):
            self.assertAlmostEqual(report["steps"]["time_ns"]["mean"] / 1e6, took_ms["step"], delta=0.05 * took_ms["step"])
            idle = report["steps"]["idle"]
            waits_ms = sum(idle[cause]["mean"] for cause in ("input_ns", "sync_ns", "pause_ns", "host_bound_ns")) / 1e6
            self.assertGreater(waits_ms, 0.8 * (took_ms["load"] + took_ms["log"]), (idle, took_ms))
            self.assertLess(waits_ms, took_ms["log"] + took_ms["load"] + took_ms["to"] + took_ms["forward"] + 0.5, (idle, took_ms))
            self.assertGreater(idle["input_ns"]["mean"] / 1e6, 0.6 * took_ms["load"], (idle, took_ms))

    def test_a_rank_without_a_processor_of_its_own(self):
        """What stretches everything that a host does may also be seen as what it does; one of the findings says it."""
        report, told = self.first_of("starved", 2)
        self.assertTrue(any("waiting for a CPU" in finding["statement"] + finding["evidence"] and "Give each rank enough cores" in finding["advice"]
                            or finding["id"] == "cpu-starved" for finding in report["findings"]), told)

    def test_an_optimizer_that_launches_kernel_by_kernel(self):
        """Several lines of it launch; one of them may be named for all."""
        for arguments in ((), ("--annotate",)):
            with self.subTest(arguments=arguments):
                report, told = self.first_of("optimizer", 1, *arguments, GPUSIM_KERNELS=".*=2us")
                with self.undisturbed(report):
                    first = report["findings"][0]
                    self.assertIn(first["id"], ("host-pause", "launch-bound"), told)
                    self.assertRegex(first["statement"] + first["evidence"], r"update_by_hand \(\S*host_causes.py:\d+\)", told)

    def test_a_graph_that_is_compiled_in_each_step(self):
        self.check("compile", "host-pause", "it compiles")

    def test_a_log_file_that_blocks(self):
        self.check("log", "host-pause", "it logs: write of ")


if __name__ == "__main__":
    main()
