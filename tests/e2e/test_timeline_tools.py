"""Timelines in the hands of other people's tools: Perfetto's published schema, and Holistic Trace Analysis.

The tools come from scripts/analysis-env.sh; without them the test is skipped, and says so (77).
"""
import json
import os
import subprocess
import sys

import harness
from harness import GPUPROBE, SOURCE

ENVIRONMENT = os.environ.get("GPUPROBE_ANALYSIS_ENV") or os.path.join(
    os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "gpuprobe", "analysis-env")
PYTHON = os.path.join(ENVIRONMENT, "bin", "python")

# Prints what the schema's own classes read: an unknown field, or text that is not UTF-8, is an error.
DECODE = """
import collections, json, sys, zlib
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema
from google.protobuf.unknown_fields import UnknownFieldSet

def packets(data):
    trace = schema.Trace()
    trace.ParseFromString(data)
    for packet in trace.packet:
        if packet.HasField("compressed_packets"):
            yield from packets(zlib.decompress(packet.compressed_packets))
        else:
            yield packet

def known(message):
    assert len(UnknownFieldSet(message)) == 0, f"unknown fields in {message}"
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for inner in value if hasattr(value, "add") else [value]:
                known(inner)

categories, names = collections.defaultdict(dict), collections.defaultdict(dict)
counts = collections.Counter()
types = collections.Counter()
tracks = set()
with open(sys.argv[1], "rb") as file:
    for packet in packets(file.read()):
        known(packet)
        sequence = packet.trusted_packet_sequence_id
        for entry in packet.interned_data.event_categories:
            categories[sequence][entry.iid] = entry.name
        for entry in packet.interned_data.event_names:
            names[sequence][entry.iid] = entry.name
        if packet.HasField("track_descriptor"):
            tracks.add(packet.track_descriptor.uuid)
        if packet.HasField("track_event"):
            event = packet.track_event
            assert event.track_uuid in tracks
            types[event.Type.Name(event.type)] += 1
            if event.category_iids:
                assert names[sequence][event.name_iid]
                counts[categories[sequence][event.category_iids[0]]] += 1
print(json.dumps({"counts": counts, "types": types}))
"""

# HTA's own numbers, of all ranks. Without rounding to microseconds, which is for a defect of old profilers.
ANALYSE = """
import json, sys
import pandas
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_dir=sys.argv[1])
breakdown = analysis.get_temporal_breakdown(visualize=False)
overlap = analysis.get_comm_comp_overlap(visualize=False)
print(json.dumps({"breakdown": breakdown.to_dict("records"), "overlap": overlap.to_dict("records")}, default=float))
"""


def union(intervals):
    """Sorted intervals without overlaps."""
    merged = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged


def length(intervals):
    return sum(end - start for start, end in union(intervals))


def common(a, b):
    return length(a) + length(b) - length(list(a) + list(b))


class Tools(harness.EndToEndTest):

    def run_tool(self, script, argument):
        finished = subprocess.run([PYTHON, "-c", script, argument], capture_output=True, text=True, timeout=250,
                                  env={**os.environ, "HTA_DISABLE_NS_ROUNDING": "1", "PYTHONPATH": ""})
        self.assertEqual(finished.returncode, 0, finished.stdout + finished.stderr)
        return json.loads(finished.stdout.splitlines()[-1])

    def simulate(self):
        run = self.path("run")
        self.run_well([GPUPROBE, "simulate", "--scenario", "partial-overlap", "--ranks", "4", "--steps", "20", "--nvtx", "--out", run])
        return run

    def test_perfettos_schema_knows_every_field(self):
        run = self.simulate()
        path = self.path("run.pftrace")
        self.run_well([GPUPROBE, "trace", run, "-o", path])
        decoded = self.run_tool(DECODE, path)
        kinds = [record["kind"] for record in self.export(run)]
        counts = decoded["counts"]
        self.assertEqual(counts["kernel"] + counts["nccl_kernel"], kinds.count("kernel"))
        self.assertEqual([counts[c] for c in ("memcpy", "nccl_call", "launch")], [kinds.count(k) for k in ("memcpy", "collective", "launch")])
        self.assertEqual(decoded["types"]["TYPE_SLICE_BEGIN"], decoded["types"]["TYPE_SLICE_END"])

    def test_holistic_trace_analysis_agrees(self):
        run = self.simulate()
        traces = self.path("traces")
        self.run_well([GPUPROBE, "trace", run, "-o", traces, "--format", "chrome"])
        analysed = self.run_tool(ANALYSE, traces)
        records = self.export(run)
        for number in range(4):
            compute = [(r["start_ns"], r["end_ns"]) for r in records if r["rank"] == number and r["kind"] == "kernel" and "nccl" not in r["name"]]
            communication = [(r["start_ns"], r["end_ns"]) for r in records if r["rank"] == number and r["kind"] == "kernel" and "nccl" in r["name"]]
            work = compute + communication + [(r["start_ns"], r["end_ns"]) for r in records if r["rank"] == number and r["kind"] in ("memcpy", "memset")]
            hta, = [row for row in analysed["breakdown"] if row["rank"] == number]
            # Its times are microseconds. From its first work to its last, as HTA sees it.
            busy = length(work)
            total = max(end for _, end in work) - min(start for start, _ in work)
            for key, expected in (("compute_time(us)", length(compute)), ("idle_time(us)", total - busy), ("non_compute_time(us)", busy - length(compute)),
                                  ("kernel_time(us)", total)):
                self.assertAlmostEqual(hta[key] * 1000, expected, delta=0.005 * expected + 1000, msg=f"{key} of rank {number}")
            overlap, = [row for row in analysed["overlap"] if row["rank"] == number]
            self.assertAlmostEqual(overlap["comp_comm_overlap_pctg"], 100 * common(compute, communication) / length(communication), delta=0.5)

    def test_its_numbers_are_those_of_our_steps(self):
        """The same steady steps, as the report divides them and as HTA does from the timeline, within 0.5 %."""
        run = self.simulate()
        first, end = 3, 19
        traces = self.path("traces")
        shown = json.loads(self.run_well([GPUPROBE, "report", run, "--json", "--steps"]).stdout)
        for rank in shown["ranks"]:
            self.run_well([GPUPROBE, "trace", run, "-o", traces, "--format", "chrome", "--ranks", str(rank["rank"]), "--steps", f"{first}:{end}"])
        analysed = self.run_tool(ANALYSE, traces)
        for rank in shown["ranks"]:
            steps = [step for step in rank["steps"]["records"] if first <= step["index"] < end]
            self.assertEqual(len(steps), end - first)
            total, compute, comm, exposed, copy = (sum(step[part] for step in steps)
                                                   for part in ("idle_ns", "compute_ns", "comm_ns", "exposed_comm_ns", "copy_ns"))
            total += compute + exposed + copy
            overlap, = [row for row in analysed["overlap"] if row["rank"] == rank["rank"]]
            self.assertAlmostEqual(overlap["comp_comm_overlap_pctg"], 100 * (1 - exposed / comm), delta=0.5, msg=f"overlap of rank {rank['rank']}")
            hta, = [row for row in analysed["breakdown"] if row["rank"] == rank["rank"]]
            for key, ours in (("compute_time(us)", compute), ("non_compute_time(us)", exposed + copy), ("kernel_time(us)", total),
                              ("idle_time(us)", total - compute - exposed - copy)):
                self.assertAlmostEqual(hta[key] * 1000, ours, delta=0.005 * total, msg=f"{key} of rank {rank['rank']}")


class Schema(harness.EndToEndTest):

    def test_a_published_validator_accepts_a_report(self):
        run = self.path("run")
        self.run_well([GPUPROBE, "simulate", "--scenario", "straggler-kernels", "--out", run])
        script = ("import json, jsonschema, sys; schema = json.load(open(sys.argv[1])); jsonschema.Draft202012Validator.check_schema(schema); "
                  "jsonschema.validate(json.load(open(sys.argv[2])), schema)")
        finished = subprocess.run([PYTHON, "-c", script, os.path.join(SOURCE, "docs", "report.schema.json"), os.path.join(run, "report.json")],
                                  capture_output=True, text=True, timeout=120)
        self.assertEqual(finished.returncode, 0, finished.stderr)


if __name__ == "__main__":
    if not os.path.exists(PYTHON):
        print(f"skipped: there is no {PYTHON}; scripts/analysis-env.sh makes it")
        sys.exit(77)
    harness.main()
