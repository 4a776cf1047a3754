"""What the figures of findings follow from: one function for each, of a claim, which is a sentence of a finding, and the run whose records it is about.

A formula gives a number, the least and the most that it may be (a pair), all that it may be (a set), or a function that looks at the text.
"""
import re
import statistics

from recorded_run import BUS_BYTES, HOST_PARTS, mean, median_of_others

UNITS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9, "h": 3600e9, "days": 86400e9, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
         "KB/s": 1e-6, "MB/s": 1e-3, "GB/s": 1, "TB/s": 1e3, "%": 0.01, "x": 1, "": 1}
NUMBER = r"-?[\d,]*\.?\d+"
KINDS = {
    "time": rf"{NUMBER} (?:ns|us|ms|s|min|h|days)",
    "share": rf"{NUMBER} %",
    "bytes": rf"{NUMBER} (?:B|KiB|MiB|GiB|TiB)",
    "rate": rf"{NUMBER} (?:KB/s|MB/s|GB/s|TB/s)",
    "factor": rf"{NUMBER}x",
    "number": NUMBER,
    "step": r"\d+",
    "rank": r"\d+",
    "ranks": r"[\d, -]+",
    "steps": r"\d+(?:, \d+)*(?: and \d+)?",
    "name": r"\S+(?: \S+)??",
    "words": r"[^.;:\d]*?",
    "text": r".+?",
}
# Without a formula: they are looked up, not computed.
LOOKED_UP = {"step", "rank"}


def value_of(text):
    """The number, and half of its last digit."""
    number, unit = re.match(rf"({NUMBER}) ?(.*)", text).groups()
    digits = len(number.partition(".")[2])
    return float(number.replace(",", "")) * UNITS[unit], 0.5 * 10 ** -digits * UNITS[unit]


def numbers_in(text):
    """[10, 20, 21] of "10, 20 and 21" and of "10, 20-21"."""
    out = []
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        out.extend(range(int(first), int(last or first) + 1))
    return out


class Claim:
    """A sentence of a finding: what it says by name, and what it is about."""

    def __init__(self, run, finding, said):
        self.run, self.finding, self.said = run, finding, said

    def number(self, name):
        return value_of(self.said[name])[0]

    @property
    def rank(self):
        return self.finding["about"]["ranks"][0]

    @property
    def straggler(self):
        found, = [s for s in self.run.report["stragglers"] if s["rank"] == self.rank]
        return found

    @property
    def late(self):
        """The steps in which the rank that it is about is late."""
        return self.run.late_steps(self.rank, self.straggler["late_steps"])

    @property
    def since(self):
        first = self.finding["about"]["first_step"]
        return [step for step in self.run.by_step if step >= (first or 0)]


# --- stragglers

def lost(c):
    """Per step of the run."""
    run, late = c.run, c.late
    return run.longer_when_late(c.rank, late) * len(late) / run.counted


def lost_since(c):
    """Per step since it began."""
    return lost(c) * c.run.counted / len(c.since)


def of_late_launches(c):
    """What a rank that launches late hides less of its own communication is part of it, at most."""
    least = lost(c)
    return least, least + max(0, c.run.mean("exposed_comm_ns", rank=c.rank))


def excess(*parts):
    """Of the rank's step over the other ranks': since when it is late, in the steps in which it is late, or in all."""
    def of(c):
        straggler = c.straggler
        if straggler["since_step"] is None and straggler["persistent"]:
            return c.run.excess(c.rank, *parts)
        return c.run.excess_in(c.late, c.rank, *parts)
    return of


def since_then(of):
    """As a mean over all steps since it became late, of a figure of those in which it is."""
    return lambda c: of(c) * len(c.late) / len(c.since)


def slower_since(c):
    return 1 + (slower_when_late(c) - 1) * len(c.late) / len(c.since)


def slower_when_late(c):
    """Its compute over the other ranks'."""
    others = {rank: c.run.mean("compute_ns", rank=rank) for rank in c.run.ranks}
    return 1 + c.run.excess_in(c.late, c.rank, "compute_ns") / median_of_others(others, c.rank)


def more_work(c):
    """The others' time at their pace and what more threads add to it, over the others' time: more than the threads do they do not add."""
    usual = more = 0
    for times, threads_of in c.run.kernels_of_steps.values():
        elsewhere = median_of_others(times, c.rank)
        ratio = threads_of[c.rank] / median_of_others(threads_of, c.rank)
        usual += elsewhere
        more += min(times[c.rank] - elsewhere, elsewhere * (ratio - 1)) if ratio > 1.01 else 0
    return 1 + more / usual


def threads(c):
    (_, of), = [of for name, of in c.run.kernels_of_steps.items() if c.said["kernel"].removesuffix("...") in name]
    return of[c.rank] / median_of_others(of, c.rank)


def mean_of_late_steps(c):
    return c.run.longer_when_late(c.rank, c.late)


def kernel_elsewhere(c):
    return median_of_others(c.run.kernel_means(c.said["kernel"]), c.rank)


# --- long steps

def long_cost(c):
    usual = statistics.median(c.run.lengths.values())
    return sum(c.run.lengths[step] - usual for step in c.finding["about"]["steps"]) / c.run.counted


def lengths_named(c):
    """"26 (32.9 ms) and 27 (33.6 ms)" names these steps with their lengths."""
    def agrees(said):
        named = re.findall(rf"(\d+) \(({NUMBER} \w+)\)", said)
        return [int(step) for step, _ in named] == c.finding["about"]["steps"] and all(
            abs(value_of(length)[0] - c.run.lengths[int(step)]) <= 1.0001 * value_of(length)[1] for step, length in named)
    return agrees


def longer_part(part):
    """In the rank that sets the pace of each of them, over the median step's."""
    def of(c):
        paced = {step: max(rows.values(), key=lambda row: row["total_ns"] - row["exposed_comm_ns"])[part] for step, rows in c.run.by_step.items()}
        return mean(paced[step] for step in c.finding["about"]["steps"]) - statistics.median(paced.values())
    return of


def latest(c):
    """"rank 4 in step 26, none in step 27": the rank is late in it, by a twentieth of the step."""
    def agrees(said):
        named = re.findall(r"(?:rank (\d+)|none) in step (\d+)", said)
        return [int(step) for _, step in named] == c.finding["about"]["steps"] and all(
            not rank or c.run.late_by(int(rank))[int(step)] == max(c.run.late_by(other)[int(step)] for other in c.run.ranks) for rank, step in named)
    return agrees


# --- groups of ranks

def own_time(*ranks_in):
    """Of the step without communication that is exposed."""
    return lambda c: mean(c.run.mean("total_ns", rank=rank) - c.run.mean("exposed_comm_ns", rank=rank) for rank in numbers_in(c.said[ranks_in[0]]))


def group_lost(c):
    """What the faster ranks wait more."""
    slower = c.finding["about"]["ranks"]
    exposed = c.run.means("exposed_comm_ns")
    return mean(ns for rank, ns in exposed.items() if rank not in slower) - mean(exposed[rank] for rank in slower)


def waited(c):
    """Exposed communication beyond that of the rank that has least of it, step by step."""
    return mean(mean(row["exposed_comm_ns"] for row in rows.values()) - min(row["exposed_comm_ns"] for row in rows.values()) for rows in c.run.by_step.values())


def most_blamed_share(c):
    caused = {rank: c.run.caused(rank) for rank in c.run.ranks}
    return caused[int(c.said["last"])] / sum(caused.values())


# --- communication

def summed(of):
    """The report adds calls up, each without what compute covers of it; here they are one union."""
    return lambda c: (0.997 * of(c), 1.003 * of(c))


def transfers(c):
    """Communication without waiting for late ranks: of the rank that has least of it, step by step."""
    if c.run.report["communication"]["pipeline"]:
        return within_stages(c, "transfer")
    return c.run.transfer_ns


def exposed_transfers(c):
    if c.run.report["communication"]["pipeline"]:
        return within_stages(c, "exposed")
    return c.run.exposed_transfer_ns


def within_stages(c, what):
    """Of calls that are no sends and receives between stages: of the rank that has least of it."""
    return min(of[what] for of in c.run.collective_time.values())


def efficiency(c):
    comm, compute = transfers(c), c.run.mean("compute_ns")
    return (comm - exposed_transfers(c)) / min(comm, compute)


def overlap_cost(c):
    """Less what compute could not hide: of gradients, what runs in backward."""
    hides = c.run.mean("compute_ns")
    backward = [phase for phase in c.run.report["steps"]["phases"] if phase["name"] == "backward"]
    if "AllReduce" in c.finding["evidence"] and backward:
        hides = min(hides, backward[0]["time_ns"]["mean"] - backward[0]["idle_ns"]["mean"])
    return exposed_transfers(c) - max(0, transfers(c) - hides)


def calls(n):
    return lambda c: c.run.calls_per_step(c.said.get("op", "AllReduce"), value_in_bytes(c.said[f"size{n}"], c))


def value_in_bytes(text, c):
    """The size of the calls that is shown so."""
    value, half = value_of(text)
    found = {rows[0]["bytes"] for rows in c.run.calls.values() if abs(rows[0]["bytes"] - value) <= half}
    if len(found) != 1:
        raise AssertionError(f"calls of {text}: {found}")
    return found.pop()


def size(n):
    return lambda c: value_in_bytes(c.said[f"size{n}"], c)


def reductions(c):
    """Calls that reduce gradients, of 1 KiB and more, in a step: (calls, bytes, ns)."""
    of = {}
    for rows in c.run.calls.values():
        if rows[0]["op"] == "AllReduce" and rows[0]["bytes"] >= 1024:
            of.setdefault(rows[0]["bytes"], []).append(len(rows))
    made = {n: sum(ranks) / len(c.run.ranks) / len(c.run.numbers) for n, ranks in of.items()}
    made = {n: count for n, count in made.items() if count >= 0.5}
    return sum(made.values()), sum(n * count for n, count in made.items()), sum(count * mean(c.run.transfers("AllReduce", n)) for n, count in made.items())


def bus_bandwidth(c):
    """The best one of 8 MiB and more."""
    kinds = {(rows[0]["op"], rows[0]["bytes"], rows[0]["comm_ranks"]) for rows in c.run.calls.values() if rows[0]["bytes"] >= 8 << 20}
    return max(BUS_BYTES[op](ranks) * size / mean(c.run.transfers(op, size)) for op, size, ranks in kinds)


def layers_calls(c):
    """Calls of sizes that forward makes, too, where the sentence says so."""
    ranks, op = int(c.said["comm_ranks"]), c.said["op"]
    sizes = {row["bytes"] for row in c.run.rows("SELECT DISTINCT bytes FROM collective WHERE op = ? AND comm_ranks = ? AND phase = 'forward'", op, ranks)}
    if "in forward" not in c.finding["evidence"]:
        return c.run.calls_per_step(op, comm_ranks=ranks)
    return sum(c.run.calls_per_step(op, size, ranks) for size in sizes)


def layers_exposed(c):
    """At most all that is exposed, and at least what is exposed without waiting."""
    return 0.95 * exposed_transfers(c), 1.02 * c.run.mean("exposed_comm_ns")


# --- pipelines

def bubble(c):
    """Waiting in sends and receives, and idle because of that: what is left of the step."""
    run = c.run
    busy = run.mean("compute_ns", *HOST_PARTS, "input_wait_ns") + mean(of["exposed with waits"] for of in run.collective_time.values())
    return 1 - busy / run.step_ns


def balanced_bubble(c):
    straggler = c.run.report["stragglers"][0]
    idle = bubble(c) * c.run.step_ns - straggler["lost_ns_per_step"] + straggler["cause_ns_per_step"] / len(c.run.ranks)
    return idle / (c.run.step_ns - straggler["lost_ns_per_step"])


def bubble_cost(c):
    if "balanced" in c.said:
        return balanced_bubble(c) * (c.run.step_ns - c.run.report["stragglers"][0]["lost_ns_per_step"])
    return bubble(c) * c.run.step_ns


def stage_lost(c):
    """A step of stages that all compute as the others do, 1F1B, would be shorter by so much."""
    run, rank = c.run, c.rank
    p = run.report["communication"]["pipeline"]
    others = median_of_others(run.means("compute_ns"), rank)
    balanced = others * (1 + (p["stages"] - 1) / p["microbatches"]) + run.mean("idle_ns", "copy_ns", rank=rank)
    return run.mean("total_ns", rank=rank) - balanced


def sends_per_step(c):
    return round(min(c.run.value("SELECT count(*) FROM collective WHERE op = 'Send' AND peer > comm_rank AND rank = ? AND step IS NOT NULL", rank) / len(c.run.numbers)
                     for rank in c.run.ranks[:-1] if c.run.value("SELECT count(*) FROM collective WHERE op = 'Send' AND peer > comm_rank AND rank = ?", rank)))


# --- the host

def usual(*parts):
    """Mean of all ranks; where single ranks or long steps have findings of their own, the median rank's."""
    def of(c):
        return c.run.mean(*parts)
    return of


def kernels_per_step(c):
    return c.run.value("SELECT count(*) FROM kernel JOIN step USING (rank, step) WHERE class <> 'collective' AND NOT warmup") / len(c.run.records())


def short_share(c):
    return c.run.value("SELECT avg(end_ns - start_ns < 10000) FROM kernel")


SYNCS = ("(SELECT rank, start_ns, end_ns FROM sync UNION ALL SELECT rank, start_ns, end_ns FROM memcpy WHERE direction = 'd2h' AND dst_memory = 'pageable') AS call"
         " JOIN step ON call.rank = step.rank AND call.end_ns > step.start_ns AND call.end_ns <= step.end_ns WHERE NOT warmup")


def syncs(c):
    """Calls that block the host."""
    return c.run.value(f"SELECT count(*) FROM {SYNCS}") / len(c.run.records())


def blocked(c):
    """The host's time in them."""
    return c.run.value(f"SELECT sum(call.end_ns - call.start_ns) FROM {SYNCS}") / len(c.run.records())


def samples_of(key):
    def of(c):
        cause, = [time for time in c.run.report["host_time"] if time["cause"] == key]
        return sum(place["samples"] for place in cause["places"])
    return of


# --- memory

def kept(c):
    """Sizes of tensors that are never freed, with their number per step; what the program makes once is left out."""
    steps = len(c.run.numbers)
    found = c.run.rows("SELECT bytes, count(*) AS n FROM tensor AS t WHERE rank = ? AND NOT EXISTS (SELECT 1 FROM tensor_free AS f WHERE f.rank = t.rank AND"
                       " f.address = t.address AND f.time_ns >= t.time_ns) GROUP BY bytes", c.rank)
    return {row["bytes"]: row["n"] / steps for row in found if row["n"] % steps == 0}


def growth(c):
    return sum(size * n for size, n in kept(c).items())


def kept_per_step(c):
    return sum(kept(c).values())


def device_levels(c, rank):
    """Of the driver's allocations: (time, bytes in use after it)."""
    level, levels = 0, []
    sizes = {}
    events = [(row["time_ns"], 1, row) for row in c.run.rows("SELECT * FROM alloc WHERE rank = ? AND memory = 'device' AND coalesce(failed, 0) = 0", rank)]
    events += [(row["time_ns"], 0, row) for row in c.run.rows("SELECT * FROM free WHERE rank = ?", rank)]
    for time, is_alloc, row in sorted(events, key=lambda event: event[:2]):
        if is_alloc:
            sizes[row["address"]] = row["bytes"]
            level += row["bytes"]
        else:
            level -= sizes.pop(row["address"], 0)
        levels.append((time, level))
    return levels


def high_water(c):
    return max(level for _, level in device_levels(c, int(c.said.get("on", c.rank))))


def capacity(c):
    return c.run.report["ranks"][c.rank]["device_memory"][0]["capacity_bytes"]


def refused(c):
    return c.run.rows("SELECT * FROM alloc WHERE rank = ? AND failed ORDER BY time_ns DESC", c.rank)[0]


def in_use(c):
    return [level for time, level in device_levels(c, c.rank) if time <= refused(c)["time_ns"]][-1]


def pytorch(key):
    return lambda c: c.run.report["ranks"][c.rank]["memory"]["pytorch"][0][key]


def left_widest(c):
    return max(1 - max(level for _, level in device_levels(c, rank)) / capacity(c) for rank in c.run.ranks)


# --- hangs and ends

def issued(c):
    """The rows of the call that hangs, of the ranks that issued it; of a graph, those that launched it."""
    seq, comm = re.search(r"seq (\d+).*? on communicator (\w+)", c.finding["statement"]).groups()
    if "of the CUDA graph" in c.finding["statement"]:
        ended = c.run.value("SELECT max(replay) FROM collective")
        launched = c.run.rows("SELECT rank, max(time_ns) AS issue_ns, count(*) AS launches FROM launch GROUP BY rank")
        most = max(row["launches"] for row in launched)
        return [{**row, "seq": int(seq), "replay": ended + 1} for row in launched if row["launches"] == most]
    return c.run.rows("SELECT * FROM collective WHERE seq = ? AND comm LIKE ? || '%' AND op <> 'Recv'", int(seq), comm)


def end_ns(c):
    conditions = c.run.report["conditions"]
    return conditions["start_ns"] + conditions["duration_ns"]


def waiting(c):
    """Since the first of them issued it."""
    return end_ns(c) - min(row["issue_ns"] for row in issued(c))


def last_call(c):
    """The last one of the rank that is missing."""
    captured = "captured IS NOT NULL" if "launched this graph" in c.finding["evidence"] else "captured IS NULL"
    return c.run.rows(f"SELECT * FROM collective WHERE rank = ? AND {captured} ORDER BY issue_ns DESC, seq DESC", c.rank)[0]


def launched_since(c):
    """When it launched what came after that call, whose own launch is not counted."""
    call = last_call(c)
    return [row["time_ns"] for row in c.run.rows("SELECT time_ns FROM launch WHERE rank = ? AND time_ns > ? AND correlation IS NOT ?", c.rank, call["issue_ns"],
                                                 call["correlation"])]


def last_data(c):
    ranks = [rank for rank in c.run.report["ranks"] if rank["cut_off"]]
    return max(rank["start_ns"] + rank["duration_ns"] for rank in ranks) - c.run.report["conditions"]["start_ns"]


def steady_ns(c):
    return sum(row["total_ns"] for row in c.run.records()) / len(c.run.ranks)


def names_of(column, table="collective"):
    return lambda c: {str(value) for row in c.run.rows(f"SELECT DISTINCT {column} AS value FROM {table}") for value in row.values()}


# --- steps of the run

def of_late_launches_since(c):
    return tuple(ns * c.run.counted / len(c.since) for ns in of_late_launches(c))


def distance(c):
    """From one late step to the next stretch of them."""
    late = c.late
    firsts = [step for step in late if step - 1 not in late]
    return {b - a for a, b in zip(firsts, firsts[1:])}


def of_step(part):
    return lambda c: c.run.mean(part) / c.run.step_ns


def gemm_share(c):
    return c.run.value("SELECT 1.0 * sum((class IN ('gemm', 'convolution', 'attention')) * (end_ns - start_ns)) / sum(end_ns - start_ns) FROM kernel")


def pageable(c):
    return c.run.rows("SELECT memcpy.* FROM memcpy JOIN step USING (rank, step) WHERE NOT warmup AND direction = 'h2d' AND src_memory = 'pageable'")


def recorded_ns(c):
    return c.run.report["conditions"]["duration_ns"]


def window(c):
    """What the steps of a window of levels leak: the last window begins some steps before the run ends."""
    return (2 * len(c.run.numbers) // 48 + 3) * growth(c)


def tensor_levels(c):
    """(the most, what is held between the last steps) of PyTorch's tensors."""
    changes = [(row["time_ns"], 1, row["bytes"]) for row in c.run.rows("SELECT time_ns, bytes FROM tensor WHERE rank = ?", c.rank)]
    changes += [(row["time_ns"], 0, -row["bytes"]) for row in c.run.rows("SELECT time_ns, bytes FROM tensor_free WHERE rank = ?", c.rank)]
    level, levels = 0, []
    for _, _, by in sorted(changes):
        level += by
        levels.append(level)
    return max(levels), level


def own_mean(kernel):
    return lambda c: c.run.kernel_means(c.said[kernel])[c.rank]
