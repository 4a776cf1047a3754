"""NCCL used in the ways that are hard to see: captured into CUDA graphs. Each call once, with the time of its kernel."""
import harness
import truth
from harness import CAPTURED_COLLECTIVES, GPUPROBE, LAUNCH_RANKS, LIBRARY


class NcclWays(harness.EndToEndTest):
    """What the tests below share."""

    def hold_against_truth(self, out):
        happened, captured = self.truth(), self.export(out)
        self.assertEqual(truth.differences(happened, captured), [])
        report = self.report(out)
        self.assert_no_loss(report)
        return happened, captured, report

    def record(self, command, env, devices):
        collector = harness.Collector(self)
        self.run_well(command, env={**collector.env(), **env}, devices=devices)
        self.assertEqual(collector.stop().returncode, 0)
        self.assert_nothing_runs()
        return collector.out


class CapturedCollectives(NcclWays):

    CALLS_OF_A_STEP = 7

    def check(self, out, ranks, replays):
        happened, captured, report = self.hold_against_truth(out)
        replayed = [record for record in happened if record["kind"] == "collective" and record.get("replay")]
        self.assertEqual(len(replayed), ranks * self.CALLS_OF_A_STEP * 3 * replays)
        launches = {(record["pid"], record["correlation"]): record["time_ns"] for record in captured if record["kind"] == "launch"}
        for record in captured:
            if record["kind"] == "collective" and record.get("replay"):
                self.assertEqual(record["issue_ns"], launches[(record["pid"], record["correlation"])], "issued by the launch of its graph")
                self.assertLessEqual(record["issue_ns"], record["start_ns"])
        calls = sum(record["kind"] == "collective" for record in happened)
        self.assertEqual(sum(entry["calls"] for rank in report["ranks"] for entry in rank["collectives"]), calls)
        self.assertEqual(sum(entry["untimed_calls"] for rank in report["ranks"] for entry in rank["collectives"]), 0)
        for rank in report["ranks"]:
            for entry in rank["collectives"]:
                if "Send" not in entry["op"]:
                    self.assertIsNotNone(entry["wait_ns"], f"replays of {entry['op']} were compared across ranks")

    def test_with_run(self):
        out = self.path("run-directory")
        self.run_well([GPUPROBE, "run", "--out", out, "--", LAUNCH_RANKS, "4", CAPTURED_COLLECTIVES, "4"], devices=4)
        self.check(out, 4, 4)

    def test_by_injection_alone(self):
        self.check(self.record([LAUNCH_RANKS, "4", CAPTURED_COLLECTIVES, "2"], {"CUDA_INJECTION64_PATH": LIBRARY}, 4), 4, 2)

    def test_by_preload_alone(self):
        self.check(self.record([LAUNCH_RANKS, "4", CAPTURED_COLLECTIVES, "2"], {"LD_PRELOAD": LIBRARY}, 4), 4, 2)

    def test_many_replays(self):
        self.check(self.record([LAUNCH_RANKS, "4", CAPTURED_COLLECTIVES, "100"], {"CUDA_INJECTION64_PATH": LIBRARY}, 4), 4, 100)


del NcclWays  # has no tests of its own


if __name__ == "__main__":
    harness.main()
