"""Recomputes the figures of the demo's screen from the simulated node's truth log, by code that shares nothing with the analysis.

FIGURES is the table of docs/internals/demo-figures.md: what stands on the screen, and what explains it.
"""
import os
import re
import subprocess
from collections import Counter, defaultdict

FIGURES = [
    ("first line", "ranks, records, records lost", "The node writes one `.jsonl` file per rank. Apart from ranges, the run has exactly the records of these files, so none is lost."),
    ("first line", "own cost", "Not in the node's log: the library measures it. `tests/e2e/test_own_cost.py` compares it with the program's own clock."),
    ("finding 1", "rank 3, 1.30x, the kernel's times, by how much it lengthens a step", "`GPUSIM_SLOW` gives rank 3 that factor. Each kernel's mean on rank 3 is divided by its mean on the other ranks. "
     "A step is longer by the other ranks' exposed communication minus rank 3's."),
    ("step", "total, compute, exposed comm, copy; std of compute and exposed comm; of ranks", "A step lasts from one optimizer's last kernel to the next one's; the first step and those after an evaluation are left out. "
     "Compute is the union of all kernels that are not NCCL's, exposed comm is what NCCL's kernels add to that union, and copy what copies and fills add to both. "
     "Means and deviations are over steps and ranks; `of ranks` is over the ranks' means."),
    ("step", "p50, p95, p99, max of compute; p50 of total and exposed comm", "Quantiles of the same values."),
    ("step", "communication, hidden, overlap efficiency", "Communication is the union of NCCL's kernels, and hidden the part of it that they do not add to compute. "
     "The efficiency is that part again, because compute takes longer than communication."),
    ("step", "phases: forward, backward, optimizer", "The union of each phase's kernels, which are known by name. The screen's time less its idle share."),
    ("rank", "kernels, busy, h2d, d2h, memory peak", "Kernels of the rank, the union of their times, bytes over time of its copies, and the highest sum of its device allocations."),
    ("rank", "step, compute, exposed comm, caused wait, clock", "As for the steps, of one rank. In each AllReduce, the time from each rank's start to the last rank's start is booked to the last rank; "
     "the mean is per other rank and step. There is one clock, so +0 ns."),
    ("memory at its peak", "peaks by phase", "The demo allocates everything before its second step, so each phase has the rank's peak."),
    ("memory at its peak", "bytes by category", "The job prints how many MiB its weights, gradients, Adam's state and other data take."),
    ("phase", "instances, GPU mean, std, p50, p95, max, rank min and max", "What a rank launched, in launch order, is cut where its program opens and closes the ranges (`trainer.cc`). The time is the union of each part."),
    ("phase", "host mean", "Not in the node's log, which has no ranges. `tests/e2e/test_random_ranges.py` compares ranges with what a program did."),
    ("collective", "calls, size, time p50 and p95", "Calls of one operation and size over all ranks, bytes of one kernel's calls, and quantiles of those kernels' times."),
    ("collective", "algbw, busbw, transfer / wait", "Bytes over the mean time, and 2 (n - 1) / n of that. Transfer is from the last rank's start to the end, and wait from a rank's own start to the last rank's."),
    ("kernel", "calls, total, of kernel time, mean, p50, p95, p99", "Kernels of one name over all ranks and quantiles of their times, for the ten names with most time."),
    ("class", "calls, total, of kernel time, mean", "The same by class; the classes are assigned by hand in demo_figures.py."),
    ("class", "what the optimizer must move", "Adam reads weights, gradients and two states, and writes all but the gradients: seven times the job's own figure for its weights, divided by the optimizer's time."),
]
CLASSES = {"Linear": "gemm", "nccl": "collective", "Adam": "optimizer", "Tanh": "elementwise", "FillUniform": "elementwise", "MseLoss": "reduction",
           "Checksum": "other"}
PHASES = {"forward": {"LinearForward"}, "backward": {"MseLoss", "TanhBackward", "LinearBackwardWeight", "LinearBackwardInput"}, "optimizer": {"AdamStep"}}
UNITS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def markdown():
    lines = ["| table | figures | how they are recomputed |", "|---|---|---|"]
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
    """A quantile of a sorted list, between the nearest two values."""
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
    """What the node did in the demo, whose first `warmup_steps` are left out of what is said of steps."""

    def __init__(self, records, warmup_steps):
        self.warmup_steps = warmup_steps
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
        """By rank, what each of its steps consists of."""
        return {number: self._steps_of(rank) for number, rank in self.ranks.items()}

    def _steps_of(self, rank):
        kernels = sorted(rank["kernel"], key=lambda k: k["start_ns"])
        ends, before = [next(k["start_ns"] for k in kernels if k["short"] == "LinearForward")], None
        for kernel in (k for k in kernels if not k["short"].startswith("nccl")):  # the optimizer's last kernel of each step
            if before is not None and before["short"] == "AdamStep" and kernel["short"] != "AdamStep":
                ends.append(before["end_ns"])
            before = kernel
        steps = []
        for start, end in list(zip(ends, ends[1:]))[self.warmup_steps:]:
            inside = [k for k in kernels if start <= k["start_ns"] < end]
            names = Counter(k["short"] for k in inside)
            if names["LinearForward"] != names["LinearBackwardWeight"]:
                continue  # an evaluation, too
            of = lambda wanted: [(k["start_ns"], min(k["end_ns"], end)) for k in inside if wanted(k["short"])]
            compute, comm = union(of(lambda name: not name.startswith("nccl"))), union(of(lambda name: name.startswith("nccl")))
            kernels_ns = union(of(lambda name: True))
            copies = [(c["start_ns"], c["end_ns"]) for c in rank["memcpy"] + rank["memset"] if start <= c["start_ns"] < end]
            step = {"total": end - start, "compute": compute, "comm": comm, "exposed": kernels_ns - compute, "copy": union(of(lambda name: True) + copies) - kernels_ns}
            steps.append({**step, **{phase: union(of(lambda name, names=names: name in names)) for phase, names in PHASES.items()}})
        return steps

    def ranges(self):
        """By range of the program and by rank, how long the device was busy with each instance of it."""
        busy = defaultdict(lambda: defaultdict(list))
        for number, rank in self.ranks.items():
            instances, before = [], None
            for work in sorted(rank["kernel"] + rank["memcpy"] + rank["memset"], key=lambda w: w["correlation"]):
                is_input = work.get("direction") == "h2d"
                if is_input and not before:
                    instances.append([])
                before = is_input
                if instances and not work.get("short", "").startswith(("Checksum", "ncclDevKernel_AllGather")):
                    instances[-1].append(work)
            for works in instances:
                for name, part in self._parts_of(works).items():
                    busy[name][number].append(union((w["start_ns"], w["end_ns"]) for w in part))
        return busy

    @staticmethod
    def _parts_of(works):
        names = [w.get("short") for w in works]
        if "AdamStep" not in names:
            return {"evaluate": works}
        forward, optimizer = names.index("LinearForward"), names.index("AdamStep")
        backward = len(names) - names[::-1].index("LinearForward")
        return {"step": works, "input": works[:forward], "forward": works[forward:backward], "backward": works[backward:optimizer], "optimizer": works[optimizer:]}

    def meetings(self):
        """Start and end of each AllReduce kernel of the steps, by rank."""
        calls = defaultdict(dict)
        for number, rank in self.ranks.items():
            reductions = [k for k in sorted(rank["kernel"], key=lambda k: k["start_ns"]) if "AllReduce" in k["short"]]
            for place, kernel in enumerate(reductions):
                calls[place][number] = (kernel["start_ns"], kernel["end_ns"])
        return list(calls.values())

    def meetings_after_warmup(self, steps):
        """Those of a run of this many steps."""
        meetings = self.meetings()
        return meetings[len(meetings) // steps * self.warmup_steps:]

    def caused_wait(self, steps):
        """By rank, how long each other one waited for it in a step."""
        caused = Counter()
        for starts in ({rank: start for rank, (start, _) in call.items()} for call in self.meetings_after_warmup(steps)):
            last = max(starts, key=starts.get)
            caused[last] += sum(starts[last] - start for start in starts.values())
        return {rank: caused[rank] / (len(self.ranks) - 1) / (steps - self.warmup_steps) for rank in self.ranks}

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
