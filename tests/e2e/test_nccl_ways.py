"""NCCL used in the ways that are hard to see: captured into CUDA graphs, linked into the program. Each call once, with the time of its kernel."""
import harness
import truth
from harness import CAPTURED_COLLECTIVES, GPUPROBE, LATE_COLLECTIVES, LAUNCH_RANKS, LIBRARY, NCCL_CALLS, OPENS_MODULE, STATIC_COLLECTIVES


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


class ProfilerPlugin(NcclWays):
    """A program that has NCCL inside calls nothing that could be intercepted: NCCL itself tells, through its plugin interface."""

    def record_static(self, env=None):
        return self.record([LAUNCH_RANKS, "4", STATIC_COLLECTIVES, "0", "3"], {"CUDA_INJECTION64_PATH": LIBRARY, **(env or {})}, 4)

    def sources(self, captured):
        return {record["source"] for record in captured if record["kind"] == "collective"}

    def test_every_call_of_a_static_nccl(self):
        happened, captured, report = self.hold_against_truth(self.record_static())
        self.assertEqual(sum(record["kind"] == "collective" for record in happened), 4 * 3 * 7)
        self.assertEqual(self.sources(captured), {"plugin"})
        for rank in report["ranks"]:
            for entry in rank["collectives"]:
                if "Send" not in entry["op"]:
                    self.assertIsNotNone(entry["wait_ns"])

    def test_every_version_of_the_interface(self):
        for version in range(1, 7):
            with self.subTest(version=version):
                out = self.record_static({"GPUSIM_NCCL_PLUGIN_VERSION": str(version)})
                captured, happened = self.export(out), self.truth()
                self.assertEqual(self.sources(captured), {"plugin"})
                if version < 4:  # these do not tell how many ranks there are
                    for record in captured + happened:
                        record.pop("comm_ranks", None)
                self.assertEqual([line for line in truth.multiset_difference(
                    "collective", truth.COMPARED["collective"], [r for r in happened if r["kind"] == "collective"],
                    [r for r in captured if r["kind"] == "collective"])], [])
                self.forget_truth()

    def test_a_call_that_both_see_is_the_wrappers(self):
        for env in ({"CUDA_INJECTION64_PATH": LIBRARY}, {"LD_PRELOAD": LIBRARY}):
            out = self.record([LAUNCH_RANKS, "4", NCCL_CALLS, "--rounds=1"], env, 4)
            _, captured, _ = self.hold_against_truth(out)
            self.assertLessEqual(self.sources(captured), {"interposed", "relocation"})
            self.forget_truth()

    def test_somebody_elses_plugin_stays(self):
        """Then nothing but the kernels tells of the calls: each is a collective of an unknown communicator, with its operation and time."""
        happened_out = self.record_static({"NCCL_PROFILER_PLUGIN": "/somebody/elses.so"})
        happened = [record for record in self.truth() if record["kind"] == "collective"]
        captured = [record for record in self.export(happened_out) if record["kind"] == "collective"]
        kernels = {(record["pid"], record["correlation"]): (record["start_ns"], record["end_ns"]) for record in happened}
        self.assertEqual({(record["pid"], record["correlation"]): (record["start_ns"], record["end_ns"]) for record in captured}, kernels)
        self.assertEqual({(record["source"], record["comm"]) for record in captured}, {("kernel_name", "unknown")})
        self.assertEqual({record["op"] for record in captured}, {"AllReduce", "AllGather", "SendRecv"})
        for rank in self.report(happened_out)["ranks"]:
            calls = sum(entry["calls"] for entry in rank["collectives"])
            self.assertEqual(calls, sum(record["rank"] == rank["rank"] for record in captured))


class LateModule(NcclWays):
    """NCCL comes with a module that is opened long after CUDA was initialised, and is called at once."""

    COMMAND = [LAUNCH_RANKS, "4", OPENS_MODULE, LATE_COLLECTIVES, "2", "2"]

    def test_every_call_with_its_communicator(self):
        _, captured, _ = self.hold_against_truth(self.record(self.COMMAND, {"CUDA_INJECTION64_PATH": LIBRARY}, 4))
        self.assertIn("relocation", {record["source"] for record in captured if record["kind"] == "collective"})

    def test_every_call_without_the_plugin(self):
        """The making of the first communicator was missed, and with it the hash; its calls are not."""
        out = self.record(self.COMMAND, {"CUDA_INJECTION64_PATH": LIBRARY, "NCCL_PROFILER_PLUGIN": "/somebody/elses.so"}, 4)
        fields = tuple(field for field in truth.COMPARED["collective"] if field != "comm")
        of = [[record for record in records if record["kind"] == "collective" and not record.get("captured") and record["comm_ranks"] > 1]
              for records in (self.truth(), self.export(out))]
        self.assertEqual(truth.multiset_difference("collective", fields, *of), [])


del NcclWays  # has no tests of its own


if __name__ == "__main__":
    harness.main()
