"""PyTorch's own wheel on the simulated node: `torchrun samples/torch_ddp.py` under the probe, by each way of loading it.

scripts/pytorch-env.sh makes the environment; GPUPROBE_TEST_PYTORCH names another folder with the same contents. Without it everything here is skipped. NVIDIA's own
libraries are not in it: the node's take their place. Kernels compute nothing, so the programs' control flow must not depend on values.
"""
import glob
import os
import re
import sys

import harness
from harness import GPUPROBE, LIBRARY, PATIENT, SIM_LIB

SKIPPED = 77
FOLDER = os.environ.get("GPUPROBE_TEST_PYTORCH") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "gpuprobe", "pytorch")
SAMPLES = os.path.join(harness.SOURCE, "samples")
RANKS = 2
STEPS = 8


def environments():
    return sorted(os.path.dirname(path) for path in glob.glob(os.path.join(FOLDER, "torch-*", "complete")))


class PyTorchTest(harness.EndToEndTest):
    """In one environment, the newest."""

    def setUp(self):
        super().setUp()
        self.python = os.path.join(environments()[-1], "bin", "python")

    def env(self, extra=None, devices=RANKS, sim_lib=None):
        return super().env({"GPUSIM_DEVICES": str(RANKS), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", **PATIENT, **(extra or {})}, devices, sim_lib)


class Distributed(PyTorchTest):
    """DistributedDataParallel under torchrun."""

    def command(self):
        return [self.python, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), os.path.join(SAMPLES, "torch_ddp.py"), "--steps", str(STEPS)]

    def peaks(self, finished):
        """What torch.cuda.max_memory_allocated and max_memory_reserved said, by rank."""
        found = re.findall(rb"rank (\d+): \d+ steps, (\d+) bytes allocated and (\d+) reserved", finished.stdout)
        return {int(rank): (int(allocated), int(reserved)) for rank, allocated, reserved in found}

    def said(self, finished):
        """Standard output without the peaks: how many buffers collectives keep busy depends on when they end."""
        said = re.sub(rb"\d+ bytes allocated and \d+ reserved", b"", finished.stdout)
        # Ranks share the stream, and Python may write a line and its end apart.
        return sorted(filter(None, re.split(rb"\n|(?=rank \d+:)", said)))

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

    def with_probe(self, env=None, before=(), out=None):
        self.plain = self.run_well(self.command())
        self.assertEqual(len(self.peaks(self.plain)), RANKS)
        self.forget_truth()
        self.check(self.run_program([*before, *self.command()], env=env), out)

    def test_injected_by_the_driver(self):
        self.with_probe({"CUDA_INJECTION64_PATH": "libgpuprobe.so", "LD_LIBRARY_PATH": f"{SIM_LIB}:{os.path.dirname(LIBRARY)}"})

    def test_preloaded(self):
        self.with_probe({"LD_PRELOAD": LIBRARY})

    def test_gpuprobe_run(self):
        out = self.path("out")
        self.with_probe(before=[GPUPROBE, "run", "--out", out, "--"], out=out)


class Profiler(PyTorchTest):

    def test_torch_profiler_inside_a_probed_run_sees_the_same_work(self):
        command = [self.python, os.path.join(SAMPLES, "torch", "profiled.py")]
        plain = self.run_well(command)
        self.assertRegex(plain.stdout.decode(), r"(?m)^ *\d+ .*gemm")
        self.forget_truth()
        probed = self.run_well(command, env={"CUDA_INJECTION64_PATH": LIBRARY})
        self.assert_nothing_runs()
        self.assertEqual(probed.stdout, plain.stdout)
        report = self.report(self.only_run_directory())
        self.assert_no_loss(report)


if __name__ == "__main__":
    if not environments():
        print(f"skipped: no PyTorch in {FOLDER}; scripts/pytorch-env.sh makes it")
        sys.exit(SKIPPED)
    harness.main()
