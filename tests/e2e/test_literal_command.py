"""`CUDA_INJECTION64_PATH=libgpuprobe.so CMD`, with nothing else set up: one run directory, a report of all ranks, no process left."""
import os
import shutil
import unittest

import harness
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
        self.assertEqual(self.differences(self.truth(), self.export(out)), [])
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


class TwoJobs(harness.EndToEndTest):
    """Two jobs of one user at a time share the collector that the first of them has started, and nothing else."""

    def start_job(self, name, command, ranks=1, env=None):
        folder = self.path(name)
        os.mkdir(folder)
        return self.start(command, devices=ranks, cwd=folder, env={
            "CUDA_INJECTION64_PATH": LIBRARY, "GPUSIM_TRUTH": self.path(name + "-truth"), "GPUSIM_KERNELS": ".*=2ms", **PATIENT, **(env or {})})

    def check(self, name, program, ranks):
        finished = program.wait()
        self.assertEqual(finished.returncode, 0, str(finished))
        self.assert_nothing_runs()
        lines = [line for line in finished.stderr.decode().splitlines() if line.startswith("gpuprobe: ")]
        self.assertEqual(len(lines), 1, f"each job says once where it is recorded: {lines}")
        self.assertRegex(lines[0], r"^gpuprobe: recording to gpuprobe-runs/\S+; read it with: gpuprobe report gpuprobe-runs/\S+$")
        out = os.path.join(self.path(name), lines[0].split()[3].rstrip(";"))
        self.assertEqual(out, self.only_run_directory(os.path.join(self.path(name), "gpuprobe-runs")))
        self.assertEqual(len(self.report(out)["ranks"]), ranks)
        truth_folder = self.path(name + "-truth")
        happened = []
        for log in os.listdir(truth_folder):
            with open(os.path.join(truth_folder, log), encoding="utf-8") as file:
                happened += [harness.json.loads(line) for line in file]
        self.assertEqual(self.differences(happened, self.export(out)), [])

    def test_each_job_is_a_run_of_its_own(self):
        jobs = {"one": [harness.VECTOR_ADD, "--rounds=500"], "two": [harness.VECTOR_ADD, "--rounds=300"]}
        started = {name: self.start_job(name, command) for name, command in jobs.items()}
        for name, program in started.items():
            self.check(name, program, 1)

    def test_two_launchers_that_name_no_job(self):
        """Each has a parent of its own; "none" is what torchrun calls every job without a rendezvous."""
        command = [LAUNCH_RANKS, "2", DDP_TRAIN, *SMALL_TRAINING]
        started = {name: self.start_job(name, command, 2, {"TORCHELASTIC_RUN_ID": "none"}) for name in ("one", "two")}
        for name, program in started.items():
            self.check(name, program, 2)

    def test_the_same_directory_for_two_jobs(self):
        """The second one gets a number."""
        out = self.path("wanted")
        started = [self.start_job(name, [harness.VECTOR_ADD, "--rounds=300"], env={"GPUPROBE_OUT": out}) for name in ("one", "two")]
        for program in started:
            self.assertEqual(program.wait().returncode, 0)
        self.assert_nothing_runs()
        for path in (out, out + "-2"):
            self.assertEqual(len(self.report(path)["ranks"]), 1)

    def test_a_working_directory_that_others_could_exchange(self):
        """Recorded in a folder of the user's own, and said so."""
        place = f"/tmp/gpuprobe-{os.geteuid()}"
        folder = self.path("open")
        os.mkdir(folder)
        os.chmod(folder, 0o777)
        finished = self.run_well([harness.VECTOR_ADD], env={"CUDA_INJECTION64_PATH": LIBRARY, **PATIENT}, cwd=folder)
        self.assert_nothing_runs()
        said = finished.stderr.decode()
        self.assertRegex(said, rf"^gpuprobe: recording to {place}/\S+; read it with: .*\n$")
        out = said.split()[3].rstrip(";")
        self.addCleanup(shutil.rmtree, out, True)
        self.assertEqual(len(self.report(out)["ranks"]), 1)
        self.assertEqual(os.listdir(folder), [])


if __name__ == "__main__":
    harness.main()
