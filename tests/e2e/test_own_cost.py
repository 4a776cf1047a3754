"""The reported cost of recording: our code, measured, and what CUPTI adds to launches, estimated."""
import os

import harness
from harness import BUILD, LIBRARY

EAGER_LAUNCHES = os.path.join(BUILD, "tests", "e2e", "eager_launches")
SHORT_KERNELS = {"GPUSIM_KERNELS": ".*=100ns"}
COSTLY = 0.1  # of the time, from here on there is a finding


class OwnCost(harness.EndToEndTest):

    def record(self, *arguments, **settings):
        """The run directory."""
        collector = harness.Collector(self)
        self.run_well([EAGER_LAUNCHES, *arguments],
                      env={**collector.env(), **SHORT_KERNELS, "CUDA_INJECTION64_PATH": LIBRARY, "GPUPROBE_FLUSH_MS": "100", **settings})
        self.assertEqual(collector.stop().returncode, 0)
        self.assert_nothing_runs()
        return collector.out

    def kernels(self, report):
        return sum(rank["kernels"]["count"] for rank in report["ranks"])

    def headline(self, out):
        return self.run_well([harness.GPUPROBE, "report", out]).stdout.decode().splitlines()[0]

    def test_many_launches_cost_much(self):
        launches = 300_000
        out = self.record(str(launches), "2")
        report = self.report(out)
        trust, cost = report["trust"], report["trust"]["cost"]
        self.assertEqual((trust["lost"], self.kernels(report)), ({}, launches))
        self.assertAlmostEqual(cost["launches"], launches, delta=0.02 * launches)
        self.assertAlmostEqual(cost["expected_cupti_least"] * report["conditions"]["duration_ns"], 1000 * cost["launches"], delta=0.1 * 1000 * launches)
        found = {finding["id"]: finding for finding in report["findings"]}
        # On a busy machine the program takes longer, and the cost is a smaller share of that.
        self.assertEqual("costly-capture" in found, cost["own_fraction"] + cost["expected_cupti_least"] >= COSTLY)
        if "costly-capture" in found:
            self.assertRegex(found["costly-capture"]["evidence"], r"CUPTI an estimated \S+ to \S+ % \([0-9,]+ launches of kernels, ")

    def test_of_few_launches_it_is_said_what_is_to_be_expected(self):
        out = self.record("2000", "1000")
        report = self.report(out)
        cost = report["trust"]["cost"]
        self.assertLess(cost["launch_fraction"], 0.05)
        self.assertGreater(cost["launch_fraction"], 0)
        self.assertEqual(self.kernels(report), 2000)
        self.assertRegex(self.headline(out), r"own cost \S+ % \+ CUPTI's part, estimated at \S+ to \S+ % \(based on H100 figures\)(; CUPTI reports |$)",
                         "CUPTI's worker may have waited for a processor")
        self.assertAlmostEqual(cost["expected_cupti_most"], 3 * cost["expected_cupti_least"], delta=1e-9)
        self.assertAlmostEqual(cost["expected_cupti_least"] * report["conditions"]["duration_ns"], 2000 * 1000, delta=300 * 1000)

    def test_what_cupti_reports_of_itself_is_added_up(self):
        out = self.record("3000", "300", GPUSIM_FAULT="slow_flush_ms=40")
        happened = [record for record in self.truth() if record["kind"] == "overhead"]
        cost = self.report(out)["trust"]["cost"]
        kinds = {record["what"] for record in happened}
        self.assertEqual(kinds, {"buffer_flush", "function_loading"})
        self.assertEqual({o["what"]: (o["count"], o["total_ns"]) for o in cost["overheads"]},
                         {kind: (sum(r["what"] == kind for r in happened), sum(r["end_ns"] - r["start_ns"] for r in happened if r["what"] == kind)) for kind in kinds})
        self.assertEqual(cost["overheads"][0]["what"], "buffer_flush", "the longest first")
        self.assertGreater(cost["cupti_overhead_fraction"], 0.01)
        self.assertRegex(self.headline(out), r"; CUPTI reports \S+ % for its own work, on any thread \(most overhead: buffer flush\)$")
        self.assertEqual(self.differences(happened, [record for record in self.export(out) if record["kind"] == "overhead"]), [])

    def test_the_budget_counts_what_cupti_is_estimated_to_cost(self):
        """Our own code is far below it, unless its thread lost the processor in a call that is timed."""
        for _ in range(3):
            trust = self.report(self.record("1500000", "2", GPUPROBE_OVERHEAD_BUDGET="4"))["trust"]
            if trust["cost"]["own_fraction"] < 0.04 and trust["cost"]["expected_cupti_least"] > 0.06:
                return self.assertGreaterEqual(trust["detail"]["reductions"], 1)
        self.skipTest("the machine was too busy")


if __name__ == "__main__":
    harness.main()
