"""What gpuprobe answers about simulated jobs, where test_scenarios.py asks for findings: comparisons, patterns of parallelism, advice.

Each answer is held against the schedule: what `gpuprobe simulate` was told, or the truth that follows from it (simulated.py).
"""
import json
import os
import re
import shutil
import unittest

import harness
import simulated
from harness import GPUPROBE

# Healthy pairs in which nothing may be said to have changed.
PAIRS = 6


class Simulated(harness.EndToEndTest):

    def simulate(self, scenario, *options):
        """(run directory, report, truth)"""
        run = self.path(f"{scenario}-{len(os.listdir(self.path()))}", "run")
        self.run_well([GPUPROBE, "simulate", "--scenario", scenario, "--out", run, *options])
        return run, harness.read_report(run), simulated.truth("--scenario", scenario, *options)

    def diff(self, a, b):
        return json.loads(self.run_well([GPUPROBE, "diff", a, b, "--json"]).stdout)


class Diff(Simulated):

    def test_of_two_healthy_runs_nothing_is_said_to_have_changed(self):
        for scenario in ("healthy", "compute-bound"):
            runs = [self.simulate(scenario, "--seed", str(seed))[0] for seed in range(1, 2 * PAIRS + 1)]
            for a, b in zip(runs[::2], runs[1::2]):
                compared = self.diff(a, b)
                self.assertEqual((compared["kernels"], compared["collectives"]), ([], []), compared["verdict"])

    def test_a_slower_network_is_slower_transfers_of_every_size(self):
        for seed in ("1", "2", "3"):
            before, _, healthy = self.simulate("healthy", "--seed", seed)
            after, _, slow = self.simulate("slow-network", "--seed", seed)
            compared = self.diff(before, after)
            self.assertIn("B is slower", compared["verdict"])
            self.assertEqual(compared["kernels"], [])
            listed = {c["name"]: c for c in compared["collectives"]}
            self.assertTrue(listed)
            for c in listed.values():
                self.assertGreater(c["b"]["mean_ns"], c["a"]["mean_ns"], c)
                self.assertGreater(c["change_ns_per_step"], 0, c)
            for size, name in ((25 * 2**20, "AllReduce 25.0 MiB, 8 ranks"), (2**20, "AllReduce 1.00 MiB, 8 ranks")):
                for run, truth in (("a", healthy), ("b", slow)):
                    true = next(c for c in truth["collectives"] if c["op"] == "AllReduce" and c["argument_bytes"] == size)
                    self.assertAlmostEqual(listed[name][run]["mean_ns"] / true["transfer_ns"], 1, delta=0.01, msg=listed[name])
            # A rank issues the 1 MiB reduction once in each step.
            self.assertAlmostEqual(listed["AllReduce 1.00 MiB, 8 ranks"]["a"]["calls_per_step"], 1, delta=0.01)



def true_bubble(truth):
    """Share of the step in which a stage neither computes nor communicates other than with a stage."""
    steps = [step for rank in truth["by_rank"] for step in rank["steps"] if step["step"] >= truth["warmup_steps"]]
    total = sum(step["total_ns"] for step in steps)
    busy = sum(step["compute_ns"] for step in steps)
    # The tensor-parallel calls stand on the stream that computes: nothing runs beside them.
    busy += sum(c["time_ns"] * c["calls"] * c["ranks"] for c in truth["collectives"] if c["kind"] == "tensor")
    busy += sum((call["time_ns"] - call["hidden_ns"]) * len(steps) for call in truth.get("data_calls", []))
    return 1 - busy / total


class Parallelism(Simulated):

    def findings(self, report):
        return {f["id"]: f for f in report["findings"] if f["severity"] != "info"}

    def check_bytes_share(self, report, truth):
        """For the operations of the steps; what starts the run (a broadcast) is in the report alone."""
        true = {}
        for c in truth["collectives"]:
            transfer = c["kind"] == "pipeline"
            # Sender and receiver both issue one; of others every rank does.
            bytes_moved = c["calls"] * c["argument_bytes"] * (2 if transfer else c["ranks"])
            name = "SendRecv" if transfer else c["op"]
            true[name] = true.get(name, 0) + bytes_moved
        share = report["communication"]["bytes_share"]
        self.assertLessEqual(set(true), set(share))
        for op, moved in true.items():
            self.assertAlmostEqual(share[op] / sum(share[o] for o in true), moved / sum(true.values()), delta=0.01, msg=op)

    def test_patterns_and_shares(self):
        patterns = {"grid": {"tensor parallel", "pipeline", "data parallel (DDP)"},
                    "tensor-parallel": {"tensor parallel", "data parallel (DDP)"},
                    "fsdp": {"fully sharded data parallel (FSDP, ZeRO stage 3)"},
                    "pipeline": {"pipeline"},
                    "healthy": {"data parallel (DDP)"}}
        for scenario, pattern in patterns.items():
            _, report, truth = self.simulate(scenario)
            self.assertEqual(set(report["communication"]["pattern"]), pattern, scenario)
            self.check_bytes_share(report, truth)

    def test_bubble_is_what_stages_wait_for_each_other(self):
        for scenario, options in (("grid", ()), ("grid", ("--seed", "5")), ("pipeline", ()), ("pipeline-slow-stage", ()), ("hang-pipeline", ())):
            _, report, truth = self.simulate(scenario, *options)
            pipeline = report["communication"]["pipeline"]
            self.assertEqual((pipeline["stages"], pipeline["microbatches"]), (truth["pipeline"]["stages"], truth["pipeline"]["microbatches"]), scenario)
            self.assertAlmostEqual(pipeline["least_bubble"], truth["pipeline"]["ideal_bubble"], delta=1e-6)
            if not truth["hung"]:
                self.assertAlmostEqual(pipeline["bubble"], true_bubble(truth), delta=0.01, msg=scenario)

    def test_equal_stages_are_not_told_to_be_balanced(self):
        _, report, _ = self.simulate("grid")
        found = self.findings(report)
        self.assertIn("more microbatches", found["pipeline-bubble"]["advice"])
        self.assertIn("tensor parallelism", found["communication-bound"]["advice"])

    def test_time_lost_to_a_slow_stage_is_not_counted_again_as_bubble(self):
        """What both findings cost together is what stages are idle, but for the part of the slow stage's work that the others do not have."""
        _, report, truth = self.simulate("pipeline-slow-stage")
        first, *others = [f for f in report["findings"] if f["severity"] != "info"]
        self.assertEqual(first["id"], "straggler-slow-gpu")
        bubble = next(f for f in others if f["id"] == "pipeline-bubble")
        self.assertIn("more microbatches", bubble["advice"])
        idle_ns = true_bubble(truth) * report["steps"]["time_ns"]["mean"]
        stages = truth["pipeline"]["stages"]
        slow = next(s for s in report["stragglers"] if s["rank"] == truth["slow"]["rank"])
        extra_ns = slow["cause_ns_per_step"] / stages
        self.assertAlmostEqual(first["cost_ns_per_step"] + bubble["cost_ns_per_step"], idle_ns + extra_ns, delta=0.02 * idle_ns)
        share = float(re.search(r"it would be ([\d.]+) % of", bubble["statement"])[1]) / 100
        self.assertAlmostEqual(share, truth["pipeline"]["ideal_bubble"], delta=0.05)

    def test_calls_inside_the_layers_are_no_buckets(self):
        _, report, _ = self.simulate("tensor-parallel")
        found = self.findings(report)
        self.assertIn("inside layers", found["communication-bound"]["evidence"])
        self.assertIn("asynchronous tensor parallelism", found["communication-bound"]["advice"])
        for finding in found.values():
            self.assertNotRegex(finding["advice"], "DDP|bucket")
        # Gradients are reduced over the data-parallel pairs.
        self.assertEqual(report["communication"]["buckets"]["op"], "AllReduce")
        self.assertLess(report["communication"]["buckets"]["sizes"][0]["size_bytes"], 64 * 2**20)

    def test_gradients_that_nothing_hides_are_told_about_buckets(self):
        _, report, _ = self.simulate("communication-bound")
        found = self.findings(report)
        self.assertRegex(found["communication-bound"]["advice"], "reductions while backward|Send less")
        self.assertNotIn("tensor", found["communication-bound"]["advice"])

    def test_over_hosts_a_slow_network_is_named_and_its_peak_asked_for(self):
        run, report, _ = self.simulate("slow-network", "--ranks", "16")
        self.assertEqual(report["findings"][0]["id"], "slow-network")
        found = report["findings"][0]
        self.assertIn("between the 2 hosts", found["statement"])
        self.assertIn("The network's peak is unknown", found["evidence"])
        self.assertIn("--link-peak", found["advice"])
        told = json.loads(self.run_well([GPUPROBE, "report", run, "--json", "--link-peak", "300"]).stdout)
        self.assertEqual(told["findings"][0]["id"], "slow-network")
        self.assertNotIn("unknown", told["findings"][0]["evidence"])


class Screens(Simulated):

    def text(self, run, *options):
        return self.run_well([GPUPROBE, "report", run, *options]).stdout.decode()

    def test_a_hang_is_no_start_up_and_its_ranks_take_one_line(self):
        for scenario in ("hang-missing-rank", "hang-pipeline"):
            run, report, _ = self.simulate(scenario)
            self.assertNotIn("warmup-dominated", [f["id"] for f in report["findings"]])
            cut_off = self.findings(report, "rank-cut-off")
            self.assertLess(len(cut_off["evidence"]), 60, cut_off)
            self.assertIn(cut_off["evidence"], self.text(run))

    def findings(self, report, which):
        return next(f for f in report["findings"] if f["id"] == which)

    def test_utilisation_is_shown_when_it_was_asked_for(self):
        run, _, _ = self.simulate("compute-bound")
        self.assertNotIn("MFU", self.text(run))
        asked = ("--params", "1e9", "--tokens-per-step", "16384", "--recompute", "full")
        line = next(l for l in self.text(run, *asked).splitlines() if l.startswith(" MFU"))
        report = json.loads(self.text(run, *asked, "--json"))
        self.assertIn(f"MFU {report['utilisation']['mfu'] * 100:.1f} %", line)
        self.assertIn("98.3 TFLOP per step", line)
        html = self.text(run, *asked, "--html")
        self.assertIn("HFU, with recomputed activations", html)
        self.assertIn("989", html)

    def test_groups_of_one_kind_are_one_row(self):
        run, _, _ = self.simulate("grid")
        rows = [l.split() for l in self.text(run).splitlines() if l.startswith((" AllReduce ", " Send ", " Recv "))]
        tensor = [r for r in rows if r[:2] == ["AllReduce", "x4"] and "64.0" in r]
        self.assertEqual(len(tensor), 1, rows)
        self.assertLess(len(rows), 10)

    def test_ranks_that_all_do_it_are_not_singled_out(self):
        _, report, _ = self.simulate("memory-leak")
        self.assertRegex(self.findings(report, "memory-leak")["statement"], r"^Each of the 8 ranks holds 64\.0 MiB more memory after every step")

    def test_lines_keep_numbers_with_their_units_and_spare_last_words(self):
        for scenario in ("fsdp", "grid", "tensor-parallel", "slow-network", "memory-leak", "hang-missing-rank"):
            lines = self.text(self.simulate(scenario)[0]).splitlines()
            for before, line in zip(lines, lines[1:]):
                self.assertNotRegex(line, r"^ +(%|ms|us|ns|s|[KMGT]iB|GB/s)[.,;]?( |$)", f"{before!r}")
                self.assertLessEqual(len(line), 120)

    def test_kernels_that_differ_read_differently(self):
        run, _, _ = self.simulate("tensor-parallel")
        lines = self.text(run).splitlines()
        start = next(i for i, l in enumerate(lines) if l.startswith(" kernel "))
        names = [l[:49] for l in lines[start + 1:lines.index("", start)]]
        self.assertEqual(len(names), len(set(names)), names)


class Unheard(Simulated):
    """In a job on two hosts each collector hears one."""

    def split(self, run):
        """Two run directories with the lower and the upper half of the ranks."""
        halves = [run + "-lower", run + "-upper"]
        for half in halves:
            shutil.copytree(run, half)
            os.remove(os.path.join(half, "report.json"))
        logs = sorted((name for name in os.listdir(run) if name.startswith("rank-")), key=lambda name: int(name[5:].split(".")[0]))
        for i, name in enumerate(logs):
            os.remove(os.path.join(halves[i < len(logs) // 2], name))
        return halves

    def report(self, run, *options):
        return json.loads(self.run_well([GPUPROBE, "report", run, "--json", "--ranks", *options]).stdout)

    def test_transfers_and_waiting_for_unheard_ranks_are_not_told_apart(self):
        run, whole, truth = self.simulate("straggler-kernels", "--ranks", "16", "--seed", "4")
        halves = self.split(run)
        late = truth["slow"]["rank"]
        self.assertLess(late, 8)
        report = self.report(halves[1])
        found = [f["id"] for f in report["findings"] if f["severity"] != "info"]
        self.assertEqual(found[0], "communication-unheard", report["findings"])
        self.assertLessEqual({"communication-bound", "poor-overlap", "slow-network", "bucket-too-large", "bucket-too-small"} & set(found), set())
        self.assertIn("ranks-missing", [f["id"] for f in report["findings"]])
        self.assertGreater(report["communication"]["unheard_share"], 0.9)
        # The calls in a step do not depend on which ranks report.
        for key in ("calls_per_step", "bytes_per_step"):
            self.assertAlmostEqual(report["communication"]["buckets"][key], whole["communication"]["buckets"][key], delta=0.01 * whole["communication"]["buckets"][key])
        self.assertEqual([s["rank"] for s in report["stragglers"]], [])
        # All hosts' logs in one directory, as the advice says: then the rank is found.
        for name in os.listdir(halves[0]):
            if name.startswith("rank-"):
                shutil.copy(os.path.join(halves[0], name), halves[1])
        together = self.report(halves[1])
        self.assertEqual(together["findings"], whole["findings"])
        self.assertEqual(together["stragglers"][0]["rank"], late)

    def test_a_hang_whose_culprit_is_not_heard_points_there(self):
        run, _, truth = self.simulate("hang-missing-rank", "--ranks", "16")
        halves = self.split(run)
        self.assertLess(truth["hang"]["rank"], 8)
        report = self.report(halves[1], "--hang-after", "2")
        self.assertEqual(report["hangs"][0]["not_heard"], 8)
        self.assertFalse(report["hangs"][0]["culprit_known"])
        advice = report["findings"][0]["advice"]
        self.assertNotIn("No rank is missing", advice)
        self.assertIn("It is unknown whether the 8 ranks that are not recorded here issued it: check there first.", advice)


class Mistaken(Simulated):

    def test_options_that_the_records_contradict_are_a_finding(self):
        run, _, _ = self.simulate("compute-bound")
        for options, words in ((("--step-marker", "nvtx:nothing"), "--step-marker nvtx:nothing marks no steps"),
                               (("--params", "7e12", "--tokens-per-step", "1e6"), "is impossible: no GPU exceeds its peak"),
                               (("--link-peak", "3"), "of --link-peak, so the peak is above 3.00 GB/s")):
            report = json.loads(self.run_well([GPUPROBE, "report", run, "--json", "--ranks", *options]).stdout)
            told = [f["statement"] for f in report["findings"] if f["id"] == "options-mistaken"]
            self.assertEqual(len(told), 1, report["findings"])
            self.assertIn(words, told[0])
        finished = self.run_program([GPUPROBE, "report", run, "--link-peak", "-5"])
        self.assertEqual(finished.returncode, 2)
        said = finished.stderr.decode()
        self.assertIn('must be a positive number, got "-5"', said)
        self.assertLess(len(said), 200)

    def test_two_steps_are_too_few_to_conclude_from(self):
        _, report, _ = self.simulate("healthy", "--steps", "2", "--seed", "3")
        self.assertEqual([f["id"] for f in report["findings"] if f["severity"] != "info"], [], report["findings"])


if __name__ == "__main__":
    harness.main()
