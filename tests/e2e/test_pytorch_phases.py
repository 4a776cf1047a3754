"""Unannotated PyTorch programs: the steps and phases that the probe infers, against the program's own marks (pytorch_phases.py), and torchrun's place in the run.

`PYTORCH_LOOPS=all` before this file runs every loop of the program. tests/data/pytorch has a recording of each for machines without PyTorch (test_pytorch_recordings.py).
"""
import json
import os
import statistics

import harness
import pytorch_phases
from harness import GPUPROBE
from pytorch import PyTorchTest, main

LOOPS = ("plain", "checkpointed", "alone", "squares", "squares --single", "accumulated --single", "checkpointed --single", "zero1", "sharded --single")
STEPS = 12
RANKS = 2


class OnTwoDevices(PyTorchTest):

    def env(self, extra=None, devices=RANKS, sim_lib=None):
        return super().env(extra, RANKS, sim_lib)


class Phases(OnTwoDevices):

    def test_of_loops_as_users_write_them(self):
        for loop in pytorch_phases.LOOPS if os.environ.get("PYTORCH_LOOPS") == "all" else LOOPS:
            with self.subTest(loop):
                out = self.path(loop.replace(" ", ""))
                name, *options = loop.split()
                launcher = [self.python] if name in pytorch_phases.ALONE else [self.python, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS)]
                self.run_well([GPUPROBE, "run", "--out", out, "--", *launcher, pytorch_phases.PROGRAM, "--loop", name, *options, "--steps", str(STEPS), "--marks"])
                self.assert_nothing_runs()
                pytorch_phases.check_run(self, out, STEPS, pytorch_phases.UNLIKE_OTHERS.get(name, 0))


class StaleNames(OnTwoDevices):

    def test_an_all_reduce_with_a_compute_kernels_name_is_communication(self):
        program = os.path.join(os.path.dirname(pytorch_phases.PROGRAM), "stale_names.py")
        out = self.path("out")
        self.run_well([GPUPROBE, "run", "--out", out, "--", *self.torchrun(RANKS, program, "40")], env={"GPUSIM_CUPTI_VERSION": "13.0"})
        self.assert_nothing_runs()
        names = [record["name"] for record in self.export(out) if record["kind"] == "kernel"]
        self.assertEqual(names.count("triton_per_fused_native_layer_norm_0"), RANKS * (41 + 1), "the node's CUPTI is wrong so that this test means something")
        report = self.report(out)
        self.assertEqual(report["steps"]["count"], 40)
        self.assertEqual({entry["class"]: entry["calls"] for entry in report["compute"]["classes"]}["collective"], RANKS * 41)
        self.assertEqual(report["trust"]["misnamed_kernels"], RANKS * 41)
        exposed_ns = {rank["rank"]: rank["steps"]["exposed_comm_ns"]["mean"] for rank in report["ranks"]}
        with self.undisturbed(report):
            self.assertGreater(exposed_ns[1], max(5e6, 3 * exposed_ns[0]))
            late = report["findings"][0]
            self.assertEqual(late["id"], "straggler-late-launch")
            self.assertIn("rank 0", late["statement"])


class SecondRun(PyTorchTest):

    def test_phases_take_as_long_as_record_function_says_in_another_run(self):
        """One run under the probe, without annotations, and one without it, in torch.profiler. Kernels are so long that the GPU never waits for the host, whose pace differs."""
        kernels = {"GPUSIM_KERNELS": ".*=400us"}
        program = [self.python, pytorch_phases.PROGRAM, "--loop", "resident", "--steps", str(STEPS)]
        out, trace = self.path("out"), self.path("trace.json")
        self.run_well([GPUPROBE, "run", "--out", out, "--", *program], env=kernels)
        self.assert_nothing_runs()
        self.run_well([*program, "--profile", trace], env=kernels)
        true, turns = pytorch_phases.profiled_phases(trace)
        self.assertGreaterEqual(turns, STEPS - 2, "turns with all three marks in torch.profiler's trace")
        report = json.loads(self.run_well([GPUPROBE, "report", out, "--json", "--steps"]).stdout)
        self.assert_no_loss(report)
        self.assertEqual({phase["source"] for phase in report["steps"]["phases"]}, {"inferred"})
        steps = report["ranks"][0]["steps"]["records"]
        self.assertEqual(len(steps), STEPS)
        for phase, length_ns in true.items():
            inferred_ns = statistics.median(step["phases"][phase] for step in steps[2:])
            self.assertAlmostEqual(inferred_ns, length_ns, delta=0.02 * length_ns, msg=f"{phase}; torch.profiler: {true}, inferred: {[step['phases'] for step in steps]}")


class Launcher(OnTwoDevices):

    def test_torchrun_is_in_the_run_of_its_ranks(self):
        """By injection alone, with nothing else set up: one directory, one line, and the launcher is no rank."""
        finished = self.run_well([self.python, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), pytorch_phases.PROGRAM, "--steps", "4"],
                                 env={"CUDA_INJECTION64_PATH": harness.LIBRARY})
        self.assert_nothing_runs()
        self.assertEqual(finished.stderr.count(b"gpuprobe: recording to"), 1, finished.stderr)
        run = self.only_run_directory()
        self.assertEqual(len([name for name in os.listdir(run) if name.startswith("pid-")]), 1, "the launcher's log")
        report = self.report(run)
        self.assert_no_loss(report)
        self.assertEqual([rank["rank"] for rank in report["ranks"]], list(range(RANKS)))
        self.assertEqual(report["steps"]["count"], 4)


if __name__ == "__main__":
    main()
