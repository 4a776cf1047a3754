"""Level calls on several hosts: the hub sees who is late, and has that rank, its neighbours and a healthy one record some steps in full, whatever host they are on."""
import json
import os

import harness
import test_capture_hosts
from hazards import hazard
from test_calls import TIMED


class CallsOnHosts(test_capture_hosts.CaptureOnHosts):
    LEVEL = "calls"

    def assert_raised(self, rank, ranks, by):
        """Once, for the rank, of these ranks; its cause is found."""
        report = self.final_report()
        trace = report["call_trace"]
        self.assertEqual((trace["compared_by"], trace["late_rank"]), (by, rank), trace)
        self.assertEqual([(r["rank"], r["failed"]) for r in trace["raises"]], [(rank, False)], trace["raises"])
        raised, = trace["raises"]
        self.assertLessEqual(ranks, set(raised["ranks"]))
        self.assertRegex(raised["outcome"], rf"^captured steps \d+ to \d+, counted by GPUPROBE_STEP_MARKER, on {len(raised['ranks'])} processes of 2 hosts")
        self.assertEqual([(s["rank"], s["host"]) for s in report["stragglers"]], [(rank, "n2")])
        causes = [f for f in report["findings"] if f["severity"] != "info" and f"rank {rank}" in f["statement"].lower()]
        self.assertIn("kernels run", causes[0]["evidence"], report["findings"])
        self.assert_no_loss(report)
        return raised

    def final_report(self):
        with open(os.path.join(self.out, "report.json"), encoding="utf-8") as file:
            return json.load(file)


class EightRanks(CallsOnHosts):
    RANKS_PER_HOST = 4

    @hazard("at level calls, a GPU of another host than the one that shows the job is slow", sees="same status",
            counted="named as late, captured once with ranks of both hosts, found by its kernels")
    def test_a_slow_gpu_of_the_other_host(self):
        programs = self.start_job(1900, GPUSIM_SLOW="rank=4,factor=1.6", **TIMED)
        self.end_all(programs)
        raised = self.assert_raised(4, {3, 4, 5}, "gpu")  # rank 3 is n1's
        self.assertEqual(len(raised["ranks"]), 4)
        captured = self.export(self.out)
        self.assertEqual({r["rank"] for r in captured if r["kind"] == "kernel"}, set(raised["ranks"]))
        # A report that is made from the logs says the same.
        self.assertEqual(self.report(self.out)["call_trace"]["raises"], [raised])
        # The other host decided nothing by itself, and knows why its ranks recorded in full.
        self.assertEqual(self.report(self.run_of("n2"))["call_trace"]["raises"], [raised])


class RolledUp(CallsOnHosts):
    """The hub has roll-ups instead of records; and without NCCL's times, the ranks of each host are compared by their processes."""

    def launched_on(self, name):
        return {**super().launched_on(name), "GPUPROBE_ROLL_UP_FROM": "1"}

    def test_ranks_of_a_host_are_compared_by_their_processes(self):
        programs = self.start_job(1900, GPUSIM_SLOW="rank=3,factor=1.6")
        self.end_all(programs)
        self.assert_raised(3, {0, 2, 3}, "host")


class AtAHub(CallsOnHosts, test_capture_hosts.HubElsewhere):

    def test_a_job_of_two_other_hosts(self):
        self.start_hub()
        programs = self.start_job(1900, GPUSIM_SLOW="rank=3,factor=1.6", **TIMED)
        self.end_all(programs)
        harness.wait_until(lambda: os.path.exists(os.path.join(self.out, "report.json")), "report", limit=60)
        raised = self.assert_raised(3, {0, 2, 3}, "gpu")
        self.assertEqual(self.report(self.out)["call_trace"]["raises"], [raised])


if __name__ == "__main__":
    harness.main()
