"""Recordings of PyTorch programs on the simulated node (tests/data/pytorch): steps, phases and memory, without PyTorch.

scripts/record-pytorch.sh made them. What is expected follows from the program's marks in them (pytorch_phases.py) and from the program itself.
"""
import os
import shutil

import figures
import harness
import pytorch_phases
from harness import SOURCE

DATA = os.path.join(SOURCE, "tests", "data", "pytorch")
TURNS = 10
MIB = 1 << 20


class Recordings(harness.EndToEndTest):

    def check(self, loop):
        """The report of a recording."""
        run = self.path(loop)
        shutil.copytree(os.path.join(DATA, loop), run)
        return pytorch_phases.check_run(self, run, TURNS, pytorch_phases.UNLIKE_OTHERS.get(loop, 0))

    def held(self, report):
        memory, = report["ranks"][0]["memory"]["pytorch"]
        return {holding["what"]: holding["bytes"] for holding in memory["lifetimes"]["holdings"]}

    def test_steps_and_phases(self):
        for loop in sorted(name for name in os.listdir(DATA) if name in pytorch_phases.LOOPS):
            with self.subTest(loop):
                self.check(loop)

    def report_of(self, program):
        """The report of a program of samples/torch."""
        run = self.path(program)
        shutil.copytree(os.path.join(DATA, program), run)
        report = self.report(run)
        self.assert_no_loss(report)
        self.assertEqual(figures.impossible(report), [])
        return report

    def sharing(self, program):
        """How the report says that the ranks of a program share the work, and the number of steps."""
        report = self.report_of(program)
        return report["communication"]["pattern"], report["steps"]["count"]

    def test_how_ranks_share_the_work(self):
        self.assertEqual(self.sharing("fsdp"), (["fully sharded data parallel (FSDP, ZeRO stage 3)"], 12))
        self.assertEqual(self.sharing("tensor_parallel"), (["tensor parallel"], 12))
        self.assertEqual(self.sharing("pipeline")[0], ["pipeline"])

    def test_a_compiled_model(self):
        """Thousands of kernels are tried in the first step; a second process compiles and uses no device."""
        report = self.report_of("compiled")
        self.assertEqual(len(os.listdir(self.path("compiled"))), 2, "the recording has both processes")
        self.assertEqual(len(report["ranks"]), 1)
        self.assertEqual((report["steps"]["count"], report["steps"]["warmup_count"]), (60, 1))
        self.assertEqual([finding["id"] for finding in report["findings"]], ["healthy", "warmup-dominated", "gpu-unused"])
        classes = {entry["class"]: entry["calls"] for entry in report["compute"]["classes"]}
        self.assertEqual(set(classes), {"gemm", "reduction", "elementwise", "normalisation", "optimizer"})
        self.assertEqual(classes["gemm"], 60 * 4 * 24, "each step: 4 blocks of 8 products, forward and twice backward")
        width = 256
        weights = 4 * 4 * (2 * 2 * width + 4 * (width * width + width) + 2 * 4 * width * width + 5 * width)
        held = self.held(report)
        self.assertAlmostEqual(held["weights"], weights, delta=0.05 * weights)
        self.assertAlmostEqual(held["optimizer state (Adam)"], 2 * weights, delta=0.05 * 2 * weights)

    def assert_first_finding(self, program, expected):
        """What the program was written for comes first, by its logs alone."""
        run = self.path(program)
        shutil.copytree(os.path.join(DATA, program), run)
        report = self.report(run)
        self.assertEqual(report["findings"][0]["id"], expected)
        return report

    def test_a_loop_that_waits_for_its_data(self):
        report = self.assert_first_finding("data_loader", "input-bound")
        self.assertEqual(report["steps"]["count"], 40)
        self.assert_no_loss(report)

    def test_a_rank_with_more_to_compute(self):
        report = self.assert_first_finding("slow_rank", "straggler-more-work")
        self.assertIn("waits for rank 1,", report["findings"][0]["statement"])
        self.assert_no_loss(report)

    def test_graphs_and_a_profiler_inside(self):
        for program, steps in (("graphed_training", 20), ("profiled", 8)):
            with self.subTest(program):
                self.assertEqual(self.report_of(program)["steps"]["count"], steps)
        self.report_of("graphed_inference")
        replays = {record["correlation"] for record in self.export(self.path("graphed_inference")) if record.get("graph_node")}
        self.assertEqual(len(replays), 50)

    def test_who_has_graphs_is_not_told_to_use_them(self):
        report = self.report_of("graphed_training")
        ranks = report["ranks"]
        self.assertGreater(sum(rank["kernels"]["from_graphs"] for rank in ranks), 0)
        self.assertNotIn("CUDA graphs or torch.compile", "".join(finding["advice"] for finding in report["findings"]))

    def test_memory_that_runs_out(self):
        report = self.assert_first_finding("out_of_memory", "out-of-memory")
        memory, = report["ranks"][0]["memory"]["pytorch"]
        self.assertEqual(round(memory["last_refused_allocated_bytes"] / MIB, 2), 800.08, "MiB that PyTorch's message names")
        self.assertRegex(report["findings"][0]["statement"], r"requested 128 MiB \(device\) with 994 MiB of 1\.00 GiB in use\.$")
        screen = " ".join(self.run_well([harness.GPUPROBE, "report", self.path("out_of_memory")]).stdout.decode().split())
        self.assertIn("1 allocation of 16.0 MiB made in forward of each step is never freed", screen)

    def test_a_rank_that_leaves_the_loop(self):
        report = self.assert_first_finding("hang", "hang-missing-rank")
        self.assertEqual([(hang["kind"], [rank["rank"] for rank in hang["ranks"]]) for hang in report["hangs"]], [("missing_rank", [1])])

    def test_ranks_that_are_started_again(self):
        report = self.assert_first_finding("elastic", "rank-died")
        self.assertRegex(report["findings"][0]["statement"], "^Rank 1 exited with code 1 .* while 1 other rank was running.$")

    def test_memory_of_data_parallel_training(self):
        held = self.held(self.check("plain"))
        width, words = 128, 1000
        block = 2 * width + 4 * width * width + 4 * width + 4 * width * width + width
        weights = 4 * (words * width + 4 * block + words * width + words)
        self.assertAlmostEqual(held["weights"], weights, delta=0.05 * weights)
        self.assertAlmostEqual(held["optimizer state (Adam)"], 2 * weights, delta=0.1 * weights)
        self.assertEqual(held["cuBLAS workspace"], 2 * 32 * MIB, "one of the main thread, one of autograd's")
        other = sum(size for what, size in held.items() if what.startswith("other"))
        self.assertLess(other, 0.05 * sum(held.values()))


if __name__ == "__main__":
    harness.main()
