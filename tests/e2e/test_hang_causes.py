"""Hangs that public bug reports describe: the finding names what keeps the ranks waiting, live and in the report, and nothing else."""
import json
import os
import re
import signal

import figures
import harness
from harness import BUILD, GPUPROBE, LAUNCH_RANKS, wait_until

CAUSES = os.path.join(BUILD, "tests", "e2e", "hang_causes")
SOON_S = 2   # where no record may be on its way
AFTER_S = 5  # so long that records which CUPTI holds back have been asked for and have come


class Hangs(harness.EndToEndTest):
    program = CAUSES
    node = {"GPUSIM_LINK": "alpha=10us,beta=100GB/s"}
    half_made = {"no-join"}  # situations in which a communicator is never complete

    def begin(self, what, ranks, seconds=0, after_s=AFTER_S):
        self.out = self.path(f"run-directory-{len(self._programs)}")
        command = [GPUPROBE, "run", "--out", self.out, "--hang-after", str(after_s), "--", LAUNCH_RANKS, str(ranks), self.program, what, str(seconds)]
        return self.start(command, env=self.node, devices=ranks)

    def findings(self, what, ranks, seconds=0, hangs=1, until=b"HANG", after_s=AFTER_S):
        """Runs until `until` is said, ends the program, and returns what was said and the report."""
        program = self.begin(what, ranks, seconds, after_s)
        wait_until(lambda: until in program.so_far() or not program.alive(), until)
        said = " ".join(program.so_far().decode().split())
        program.signal(signal.SIGTERM)
        program.wait()
        if what in self.half_made:
            self.remove_half_made()
        self.assert_nothing_runs()
        with open(os.path.join(self.out, "report.json"), encoding="utf-8") as file:
            report = json.load(file)
        self.assertEqual(figures.impossible(report), [])
        self.assertNotIn("gpu-idle", [f["id"] for f in report["findings"]], "a rank that hangs uses its GPU")
        replayed = json.loads(self.run_well([GPUPROBE, "report", self.out, "--json", "--hang-after", str(after_s)]).stdout)
        self.assertEqual(report["hangs"], replayed["hangs"])
        self.assertEqual((len(report["hangs"]), said.count("HANG ")), (hangs, hangs), (said, report["hangs"]))
        return said, report

    def remove_half_made(self):
        """The node's NCCL removes a communicator's memory only when all ranks have joined."""
        pids = {name.partition(".")[0] for name in os.listdir(self.path("truth"))}
        for name in os.listdir("/dev/shm"):
            if name.startswith("gpusim-nccl-") and name.split("-")[2] in pids:
                os.unlink(os.path.join("/dev/shm", name))

    def check(self, report, finding, ranks):
        self.assertEqual((report["findings"][0]["id"], [r["rank"] for r in report["hangs"][0]["ranks"]]), (finding, ranks), report["findings"])

    def check_fine(self, what, ranks, seconds, after_s=AFTER_S):
        finished = self.begin(what, ranks, seconds, after_s).wait()
        self.assertEqual(finished.returncode, 0, str(finished))
        self.assertNotIn(b"HANG", finished.stderr)
        report = self.report(self.out)
        self.assertEqual((report["hangs"], report["past_hangs"]), ([], []))
        self.assertEqual(figures.impossible(report), [])
        return report


class HangCauses(Hangs):

    def test_two_ranks_that_send_before_they_receive(self):
        # The groups before have ended, but while a Send runs CUPTI holds their records back until it is asked for them.
        said, report = self.findings("send-send", 2)
        self.check(report, "hang-circular", [0, 1])
        self.assertIn("Ranks 0, 1 have been waiting for each other for", said)
        self.assertIn("ank 0 issued its Send to rank 1 before its Recv from rank 1.", said)
        self.assertIn("Put the sends and receives of one exchange into one group", said)

    def test_a_ring_of_ranks_that_send_before_they_receive(self):
        _, report = self.findings("send-ring", 3)
        circle, = report["hangs"]
        self.assertEqual(([rank["rank"] for rank in circle["ranks"]], [link["kind"] for link in circle["links"]]), ([0, 1, 2], ["queued"] * 3))

    def test_two_communicators_in_opposite_order(self):
        said, report = self.findings("opposite-order", 2)
        self.check(report, "hang-circular", [0, 1])
        orders = re.findall(r"ank (\d) issued (AllReduce seq 10 on communicator \w+) before (AllReduce seq 10 on communicator \w+)\.", said)
        self.assertEqual(len(orders), 2, said)
        self.assertEqual((orders[0][0] != orders[1][0], orders[0][1:]), (True, orders[1][:0:-1]))

    def test_a_barrier_that_only_one_rank_calls(self):
        for seconds in (0, harness.LIMIT_S):
            with self.subTest(seconds=seconds):
                said, report = self.findings("extra-barrier", 4, seconds)
                self.check(report, "hang-extra-call", [0])
                self.assertIn("rank 0 issued it, one call more than ranks 1-3.", said)
                self.assertNotIn("own log", said)

    def test_ranks_that_exit_after_the_hang_began_are_not_its_cause(self):
        program = self.begin("extra-barrier", 4, 2 * AFTER_S)
        wait_until(lambda: b"HANG" in program.so_far() or not program.alive(), "HANG")
        wait_until(lambda: len([pid for pid in harness.all_pids() if b"hang_causes" in harness.read_proc(pid, "cmdline").split(b"\0")[0]
                                and f"E2E_MARK={self.mark}".encode() in harness.read_proc(pid, "environ").split(b"\0")]) == 1, "one rank is left")
        program.signal(signal.SIGTERM)
        program.wait()
        self.check(self.report(self.out), "hang-extra-call", [0])

    def test_a_rank_with_one_batch_fewer(self):
        said, report = self.findings("uneven", 4)
        self.check(report, "hang-missing-rank", [3])
        self.assertIn("exited with code 0", said)
        self.assertIn("give all ranks the same number of batches", said)

    def test_a_mismatch_that_passed_and_a_hang(self):
        said, report = self.findings("mismatch-then-hang", 4, hangs=2, until=b"rank 1 did not issue it")
        self.check(report, "hang-missing-rank", [1])
        self.assertIn("AllReduce seq 2 on communicator", said)
        self.assertEqual([f["id"] for f in report["findings"][:2]], ["hang-missing-rank", "hang-mismatch"])

    def test_a_rank_that_two_communicators_wait_for_is_one_finding(self):
        said, report = self.findings("mesh", 4)
        self.check(report, "hang-missing-rank", [3])
        # The row of rank 3 or its column is the headline, whichever waited first; the rest follows from the other one.
        self.assertRegex(said, "Rank [12] waits for rank 3 in AllReduce seq 9 on communicator")
        self.assertRegex(said, "Rank 0 waits for rank [12] in AllReduce seq 9 on communicator")

    def test_a_collective_of_some_ranks_is_no_hang(self):
        self.check_fine("subset", 4, 1.5 * AFTER_S)

    def test_a_rank_that_comes_late_again_and_again_is_no_hang(self):
        self.check_fine("slow", 4, AFTER_S / 10)

    def test_a_rank_that_does_not_create_the_communicator(self):
        for what, function in (("no-join", "ncclCommInitRank"), ("no-split", "ncclCommSplit")):
            with self.subTest(what):
                said, report = self.findings(what, 4, after_s=SOON_S)
                self.check(report, "hang-creation", [3])
                self.assertIn(f"Ranks 0-2 have been in {function} of communicator", said)
                self.assertIn("; rank 3 has not called it.", said)
                self.assertIn("Rank 3 is not in it: its last call was AllReduce seq 9", said)
                hang, = report["hangs"]
                self.assertEqual((hang["kind"], hang["issued"], hang["not_heard"]), ("creation", 3, 0))


if __name__ == "__main__":
    harness.main()
