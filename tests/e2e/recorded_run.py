"""A run's own records, to recompute the report's figures from: its tables (`gpuprobe export --format sqlite`) and the cells of its page.

Steps are those of the table `step` after the warm-up, where no record was lost. What a figure is made of is computed here from single steps, calls and kernels;
report.json is only asked for what no record says, such as a GPU's capacity.
"""
import base64
import functools
import json
import math
import os
import re
import sqlite3
import statistics
import struct
import subprocess

from harness import GPUPROBE, read_report

PARTS = ("total_ns", "compute_ns", "comm_ns", "exposed_comm_ns", "copy_ns", "idle_ns", "host_bound_ns", "input_wait_ns", "sync_ns", "memory_ns", "pause_ns",
         "launch_gap_ns")
HOST_PARTS = ("host_bound_ns", "sync_ns", "memory_ns", "pause_ns")  # idle because of what the host did
LATE_SHARES = (0.05, 0.12, 0.3)  # of the step: LateSteps::kLateShares
BUS_BYTES = {"AllReduce": lambda ranks: 2 * (ranks - 1) / ranks, "Broadcast": lambda ranks: 1, "AllGather": lambda ranks: (ranks - 1) / ranks,
             "ReduceScatter": lambda ranks: (ranks - 1) / ranks}  # of a call's size


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else 0


def median_of_others(values, but):
    """Of a value by rank."""
    return statistics.median(value for rank, value in values.items() if rank != but)


def union(spans):
    out = []
    for start, end in sorted(spans):
        if out and start <= out[-1][1]:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([start, end])
    return out


def common(a, b):
    out, i, j = [], 0, 0
    while i < len(a) and j < len(b):
        start, end = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if start < end:
            out.append([start, end])
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return out


def length(spans):
    return sum(end - start for start, end in spans)


class RecordedRun:
    def __init__(self, folder, report_options=()):
        self.folder = folder
        self.report = read_report(folder)
        if report_options:
            shown = subprocess.run([GPUPROBE, "report", folder, "--json", "--ranks", *report_options], check=True, capture_output=True, timeout=120)
            self.report = json.loads(shown.stdout)
        path = folder + ".sqlite"
        subprocess.run([GPUPROBE, "export", folder, "--format", "sqlite", "-o", path], check=True, capture_output=True, timeout=120)
        self._tables = sqlite3.connect(path)
        os.remove(path)
        self.by_step = {}  # step: {rank: row}
        for row in self.rows("SELECT * FROM step WHERE rank IS NOT NULL AND NOT warmup AND NOT incomplete ORDER BY step, rank"):
            self.by_step.setdefault(row["step"], {})[row["rank"]] = row
        self.ranks = [rank for rank, in self._tables.execute("SELECT DISTINCT rank FROM step WHERE rank IS NOT NULL ORDER BY rank")]
        self.numbers = {step for step, in self._tables.execute("SELECT step FROM step")}

    def close(self):
        self._tables.close()

    def rows(self, query, *values):
        cursor = self._tables.execute(query, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row)) for row in cursor]

    def value(self, query, *values):
        (value,), = self._tables.execute(query, values)
        return value

    # --- steps

    def records(self, rank=None, steps=None):
        return [row for step, rows in self.by_step.items() if steps is None or step in steps for row in rows.values() if rank in (None, row["rank"])]

    def mean(self, *parts, rank=None, steps=None):
        return mean(sum(row[part] for part in parts) for row in self.records(rank, steps))

    @functools.cached_property
    def step_ns(self):
        """The mean step; each rank counts alike."""
        return mean(self.means("total_ns").values())

    @functools.cached_property
    def counted(self):
        return len(self.by_step)

    def means(self, *parts, steps=None):
        return {rank: self.mean(*parts, rank=rank, steps=steps) for rank in self.ranks}

    def excess(self, rank, *parts):
        """Of its mean step over the other ranks'."""
        means = self.means(*parts)
        return means[rank] - median_of_others(means, rank)

    def excess_in(self, steps, rank, *parts):
        """The same, compared in each of these steps."""
        return mean(of[rank] - median_of_others(of, rank)
                    for of in ({other: sum(row[part] for part in parts) for other, row in self.by_step[step].items()} for step in steps))

    @functools.cached_property
    def lengths(self):
        """Of each step, the median over the ranks."""
        return {step: statistics.median(row["total_ns"] for row in rows.values()) for step, rows in self.by_step.items()}

    # --- late ranks

    def late_by(self, rank):
        """How long the others' communication is exposed beyond its own, by step."""
        out = {}
        for step, rows in self.by_step.items():
            if rank in rows and len(rows) == len(self.ranks):
                out[step] = max(0, median_of_others({other: row["exposed_comm_ns"] for other, row in rows.items()}, rank) - rows[rank]["exposed_comm_ns"])
        return out

    def late_steps(self, rank, count):
        """Those in which it is late, by the share of the step at which there are `count`."""
        late_by = self.late_by(rank)
        for share in LATE_SHARES:
            late = [step for step, ns in late_by.items() if ns >= share * self.by_step[step][rank]["total_ns"]]
            if len(late) == count:
                return late
        raise AssertionError(f"rank {rank} is late in {[sum(ns >= share * self.by_step[step][rank]['total_ns'] for step, ns in late_by.items()) for share in LATE_SHARES]}"
                             f" steps, not in {count}")

    def longer_when_late(self, rank, late):
        """By how much these steps are longer because of it: what the others wait, and no more than these steps are longer than the rest."""
        late_by = self.late_by(rank)
        # Where the others' GPUs run dry because of their own hosts, they would have waited for these anyway.
        dry = {step: median_of_others({other: sum(row[part] for part in (*HOST_PARTS, "input_wait_ns")) for other, row in self.by_step[step].items()}, rank) for step in late}
        longer = mean(max(0, late_by[step] - dry[step]) for step in late)
        rest = [self.by_step[step][rank]["total_ns"] for step in late_by if step not in late]
        if len(rest) >= 3 and len(late) <= 0.75 * len(late_by):
            longer = min(longer, mean(self.by_step[step][rank]["total_ns"] for step in late) - statistics.median(rest))
        return longer

    # --- waiting, call by call

    @functools.cached_property
    def caused_waits(self):
        """{(rank, step): how long each other rank waited for it in collectives}, as the view step_waits says it."""
        return {(row["rank"], row["step"]): row["caused_wait_ns"] for row in self.rows("SELECT rank, step, caused_wait_ns FROM step_waits")}

    def caused(self, rank, steps=None):
        return mean(self.caused_waits.get((rank, step), 0) for step in self.by_step if steps is None or step in steps)

    # --- kernels and calls

    @functools.cached_property
    def kernels_of_steps(self):
        """{name: ({rank: ns per step}, {rank: threads per launch})} of what computes."""
        found = {}
        for row in self.rows("SELECT name, rank, grid, block, count(*) AS calls, sum(kernel.end_ns - kernel.start_ns) AS ns FROM kernel JOIN step USING (rank, step)"
                             " WHERE class <> 'collective' AND NOT warmup AND NOT incomplete GROUP BY name, rank, grid, block"):
            found.setdefault(row["name"], {}).setdefault(row["rank"], []).append((row["calls"], row["ns"], math.prod(map(int, re.findall(r"\d+", row["grid"] + row["block"])))))
        return {name: ({rank: sum(ns for _, ns, _ in of.get(rank, [])) / self.counted for rank in self.ranks},
                       {rank: sum(calls * threads for calls, _, threads in of.get(rank, [])) / max(1, sum(calls for calls, _, _ in of.get(rank, []))) for rank in self.ranks})
                for name, of in found.items()}

    def kernel_means(self, name):
        """By rank, in these steps; `name` may be cut off, or shortened to its function's own name."""
        start = name.removesuffix("...")
        found = self.rows("SELECT rank, name, avg(kernel.end_ns - kernel.start_ns) AS mean_ns FROM kernel JOIN step USING (rank, step)"
                          " WHERE instr(name, ?) > 0 AND NOT warmup AND NOT incomplete GROUP BY rank, name", start)
        names = {row["name"] for row in found}
        if len(names) != 1:
            raise AssertionError(f"{name} is {sorted(names)}")
        return {row["rank"]: row["mean_ns"] for row in found}

    def slowdown(self, rank):
        """Its time in kernels over that of the same launches at the others' pace."""
        times = [times for times, _ in self.kernels_of_steps.values()]
        return sum(of[rank] for of in times) / sum(median_of_others(of, rank) for of in times)

    @functools.cached_property
    def calls(self):
        """Collectives that ran, by (comm, seq, replay): their ranks' rows."""
        calls = {}
        for row in self.rows("SELECT rank, op, comm, seq, replay, bytes, comm_ranks, step, start_ns, end_ns FROM collective"
                             " WHERE start_ns IS NOT NULL AND captured IS NULL ORDER BY start_ns"):
            calls.setdefault((row["comm"], row["seq"], row["replay"]), []).append(row)
        return calls

    def transfers(self, op, size, comm_ranks=None):
        """How long each call of that size took without waiting for late ranks; the first one, which opens connections, is left out."""
        times = [min(row["end_ns"] - row["start_ns"] for row in rows) for rows in self.calls.values()
                 if rows[0]["op"] == op and rows[0]["bytes"] == size and comm_ranks in (None, rows[0]["comm_ranks"])]
        return times[1:] or times

    def calls_per_step(self, op, size=None, comm_ranks=None):
        """Per rank; steps of the warm-up count."""
        calls = sum(len(rows) for rows in self.calls.values() if rows[0]["op"] == op and size in (None, rows[0]["bytes"]) and comm_ranks in (None, rows[0]["comm_ranks"]))
        return calls / len(self.ranks) / len(self.numbers)

    def _compute(self, rank):
        """When its GPU computes, in order and without overlaps."""
        return union((row["start_ns"], row["end_ns"]) for row in self.rows(
            "SELECT start_ns, end_ns FROM kernel WHERE rank = ? AND class <> 'collective' UNION ALL SELECT start_ns, end_ns FROM memset WHERE rank = ?", rank, rank))

    @functools.cached_property
    def collective_time(self):
        """Of collectives, by rank and per step: communication that is exposed; what of it and of all is transfer, each as long as for the rank that comes last."""
        counted = {(rank, step) for step, rows in self.by_step.items() for rank in rows}
        whole = {rank: [] for rank in self.ranks}
        moved = {rank: [] for rank in self.ranks}
        for rows in self.calls.values():
            if rows[0]["op"] in ("Send", "Recv"):
                continue
            least = min(row["end_ns"] - row["start_ns"] for row in rows)
            for row in rows:
                if (row["rank"], row["step"]) in counted:
                    whole[row["rank"]].append((row["start_ns"], row["end_ns"]))
                    moved[row["rank"]].append((row["end_ns"] - least if len(rows) == row["comm_ranks"] else row["start_ns"], row["end_ns"]))
        out = {}
        for rank in self.ranks:
            compute, steps = self._compute(rank), len(self.records(rank))
            exposed, transfer = union(whole[rank]), union(moved[rank])
            out[rank] = {"exposed with waits": (length(exposed) - length(common(exposed, compute))) / steps, "transfer": length(transfer) / steps,
                         "exposed": (length(transfer) - length(common(transfer, compute))) / steps}
        return out

    @functools.cached_property
    def transfer_ns(self):
        """Communication without waiting for late ranks: from when the last rank has come, and no more than that of the rank that has least of it, step by step."""
        return min(mean(of["transfer"] for of in self.collective_time.values()), mean(min(row["comm_ns"] for row in rows.values()) for rows in self.by_step.values()),
                   *self.means("comm_ns").values())

    @functools.cached_property
    def exposed_transfer_ns(self):
        return min(mean(of["exposed"] for of in self.collective_time.values()),
                   mean(min(row["exposed_comm_ns"] for row in rows.values()) for rows in self.by_step.values()), *self.means("exposed_comm_ns").values())

    # --- what the page draws

    @functools.cached_property
    def page(self):
        with open(os.path.join(self.folder, "report.html"), encoding="utf-8") as file:
            return json.loads(re.search(r'<script type="application/json" id="page-data">(.*?)</script>', file.read(), re.DOTALL)[1])

    def cells(self, key):
        """{(row, column): value} of the page's grid of steps."""
        grid = self.page["steps"]
        packed = base64.b64decode(grid["cells"][key])
        out = {}
        for i, (cell,) in enumerate(struct.iter_unpack("<H", packed)):
            e, mantissa = cell >> 11, cell & 2047
            if cell != 65535:
                out[divmod(i, grid["columns"])] = mantissa if e == 0 else (2048 + mantissa) * 2 ** (e - 1)
        return out
