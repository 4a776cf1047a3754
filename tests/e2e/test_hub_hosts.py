"""Faults on a host that does not show the job, and jobs on more hosts than two."""
import glob
import json
import os
import re
import signal
import time

import harness
import hub_job
from harness import GPUPROBE

TROUBLES = os.path.join(harness.BUILD, "tests", "e2e", "collective_troubles")
AFTER_S = 2


class RolledUp:
    """The hosts send roll-ups, not records."""
    LOGS = "roll-up"

    def launched_on(self, name):
        return {**super().launched_on(name), "GPUPROBE_ROLL_UP_FROM": "1"}


class Faults(hub_job.HubJob):
    """On n2; n1 shows the job."""

    def in_trouble(self, what, words, seconds=0):
        """What n1 says within five seconds of the limit, and the hang of the report."""
        programs = {name: self.start_host(name, ("--hang-after", str(AFTER_S)), (what, str(seconds)), TROUBLES, GPUSIM_LINK="alpha=10us,beta=100GB/s") for name in self.holders}
        harness.wait_until(lambda: words in " ".join(programs["n1"].so_far().decode().split()), "hang")
        for program in programs.values():
            program.signal(signal.SIGTERM)
        for program in programs.values():
            self.assertNotEqual(program.wait(harness.LIMIT_S).returncode, 0)
        report = self.report(self.run_of("n1"))
        hang, = report["hangs"]
        self.assertEqual([rank["rank"] for rank in hang["ranks"]], [3])
        self.assertEqual({rank["host"] for rank in hang["ranks"]}, {"n2"})
        return " ".join(programs["n1"].so_far().decode().split()), hang

    def test_a_rank_that_does_not_issue(self):
        said, hang = self.in_trouble("skip", "Rank 3 did not: its last call was AllReduce")
        self.assertEqual((hang["kind"], hang["comm_ranks"], hang["issued"]), ("missing_rank", 4, 3))
        waited = re.search(r"HANG .*?has been waiting for ([0-9.]+) s", said)
        self.assertLess(float(waited[1]), AFTER_S + 5)

    def test_a_rank_that_issues_another_size(self):
        _, hang = self.in_trouble("size", "was issued differently by rank 3", harness.LIMIT_S)
        self.assertEqual((hang["kind"], hang["culprit_known"]), ("mismatch", True))

    def test_a_slow_rank_is_named_while_the_job_runs(self):
        programs = {name: self.start_host(name, arguments=("--steps", "100000"), GPUSIM_SLOW="rank=3,factor=4") for name in self.holders}
        began = time.monotonic()

        def slowest():
            seen = self.run_program([GPUPROBE, "top", "--once", "--json"], cwd=self.home("n1"))
            status = json.loads(seen.stdout) if seen.returncode == 0 else {"ranks": [], "slowest": None}
            return len(status["ranks"]) == 4 and status["slowest"] is not None and (status["ranks"][status["slowest"]]["rank"], status["ranks"][status["slowest"]]["host"])

        harness.wait_until(lambda: slowest() == (3, "n2"), "the slow rank in top")
        print(f"named {time.monotonic() - began:.1f} s after the start")
        self.end(programs)

    def test_a_hub_whose_disk_is_full(self):
        """n1's directory has room for a part of the records: the job ends as it would, and the rest is where it was recorded."""
        small = self.home("n1")
        self._in(self.holders["n1"], "mount", "-t", "tmpfs", "-o", "size=200k", "small", small)
        programs = {name: self.start_host(name, arguments=("--steps", "4000")) for name in self.holders}
        finished = {name: program.wait(harness.LIMIT_S) for name, program in programs.items()}
        self.assertEqual([program.returncode for program in finished.values()], [0, 0], str(finished))
        said = {name: program.stderr.decode() for name, program in finished.items()}
        self.assertIn("No space left on device", said["n1"])
        self.assertIn("the hub says: ", said["n2"])
        report = self.report(self.run_of("n2"))
        self.assertEqual([rank["rank"] for rank in report["ranks"]], [2, 3])
        self.assert_no_loss(report)
        self.assertEqual([rank["steps"]["count"] for rank in report["ranks"]], [4000, 4000])


class FourHosts(hub_job.HubJob):
    COUNT = 4
    RANKS_PER_HOST = 1
    LOGS = "."  # of a run, which the hub has, too

    def test_one_report(self):
        said = self.record(arguments=("--steps", "40", "--layers", "4"), GPUSIM_SLOW="rank=3,factor=2", GPUSIM_KERNELS=".*=2ms")
        self.assertIn(f"gpuprobe: {self.COUNT} ranks on {self.COUNT} GPUs of {self.COUNT} hosts in ", said["n1"])
        run = self.run_of("n1")
        report = self.report(run)
        self.assertEqual([(rank["rank"], rank["host"]) for rank in report["ranks"]], [(number, f"n{number + 1}") for number in range(self.COUNT)])
        self.assert_no_loss(report)
        with self.undisturbed(report):
            self.assertIn("rank 3", report["findings"][0]["statement"].lower())
        # As one would report it who has the directories of all hosts.
        own = [os.path.join(run, "n1"), *(self.run_of(f"n{number}") for number in range(2, self.COUNT + 1))]
        apart = json.loads(self.run_well([GPUPROBE, "report", *own, "--json"]).stdout)
        self.assertEqual(apart["findings"], report["findings"])
        for number in range(2, self.COUNT + 1):
            self.assertIn("; n1 reports on all hosts\n", said[f"n{number}"])
            logs = glob.glob(os.path.join(self.run_of(f"n{number}"), self.LOGS, "*.gpr"))
            self.assertEqual(len(logs), self.RANKS_PER_HOST)
            for path in logs:
                self.assertEqual(harness.read_file(path), harness.read_file(os.path.join(run, f"n{number}", os.path.basename(path))))


class EightHosts(FourHosts):
    COUNT = 8


class FaultsRolledUp(RolledUp, Faults):
    test_a_hub_whose_disk_is_full = None  # says nothing of what is sent


class FourHostsRolledUp(RolledUp, FourHosts):

    def test_one_report(self):
        super().test_one_report()
        said = self.run_well([GPUPROBE, "trace", self.run_of("n1"), "-o", self.path("timeline")]).stderr.decode()
        self.assertIn("of what n2 and 2 other hosts recorded there are only roll-ups here", said)


if __name__ == "__main__":
    harness.main()
