"""Everything that the simulated node did is in the record once, with the times it had, and the report's numbers follow from it."""
import json
import os
from collections import defaultdict

import harness
import truth
from harness import DDP_TRAIN, GPUPROBE, LAUNCH_RANKS, NCCL_CALLS, SMALL_TRAINING, VECTOR_ADD


class Truth(harness.EndToEndTest):

    def record(self, command, devices=1, env=None):
        out = self.path("run-directory")
        self.run_well([GPUPROBE, "run", "--out", out, "--", *command], devices=devices, env=env)
        self.assert_nothing_runs()
        return out

    def hold_against_truth(self, out):
        happened = self.truth()
        self.assertEqual(truth.differences(happened, self.export(out)), [])
        report = self.report(out)
        self.assert_no_loss(report)
        with open(os.path.join(out, "report.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["ranks"], report["ranks"], "the live report and the replayed one differ")
        return happened, report

    def check_totals(self, happened, report):
        """Counts, busy times and bytes of each rank."""
        kernels, busy, copies = defaultdict(int), defaultdict(list), defaultdict(lambda: [0, 0, 0])
        for record in happened:
            if record["kind"] == "kernel":
                kernels[record["rank"]] += 1
                busy[record["rank"]].append((record["start_ns"], record["end_ns"]))
            if record["kind"] == "memcpy":
                total = copies[(record["rank"], record["direction"])]
                total[0] += 1
                total[1] += record["bytes"]
                total[2] += record["end_ns"] - record["start_ns"]
        for rank in report["ranks"]:
            number = rank["rank"]
            self.assertEqual(rank["kernels"]["count"], kernels[number])
            self.assertEqual(rank["kernels"]["busy_ns"], union_ns(busy[number]))
            for direction, entry in rank["copies"].items():
                count, size, time_ns = copies.pop((number, direction), [0, 0, 0])
                self.assertEqual((entry["count"], entry["bytes"]), (count, size), direction)
                if count:
                    self.assertAlmostEqual(entry["gbytes_per_s"], size / time_ns, delta=0.001 * size / time_ns)
        self.assertEqual(dict(copies), {}, "copies that are in no rank of the report")

    def check_collectives(self, happened, report):
        """Calls, bytes, times and bandwidths of each rank and operation. The bandwidth of calls that were fused is that of their plan."""
        plans, calls = defaultdict(list), defaultdict(list)
        for record in happened:
            if record["kind"] == "collective":
                plans[(record["rank"], record["plan"])].append(record)
                calls[(record["rank"], record["op"], record["comm"])].append(record)
        for rank in report["ranks"]:
            for entry in rank["collectives"]:
                own = calls.pop((rank["rank"], entry["op"], entry["comm"]), [])
                with self.subTest(rank=rank["rank"], op=entry["op"], comm=entry["comm"]):
                    self.assertEqual(entry["calls"], len(own))
                    self.assertEqual(entry["bytes"], sum(call["bytes"] for call in own))
                    if any(len(plans[(call["rank"], call["plan"])]) > 1 for call in own):
                        continue
                    times = [call["end_ns"] - call["start_ns"] for call in own]
                    ranks = own[0]["comm_ranks"]
                    moved = sum(truth.algorithm_bytes(call["op"], call["bytes"], ranks) for call in own)
                    algbw = moved / sum(times)
                    self.assertAlmostEqual(entry["algbw_gbytes_per_s"], algbw, delta=0.001 * algbw)
                    busbw = algbw * truth.bus_factor(entry["op"], ranks)
                    self.assertAlmostEqual(entry["busbw_gbytes_per_s"], busbw, delta=0.001 * busbw)
                    self.assertEqual(entry["time_ns"]["min"], min(times))
                    self.assertEqual(entry["time_ns"]["max"], max(times))
                    self.assertAlmostEqual(entry["time_ns"]["mean"], sum(times) / len(times), delta=1)
        self.assertEqual([key for key in calls if calls[key][0]["comm_ranks"] > 1], [], "collectives that are in no rank of the report")

    def check_memory(self, happened, report):
        peaks = truth.high_water_marks(happened)
        found = {rank["rank"]: rank["memory"]["device"]["high_water_bytes"] for rank in report["ranks"]}
        self.assertEqual(found, peaks)

    def train(self, ranks, env=None):
        out = self.record([LAUNCH_RANKS, str(ranks), DDP_TRAIN, *SMALL_TRAINING], devices=ranks, env=env)
        happened, report = self.hold_against_truth(out)
        self.assertEqual(sorted(rank["rank"] for rank in report["ranks"]), list(range(ranks)))
        self.check_totals(happened, report)
        self.check_collectives(happened, report)
        self.check_memory(happened, report)
        return happened, report

    def test_vector_add(self):
        out = self.record([VECTOR_ADD])
        happened, report = self.hold_against_truth(out)
        self.assertEqual(sum(record["kind"] == "kernel" for record in happened), 10)
        self.assertEqual(len(report["ranks"]), 1)

    def test_training_with_1_rank(self):
        self.train(1)

    def test_training_with_4_ranks(self):
        self.train(4)

    def test_training_with_8_ranks(self):
        self.train(8)

    def test_every_kind_of_nccl_call(self):
        out = self.record([LAUNCH_RANKS, "4", NCCL_CALLS, "--rounds=2"], devices=4)
        happened, report = self.hold_against_truth(out)
        operations = {record["op"] for record in happened if record["kind"] == "collective"}
        self.assertGreaterEqual(operations, {"AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "Send", "Recv"})
        self.check_collectives(happened, report)

    def test_communicators_of_one_process(self):
        out = self.record([NCCL_CALLS, "--init-all", "--rounds=2"], devices=3)
        self.hold_against_truth(out)

    def test_phases_belong_to_the_range_of_the_launch(self):
        """Backward is launched by a thread that has no range open, while the main thread waits inside "backward"."""
        happened, report = self.train(2, env={"GPUSIM_KERNELS": "Linear=300us;AdamStep=50us"})
        phase_of = {"LinearForward": "forward", "TanhBackward": "backward", "LinearBackwardWeight": "backward",
                    "LinearBackwardInput": "backward", "AdamStep": "optimizer"}
        for rank in report["ranks"]:
            expected = defaultdict(int)
            evaluations = self.evaluation_correlations(happened, rank["rank"])
            for record in happened:
                if record["kind"] != "kernel" or record["rank"] != rank["rank"] or record["correlation"] in evaluations:
                    continue
                for name, phase in phase_of.items():
                    if name in record["name"]:
                        expected[phase] += record["end_ns"] - record["start_ns"]
            phases = {phase["name"]: phase for phase in rank["phases"]}
            self.assertGreaterEqual(set(phases), {"forward", "backward", "optimizer", "input"})
            for name in ("forward", "backward", "optimizer"):
                with self.subTest(rank=rank["rank"], phase=name):
                    # Other work of the phase (loss, memsets, reductions) comes on top of what is added up here.
                    self.assertGreaterEqual(phases[name]["gpu_busy_ns"], 0.99 * expected[name])
            self.assertLess(phases["forward"]["gpu_busy_ns"], 1.01 * expected["forward"])

    @staticmethod
    def evaluation_correlations(happened, rank):
        """Correlations of the forward kernels that no optimizer step follows before the next forward pass: those of evaluations."""
        layers = int(SMALL_TRAINING[SMALL_TRAINING.index("--layers") + 1])
        launched = sorted((r["correlation"], r["name"]) for r in happened if r["kind"] == "kernel" and r["rank"] == rank)
        forward, evaluations = [], set()
        for correlation, name in launched:
            if "LinearForward" in name:
                if len(forward) == layers:
                    evaluations.update(forward)
                    forward = []
                forward.append(correlation)
            elif "AdamStep" in name:
                forward = []
        evaluations.update(forward)
        return evaluations


def union_ns(intervals):
    total, until = 0, 0
    for start, end in sorted(intervals):
        total += max(0, end - max(start, until))
        until = max(until, end)
    return total


if __name__ == "__main__":
    harness.main()
