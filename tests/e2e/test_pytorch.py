"""PyTorch's own wheels on the simulated node: `torchrun samples/torch_ddp.py` under the probe, by each way of loading it, and torch.profiler inside a probed run.

Without an environment (pytorch.py says which) everything here is skipped.
"""
import glob
import os
import re
import shutil

from harness import GPUPROBE, LIBRARY
from pytorch import SAMPLES, PyTorchTest, main

RANKS = 2
STEPS = 8


class Distributed(PyTorchTest):
    """DistributedDataParallel under torchrun."""

    def command(self):
        return self.torchrun(RANKS, os.path.join(SAMPLES, "torch_ddp.py"), "--steps", str(STEPS))

    def peaks(self, finished):
        """What torch.cuda.max_memory_allocated and max_memory_reserved said, by rank."""
        found = re.findall(rb"rank (\d+): \d+ steps, (\d+) bytes allocated and (\d+) reserved", finished.stdout)
        return {int(rank): (int(allocated), int(reserved)) for rank, allocated, reserved in found}

    def said(self, finished):
        """Without the peaks: how many buffers collectives keep busy depends on when they end."""
        return [re.sub(rb"\d+ bytes allocated and \d+ reserved", b"", line) for line in super().said(finished)]

    def run_of_ranks(self, parent):
        """torchrun itself asks how many GPUs there are, and is recorded apart from its ranks."""
        runs = {os.path.dirname(path) for path in glob.glob(os.path.join(parent, "*", "rank-0.gpr"))}
        self.assertEqual(len(runs), 1, f"runs with a rank 0: {runs}")
        return runs.pop()

    def check_errors(self, with_probe, without, prints_report):
        """Standard error has nothing besides what the program says and where it is recorded; `gpuprobe run` prints its report there."""
        if prints_report:
            self.assertEqual([line for line in without if line not in with_probe], [])
        else:
            self.assertEqual([line for line in with_probe if not line.startswith(b"gpuprobe: recording to ")], without)

    def check(self, finished, out):
        self.assertEqual(finished.returncode, 0, str(finished))
        plain = self.plain
        self.assertEqual(self.said(finished), self.said(plain))
        self.check_errors(finished.stderr.splitlines(), plain.stderr.splitlines(), prints_report=out is not None)
        self.assert_nothing_runs()
        out = out or self.run_of_ranks(os.path.join(self.cwd, "gpuprobe-runs"))
        # torchrun's own process, which does nothing on a GPU, may be in another run.
        happened, captured = ([record for record in records if record.get("rank") in range(RANKS)] for records in (self.truth(), self.export(out)))
        self.assertEqual(self.differences(happened, captured), [])
        report = self.report(out)
        self.assert_no_loss(report)
        self.assertEqual(report["steps"]["count"], STEPS)
        ranks = {rank["rank"]: rank["memory"]["pytorch"][0] for rank in report["ranks"] if rank["rank"] in range(RANKS)}
        self.assertEqual({rank: (memory["peak_allocated_bytes"], memory["peak_reserved_bytes"]) for rank, memory in ranks.items()}, self.peaks(finished))

    def ways(self):
        """How the probe comes into the program: extra variables, what stands before the command, and the run's directory if the command names it."""
        out = self.path("out")
        yield "by the driver alone", {"CUDA_INJECTION64_PATH": "libgpuprobe.so", "LD_LIBRARY_PATH": f"{self.node}:{os.path.dirname(LIBRARY)}"}, [], None
        yield "preloaded", {"LD_PRELOAD": LIBRARY}, [], None
        yield "gpuprobe run", {}, [GPUPROBE, "run", "--out", out, "--"], out

    def test_in_every_way_with_each_release(self):
        for _ in self.of_each_release():
            self.plain = self.run_well(self.command(), devices=RANKS)
            self.assertEqual(len(self.peaks(self.plain)), RANKS)
            for way, env, before, out in self.ways():
                with self.subTest(os.path.basename(self.environment) + " " + way):
                    self.forget_truth()
                    self.check(self.run_program([*before, *self.command()], env=env, devices=RANKS), out)
                for folder in (os.path.join(self.cwd, "gpuprobe-runs"), self.path("out")):
                    shutil.rmtree(folder, ignore_errors=True)
            self.forget_truth()

    def test_gpuprobe_run_behind_torchrun(self):
        """torchrun starts `gpuprobe run` for each rank, and one of them records for all."""
        self.plain = self.run_well(self.command(), devices=RANKS)
        self.forget_truth()
        out = self.path("out")
        probed = self.torchrun(RANKS, "--no-python", GPUPROBE, "run", "--out", out, "--", self.python, *self.command()[5:])
        finished = self.run_program(probed, devices=RANKS)
        self.check(finished, out)
        self.assertEqual(finished.stderr.count(b"gpuprobe: "), 1, "one report")


class Profiler(PyTorchTest):

    def test_torch_profiler_inside_a_probed_run_sees_the_same_work(self):
        for _ in self.of_each_release():
            command = self.sample("profiled")
            plain = self.run_well(command)
            self.assertRegex(plain.stdout.decode(), r"(?m)^ *\d+ .*gemm")
            self.forget_truth()
            probed = self.run_well(command, env={"CUDA_INJECTION64_PATH": LIBRARY})
            self.assert_nothing_runs()
            self.assertEqual(probed.stdout, plain.stdout)
            self.assert_no_loss(self.report(self.only_run_directory()))
            shutil.rmtree(os.path.join(self.cwd, "gpuprobe-runs"))


if __name__ == "__main__":
    main()
