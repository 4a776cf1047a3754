"""How much is recorded changes while the program runs: for the overhead budget, for another tool, for graphs as a whole; and the report says so."""
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

    def test_another_tool_takes_the_buffers_and_gives_them_back(self):
        """It sees all of its own and nothing of ours; we have all of what was before and after."""
        finished, out = self.record([SECOND_TOOL, "steal"])
        self.assertEqual(finished.stdout, b"the tool saw 50 memsets and 0 buffers that are not its own\n")
        happened = sorted((record for record in self.truth() if record["kind"] == "memset"), key=lambda r: r["start_ns"])
        self.assertEqual(len(happened), 200)
        captured = [record for record in self.export(out) if record["kind"] == "memset"]
        self.assertEqual(truth.multiset_difference("memset", truth.COMPARED["memset"], happened[:100] + happened[150:], captured), [])
        report = self.report(out)
        self.assertEqual(report["trust"]["yielded"]["times"], 1)
        self.assertGreater(report["trust"]["yielded"]["ns"], 2_000_000_000)
        self.assertLess(report["trust"]["yielded"]["ns"], 6_000_000_000)
        self.assertIn("capture-incomplete", {finding["id"] for finding in report["findings"]})

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
