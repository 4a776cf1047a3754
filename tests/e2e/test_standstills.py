"""Jobs that give their GPUs no work for long: what hangs is named with what it waits for, and what waits rightly is not called a hang.

The program says nothing of itself (programs/strangers/standstills.cu). What each situation is, it says there; the right answer follows from that.
"""
import os
import re
import signal

import figures
import harness
from harness import BUILD, GPUPROBE, wait_until
from test_hang_causes import SOON_S, Hangs

STEPS = 40


class Standstills(Hangs):
    program = os.path.join(BUILD, "tests", "e2e", "standstills")
    node = {"GPUSIM_KERNELS": "MatmulForward=200us;MatmulBackward=400us;AdamUpdate=200us", "GPUSIM_LINK": "alpha=10us,beta=100GB/s"}
    half_made = {"background"}

    def test_ranks_that_have_trained_and_wait_for_what_never_comes(self):
        for what in ("lock", "queue"):
            with self.subTest(what):
                said, report = self.findings(what, 2, after_s=SOON_S)
                self.check(report, "hang-no-work", [0, 1])
                self.assertRegex(said, r"after [34]\d steps; no call is open, and the hosts are idle, too\.")
                self.assertGreaterEqual(report["hangs"][0]["waiting_ns"], SOON_S * 10**9)
                self.assertNotIn("rank-cut-off", [f["id"] for f in report["findings"]], "nothing is missing of ranks that did nothing")

    def idle(self, what, seconds=0):
        """The job is called IDLE, and nothing worse. `seconds`: how long the program waits; 0: until it is ended here."""
        program = self.begin(what, 2, seconds, SOON_S)
        wait_until(lambda: b"IDLE " in program.so_far() or not program.alive(), "IDLE")
        if seconds == 0:
            program.signal(signal.SIGTERM)
        finished = program.wait()
        self.assertNotIn(b"HANG", finished.stderr)
        report = self.report(self.out)
        self.assertEqual(figures.impossible(report), [])
        self.assertFalse([f for f in report["findings"] if f["severity"] == "error" or f["id"].startswith("hang")], report["findings"])
        return finished, report

    def test_ranks_that_wait_before_their_first_step_may_hang_or_not(self):
        _, report = self.idle("setup")
        self.assertEqual([f["id"] for f in report["findings"]], ["job-idle"], report["findings"])
        self.assertIn("no step has begun", report["findings"][0]["statement"])
        self.assertIn("gpuprobe stacks", report["findings"][0]["advice"])

    def test_a_server_without_requests_does_not_hang(self):
        for what in ("server", "server-spins"):
            with self.subTest(what):
                finished, report = self.idle(what, 8 * SOON_S)
                self.assertEqual(finished.returncode, 0, str(finished))
                self.assertEqual(report["hangs"], [])

    def test_work_on_the_host_between_steps_is_no_hang(self):
        for what in ("busy", "checkpoint", "child"):
            with self.subTest(what):
                self.check_fine(what, 2, 4 * SOON_S, SOON_S)

    def test_a_job_that_waited_for_input_and_whose_loader_then_died(self):
        said, report = self.findings("loader", 4, after_s=SOON_S)
        self.check(report, "hang-missing-rank", [0])
        self.assertIn("rank 0 did not issue it", said)
        found = {f["id"]: f for f in report["findings"]}
        self.assertNotIn("job-idle", found)
        if "cpu-starved" in found:
            return  # other work on this machine
        with self.undisturbed(report):
            self.assertIn("input-bound", found)
        late = found["input-bound"]
        steps = int(re.search(r"Measured in the (\d+) steps before the hang\.", late["evidence"])[1])
        self.assertEqual(steps, report["steps"]["count"] - report["steps"]["warmup_count"])
        self.assertLessEqual(steps, STEPS)
        self.assertLess(late["cost_ns_per_step"], report["steps"]["time_ns"]["mean"])

    def test_a_communicator_that_is_created_in_the_background(self):
        said, report = self.findings("background", 4, after_s=SOON_S)
        self.check(report, "hang-creation", [3])
        self.assertIn("Ranks 0-2 have been waiting for ncclCommInitRankConfig of communicator", said)
        self.assertIn("to complete in the background", said)
        self.assertIn("rank 3 has not called it.", said)

    def test_who_trains_on_does_not_wait_for_a_communicator_in_the_background(self):
        self.check_fine("late-joiner", 4, 4 * SOON_S, SOON_S)


if __name__ == "__main__":
    harness.main()
