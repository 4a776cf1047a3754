"""`CUDA_INJECTION64_PATH=libgpuprobe.so CMD`, with nothing else set up: one run directory, a report of all ranks, no process left."""
import os
import shutil
import unittest

import harness
import truth
from harness import DDP_TRAIN, LAUNCH_RANKS, LIBRARY, PATIENT, SIM_LIB, SMALL_TRAINING


class LiteralCommand(harness.EndToEndTest):

    def literal_env(self):
        return {"CUDA_INJECTION64_PATH": "libgpuprobe.so", "LD_LIBRARY_PATH": f"{SIM_LIB}:{os.path.dirname(LIBRARY)}", **PATIENT}

    def check(self, finished, plain, ranks):
        self.assert_nothing_runs()
        self.assertEqual(finished.stdout, plain.stdout)
        added = finished.stderr.decode()
        for line in plain.stderr.decode().splitlines(keepends=True):
            added = added.replace(line, "", 1)
        self.assertEqual(len(added.splitlines()), 1, f"standard error got more or less than one line:\n{added}")
        self.assertRegex(added, r"^gpuprobe: ")
        self.assertIn("gpuprobe-runs/", added)
        out = self.only_run_directory()
        self.assertTrue(os.path.exists(os.path.join(out, "report.json")))
        report = self.report(out)
        self.assertEqual(sorted(rank["rank"] for rank in report["ranks"]), list(range(ranks)))
        self.assert_no_loss(report)
        self.assertEqual(truth.differences(self.truth(), self.export(out)), [])
        self.assertEqual(os.listdir(self.path("tmp")), [], "left in the temporary folder")
        self.assertFalse(harness.answers(self.path("run", "gpuprobe", "collector.sock")))

    def with_and_without(self, command, ranks):
        plain = self.run_well(command, devices=ranks)
        self.forget_truth()
        finished = self.run_well(command, devices=ranks, env=self.literal_env())
        self.check(finished, plain, ranks)

    def test_plain_launcher(self):
        self.with_and_without([LAUNCH_RANKS, "4", DDP_TRAIN, *SMALL_TRAINING], 4)

    def test_mpirun(self):
        mpirun = shutil.which("mpirun")
        if mpirun is None:
            raise unittest.SkipTest("no mpirun: install openmpi-bin")
        self.with_and_without([mpirun, "--allow-run-as-root", "--oversubscribe", "-n", "4", DDP_TRAIN, *SMALL_TRAINING], 4)

    def test_one_process(self):
        plain = self.run_well([harness.VECTOR_ADD])
        self.forget_truth()
        finished = self.run_well([harness.VECTOR_ADD], env=self.literal_env())
        self.assert_nothing_runs()
        self.assertEqual(finished.stdout, plain.stdout)
        self.assertEqual(len(self.report(self.only_run_directory())["ranks"]), 1)

    def test_second_command_gets_a_run_directory_of_its_own(self):
        for _ in range(2):
            self.run_well([harness.VECTOR_ADD], env=self.literal_env())
            self.assert_nothing_runs()
        self.assertEqual(len(os.listdir(os.path.join(self.cwd, "gpuprobe-runs"))), 2)


if __name__ == "__main__":
    harness.main()
