"""What the tests of PyTorch's own wheels on the simulated node share: the environments that scripts/pytorch-env.sh makes, and programs run with and without the probe.

GPUPROBE_TEST_PYTORCH names another folder with the same contents. NVIDIA's own libraries are not in it: the node's take their place. Kernels compute nothing,
so the programs' control flow must not depend on values.
"""
import contextlib
import glob
import os
import random
import re
import socket
import sys

import harness
from harness import LIBRARY, PATIENT, SIM_LIB

# Findings that are true of a machine that is busy with something else.
SLOW_HOST = {"launch-bound", "input-bound", "long-steps", "cpu-starved"}
SKIPPED = 77
FOLDER = os.environ.get("GPUPROBE_TEST_PYTORCH") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "gpuprobe", "pytorch")
SAMPLES = os.path.join(harness.SOURCE, "samples")


def release_of(environment):
    return tuple(int(part) for part in os.path.basename(environment).removeprefix("torch-").split("."))


def environments():
    """One folder for each release of PyTorch, the newest last."""
    return sorted((os.path.dirname(path) for path in glob.glob(os.path.join(FOLDER, "torch-*", "complete"))), key=release_of)


def free_port():
    """Below those that the system gives to whoever asks for any, so that it is still free when it is needed."""
    while True:
        port = random.randrange(10000, 29000)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("", port))
            return port


def main():
    if not environments():
        print(f"skipped: no PyTorch in {FOLDER}; scripts/pytorch-env.sh makes it")
        sys.exit(SKIPPED)
    harness.main()


class PyTorchTest(harness.EndToEndTest):
    """Runs the newest release; of_each_release runs them all."""

    def setUp(self):
        super().setUp()
        self.environment = environments()[-1]

    @property
    def python(self):
        return os.path.join(self.environment, "bin", "python")

    @property
    def node(self):
        """The node's libraries. PyTorch 2.15 asks for functions that NCCL has had since 2.29."""
        return f"{SIM_LIB}_nccl_2_29:{SIM_LIB}" if release_of(self.environment) >= (2, 15) else SIM_LIB

    def of_each_release(self):
        for self.environment in environments():
            yield

    def env(self, extra=None, devices=1, sim_lib=None):
        """torchrun without options listens on port 29500 unless this variable names another; other tests run at the same time."""
        return super().env({"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "PET_MASTER_PORT": str(free_port()), **PATIENT, **(extra or {})}, devices,
                           sim_lib or self.node)

    def torchrun(self, ranks, *arguments):
        return [self.python, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), *arguments]

    def sample(self, name, ranks=1, arguments=(), launcher=()):
        """The command that runs a program of samples/torch."""
        program = [os.path.join(SAMPLES, "torch", f"{name}.py"), *arguments]
        return self.torchrun(ranks, *launcher, *program) if ranks > 1 else [self.python, *program]

    def said(self, finished):
        """The lines of standard output, sorted: ranks share the stream, and Python may write a line and its end apart."""
        return sorted(filter(None, re.split(rb"\n|(?=rank \d+:)", finished.stdout)))

    def record(self, command, ranks=1, env=None, status=0, caches=(), limit=harness.LIMIT_S):
        """Runs a program with the probe and without it, which must look the same from outside, and returns its report. The first finds its caches empty, the second full: the folders that
        variables named in `caches` lead to.

        Everything that the ranks did on their GPUs is in the records. torchrun's own process, which does nothing on a GPU, is left out."""
        env = {**(env or {}), **{name: self.path(name) for name in caches}}
        out = self.path("out")
        collector = harness.Collector(self, out)
        self.probed = self.run_program(command, env={**env, **collector.env(), "CUDA_INJECTION64_PATH": LIBRARY}, devices=ranks, limit=limit)
        self.assertEqual(collector.stop().returncode, 0)
        self.assert_nothing_runs()
        self.plain = self.run_program(command, env={**env, "GPUSIM_TRUTH": self.path("plain-truth")}, devices=ranks, limit=limit)
        self.assertEqual(self.plain.returncode, status, str(self.plain))
        self.assertEqual(self.probed.returncode, status, str(self.probed))
        self.assertEqual(self.said(self.probed), self.said(self.plain))
        return self.report(out)

    def assert_equals_truth(self):
        """Of a program whose processes all ended well."""
        truth, captured = self.truth(), self.export(self.path("out"))
        launcher = {record["pid"] for record in truth} - {record["pid"] for record in truth if record["kind"] == "kernel"}
        happened, captured = ([record for record in records if record.get("pid") not in launcher] for records in (truth, captured))
        self.assertTrue(happened)
        self.assertEqual(self.differences(happened, captured), [])

    def finding_ids(self, report):
        return [finding["id"] for finding in report["findings"]]
