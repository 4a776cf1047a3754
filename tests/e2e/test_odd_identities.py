"""Jobs whose processes say odd things about themselves: two that are the same rank, and a program whose clock is moved."""
import os

import harness
from harness import CUDA_SCRIPT, GPUPROBE, LIBRARY
from hazards import hazard

OWN_CLOCK = os.path.join(harness.BUILD, "tests", "e2e", "own_clock.so")
FIVE_YEARS_S = 157_680_000


class OddIdentities(harness.EndToEndTest):

    def findings(self, report):
        return {finding["id"]: finding for finding in report["findings"]}

    def together(self, ranks):
        """The run directory and the pids of programs that use one GPU at the same time, with these ranks."""
        collector = harness.Collector(self)
        env = {**collector.env(), "CUDA_INJECTION64_PATH": LIBRARY, "WORLD_SIZE": "1"}
        programs = [self.start([CUDA_SCRIPT, "kernels:100", f"touch:ready{index}", "await:go", "kernels:100"],
                               env={**env, "RANK": None if rank is None else str(rank)}) for index, rank in enumerate(ranks)]
        for index in range(len(programs)):
            harness.wait_until(lambda index=index: os.path.exists(os.path.join(self.cwd, f"ready{index}")), "program at work")
        with open(os.path.join(self.cwd, "go"), "wb"):
            pass
        for program in programs:
            self.assertEqual(program.wait().returncode, 0)
        self.assertEqual(collector.stop().returncode, 0)
        return collector.out, [program.pid for program in programs]

    @hazard("two processes say that they are the same rank, and use one GPU", sees="no difference",
            counted="each has its own row, with its pid; duplicate-rank and shared-device name them")
    def test_two_processes_of_one_rank(self):
        out, pids = self.together([0, 0])
        report = self.report(out)
        self.assertEqual([(rank["rank"], rank["kernels"]["count"]) for rank in report["ranks"]], [(0, 200), (0, 200)])
        self.assertEqual([sorted(duplicate["pids"]) for duplicate in report["conditions"]["duplicate_ranks"]], [sorted(pids)])
        found = self.findings(report)
        self.assertEqual(found["duplicate-rank"]["statement"], "Rank 0 was recorded by 2 processes at the same time.")
        for pid in pids:
            self.assertIn(f"rank 0 (pid {pid})", found["shared-device"]["evidence"])
        printed = self.run_well([GPUPROBE, "report", out]).stdout.decode()
        for pid in pids:
            self.assertRegex(printed, rf"\n 0 \(pid {pid}\) +200 ")

    @hazard("several processes without a rank use one GPU", sees="no difference", counted="shared-device names their pids")
    def test_processes_without_a_rank(self):
        out, pids = self.together([None, None])
        report = self.report(out)
        self.assertEqual(report["conditions"]["duplicate_ranks"], [])
        for pid in pids:
            self.assertIn(f"pid {pid}", self.findings(report)["shared-device"]["evidence"])

    def test_a_rank_that_is_started_again(self):
        collector = harness.Collector(self)
        for _ in range(2):
            self.run_well([CUDA_SCRIPT, "kernels:100"], env={**collector.env(), "CUDA_INJECTION64_PATH": LIBRARY, "RANK": "0", "WORLD_SIZE": "1"})
        collector.stop()
        self.assertEqual(list(self.findings(self.report(collector.out))), ["healthy", "steps-unknown"])

    @hazard("a preloaded library (libfaketime) moves the clock of the program and of CUPTI by five years", sees="no difference",
            counted="device times are moved by the difference, so that durations are right; device-clock says by how much")
    def test_clock_that_is_moved_by_a_library(self):
        for moved_s in (FIVE_YEARS_S, -FIVE_YEARS_S, 3):
            with self.subTest(moved_s=moved_s):
                collector = harness.Collector(self)
                self.run_well([CUDA_SCRIPT, "kernels:1000", "kernels:1000"],
                              env={**collector.env(), "CUDA_INJECTION64_PATH": LIBRARY, "LD_PRELOAD": OWN_CLOCK, "OWN_CLOCK_S": str(moved_s)})
                collector.stop()
                report = self.report(collector.out)
                self.assertLess(report["conditions"]["duration_ns"], 2e9 * harness.LIMIT_S)
                self.assertEqual(report["ranks"][0]["kernels"]["busy_ns"], 20_000_000)
                self.assertAlmostEqual(report["trust"]["device_clock_ahead_ns"] / 1e9, moved_s, delta=1)
                statement = self.findings(report)["device-clock"]["statement"]
                self.assertRegex(statement, "ahead of" if moved_s > 0 else "behind")

    def test_clocks_that_agree(self):
        collector = harness.Collector(self)
        self.run_well([CUDA_SCRIPT, "kernels:1000"], env={**collector.env(), "CUDA_INJECTION64_PATH": LIBRARY, "LD_PRELOAD": OWN_CLOCK})
        collector.stop()
        report = self.report(collector.out)
        self.assertEqual(report["trust"]["device_clock_ahead_ns"], 0)
        self.assertNotIn("device-clock", self.findings(report))


if __name__ == "__main__":
    harness.main()
