"""Jobs on several hosts whose ranks load the probe by themselves, without `gpuprobe run`: they are one run where the ranks meet."""
import glob
import os
import signal
import unittest

import harness
import hub_job
from harness import LIBRARY

SLOW = 3


class Injected(hub_job.HubJob):

    def start_host(self, name, options=(), arguments=("--steps", "400"), program=hub_job.DDP_TRAIN, cwd=None, **extra):
        runtime = self.path("runtime", name)
        os.makedirs(runtime, 0o700, exist_ok=True)
        self.assertEqual(options, ())
        return self.start_on(name, ["bash", "-c", self.script_of(name, program, arguments)], devices=self.RANKS_PER_HOST * self.COUNT, cwd=cwd or self.home(name),
                             env={**self.launched_on(name), "CUDA_INJECTION64_PATH": LIBRARY, "XDG_RUNTIME_DIR": runtime, "GPUPROBE_SOCKET": None, **harness.PATIENT, **extra})

    def finished_run(self, name):
        def run():
            found = glob.glob(os.path.join(self.home(name), "gpuprobe-runs", "*", name, "report.json"))
            return os.path.dirname(os.path.dirname(found[0])) if found else None
        return harness.wait_until(run, f"report of {name}")

    def test_one_report_where_ranks_meet(self):
        said = self.record(GPUSIM_SLOW=f"rank={SLOW},factor=4")
        # The run of all hosts is reported when the collector of n1 has ended.
        run = self.finished_run("n1")
        harness.wait_until(lambda: os.path.exists(os.path.join(run, "report.json")), "the report of all hosts")
        self.await_collectors()
        report = self.report(run)
        self.assertEqual([(rank["rank"], rank["host"]) for rank in report["ranks"]], [(0, "n1"), (1, "n1"), (2, "n2"), (3, "n2")])
        self.assert_no_loss(report)
        with self.undisturbed(report):
            self.assertTrue(report["findings"][0]["id"].startswith("straggler"), report["findings"][0])
            self.assertIn(f"rank {SLOW}", report["findings"][0]["statement"].lower())
        of_n2 = self.finished_run("n2")
        self.assertEqual([rank["rank"] for rank in self.report(of_n2)["ranks"]], [2, 3])
        self.assertEqual(*self.logs_of(run, of_n2))
        self.assertIn(f"gpuprobe report {os.path.relpath(run, self.home('n1'))}\n", said["n1"])

    def await_collectors(self):
        self.assert_nothing_runs(but=[self.switch, *self.holders.values()])

    def logs_of(self, run, of_n2):
        """What n2 recorded, where it was posted to and where it was recorded."""
        return [{os.path.basename(path): harness.read_file(path) for path in glob.glob(os.path.join(folder, "n2", "*.gpr"))} for folder in (run, of_n2)]

    def test_off_is_off(self):
        self.record(GPUPROBE_HUB="off", arguments=("--steps", "50"))
        for name, ranks in (("n1", [0, 1]), ("n2", [2, 3])):
            run = self.finished_run(name)
            self.await_collectors()
            self.assertEqual([rank["rank"] for rank in self.report(run)["ranks"]], ranks)
            self.assertEqual([path for path in os.listdir(run) if path.startswith("n")], [name])

    def test_a_shared_directory(self):
        """Two jobs, one after the other, that name the same directory on both hosts."""
        for number, folder in ((1, "shared"), (2, "shared-2")):
            self.record(GPUPROBE_OUT=self.path("shared"), arguments=("--steps", "50"))
            harness.wait_until(lambda folder=folder: os.path.exists(self.path(folder, "report.json")), "the report of all hosts")
            self.await_collectors()
            self.assertEqual([rank["rank"] for rank in self.report(self.path(folder))["ranks"]], [0, 1, 2, 3], number)

    def test_a_host_that_cannot_be_reached_costs_the_job_nothing(self):
        self.record(GPUPROBE_HUB="10.77.0.99", arguments=("--steps", "50"))
        for name, ranks in (("n1", [0, 1]), ("n2", [2, 3])):
            self.assertEqual([rank["rank"] for rank in self.report(self.finished_run(name))["ranks"]], ranks)
        self.await_collectors()

    def test_top_has_all_ranks_and_collectors_that_are_told_to_end_do_not_wait(self):
        programs = {name: self.start_host(name, arguments=("--steps", "1000000")) for name in self.holders}
        for name in programs:
            harness.wait_until(lambda name=name: glob.glob(os.path.join(self.home(name), "gpuprobe-runs", "*", name, "*.gpr")), "records")
        harness.wait_until(lambda: self.ranks_in_top(self.run_of("n1")) == 4, "all ranks in top")
        for name in programs:
            pid = int(harness.read_file(self.path("runtime", name, "gpuprobe", "collector.sock.lock")))
            os.kill(pid, signal.SIGTERM)
        for name in programs:
            self.finished_run(name)
        self.end(programs)
        self.await_collectors()  # of those that the ranks have started since

    def mirrored_in(self, home):
        return glob.glob(os.path.join(home, "gpuprobe-runs", "*", "n2", "rank-2.gpr"))


if __name__ == "__main__":
    unittest.main()
