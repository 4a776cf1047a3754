"""Recomputes the figures of the demo's screen from the simulated node's truth log, by code that shares nothing with the analysis.

FIGURES is the table of docs/demo-figures.md: what stands on the screen, and what explains it.
"""
import os
import re
import subprocess
from collections import Counter, defaultdict

FIGURES = [
    ("first line", "ranks, records, records lost", "one `.jsonl` a rank; as many records as the log has, ranges apart; nothing is lost because every record of the log is in the run"),
    ("finding 1", "rank 3, 1.30 x", "`GPUSIM_SLOW` gives rank 3 that factor; the mean of each kernel on rank 3 over the other ranks' mean"),
    ("step", "total, compute, exposed comm", "from one optimizer's last kernel to the next one's, without the first step and those after an evaluation: the time; the union of the kernels that are not "
     "NCCL's; what NCCL's kernels add to that union"),
    ("rank", "kernels, busy, h2d, d2h, memory peak", "kernels of the rank; the union of their times; bytes over time of its copies; the highest sum of what is allocated on the device"),
    ("memory at its peak", "bytes by what they are", "the job's own line: so many MiB of weights, gradients, Adam's state and other data"),
    ("collective", "calls, size, time p50 and p95", "calls of one operation and size over all ranks; bytes of one kernel's calls; quantiles of those kernels' times"),
    ("kernel", "calls, total, of kernel time, mean, p50, p95, p99", "kernels of one name over all ranks, and quantiles of their times; the ten names with most time"),
    ("class", "calls, total, of kernel time, mean", "the same by class: the classes' names by hand in demo_figures.py"),
]
CLASSES = {"Linear": "gemm", "nccl": "collective", "Adam": "optimizer", "Tanh": "elementwise", "FillUniform": "elementwise", "MseLoss": "reduction",
           "Checksum": "other"}
UNITS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def markdown():
    lines = ["| table | figures | what they are, recomputed |", "|---|---|---|"]
    return "\n".join(lines + [f"| {table} | {figures} | {explained} |" for table, figures, explained in FIGURES])


def nanoseconds(number, unit):
    return float(number.replace(",", "")) * UNITS[unit]


def union(intervals):
    total, until = 0, 0
    for start, end in sorted(intervals):
        if end > until:
            total += end - max(start, until)
            until = end
    return total


def quantile(values, q):
    """Of a sorted list, between the nearest two."""
    place = q * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)


def demangled(names):
    out = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True, timeout=30).stdout.splitlines()
    short = {}
    for name, readable in zip(names, out):
        short[name] = re.sub(r"\(.*", "", readable.replace("(anonymous namespace)::", "")).split("::")[-1]
    return short


class Truth:
    """What the node did in the demo."""

    def __init__(self, records):
        self.ranks = defaultdict(lambda: defaultdict(list))
        for record in records:
            self.ranks[record["rank"]][record["kind"]].append(record)
        names = demangled(sorted({k["name"] for rank in self.ranks.values() for k in rank["kernel"]}))
        for rank in self.ranks.values():
            for kernel in rank["kernel"]:
                kernel["short"] = names[kernel["name"]]
                kernel["ns"] = kernel["end_ns"] - kernel["start_ns"]

    def kernels(self):
        return [k for rank in self.ranks.values() for k in rank["kernel"]]

    def by_kernel(self):
        times = defaultdict(list)
        for kernel in self.kernels():
            times[kernel["short"]].append(kernel["ns"])
        return {name: sorted(values) for name, values in times.items()}

    def by_class(self):
        times = defaultdict(list)
        for name, values in self.by_kernel().items():
            times[next(c for prefix, c in CLASSES.items() if name.startswith(prefix))] += values
        return times

    def steps(self):
        """Means over ranks and steps: total, compute, exposed."""
        sums, count = Counter(), 0
        for rank in self.ranks.values():
            kernels = sorted(rank["kernel"], key=lambda k: k["start_ns"])
            ends, before = [], None
            for kernel in (k for k in kernels if not k["short"].startswith("nccl")):  # the optimizer's last kernel of each step
                if before is not None and before["short"] == "AdamStep" and kernel["short"] != "AdamStep":
                    ends.append(before["end_ns"])
                before = kernel
            for start, end in zip(ends, ends[1:]):
                inside = [k for k in kernels if start <= k["start_ns"] < end]
                names = Counter(k["short"] for k in inside)
                if names["LinearForward"] != names["LinearBackwardWeight"]:
                    continue  # an evaluation, too
                clip = [(k["start_ns"], min(k["end_ns"], end), k["short"].startswith("nccl")) for k in inside]
                compute = union((s, e) for s, e, comm in clip if not comm)
                sums.update(total=end - start, compute=compute, exposed=union((s, e) for s, e, _ in clip) - compute)
                count += 1
        return {name: value / count for name, value in sums.items()}

    def memory_peak(self, rank):
        level, peak = 0, 0
        for r in sorted(self.ranks[rank]["alloc"] + self.ranks[rank]["free"], key=lambda r: r["time_ns"]):
            if r["memory"] == "device":
                level += r["bytes"] if r["kind"] == "alloc" else -r["bytes"]
                peak = max(peak, level)
        return peak

    def copy_rate(self, rank, direction):
        copies = [c for c in self.ranks[rank]["memcpy"] if c["direction"] == direction]
        return sum(c["bytes"] for c in copies) / sum(c["end_ns"] - c["start_ns"] for c in copies)

    def slowdown(self, rank, name):
        mean = lambda times: sum(times) / len(times)
        own = [k["ns"] for k in self.ranks[rank]["kernel"] if k["short"] == name]
        others = [k["ns"] for r, records in self.ranks.items() if r != rank for k in records["kernel"] if k["short"] == name]
        return mean(own) / mean(others)

    def plans(self):
        """Times of the kernels that carry calls, by operation and bytes, and how many calls they carry."""
        carried = defaultdict(list)
        for number, rank in self.ranks.items():
            for call in rank["collective"]:
                carried[number, call["correlation"], call["op"]].append(call)
        times, calls = defaultdict(list), Counter()
        for (_, _, op), together in carried.items():
            scale = together[0]["comm_ranks"] if op == "AllGather" else 1
            size = sum(c["bytes"] for c in together) * scale
            times[op, size].append(together[0]["end_ns"] - together[0]["start_ns"])
            calls[op, size] += len(together)
        return {key: (calls[key], sorted(values)) for key, values in times.items()}
