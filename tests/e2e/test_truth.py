"""Everything that the simulated node did is in the record once, with the times it had, and the report's numbers follow from it."""
import json
import os
from collections import defaultdict

import harness
import truth
from harness import DDP_TRAIN, GPUPROBE, LAUNCH_RANKS, NCCL_CALLS, PATIENT, SMALL_TRAINING, VECTOR_ADD


class Truth(harness.EndToEndTest):

    def record(self, command, devices=1, env=None):
        out = self.path("run-directory")
        self.run_well([GPUPROBE, "run", "--out", out, "--", *command], devices=devices, env={**PATIENT, **(env or {})})
        self.assert_nothing_runs()
        return out

    def hold_against_truth(self, out):
        happened = self.truth()
        self.assertEqual(self.differences(happened, self.export(out)), [])
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
        """Calls, bytes, times and bandwidths. Plans (what one kernel carried) of the same operations, communicator and size are one entry of a rank."""
        plans = defaultdict(list)
        for record in happened:
            if record["kind"] == "collective" and not truth.launched_nothing(record):
                plans[(record["rank"], record["pid"], record["plan"])].append(record)
        expected = defaultdict(list)
        for (rank, _, _), calls in plans.items():
            size = truth.moved_bytes(calls)[0]
            alike = len({call["bytes"] for call in calls}) == 1
            expected[(rank, "+".join(sorted({call["op"] for call in calls})), calls[0]["comm"], len(calls), size if alike else None)].append(calls)
        for rank in report["ranks"]:
            for entry in rank["collectives"]:
                key = (rank["rank"], entry["op"], entry["comm"], entry["calls_per_plan"], entry["size_bytes"])
                with self.subTest(entry=key):
                    if entry["comm_ranks"] == 1:
                        continue  # launches nothing: the node has no times to hold it against
                    self.check_entry(entry, expected.pop(key))
        self.assertEqual(list(expected), [], "collectives that are in no rank of the report")

    def check_entry(self, entry, plans):
        calls = [call for plan in plans for call in plan]
        times = [plan[0]["end_ns"] - plan[0]["start_ns"] for plan in plans]
        # The first call of a size is not measured, as nccl-tests does not.
        measured = sorted(plans, key=lambda plan: plan[0]["start_ns"])[1 if len(plans) > 1 else 0:]
        measured_ns = sum(plan[0]["end_ns"] - plan[0]["start_ns"] for plan in measured)
        algorithm, bus = (sum(moved) for moved in zip(*map(truth.moved_bytes, measured)))
        self.assertEqual((entry["calls"], entry["bytes"], entry["untimed_calls"]), (len(calls), sum(call["bytes"] for call in calls), 0))
        for name, moved in (("algbw_gbytes_per_s", algorithm), ("busbw_gbytes_per_s", bus)):
            self.assertAlmostEqual(entry[name], moved / measured_ns, delta=0.001 * moved / measured_ns, msg=name)
        statistics = entry["time_ns"]
        self.assertEqual((statistics["count"], statistics["total"], statistics["min"], statistics["max"]), (len(times), sum(times), min(times), max(times)))
        self.assertAlmostEqual(statistics["mean"], sum(times) / len(times), delta=1)

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
                    self.assertGreaterEqual(phases[name]["time_ns"]["total"], 0.99 * expected[name])
            self.assertLess(phases["forward"]["time_ns"]["total"], 1.01 * expected["forward"])

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
