"""Holds what was captured against what the simulated node scheduled.

Both come as JSON records with the same field names. Everything that happened must have been captured once, with equal values; host times of allocations and
of calls, which each side takes with its own clock reading, are compared by their order.
"""
import json
import os
from collections import Counter, defaultdict

# The fields of a line of the export, by kind: generated from proto/gpuprobe/v1/wire.proto.
with open(os.path.join(os.environ["GPUPROBE_BUILD_DIR"], "proto", "gen", "gpuprobe", "v1", "wire_lines.json"), encoding="utf-8") as file:
    LINES = json.load(file)
# The kinds of records that the simulated node writes, and what is not held against its log: names that the program gave, who saw a call, when each side
# says that it was made, and the number that each side gives a plan (plan_differences) or a replay of a captured call.
KINDS = ("kernel", "memcpy", "memset", "sync", "overhead", "collective")
NOT_COMPARED = {"device_name", "stream_name", "source", "issue_ns", "plan", "result", "algorithm", "protocol", "channels", "captured", "reduction"}
COMPARED = {kind: ("pid", "rank", *(field for field in LINES[kind] if field not in NOT_COMPARED)) for kind in KINDS}
COMPARED["collective"] += ("refused",)  # with_refusals
COMPARED["sync"] = tuple(field for field in COMPARED["sync"] if field != "stream")  # a wait for an event has none; the node logs where the event was
ALLOCATION = ("kind", *(field for field in LINES["alloc"] if field not in ("time_ns", "by_nccl")))  # compared by their order


def frozen(record, fields):
    return tuple(tuple(value) if isinstance(value := record.get(field), list) else value for field in fields)


def by_kind(records):
    kinds = defaultdict(list)
    for record in records:
        kinds[record["kind"]].append(record)
    return kinds


def multiset_difference(kind, fields, truth, captured):
    """Lines that say what differs; none when equal."""
    expected = Counter(frozen(record, fields) for record in truth)
    found = Counter(frozen(record, fields) for record in captured)
    lines = [f"{kind}: {sum(expected.values())} happened, {sum(found.values())} captured"] if expected != found else []
    for title, difference in (("not captured", expected - found), ("captured but did not happen", found - expected)):
        for values, count in list(difference.items())[:4]:
            lines.append(f"  {title}{f' ({count} x)' if count > 1 else ''}: " + ", ".join(f"{f}={v}" for f, v in zip(fields, values)))
    return lines


def in_order(records):
    """One process's allocations and releases by time. The end of a context releases many at once, in no order: a row of releases goes by address."""
    ordered, releases = [], []
    for record in sorted(records, key=lambda r: r["time_ns"]):
        if record["kind"] == "free":
            releases.append(record)
            continue
        ordered += sorted(releases, key=lambda r: (r["memory"], r["address"], r["bytes"])) + [record]
        releases = []
    return ordered + sorted(releases, key=lambda r: (r["memory"], r["address"], r["bytes"]))


def without_array_addresses(records):
    """The node logs where an array's memory is, a program only sees its handle: each becomes the number of its allocation."""
    numbers, count, out = {}, 0, []
    for record in records:
        record = dict(record, failed=bool(record.get("failed")))
        if record["failed"]:
            record["address"] = 0
        elif record["memory"] == "array":
            if record["kind"] == "alloc":
                count += 1
                numbers[record["address"]] = count
            record["address"] = numbers.get(record["address"], 0)
        out.append(record)
    return out


def allocation_differences(truth, captured):
    """Allocations and frees of each process on each device, in their order. Threads on several devices have no common one, and neither has a thread that pins
    the host's memory beside them."""
    def place(record):
        return record["pid"], record["device"], record["memory"] == "pinned"

    lines = []
    for pid, device, pinned in sorted({place(record) for record in truth + captured}):
        expected, found = ([frozen(r, ALLOCATION) for r in in_order(without_array_addresses(sorted(
            (r for r in side if place(r) == (pid, device, pinned)), key=lambda r: r["time_ns"])))] for side in (truth, captured))
        if expected == found:
            continue
        lines.append(f"allocations of process {pid} on device {device}{', pinned' if pinned else ''}: {len(expected)} happened, {len(found)} captured")
        for i in range(max(len(expected), len(found))):
            pair = (expected[i] if i < len(expected) else None, found[i] if i < len(found) else None)
            if pair[0] != pair[1]:
                lines.append(f"  number {i}: happened {pair[0]}, captured {pair[1]}")
                break
    return lines


def plan_differences(truth, captured):
    """Plans are numbered by each side as it likes (each copy of NCCL anew); which calls of a communicator share one must agree."""
    def partition(records):
        plans = defaultdict(set)
        for record in records:
            plan = (record["pid"], record["comm"], record["plan"], record.get("replay"))
            plans[plan].add((record["comm"], record["seq"], record["op"], record["peer"], record.get("correlation")))
        return {frozenset(calls) for calls in plans.values()}
    expected, found = partition(truth), partition(captured)
    return [f"plans: {len(expected - found)} of {len(expected)} have other calls than captured, for example {sorted(next(iter(expected - found)))}"] \
        if expected - found else []


IN_PROGRESS = 7


def with_refusals(call):
    """NCCL's answer counts where it is an error: that of a communicator that does not block comes before the call is done."""
    return {**call, "refused": result} if (result := call.get("result", 0)) not in (0, IN_PROGRESS) else call


def reduction_differences(truth, captured):
    """Each call that a wrapper saw has its reduction; NCCL does not tell its plugin."""
    seen = [call for call in captured if call["source"] in ("interposed", "relocation")]
    call = lambda record: (record["pid"], record["comm"], record["comm_rank"], record["op"], record["seq"])
    found = {call(record) for record in seen}
    once = lambda records: [dict(zip(("call", "reduction"), pair)) for pair in sorted({(call(record), record.get("reduction", "")) for record in records})]
    return multiset_difference("reductions", ("call", "reduction"), once(record for record in truth if call(record) in found), once(seen))


def launched_nothing(call):
    """Without elements, on a communicator of one rank, refused, or captured (then its replays have kernels): the call itself has none."""
    return call.get("start_ns") is None


COMMUNICATOR = ("pid", "rank", "comm", "parent", "comm_name", "comm_rank", "comm_ranks", "device", "state")


def communicator_differences(truth, captured):
    """What became of communicators, where wrappers see them made and ended. One that was made in a group with others of its size may have NCCL's name only from its first
    call on."""
    def communicators(side):
        called = {record["comm"] for record in side if record["kind"] == "collective"}
        return [record if record["comm"] in called and record["state"] != "created" else {**record, "comm": ""} for record in side if record["kind"] == "communicator"]
    return multiset_difference("communicator", COMMUNICATOR, communicators(truth), communicators(captured))


def told_by_nccl_alone(pid, calls):
    """Where no wrapper sees the calls, nobody tells of those that launch nothing: NCCL's plugin interface has no event for them."""
    return {call["source"] for call in calls if call["pid"] == pid} <= {"plugin", "kernel_name"}


# How far the two clocks of one process may be apart: the injector reads the processor's counter, the node asks the kernel.
CLOCK_NS = 100_000

# A call is recorded if it took 20 us between the probe's own two readings of the clock, which lie outside of the function's work and inside of what the node
# logs as the whole call. Work that took longer than this was a recorded call.
SLOW_CALL_NS = 20_000 + 5_000


def driver_call_differences(truth, captured):
    """Slow calls of the driver's functions: each that was captured happened, at that time, and none that is surely slow is missing."""
    def calls(side, *order):
        threads = defaultdict(list)
        for record in sorted((r for r in side if r["kind"] == "driver_call"), key=lambda r: [r[field] for field in order]):
            threads[(record["pid"], record["tid"], record["function"], record.get("result", 0))].append(record)
        return threads
    lines = []
    happened, found = calls(truth, "start_ns"), calls(captured, "start_ns")
    for key in sorted(happened.keys() | found.keys()):
        left = happened.get(key, [])
        for call in found.get(key, []):
            # The nearest: a thread may make several such calls within the error of the clocks.
            apart = lambda r: abs(r["start_ns"] - call["start_ns"]) + abs(r["end_ns"] - call["end_ns"])
            same = min((r for r in left if r["began_ns"] - CLOCK_NS <= call["start_ns"] <= r["start_ns"] + CLOCK_NS
                        and r["end_ns"] - CLOCK_NS <= call["end_ns"] <= r["left_ns"] + CLOCK_NS), key=apart, default=None)
            if same is None:
                lines.append(f"driver call captured but did not happen: {call}")
            else:
                left.remove(same)
        lines += [f"driver call not captured: {call}" for call in left if call["end_ns"] - call["start_ns"] >= SLOW_CALL_NS]
    return lines[:8]


def launch_differences(truth, captured):
    """Every piece of work was launched once, by the thread that did it, and before the driver had it."""
    launches = defaultdict(list)
    for record in captured:
        if record["kind"] == "launch":
            launches[(record["pid"], record["correlation"])].append(record)
    if not launches:
        return []  # not recorded
    lines = []
    for record in truth:
        if record["kind"] not in ("kernel", "memcpy", "memset"):
            continue
        found = launches.get((record["pid"], record["correlation"]), [])
        if [launch["tid"] for launch in found] != [record["tid"]]:
            lines.append(f"launch {record['correlation']} of process {record['pid']}: thread {record['tid']} did it, captured {found}")
        elif found[0]["time_ns"] > record["issue_ns"] + CLOCK_NS:
            lines.append(f"launch {record['correlation']} of process {record['pid']}: captured {found[0]['time_ns'] - record['issue_ns']} ns after it was made")
    return lines[:4]


def by_names_of(captured, truth):
    """The truth, with each communicator renamed to what it was captured as: an NCCL without a profiler plugin does not tell its names. Two
    communicators of the truth must not have been captured under one name."""
    key = lambda record: (record["pid"], record.get("correlation"), record["op"], record.get("seq"), record.get("peer"), record.get("replay"))
    seen = {key(record): record["comm"] for record in captured if record["kind"] == "collective" and "start_ns" in record}
    names = {}
    for record in truth:
        if record["kind"] == "collective" and key(record) in seen:
            names.setdefault(record["comm"], seen[key(record)])
    if len(set(names.values())) != len(names):
        return truth  # what is confused shows as it is
    return [{**record, **{field: names.get(record[field], record[field]) for field in ("comm", "parent") if field in record}} for record in truth]


def without_names_of_one_rank(records):
    """NCCL tells its plugin of a communicator of one rank when it makes it, and of none of its calls: which of several, made in one group, it is stays unknown, and so
    does its name before version 4 of the interface."""
    def without(record):
        if record["kind"] not in ("collective", "communicator") or record.get("comm_ranks") != 1:
            return record
        return {**record, **{field: "" for field in ("comm", "parent") if field in record}}
    return [without(record) for record in records]


def differences(truth, captured, real_nccl=False, untold_names=False):
    """`real_nccl`: which allocates on threads of its own, so that their order is nobody's. `untold_names`: the probe has its own for communicators."""
    if untold_names:
        truth = by_names_of(captured, truth)
    expected, found = by_kind(truth), by_kind(captured)
    found["collective"] = [call for call in found["collective"] if not call.get("captured")]  # the node tells of the replays alone
    unseen = {pid for pid in {call["pid"] for call in found["collective"]} if told_by_nccl_alone(pid, found["collective"])}
    expected["collective"] = [call for call in expected["collective"] if not (launched_nothing(call) and call["pid"] in unseen)]
    expected["collective"], found["collective"] = ([with_refusals(call) for call in side["collective"]] for side in (expected, found))
    lines = []
    for kind, fields in COMPARED.items():
        lines += multiset_difference(kind, fields, expected[kind], found[kind])
    allocations = [side["alloc"] + side["free"] for side in (expected, found)]
    lines += multiset_difference("alloc", ("pid", *ALLOCATION), *allocations) if real_nccl else allocation_differences(*allocations)
    lines += plan_differences(expected["collective"], found["collective"])
    lines += reduction_differences(expected["collective"], found["collective"])
    lines += launch_differences(truth, captured)
    lines += driver_call_differences(truth, captured)
    return lines


# Bytes and factor of the bus bandwidth as nccl-tests defines them; `size` is count times the size of an element, n the ranks.
def bus_factor(op, n):
    if op == "AllReduce":
        return 2 * (n - 1) / n
    if op in ("AllGather", "ReduceScatter", "AlltoAll", "Gather", "Scatter"):
        return (n - 1) / n
    return 1.0


def algorithm_bytes(op, size, n):
    return size * n if op in ("AllGather", "ReduceScatter", "AlltoAll", "Gather", "Scatter") else size


def moved_bytes(calls):
    """Of a plan: bytes for the algorithm and for the bus bandwidth. Its sends and receives overlap, so the larger direction counts."""
    both = defaultdict(lambda: [0, 0])
    for call in calls:
        n, direction = call["comm_ranks"], call["op"] if call["op"] in ("Send", "Recv") else "both"
        size = algorithm_bytes(call["op"], call["bytes"], n)
        both[direction][0] += size
        both[direction][1] += size * bus_factor(call["op"], n)
    one_way = max(both.pop("Send", [0])[0], both.pop("Recv", [0])[0])
    peers = {call["peer"] for call in calls if call["op"] in ("Send", "Recv")}
    n = calls[0]["comm_ranks"]
    factor = (n - 1) / n if len(peers) == n else 1  # itself included
    return one_way + sum(moved[0] for moved in both.values()), one_way * factor + sum(moved[1] for moved in both.values())


def high_water_marks(truth, memory="device"):
    """Bytes of one kind of memory at their highest, by rank."""
    live, peak, sizes = Counter(), Counter(), {}
    for record in sorted((r for r in truth if r["kind"] in ("alloc", "free") and r["memory"] == memory), key=lambda r: r["time_ns"]):
        rank, address = record["rank"], record["address"]
        if record.get("failed"):
            continue
        if record["kind"] == "alloc":
            sizes[(rank, address)] = record["bytes"]
            live[rank] += record["bytes"]
            peak[rank] = max(peak[rank], live[rank])
        else:
            live[rank] -= sizes.pop((rank, address))
    return dict(peak)


def live_allocations(truth, until_ns):
    """What was there at a time, by (rank, kind): bytes of each allocation, largest first."""
    live = {}
    for record in sorted((r for r in truth if r["kind"] in ("alloc", "free")), key=lambda r: r["time_ns"]):
        if record["time_ns"] > until_ns or record.get("failed"):
            continue
        key = (record["rank"], record["memory"], record["address"])
        if record["kind"] == "alloc":
            live[key] = record["bytes"]
        else:
            live.pop(key)
    found = defaultdict(list)
    for (rank, memory, _), size in live.items():
        found[(rank, memory)].append(size)
    return {key: sorted(sizes, reverse=True) for key, sizes in found.items()}
