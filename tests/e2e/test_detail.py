"""Recording ends for the overhead budget, and graphs are recorded as a whole, and the report says so. Another tool changes nothing."""
import os
import shutil
from collections import defaultdict

import harness
import truth
from harness import BUILD, CAPTURED_COLLECTIVES, LAUNCH_RANKS, LIBRARY

SECOND_TOOL = os.path.join(BUILD, "tests", "e2e", "second_tool")


class Detail(harness.EndToEndTest):

    def record(self, command, env=None, devices=1):
        collector = harness.Collector(self)
        finished = self.run_well(command, devices=devices, env={**collector.env(), "CUDA_INJECTION64_PATH": LIBRARY, **(env or {})})
        self.assertEqual(collector.stop().returncode, 0)
        self.assert_nothing_runs()
        return finished, collector.out

    def check_guest(self, style, rounds, copy=None, env=None, same_answers=True):
        """The tool's records and callbacks are those of a run without the probe, one by one, and ours are complete, with right times before, during and after."""
        command = [SECOND_TOOL, "guest", style, str(rounds)]
        env = {"SECOND_TOOL_CUPTI": copy, **(env or {})}
        alone = self.run_well(command, devices=1, env=env)
        self.forget_truth()
        finished, out = self.record(command, env)
        what_it_saw = finished.stdout if same_answers else finished.stdout[finished.stdout.index(b"memset "):]
        self.assertTrue(alone.stdout.endswith(what_it_saw) if not same_answers else alone.stdout == what_it_saw)
        self.assertIn(f"{0 if style == 'new' else 100 * rounds} callbacks, 0 buffers that are not the tool's, 0 wrong times", finished.stdout.decode())
        self.assertEqual(finished.stdout.count(b"\nmemset "), 50 * rounds)
        export = self.export(out)
        pid, = {record["pid"] for record in export}
        happened = [record for record in self.truth() if record["kind"] == "memset" and record["pid"] == pid]
        self.assertEqual(len(happened), 100 + 100 * rounds)
        captured = [record for record in export if record["kind"] == "memset"]
        exact = [field for field in truth.COMPARED["memset"] if not (style in ("old", "dlsym") and field in ("start_ns", "end_ns"))]
        self.assertEqual(truth.multiset_difference("memset", exact, happened, captured), [])
        starts = {record["correlation"]: record["start_ns"] for record in happened}
        off = max(abs(record["start_ns"] - starts[record["correlation"]]) for record in captured)
        self.assertLess(off, 50_000, "a tool's own clock is converted")
        trust = self.report(out)["trust"]
        self.assertEqual((trust["lost"], trust["yielded"]["times"]), ({}, 0))
        return finished

    def test_a_tool_inside_the_program_gets_what_it_gets_without_us_and_so_do_we(self):
        """Each style of tool, twenty times on and off."""
        # A tool may bring a libcupti of its own, as Triton's does.
        own_copy = self.path("libcupti-1f6c.so.13")
        shutil.copy(os.path.join(harness.SIM_LIB, "libcupti.so.13"), own_copy)
        for style, copy in (("new", None), ("old", None), ("dlsym", None), ("dlsym", own_copy), ("finalizes", None)):
            for version in ("13.0.1", "13.4.1"):  # the probe has the one subscription; it is one of several
                with self.subTest(style=style, copy=copy, version=version):
                    self.check_guest(style, 20, copy, {"GPUSIM_CUPTI_VERSION": version})

    def test_a_tool_that_subscribes_beside_others(self):
        """CUPTI has several subscribers from 13.4 on: such a tool has one of its own, and CUPTI answers all its calls as it would without us."""
        finished = self.check_guest("many", 20, env={"GPUSIM_CUPTI_VERSION": "13.4.1"})
        self.assertEqual(finished.stdout.count(b"subscribe beside others 0\n"), 20)

    def test_a_tool_that_wants_to_subscribe_beside_others_and_cannot(self):
        """With an older CUPTI, or an older driver, it is refused, as CUPTI refuses it, and is our guest when it asks in the old way."""
        for env, same_answers in (({"GPUSIM_CUPTI_VERSION": "13.0.1"}, True), ({"GPUSIM_CUPTI_VERSION": "13.3.1"}, False),
                                  ({"GPUSIM_CUPTI_VERSION": "13.4.1", "GPUSIM_FAULT": "one_subscriber"}, True)):
            with self.subTest(env=env):
                finished = self.check_guest("many", 3, env=env, same_answers=same_answers)
                self.assertEqual(finished.stdout.count(b"subscribe beside others 39\nsubscribe 0\n"), 3)

    def test_a_tool_that_was_first_and_leaves(self):
        """Until it has left there are no GPU times, and the report says so; from then on everything is recorded, and the tool gets what it would get without us."""
        for how in ("leaves", "stays"):
            for version, joined in (("13.0.1", False), ("13.4.1", True)):
                with self.subTest(how=how, version=version):
                    rounds = 20
                    command = [SECOND_TOOL, "first", how, str(rounds)]
                    env = {"GPUSIM_CUPTI_VERSION": version}
                    alone = self.run_well(command, env=env)
                    self.forget_truth()
                    finished, out = self.record(command, env)
                    self.assertEqual(finished.stdout, alone.stdout)
                    self.assertIn(f"\n{100 * rounds} callbacks, 0 buffers that are not the tool's, 0 wrong times".encode(), finished.stdout)
                    self.assertGreaterEqual(finished.stdout.count(b"\nmemset "), 50 + 50 * rounds)
                    happened = [record for record in self.truth() if record["kind"] == "memset"]
                    captured = [record for record in self.export(out) if record["kind"] == "memset"]
                    eager, replayed = 50 * 4 + 100 * rounds, 50 * (3 + 4)
                    before = 50 if how == "leaves" else 0  # what is in a buffer that both have a part of is ours, too
                    self.assertEqual((len(happened), len(captured)), (eager + replayed, eager - before + replayed))
                    exact = [field for field in truth.COMPARED["memset"] if field != "correlation"]
                    later = sorted(happened, key=lambda record: record["start_ns"])[before:]
                    self.assertEqual(truth.multiset_difference("memset", exact, later, captured), [])
                    # CUPTI before 13.1 Update 1 numbers the work of graphs wrongly in a second session.
                    unjoined = [record["stream"] for record in captured if record["correlation"] == 0]
                    self.assertEqual((len(unjoined), len(set(unjoined))), (0, 0) if joined else (replayed, 1))
                    report = self.report(out)
                    trust = report["trust"]
                    self.assertEqual((trust["lost"], trust["yielded"]["times"], trust["timing_source"]), ({}, 1, "cupti_activity"))
                    self.assertTrue(0.5e9 < trust["yielded"]["ns"] < 4e9, trust["yielded"])
                    evidence, = [finding["evidence"] for finding in report["findings"] if finding["id"] == "capture-incomplete"]
                    self.assertIn("another profiler had CUPTI for the first", evidence)
                    self.assertEqual("not matched with the launches" in evidence, not joined)

    def test_a_tool_that_was_first_and_does_not_leave(self):
        _, out = self.record([harness.VECTOR_ADD], {"GPUSIM_FAULT": "subscriber_taken"})
        report = self.report(out)
        self.assertEqual((report["trust"]["timing_source"], report["trust"]["yielded"]["times"]), ("none", 0))
        evidence, = [finding["evidence"] for finding in report["findings"] if finding["id"] == "capture-incomplete"]
        self.assertIn("another profiler has CUPTI", evidence)

    def test_over_the_budget_recording_ends(self):
        """What was recorded until then is whole: steps have the kernels, in number and time, that they have without a budget. What came later is counted."""
        steps = 20_000
        out = self.path("run")
        ran = self.run_well([harness.GPUPROBE, "run", "--out", out, "--", LAUNCH_RANKS, "2", harness.DDP_TRAIN, "--steps", str(steps)], devices=2,
                            env={"GPUPROBE_OVERHEAD_BUDGET": "1", "GPUSIM_KERNELS": ".*=5us", "GPUSIM_LINK": "alpha=10us,beta=10GB/s", "GPUSIM_TRUTH": None})
        report = self.report(out)
        trust = report["trust"]
        self.assertIn(trust["detail"]["level"], ("ended", "off"))
        self.assertGreater(trust["detail"]["reduced_ns"], 1_000_000_000)
        self.assertLess(trust["coverage"], 0.9)
        self.assertEqual(trust["lost"], {})
        evidence, = [finding["evidence"] for finding in report["findings"] if finding["id"] == "capture-incomplete"]
        self.assertRegex(evidence, r"^recording ended \d+\.\d s before the end, to stay within GPUPROBE_OVERHEAD_BUDGET")
        self.assertTrue(1000 < report["steps"]["count"] < steps, report["steps"]["count"])
        with self.undisturbed(report):
            compute = report["steps"]["compute_ns"]
            self.assertEqual((compute["p50"], compute["p99"]), (compute["max"], compute["max"]), "kernels of one length, the same in each step")
            self.assertAlmostEqual(compute["mean"], compute["max"], delta=0.001 * compute["max"])
        self.assertNotIn("warmup-dominated", [finding["id"] for finding in report["findings"]], "what was left out may have been steps")
        self.assertIn(b"recording ended", ran.stderr)

    def test_without_a_budget_it_is_not(self):
        _, out = self.record([SECOND_TOOL, "busy", "3"], {"GPUPROBE_FLUSH_MS": "100"})
        self.assertEqual(self.report(out)["trust"]["detail"], {"level": "full", "reductions": 0, "reduced_ns": 0})

    def test_graphs_as_a_whole(self):
        """Each launch of a graph is one record, from the start of its first node to the end of its last."""
        _, out = self.record([LAUNCH_RANKS, "2", CAPTURED_COLLECTIVES, "3"], {"GPUPROBE_KINDS": "graphs", "GPUPROBE_FLUSH_MS": "10"}, 2)
        happened, captured = self.truth(), self.export(out)
        replays = {(record["pid"], record["correlation"]) for record in happened if record["kind"] == "collective" and record.get("replay")}
        spans = defaultdict(list)
        for record in happened:
            if record["kind"] in ("kernel", "memset", "memcpy") and (record["pid"], record["correlation"]) in replays:
                spans[(record["pid"], record["correlation"])] += [record["start_ns"], record["end_ns"]]
        runs = {(record["pid"], record["correlation"]): (record["start_ns"], record["end_ns"]) for record in captured if record["kind"] == "graph_run"}
        self.assertEqual(runs, {key: (min(times), max(times)) for key, times in spans.items()})
        self.assertEqual([record for record in captured if record["kind"] == "kernel" and record["graph_node"]], [])
        self.assertEqual(self.report(out)["trust"]["detail"]["level"], "graphs")


if __name__ == "__main__":
    harness.main()
