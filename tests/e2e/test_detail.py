"""How much is recorded changes while the program runs, for the overhead budget and for graphs as a whole, and the report says so. Another tool changes nothing."""
import os
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

    def test_a_tool_inside_the_program_gets_what_it_gets_without_us_and_so_do_we(self):
        """Each style of tool: its records and callbacks are the same, one by one, and ours are complete, with right times before, during and after."""
        for style, rounds in (("new", 1), ("old", 1), ("dlsym", 1), ("finalizes", 1), ("old", 20)):
            with self.subTest(style=style, rounds=rounds):
                command = [SECOND_TOOL, "guest", style, str(rounds)]
                alone = self.run_well(command, devices=1)
                finished, out = self.record(command)
                self.assertEqual(finished.stdout, alone.stdout)
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

    def test_over_the_budget_detail_is_shed(self):
        finished, out = self.record([SECOND_TOOL, "busy", "7"], {"GPUPROBE_OVERHEAD_BUDGET": "1", "GPUPROBE_FLUSH_MS": "100"})
        self.assertEqual(finished.stdout, b"done\n")
        trust = self.report(out)["trust"]
        self.assertGreaterEqual(trust["detail"]["reductions"], 1)
        self.assertNotEqual(trust["detail"]["level"], "full")
        self.assertGreater(trust["detail"]["reduced_ns"], 1_000_000_000)

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
