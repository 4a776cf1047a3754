"""Recordings of real programs on a real GPU (tests/data/real): the report against what the programs said of themselves."""
import os
import re
import shutil
import unittest
from collections import Counter

import figures
import harness
from harness import GPUPROBE, SOURCE

DATA = os.path.join(SOURCE, "tests", "data", "real")
MIB = 1 << 20


class RealRecordings(harness.EndToEndTest):

    def replay(self, name):
        """Its report, the same as a person sees it, and its records."""
        run = self.path(name)
        shutil.copytree(os.path.join(DATA, name), run)
        self.text = self.run_well([GPUPROBE, "report", run]).stdout.decode()
        report = self.report(run)
        self.assertEqual(figures.impossible(report), [])
        self.assertEqual(report["trust"]["lost"], {})
        self.assertEqual(report["trust"]["coverage"], 1.0)
        self.assertEqual(report["conditions"]["devices"][0]["name"], "NVIDIA H100 80GB HBM3")
        return report, run

    def findings(self, report):
        return [finding["id"] for finding in report["findings"]]

    def assert_held(self, memory, weights):
        """A model of so many bytes: as much of gradients, and Adam's two values for each weight."""
        held = {holding["what"]: holding["bytes"] for holding in memory["lifetimes"]["holdings"]}
        for what, expected in (("weights", weights), ("gradients", weights), ("optimizer state (Adam)", 2 * weights)):
            self.assertAlmostEqual(held[what], expected, delta=0.05 * expected, msg=what)

    def test_training_under_torchrun(self):
        report, _ = self.replay("torch_ddp")
        self.assertEqual(len(report["ranks"]), 1, "torchrun itself uses no GPU")
        self.assertIn("gpuprobe: 1 rank on", self.text)
        steps = report["steps"]
        self.assertEqual((steps["count"], steps["source"]), (20, "nvtx"))
        self.assertGreater(steps["confidence"], 0.9)
        # The phases' names are the program's; no library's ranges are among them.
        self.assertEqual([(phase["path"], phase["time_ns"]["count"]) for phase in report["phases"]],
                         [("step", 20), ("step/input", 20), ("step/forward", 20), ("step/backward", 20), ("step/optimizer", 20)])
        self.assertEqual(self.findings(report)[0], "launch-bound")
        self.assertNotIn("pageable-copies", self.findings(report))
        memory, = report["ranks"][0]["memory"]["pytorch"]
        self.assertAlmostEqual(memory["peak_allocated_bytes"] / 2**30, 3.28, delta=0.005)
        # Embedding, eight layers (attention, two linear ones of four times the width, two norms) and head.
        layer = 4 * 1024 * 1024 + 4 * 1024 + 2 * 4 * 1024 * 1024 + 5 * 1024 + 4 * 1024
        self.assert_held(memory, 4 * (8192 * 1024 + 8 * layer + 8192 * 1024 + 8192))

    def test_two_ranks_share_a_gpu(self):
        report, _ = self.replay("torch_ddp_two_ranks_one_gpu")
        self.assertEqual(self.findings(report)[0], "shared-device")
        self.assertEqual(report["conditions"]["shared_devices"][0]["ranks"], [0, 1])
        self.assertNotIn("slow-network", self.findings(report), "they wait for each other, not for a network")
        self.assertEqual((report["steps"]["count"], report["steps"]["source"]), (20, "nvtx"))
        self.assertEqual([clock["offset_ns"] for clock in report["clock"]["ranks"]], [0, 0], "one host, one clock")
        for rank in report["ranks"]:
            self.assertAlmostEqual(rank["memory"]["pytorch"][0]["peak_allocated_bytes"] / 2**30, 0.72, delta=0.01)
            layer = 4 * 512 * 512 + 4 * 512 + 2 * 4 * 512 * 512 + 5 * 512 + 4 * 512
            self.assert_held(rank["memory"]["pytorch"][0], 4 * (8192 * 512 + 4 * layer + 8192 * 512 + 8192))
        reduced = sum(c["calls"] * c["size_bytes"] for c in report["collectives"] if c["op"] == "AllReduce")
        # The gradients of each step of both ranks: all parameters, four bytes each.
        self.assertAlmostEqual(reduced / 2 / 20 / MIB, 80.1, delta=0.5)

    def test_eager_steps(self):
        report, run = self.replay("torch_eager")
        self.assertEqual((report["steps"]["count"], report["steps"]["source"]), (40, "nvtx"))
        rank, = report["ranks"]
        memory, = rank["memory"]["pytorch"]
        self.assertEqual((memory["peak_allocated_bytes"], memory["peak_reserved_bytes"]), (237142528, 260046848))
        # The optimizer's temporaries make the peak of each step, as the tensors' own records add up to.
        self.assertEqual(memory["by_step"]["step_peak_bytes"]["min"], 237142528)
        peaks = {phase["name"]: phase["peak_bytes"] for phase in memory["by_step"]["phases"]}
        self.assertEqual(peaks["optimizer"], 237142528)
        self.assertLess(peaks["forward"], 180 * MIB)
        self.assertIn("launch-bound", self.findings(report))
        self.assertNotIn("pageable-copies", self.findings(report), "the model is moved to the device before the first step")
        # The profiler's 69 contain its own annotation of the optimizer's step.
        self.assert_counts(run, kernels=69 - 1, copies=2)

    def test_steps_of_a_cuda_graph(self):
        report, run = self.replay("torch_graphs")
        self.assertEqual((report["steps"]["count"], report["steps"]["source"]), (40, "nvtx"))
        memory, = report["ranks"][0]["memory"]["pytorch"]
        self.assertEqual((memory["peak_allocated_bytes"], memory["peak_reserved_bytes"]), (305325568, 356515840))
        self.assertNotIn("pageable-copies", self.findings(report))
        # The profiler counts one of the graph's two copies as a kernel.
        self.assert_counts(run, kernels=141 - 1, copies=1 + 1)

    def assert_counts(self, run, kernels, copies):
        """What torch.profiler counted in each step, in each of the last thirty."""
        records = self.export(run)
        begins = sorted(r["start_ns"] for r in records if r["kind"] == "memcpy" and r["direction"] == "h2d" and r["src_memory"] == "pinned")[-30:]
        self.assertEqual(len(begins), 30)
        for begin, end in zip(begins, begins[1:]):
            within = Counter(r["kind"] for r in records if r["kind"] in ("kernel", "memcpy") and begin <= r["start_ns"] < end)
            self.assertEqual((within["kernel"], within["memcpy"]), (kernels, copies))

    def test_our_own_training_program_on_real_nccl(self):
        report, run = self.replay("ddp_train_two_ranks_one_gpu")
        self.assertEqual(report["steps"]["count"], 6)
        calls = [r for r in self.export(run) if r["kind"] == "collective" and r["op"] == "AllReduce"]
        self.assertEqual(Counter(call["bytes"] for call in calls)[16384], 2 * 6 * 4, "a reduction for each layer")
        for call in calls:
            self.assertGreater(call["end_ns"], call["start_ns"])

    def test_what_the_host_did(self):
        """Programs whose host keeps the GPU waiting: the first finding names the line that does. The lines are of the day of the recordings."""
        for kind, line, words in (("dataset", 46, "it loads data: Samples.__getitem__ "), ("workers", 127, "it loads data: read of socket"),
                                  ("garbage", 58, "<garbage collection> (<CPython>), called from Node.__init__ "), ("item", 156, "it is in cuStreamSynchronize, called from main "),
                                  ("lock", 158, "it waits for another thread: main "), ("log", 161, "it logs: write of /tmp/hc/log"), ("compile", 132, "it compiles: main ")):
            with self.subTest(kind):
                report, _ = self.replay("host_causes_" + kind)
                said = report["findings"][0]["statement"] + " " + report["findings"][0]["evidence"]
                self.assertIn(words, said)
                self.assertIn(f"host_causes.py:{line})", said)

    def test_loops_that_time_their_own_parts(self):
        """What a program measured of itself on that day (timed_loop.py, as truth.py), in milliseconds a step."""
        said = {"workers": {"load": 1.21, "to": 1.52, "forward": 0.77, "backward": 1.21, "optimizer": 0.66, "step": 5.38},
                "waits": {"load": 6.03, "to": 0.33, "forward": 1.78, "log": 1.94, "item": 74.63, "step": 88.65}}
        for kind, took in said.items():
            with self.subTest(kind):
                shutil.copytree(os.path.join(DATA, "timed_loop_" + kind), self.path(kind))
                report = self.report(self.path(kind))
                steps = report["steps"]
                self.assertAlmostEqual(steps["time_ns"]["mean"] / 1e6, took["step"], delta=0.01 * took["step"])
                input_ms = steps["idle"]["input_ns"]["mean"] / 1e6
                self.assertGreater(input_ms, 0.9 * took["load"])
                self.assertLess(input_ms, took["load"] + took["to"] + took.get("log", 0))
                self.assertNotIn("sync-in-loop", self.findings(report), "a copy to an idle GPU waits for nothing but itself")
                if kind == "workers":
                    self.assertEqual(self.findings(report)[0], "input-bound")
                    self.assertIn("it loads data: load (/tmp/w/truth.py:14)", report["findings"][0]["statement"])
                else:
                    self.assertEqual(self.findings(report), ["healthy"])
                    self.assertLess(abs(sum(steps["idle"][c]["mean"] for c in ("input_ns", "sync_ns", "pause_ns")) / 1e6 - took["load"] - took["log"]), 1)

    def test_one_of_each_call(self):
        _, run = self.replay("one_of_each_call")
        records = self.export(run)
        kinds = Counter(r["kind"] for r in records)
        self.assertEqual([kinds[kind] for kind in ("kernel", "memcpy", "memset", "sync")], [16, 5, 4, 6])
        launches = {r["correlation"]: r["time_ns"] for r in records if r["kind"] == "launch"}
        for record in records:
            if record["kind"] == "kernel":
                self.assertLessEqual(launches[record["correlation"]], record["start_ns"])
        # 2 in turn, 1 long, a graph of 3 replayed 3 times, child graphs of 2 replayed twice.
        nodes = Counter(r["graph_node"] for r in records if r["kind"] == "kernel")
        self.assertEqual(sorted(nodes.values()), [2, 2, 3, 3, 3, 3])

    def test_cupy(self):
        report, _ = self.replay("cupy")
        names = {kernel["name"]: kernel["time_ns"]["count"] for kernel in report["top_kernels"]}
        self.assertEqual({name: count for name, count in names.items() if re.match("cupy_(multiply|add)", name)},
                         {"cupy_multiply__float32_float_float32": 100, "cupy_add__float32_float_float32": 100})
        self.assertEqual(report["phases"], [], "cub's own ranges are none of the program's")


if __name__ == "__main__":
    harness.main()
